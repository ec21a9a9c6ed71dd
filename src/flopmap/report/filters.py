"""Filters over parts: ``bandwidth>3TB/s``, ``dtype:fp8``, ``vendor:amd``."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from flopmap.machine.machine import dtypes, matrix_peak, on_chip_bytes
from flopmap.quantity import QuantityError, parse_amount, shown
from flopmap.step import ScenarioError

if TYPE_CHECKING:
    from collections.abc import Callable

    from flopmap.records.types import Figure, Part

SIGNS = {">=": operator.ge, "<=": operator.le, "!=": operator.ne, ">": operator.gt, "<": operator.lt, "=": operator.eq}
TYPES = tuple(dict.fromkeys(("bf16", "fp16", "fp8", "fp6", "fp4", "int8", "int4", "tf32", "fp32", "fp64")))


def _value(figure: Figure | None) -> float | None:
    return figure.value if figure else None


def _peak(dtype: str) -> Callable[[Part], float | None]:
    def of(part: Part) -> float | None:
        peak = matrix_peak(part, dtype)
        return peak.value if peak else None

    return of


def _ridge(part: Part) -> float | None:
    peak = _peak("bf16")(part) or _peak("fp16")(part)
    return peak / part.bandwidth_bytes_per_second.value if peak else None


NUMBERS: dict[str, tuple[str, Callable[[Part], float | None]]] = {
    "bandwidth": ("B/s", lambda part: part.bandwidth_bytes_per_second.value),
    "capacity": ("B", lambda part: part.capacity_bytes.value),
    "on-chip": ("B", lambda part: on_chip_bytes(part) or None),
    "power": ("W", lambda part: _value(part.power_watts)),
    "units": ("", lambda part: _value(part.compute_units)),
    "clock": ("Hz", lambda part: _value(part.clock_hz.rated) if part.clock_hz else None),
    "exp": ("op/s", lambda part: _value(part.exp_per_second)),
    "link": ("B/s", lambda part: max((link.value for link in part.links), default=None)),
    "domain": ("", lambda part: max((link.domain for link in part.links), default=1)),
    "host-link": ("B/s", lambda part: _value(part.host_link_bytes_per_second)),
    "price": ("", lambda part: min((price.value for price in part.prices_usd if price.per == "hour"), default=None)),
    "ridge": ("", _ridge),
    "confidence": ("", lambda part: part.confidence),
    **{dtype: ("FLOP/s", _peak(dtype)) for dtype in TYPES},
}
WORDS: dict[str, Callable[[Part], list[str]]] = {
    "dtype": dtypes,
    "vendor": lambda part: [part.vendor],
    "kind": lambda part: [part.kind],
    "architecture": lambda part: [part.architecture, *part.architecture.split()],
    "isa": lambda part: [part.isa],
    "memory": lambda part: [part.memory_type, *part.memory_type.replace(",", " ").split()],
    "status": lambda part: [part.status],
    "link": lambda part: [link.name for link in part.links] + [link.name.split()[0] for link in part.links],
}


def is_filter(text: str) -> bool:
    """Whether an argument is a filter rather than a name."""
    return ":" in text or any(sign in text for sign in SIGNS)


def read_filter(text: str, parts: list[Part]) -> Callable[[Part], bool]:
    """A filter as a predicate. Raises :class:`ScenarioError` that names what is wrong and what is accepted."""
    for sign, compare in SIGNS.items():
        field, found, number = text.partition(sign)
        if found:
            return _comparison(text, field.strip().lower(), compare, number.strip())
    field, _, word = text.partition(":")
    field, word = field.strip().lower(), word.strip().lower()
    import difflib

    if field not in WORDS:
        raise ScenarioError(f"{shown(text)}: {_unknown(field, list(WORDS))}")
    known = sorted({value for part in parts for value in WORDS[field](part) if value}, key=str.lower)
    if word not in {value.lower() for value in known}:
        close = difflib.get_close_matches(word, {value.lower(): None for value in known}, n=3) or known[:12]
        raise ScenarioError(f"{shown(text)}: no part has {field} {shown(word)} (nearest: {', '.join(close)})")
    return lambda part: word in {value.lower() for value in WORDS[field](part)}


def _comparison(text: str, field: str, compare: Callable[[float, float], bool], number: str) -> Callable[[Part], bool]:
    if field not in NUMBERS:
        raise ScenarioError(f"{shown(text)}: {_unknown(field, list(NUMBERS))}")
    unit, of = NUMBERS[field]
    try:
        bound = parse_amount(number, unit)
    except QuantityError as error:
        raise ScenarioError(f"{shown(text)}: {error}") from None

    def holds(part: Part) -> bool:
        found = of(part)
        return found is not None and compare(found, bound)

    return holds


def _unknown(field: str, known: list[str]) -> str:
    import difflib

    close = difflib.get_close_matches(field, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"accepted: {', '.join(known)}"
    return f"unknown field {shown(field)} ({hint})"
