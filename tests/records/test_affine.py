"""A shorter form of a formula is the same formula."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flopmap.records.affine import simplify
from flopmap.records.formula import FormulaError, bind, parse, symbols, value
from tests.records.random_formulas import NAMES, formulas, parts, smooth_formulas, whole_formulas, whole_values

if TYPE_CHECKING:
    from flopmap.records.notation import Expr

repeatable = settings(derandomize=True, max_examples=100, deadline=None)
counts = st.fixed_dictionaries({name: st.integers(0, 5000) for name in NAMES})


@repeatable
@given(smooth_formulas, whole_values)
def test_collecting_terms_never_changes_a_value(source: str, given: dict[str, Any]) -> None:
    theirs = parts(source, given)
    assume(theirs)
    assert theirs
    scale = max(map(abs, theirs))
    ours = value(simplify(parse(source)), given)
    assert ours == pytest.approx(theirs[0], rel=1e-9, abs=1e-9 * scale)


@repeatable
@given(whole_formulas, counts)
def test_a_dropped_maximum_is_never_missed_when_nothing_is_negative(source: str, given: dict[str, Any]) -> None:
    theirs = parts(source, given)
    assume(theirs)
    assert theirs
    assert value(simplify(parse(source), NAMES), given) == theirs[0]


@repeatable
@given(formulas)
def test_a_shorter_form_uses_no_other_symbols(source: str) -> None:
    tree = parse(source)
    assume(parts(source, {"a": 3, "b": 5, "c": 7.5, "d": 11}))
    assert symbols(simplify(tree)) <= symbols(tree)


@pytest.mark.parametrize(
    ("source", "short"),
    [
        ("a + a", ("*", 2, "a")),
        ("a - a", 0),
        ("2 * (a + b) - 2 * b", ("*", 2, "a")),
        ("3 * a * b - b * a", ("*", ("*", 2, "a"), "b")),
        ("a * 8 / 4", ("*", 2.0, "a")),
        ("max(a, a + b)", ("+", "a", "b")),
        ("max(max(a, 2 * a), a * 3)", ("*", 3, "a")),
        ("max(a, 0)", "a"),
        ("max(a, b)", ("max", "a", "b")),
        ("max(b, a, b)", ("max", "a", "b")),
        ("max(a - b, 0)", ("max", ("+", "a", ("*", -1, "b")), 0)),
        ("min(a, a + b)", "a"),
        ("min(a, b)", ("min", "a", "b")),
        ("5", 5),
    ],
)
def test_like_terms_are_collected_and_dominated_maxima_dropped(source: str, short: Expr) -> None:
    assert simplify(parse(source), ("a", "b")) == short


def test_a_maximum_is_kept_where_a_symbol_may_be_negative() -> None:
    assert simplify(parse("max(a, a + b)"), ("a",)) == ("max", "a", ("+", "a", "b"))
    assert simplify(parse("max(a, 0)")) == ("max", "a", 0)


def test_a_product_of_long_sums_is_not_multiplied_out() -> None:
    long = " + ".join(f"x{index}" for index in range(8))
    tree = simplify(parse(f"({long}) * ({long})"))
    assert len(str(tree)) < 400
    assert value(bind(tree, {f"x{index}": 1 for index in range(8)})) == 64


def test_what_has_no_value_is_left_for_its_reader_to_refuse() -> None:
    tree = simplify(parse("(a + b) / 0"))
    with pytest.raises(FormulaError) as caught:
        value(tree, {"a": 1, "b": 2})
    assert str(caught.value) == "3 / 0 has no value: division by zero"
