"""Where one quantity overtakes another along an axis: exactly for polynomials of low degree, else bracketed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from flopmap.records.affine import polynomial
from flopmap.records.formula import array_namespace, bind, code, compiled, operate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flopmap.records.notation import Expr

AXIS = "x"
BEYOND = "_beyond"  # the axis counts from 1: x is 1 and what lies beyond
FURTHEST = 1e12
EVERY = 1024  # whole points up to here are all looked at, later ones at ratios of NEXT
NEXT = 1.002
MOST = 4
QUADRATIC = 2
HALVINGS = 100
STEP = 1e-4


class Flip(msgspec.Struct, frozen=True, kw_only=True):
    """A point of an axis where the larger of two quantities changes.

    ``sensitivity``: by how many percent the point moves when their ratio changes by one percent.
    """

    at: float
    sensitivity: float


class Solved(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the first of two quantities is the larger at 1, and where that changes, in order; no flips is never.

    ``exact``: from the closed form of a polynomial; else points are found between neighbours of a fine grid.
    """

    first_leads: bool
    flips: tuple[Flip, ...]
    exact: bool


def solve(first: Expr, second: Expr, furthest: float = FURTHEST) -> Solved:
    """Where the larger of two formulas of :data:`AXIS` changes, between 1 and ``furthest``."""
    shifted = {AXIS: operate("+", 1, BEYOND)}
    terms = polynomial(operate("-", bind(first, shifted), bind(second, shifted)), BEYOND)
    pair = compiled(code((first, second), (AXIS,)))

    def difference(x: float) -> float:
        left, right = pair(x)
        return float(left - right)

    if terms is not None and len(terms) <= QUADRATIC + 1:
        points, exact = [1 + root for root in _roots(terms) if 1 + root <= furthest], True
        leads = next((number > 0 for number in terms if number), False)
    else:
        points, leads = _bracketed(first, second, difference, furthest)
        exact = False
    found = [Flip(at=point, sensitivity=_sensitivity(pair, point)) for point in points[:MOST]]
    return Solved(first_leads=leads, flips=tuple(found), exact=exact)


def _roots(terms: Sequence[float]) -> list[float]:
    """The positive roots of a polynomial of degree 2 at most at which its sign changes, in order."""
    constant, slope, curve = (*terms, 0.0, 0.0)[: QUADRATIC + 1]
    if curve == 0:
        return [-constant / slope] if slope and constant * slope < 0 else []
    inside = slope * slope - 4 * curve * constant
    if inside <= 0:
        return []
    far = -(slope + math.copysign(math.sqrt(inside), slope)) / 2  # no two like numbers are subtracted
    return sorted(root for root in {far / curve, constant / far if far else 0.0} if root > 0)


def _bracketed(
    first: Expr, second: Expr, difference: Callable[[float], float], furthest: float
) -> tuple[list[float], bool]:
    import numpy as np

    steps = math.ceil(math.log(max(furthest / EVERY, NEXT)) / math.log(NEXT)) + 1
    points = np.concatenate([np.arange(1.0, EVERY), np.geomspace(EVERY, max(furthest, EVERY + 1), steps)])
    points = points[points <= furthest]
    left, right = compiled(code((first, second), (AXIS,)), array_namespace())(points)
    signs = np.sign(np.broadcast_to(left - right, points.shape))
    decided = np.flatnonzero(signs)
    points, signs = points[decided], signs[decided]
    places = np.flatnonzero(signs[1:] != signs[:-1])[:MOST]
    leads = bool(len(signs) and signs[0] > 0)
    return [_between(difference, float(points[place]), float(points[place + 1])) for place in places], leads


def _between(difference: Callable[[float], float], low: float, high: float) -> float:
    """The point between two of unlike sign at which the sign changes."""
    rising = difference(low) < 0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if (difference(middle) < 0) == rising:
            low = middle
        else:
            high = middle
    return high


def _sensitivity(pair: Callable[[float], tuple[float, float]], at: float) -> float:
    """The elasticity of a crossing to the ratio, as an implicit function; infinite where both run side by side."""
    below, above = pair(at * (1 - STEP)), pair(at * (1 + STEP))
    apart = (above[0] - above[1]) - (below[0] - below[1])
    return abs(pair(at)[1] * 2 * STEP / apart) if apart else math.inf


def first_whole(flips_before: Callable[[int], bool], low: int, high: int) -> int | None:
    """The least whole number in ``(low, high]`` at which a predicate differs from what it is at ``low``, or None.

    Looked for at doubling distances, then by halving: a predicate that flips twice within a doubling is not seen.
    """
    start, left = flips_before(low), low
    while left < high:
        right = min(2 * left, high)
        if flips_before(right) != start:
            while right - left > 1:
                middle = (left + right) // 2
                left, right = (middle, right) if flips_before(middle) == start else (left, middle)
            return right
        left = right
    return None
