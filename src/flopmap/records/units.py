"""Units of formulas: what a formula comes out in, and whether its parts fit together."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

from flopmap.records.formula import COMPARE, FormulaError
from flopmap.records.notation import Expr, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Dimension: TypeAlias = "dict[str, Fraction]"


def unit_dimension(unit: str, counts: Iterable[str]) -> Dimension:
    """The dimension of a unit such as ``byte/s`` or ``FLOP``. ``counts`` are the words that stand for a pure number."""
    powers: dict[str, Fraction] = {}
    sign = 1
    for word in unit.replace("*", " * ").replace("/", " / ").split():
        if word in "*/":
            sign = 1 if word == "*" else -1
        elif word != "1" and word not in counts:
            powers[word] = powers.get(word, Fraction(0)) + sign
    return {word: power for word, power in powers.items() if power}


def dimension(expr: Expr, units: Mapping[str, Dimension]) -> Dimension:
    """The dimension of a formula. Raises :class:`FormulaError` on an unknown symbol or a sum of unlike things."""
    if isinstance(expr, str):
        if expr not in units:
            raise FormulaError(f"unknown symbol {expr!r}")
        return units[expr]
    if not isinstance(expr, tuple):
        return {}
    operator, *operands = expr
    of = [dimension(operand, units) for operand in operands]
    if operator in ("*", "/", "//"):
        sign = 1 if operator == "*" else -1
        merged = {word: of[0].get(word, Fraction(0)) + sign * of[1].get(word, Fraction(0)) for word in {*of[0], *of[1]}}
        return {word: power for word, power in merged.items() if power}
    if operator in ("**", "sqrt"):
        return _power_dimension(operator, operands, of)
    if operator == "log2":
        if of[0]:
            raise FormulaError(f"log2 takes a pure number, {text(operands[0])} is in {unit_text(of[0])}")
        return {}
    return _like(operator, operands, of)


def _power_dimension(operator: str, operands: list[Expr], of: list[Dimension]) -> Dimension:
    exponent = Fraction(1, 2) if operator == "sqrt" else operands[1]
    if operator == "**" and of[1]:
        raise FormulaError(f"an exponent is a pure number, {text(operands[1])} is in {unit_text(of[1])}")
    if not of[0]:
        return {}
    if not isinstance(exponent, int | Fraction):
        raise FormulaError(f"{text(operands[0])} has a unit, so its exponent must be a whole number")
    return {word: power * exponent for word, power in of[0].items() if exponent}


def _like(operator: str, operands: list[Expr], of: list[Dimension]) -> Dimension:
    """Sums, comparisons, minima: all operands must have one dimension. A literal 0 fits anything."""
    alike = list(zip(operands, of, strict=True))[1 if operator == "where" else 0 :]
    known = [found for operand, found in alike if operand != 0] or [{}]
    for other in known[1:]:
        if other != known[0]:
            raise FormulaError(
                f"{operator} joins {unit_text(known[0])} with {unit_text(other)} in {text((operator, *operands))}"
            )
    return {} if operator in COMPARE.values() else known[0]


def unit_text(dimension: Dimension) -> str:
    """A dimension as people write it: ``byte/s``; ``a pure number`` for none."""
    if not dimension:
        return "a pure number"
    over = "*".join(_unit_power(word, power) for word, power in sorted(dimension.items()) if power > 0)
    under = "".join(f"/{_unit_power(word, -power)}" for word, power in sorted(dimension.items()) if power < 0)
    return (over or "1") + under


def _unit_power(word: str, power: Fraction) -> str:
    return word if power == 1 else f"{word}^{power}"
