"""A figure as a document prints it: its value, its unit, and how exact its digits say that it is.

``41.94 GB`` is any value that rounds to it, ``about 500 x`` any that is within one of its last digit that is not 0,
``25 to 50`` is a range with both ends, and ``above``, ``below``, ``at least``, ``at most`` are one-sided.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import NamedTuple

PREFIXES = {"": 1.0, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
PREFIXES |= {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30}
BASES = {"B": "byte", "FLOP": "FLOP", "MAC": "FLOP", "op": "op", "s": "s", "J": "J"}
SLACK = 1e-9  # of rounding in our own arithmetic
NUMBER = r"-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?"
FIGURE = re.compile(
    rf"(?:(?P<word>about|above|below|at least|at most) )?(?P<low>{NUMBER})"
    rf"(?: to (?P<high>{NUMBER}))?(?: (?P<unit>%|(?!to\b)[A-Za-z][\w/ -]*))?"
)


class Printed(NamedTuple):
    """A printed figure: any value from ``low`` to ``high``, in ``scale`` of ``unit``, which it writes as ``label``.

    A range has no ``value``.
    """

    low: float
    high: float
    value: float | None
    scale: float = 1.0
    unit: str = "1"
    label: str = ""

    def holds(self, ours: float) -> bool:
        """Whether our figure, in SI units, is what is printed."""
        slack = SLACK * abs(ours)
        return self.low * self.scale - slack <= ours <= self.high * self.scale + slack


def read_printed(text: str) -> Printed:
    """Read a printed figure. Raises ValueError with what is accepted."""
    found = FIGURE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a printed figure (accepted: 41.94 GB, about 500 x, 25 to 50, above 295)")
    label = found["unit"] or ""
    low = Decimal(found["low"].replace(",", ""))
    value, half = float(low), _place(low) / 2
    least, most = value - half, value + half
    one: float | None = value
    if found["high"]:
        least, most, one = value, float(found["high"].replace(",", "")), None
    elif found["word"] == "about":
        least, most = value - _place(low.normalize()), value + _place(low.normalize())
    elif found["word"] in ("above", "at least"):
        least, most = value, math.inf
    elif found["word"] in ("below", "at most"):
        least, most = -math.inf, value
    return Printed(least, most, one, *_unit(label), label)


def exactly(value: float) -> Printed:
    """A figure that a formula comes to, which has to be met but for rounding."""
    return Printed(value, value, value)


def _place(number: Decimal) -> float:
    """What one of the last digit is worth."""
    return float(Decimal(1).scaleb(int(number.as_tuple().exponent)))


def _unit(text: str) -> tuple[float, str]:
    """Scale and unit of ``GB/s`` or ``%``. A word that is no unit of ours counts things, and is a pure number."""
    if text == "%":
        return 0.01, "1"
    over, slash, under = text.partition("/")
    for prefix, scale in PREFIXES.items():
        base = BASES.get(over.removeprefix(prefix)) if over.startswith(prefix) else None
        if base:
            under_unit = BASES.get(under, "1")
            return scale, f"{base}/{under_unit}" if slash else base
    return 1.0, f"1/{BASES.get(under, '1')}" if slash else "1"
