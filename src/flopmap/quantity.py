"""Units at the edge: reading sizes, times and rates as people type them, and writing numbers as people read them.

GB is 1e9 bytes and GiB is 2**30. For token counts ``8k`` is 8192, as context lengths are named.
"""

from __future__ import annotations

import math

SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
TOKENS = {"": 1, "k": 1024, "m": 1024**2}
FIGURES = 4
MOST_DECIMALS = 6
PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


SPEEDS = ("", "tok/s", "token/s", "tokens/s", "t/s")
UNIT_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZµ/ "
LARGEST_COUNT = 1e18
SIDES = 2
LONGEST_SHOWN = 60


class QuantityError(ValueError):
    """A quantity that cannot be read. One line, with what would be accepted."""


def parse_count(text: str) -> int:
    """A count of tokens or sequences: ``2048``, ``8k`` (8192), ``1m`` (1048576)."""
    number, unit = _split(text)
    if number is None or unit.lower() not in TOKENS:
        raise QuantityError(f"{shown(text)} is not a count (accepted: 2048, 8k, 1m)")
    number *= TOKENS[unit.lower()]
    if not number < LARGEST_COUNT or number != math.floor(number):
        raise QuantityError(f"{shown(text)} is not a whole count (accepted: 2048, 8k, 1m)")
    return int(number)


def parse_seconds(text: str) -> float:
    """A time: ``28ms``, ``1.2s``, ``350us``. A bare number has no unit and is refused."""
    number, unit = _split(text)
    if number is None or unit not in SECONDS:
        raise QuantityError(f"{shown(text)} is not a time (accepted: 28ms, 1.2s, 350us)")
    return _positive(text, number * SECONDS[unit])


def parse_number(text: str) -> float:
    """A positive number without a unit, such as ``12.5``."""
    number, unit = _split(text)
    if number is None or unit:
        raise QuantityError(f"{shown(text)} is not a number (accepted: 30, 12.5)")
    return _positive(text, number)


def parse_tokens_per_second(text: str) -> float:
    """A throughput in tokens per second: ``227.8`` or ``227.8tok/s``."""
    number, unit = _split(text)
    if number is None or unit not in SPEEDS:
        raise QuantityError(f"{shown(text)} is not a throughput in tokens per second (accepted: 227.8, 227.8tok/s)")
    return _positive(text, number)


def parse_amount(text: str, unit: str) -> float:
    """An amount in a unit, with a prefix or without: ``3TB/s``, ``80GiB``, ``1PFLOP/s``; no unit for a pure number."""
    number, found = _split(text)
    accepted = f"80G{unit}, 80Gi{unit}" if unit == "B" else f"3T{unit}" if unit else "3.5"
    spelt = {"FLOP/s": ("FLOP/s", "FLOPS", "OP/s", "OPS")}.get(unit, (unit,))
    scale = next((_scale(found[: len(found) - len(word)]) for word in spelt if found.endswith(word)), None)
    if number is None or scale is None or (scale != 1 and not unit) or (not found and unit):
        what = f"an amount in {unit}" if unit else "a number"
        raise QuantityError(f"{shown(text)} is not {what} (accepted: {accepted})")
    return _positive(text, number * scale)


def _scale(prefix: str) -> float | None:
    decimal = {"": 1.0, **{letter: factor for factor, letter in PREFIXES}}
    binary = {f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTP", 1)}
    return (decimal | binary).get(prefix)


def _split(text: str) -> tuple[float | None, str]:
    """A number without sign and the unit behind it; None for what is no number. (Regular expressions start slowly.)."""
    whole = text.strip()
    digits = whole.rstrip(UNIT_CHARACTERS)
    unit = whole[len(digits) :].strip()
    digits = digits.strip()
    if not digits or digits[0] not in "0123456789." or not set(digits) <= set("0123456789.eE+-"):
        return None, unit
    try:
        return float(digits), unit
    except ValueError:
        return None, unit


def parse_size(text: str) -> tuple[int, int]:
    """Read ``1280x720``: width and height in pixels. Raises :class:`QuantityError`."""
    sides = text.lower().split("x")
    if len(sides) != SIDES or not all(side.isdecimal() and len(side) < LONGEST_SHOWN and int(side) for side in sides):
        raise QuantityError(f"{shown(text)} is not WIDTHxHEIGHT in pixels, such as 1280x720")
    return int(sides[0]), int(sides[1])


def shown(value: object) -> str:
    """A value as an error quotes it: JSON's spelling of true, false and null, and never longer than a line."""
    words = {"True": "true", "False": "false", "None": "null"}
    try:
        quoted = repr(value)
    except ValueError:  # a whole number of too many digits to print
        return "a number of thousands of digits"
    quoted = words.get(quoted, quoted)
    return quoted if len(quoted) <= LONGEST_SHOWN else f"{quoted[: LONGEST_SHOWN - 3]}..."


def _positive(text: str, number: float) -> float:
    if not 0 < number < math.inf:
        raise QuantityError(f"{shown(text)} is not a positive number")
    return number


def seconds(value: float) -> str:
    """A time in the unit that keeps it readable: ``41.8 ms``."""
    value = rounded(value)
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")):
        if abs(value) >= scale:
            return f"{significant(value / scale)} {unit}"
    return "0 s" if value == 0 else f"{value:.3g} s"


def amount(value: float, unit: str) -> str:
    """A number with a decimal prefix: ``140 GB``, ``573 TFLOP``."""
    value = rounded(value)
    for scale, prefix in PREFIXES:
        if abs(value) >= scale:
            return f"{significant(value / scale)} {prefix}{unit}"
    return f"{significant(value)} {unit}"


def rounded(value: float) -> float:
    """A number to four significant figures."""
    return float(f"{value:.{FIGURES}g}")


def significant(value: float) -> str:
    """Four significant figures, without an exponent for what people read."""
    value = rounded(value)
    if value == 0:
        return "0"
    digits = FIGURES - 1 - math.floor(math.log10(abs(value)))
    if not 0 <= digits <= MOST_DECIMALS:
        return f"{value:,.0f}" if digits < 0 else f"{value:.3g}"
    return f"{value:,.{digits}f}"


def percent(share: float) -> str:
    """A share: ``97%``, ``0.4%``."""
    return f"{share * 100:.0f}%" if abs(share) >= 0.1 else f"{share * 100:.1f}%"  # noqa: PLR2004 - a tenth
