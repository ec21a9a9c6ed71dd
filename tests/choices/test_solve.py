"""Where two quantities cross: closed forms and brackets against brute force over a fine grid."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flopmap.choices.solve import AXIS, first_whole, solve
from flopmap.records.affine import polynomial
from flopmap.records.formula import code, compiled, parse

if TYPE_CHECKING:
    from flopmap.records.notation import Expr

LAST = 800
AMOUNTS = st.integers(0, 50)


def brute(first: Expr, second: Expr) -> list[tuple[float, float]]:
    """Neighbours of a grid of step 1/4 between which the larger of two formulas changes."""
    pair = compiled(code((first, second), (AXIS,)))
    points = [1 + number / 4 for number in range(4 * (LAST - 1) + 1)]
    decided = [(x, left > right) for x in points for left, right in [pair(x)] if left != right]
    return [(x, y) for (x, before), (y, after) in pairwise(decided) if before != after]


def same_as_brute(first: Expr, second: Expr) -> None:
    solved = solve(first, second, LAST)
    expected = brute(first, second)
    found = [flip.at for flip in solved.flips]
    assert len(found) == min(len(expected), 4), (found, expected)
    for at, (low, high) in zip(found, expected, strict=False):
        assert low - 1e-6 <= at <= high + 1e-6


@settings(max_examples=40, deadline=None)
@given(AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS)
def test_straight_lines_cross_where_brute_force_sees_them(a: int, b: int, c: int, d: int) -> None:
    first, second = parse(f"{a} + {b} * x"), parse(f"{100 * c} + {d} * x")
    assert solve(first, second).exact
    same_as_brute(first, second)


@settings(max_examples=40, deadline=None)
@given(AMOUNTS, AMOUNTS, AMOUNTS)
def test_a_parabola_crosses_a_line_where_brute_force_sees_it(a: int, b: int, c: int) -> None:
    # attention grows with the square of a prompt, the GEMMs with the prompt
    first, second = parse(f"{a} * x * (x + 1) / 2"), parse(f"{100 * b} * x + {1000 * c}")
    assert solve(first, second).exact
    same_as_brute(first, second)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 40), st.integers(2, 64), st.integers(1, 8), st.integers(1, 50))
def test_the_experts_that_are_touched_cross_where_brute_force_sees_it(
    slope: int, experts: int, chosen: int, size: int
) -> None:
    top_k = min(chosen, experts)
    first = parse(f"{slope} * x")
    second = parse(f"{100 * size} * {experts} * (1 - (1 - {top_k} / {experts}) ** x)")
    same_as_brute(first, second)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 40), st.integers(2, 900), st.integers(0, 4000))
def test_a_window_bends_a_line_where_brute_force_sees_it(slope: int, window: int, fixed: int) -> None:
    same_as_brute(parse(f"{slope} * min(x - 1, {window})"), parse(f"{fixed} + 2 * x"))


def test_no_crossing_is_never() -> None:
    solved = solve(parse("x"), parse("x + 1"))
    assert (solved.flips, solved.first_leads, solved.exact) == ((), False, True)
    assert solve(parse("3"), parse("2")).flips == ()
    assert solve(parse("x"), parse("x")).flips == ()


def test_what_lies_beyond_the_furthest_point_is_not_reached() -> None:
    assert [flip.at for flip in solve(parse("x"), parse("100"), 100).flips] == [100]
    assert solve(parse("x"), parse("101"), 100).flips == ()


def test_a_parabola_can_flip_and_flip_back() -> None:
    # (x - 2)(x - 10) = x^2 - 12 x + 20
    solved = solve(parse("x * x + 20"), parse("12 * x"))
    assert [flip.at for flip in solved.flips] == pytest.approx([2, 10])
    assert solved.first_leads
    # it only touches: (x - 5)^2
    assert solve(parse("x * x + 25"), parse("10 * x")).flips == ()


def test_the_least_of_a_count_and_one_is_one() -> None:
    # an LM head is read when there is a position, and an axis begins at 1
    assert solve(parse("min(x, 1) * 8"), parse("x")).exact
    assert polynomial(("min", ("+", 1, "y"), 1), "y") == (1,)
    assert polynomial(("min", "y", 1), "y") is None


@pytest.mark.parametrize("slope", [1.0, 0.5, 0.01, 1e-4])
def test_the_sensitivity_grows_towards_a_pole(slope: float) -> None:
    # x (1 + s) = 100 + x against r = 1: d ln x / d ln r = (100 + x) / (s x), where s x = 100
    (flip,) = solve(parse(f"x * {1 + slope}"), parse("100 + x")).flips
    assert flip.at == pytest.approx(100 / slope)
    assert flip.sensitivity == pytest.approx((100 + 100 / slope) / 100, rel=1e-4)


@given(st.integers(1, 5000), st.integers(1, 5000))
def test_the_first_whole_point_of_a_change_is_found(threshold: int, last: int) -> None:
    found = first_whole(lambda point: point >= threshold, 1, last)
    assert found == (threshold if 1 < threshold <= last else None)


def test_no_flip_is_infinitely_sensitive_by_accident() -> None:
    (flip,) = solve(parse("x"), parse("5")).flips
    assert not math.isinf(flip.sensitivity)
    assert flip.sensitivity == pytest.approx(1)
