"""Shorter forms of a formula, for array evaluation: like terms are collected, and dominated maxima are dropped.

A step's costs are sums of products of few statistics, and its times maxima of such sums. Collected, the operation
floor of a model with dozens of ops is a handful of terms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from flopmap.records.formula import operate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flopmap.records.notation import Expr

# A sum of monomials: coefficient by the sorted factors of the monomial; a factor is a symbol or an opaque tree.
Sum: TypeAlias = "dict[tuple[Expr, ...], float]"
MAX_TERMS = 24


def simplify(expr: Expr, nonnegative: Iterable[str] = ()) -> Expr:
    """An equal formula with like terms collected. ``nonnegative`` symbols let a maximum drop what it dominates."""
    return _tree(_collect(expr, frozenset(nonnegative)))


def polynomial(expr: Expr, symbol: str) -> tuple[float, ...] | None:
    """Coefficients by rising power of a symbol that is never negative; None for what is no polynomial of it."""
    terms = _collect(expr, frozenset((symbol,)))
    if any(factor != symbol for factors in terms for factor in factors):
        return None
    by_power = {len(factors): number for factors, number in terms.items()}
    return tuple(by_power.get(power, 0.0) for power in range(max(by_power, default=0) + 1))


def _collect(expr: Expr, nonnegative: frozenset[str]) -> Sum:
    """The formula as a sum of monomials; what is no sum or product stays an opaque factor."""
    if isinstance(expr, int | float):
        return {(): expr} if expr else {}
    if isinstance(expr, str):
        return {(expr,): 1}
    operator, *operands = expr
    if operator in ("+", "-"):
        sign = 1 if operator == "+" else -1
        return _plus(_collect(operands[0], nonnegative), _collect(operands[1], nonnegative), sign)
    if operator == "neg":
        return _plus({}, _collect(operands[0], nonnegative), -1)
    if operator == "*":
        return _times(_collect(operands[0], nonnegative), _collect(operands[1], nonnegative))
    if operator == "/" and isinstance(operands[1], int | float) and operands[1]:
        return {factors: number / operands[1] for factors, number in _collect(operands[0], nonnegative).items()}
    if operator == "max":
        return _maximum([_collect(operand, nonnegative) for operand in operands], nonnegative)
    if operator == "min":
        sums = [_collect(operand, nonnegative) for operand in operands]
        least = [one for one in sums if all(_dominates(other, one, nonnegative) for other in sums)]
        if least:
            return least[0]
    parts = (_tree(_collect(operand, nonnegative)) for operand in operands)
    return _collect_opaque(operate(operator, *parts))


def _collect_opaque(expr: Expr) -> Sum:
    if isinstance(expr, int | float):
        return {(): expr} if expr else {}
    return {(expr,): 1}


def _plus(left: Sum, right: Sum, sign: int) -> Sum:
    merged = dict(left)
    for factors, number in right.items():
        merged[factors] = merged.get(factors, 0) + sign * number
    return {factors: number for factors, number in merged.items() if number}


def _times(left: Sum, right: Sum) -> Sum:
    if len(left) * len(right) > MAX_TERMS:
        return _collect_opaque(operate("*", _tree(left), _tree(right)))
    product: Sum = {}
    for factors, number in left.items():
        for others, other in right.items():
            key = tuple(sorted((*factors, *others), key=repr))
            product[key] = product.get(key, 0) + number * other
    return product


def _maximum(sums: list[Sum], nonnegative: frozenset[str]) -> Sum:
    """The maximum, without the operands that another one is never below. A maximum of maxima is one maximum."""
    flat: list[Sum] = []
    for candidate in [part for operand in sums for part in _operands(operand, nonnegative)]:
        if any(_dominates(kept, candidate, nonnegative) for kept in flat):
            continue
        flat = [kept for kept in flat if not _dominates(candidate, kept, nonnegative)] + [candidate]
    if len(flat) == 1:
        return flat[0]
    first, *others = sorted((_tree(kept) for kept in flat), key=repr)
    for other in others:
        first = ("max", first, other)
    return {(first,): 1}


def _operands(terms: Sum, nonnegative: frozenset[str]) -> list[Sum]:
    """The operands of a sum that is just a maximum, else the sum itself."""
    (factors, number), *more = terms.items() or [((), 0)]
    if more or number != 1 or len(factors) != 1 or not isinstance(factors[0], tuple) or factors[0][0] != "max":
        return [terms]
    return [part for tree in factors[0][1:] for part in _operands(_collect(tree, nonnegative), nonnegative)]


def _dominates(high: Sum, low: Sum, nonnegative: frozenset[str]) -> bool:
    """Whether ``high - low`` is a sum of terms that are never negative."""
    difference = _plus(high, low, -1)
    return all(
        number >= 0 and all(_never_negative(factor, nonnegative) for factor in factors)
        for factors, number in difference.items()
    )


def _never_negative(expr: Expr, nonnegative: frozenset[str]) -> bool:
    if isinstance(expr, int | float):
        return expr >= 0
    if isinstance(expr, str):
        return expr in nonnegative
    operator, *operands = expr
    return operator in ("+", "*", "/", "min", "max") and all(_never_negative(part, nonnegative) for part in operands)


def _tree(terms: Sum) -> Expr:
    """The sum written out, each monomial as its coefficient times its factors, a shared factor drawn out."""
    result: Expr = 0
    for factors, number in sorted(terms.items(), key=lambda item: repr(item[0])):
        term: Expr = number
        for factor in factors:
            term = operate("*", term, factor)
        result = operate("+", result, term)
    return result
