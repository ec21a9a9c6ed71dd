"""A formula has one value, however it is evaluated."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flopmap.records.formula import (
    SCALAR,
    FormulaError,
    array_namespace,
    bind,
    code,
    compiled,
    operate,
    parse,
    symbols,
    total,
    value,
)
from tests.records.random_formulas import (
    NAMES,
    formulas,
    parts,
    smooth_formulas,
    values,
    whole_formulas,
    whole_values,
)

if TYPE_CHECKING:
    from flopmap.records.notation import Expr

repeatable = settings(derandomize=True, max_examples=120, deadline=None)
EXACT = 2**52


def evaluated(source: str, given: dict[str, Any]) -> float | None:
    """Our value, or None when there is none."""
    try:
        return value(parse(source), given)
    except FormulaError:
        return None


@repeatable
@given(formulas, values)
def test_a_formula_has_the_value_that_python_gives_its_text(source: str, given: dict[str, Any]) -> None:
    theirs = parts(source, given)
    assert evaluated(source, given) == (None if theirs is None else theirs[0])


@repeatable
@given(formulas, values)
def test_generated_code_gives_the_same_value(source: str, given: dict[str, Any]) -> None:
    ours = evaluated(source, given)
    assume(ours is not None)
    function = compiled(code([parse(source)], NAMES))
    assert function(*(given[name] for name in NAMES)) == (ours,)


@repeatable
@given(smooth_formulas, st.lists(whole_values, min_size=2, max_size=4))
def test_array_code_gives_each_point_the_value_it_has_alone(source: str, points: list[dict[str, int]]) -> None:
    found = [parts(source, point) for point in points]
    scale = max((abs(part) for part_of in found if part_of for part in part_of), default=0)
    assume(all(found) and scale < EXACT)
    columns = [np.array([float(point[name]) for point in points]) for name in NAMES]
    (ours,) = compiled(code([parse(source)], NAMES), array_namespace())(*columns)
    theirs = np.array([float(part_of[0]) for part_of in found if part_of])
    np.testing.assert_allclose(np.broadcast_to(ours, theirs.shape), theirs, rtol=1e-9, atol=1e-9 * scale)


@repeatable
@given(formulas, values, st.sets(st.sampled_from(NAMES)))
def test_values_put_in_one_after_another_are_as_good_as_at_once(
    source: str, given: dict[str, Any], first: set[str]
) -> None:
    ours = evaluated(source, given)
    assume(ours is not None)
    early = bind(parse(source), {name: given[name] for name in first})
    assert symbols(early) <= set(NAMES) - first
    assert value(early, {name: given[name] for name in NAMES if name not in first}) == ours


@repeatable
@given(whole_formulas, whole_values)
def test_whole_numbers_stay_whole_and_exact(source: str, given: dict[str, Any]) -> None:
    theirs = parts(source, given)
    assume(theirs is not None)
    assert theirs is not None
    ours = value(parse(source), given)
    assert type(ours) is int
    assert ours == theirs[0]


def test_a_count_beyond_a_float_is_exact() -> None:
    assert value(parse("2 * t * n + 1"), {"t": 3, "n": 10**17 + 1}) == 600_000_000_000_000_007
    assert value(parse("n ** 2"), {"n": 10**9 + 1}) == 1_000_000_002_000_000_001
    assert value(parse("n // 3"), {"n": 10**17 + 2}) == 33_333_333_333_333_334


@repeatable
@given(
    operator=st.sampled_from(["+", "-", "*", "/", "//", "%", "**", "<", "=="]),
    constant=st.sampled_from([0, 1, 0.0, 1.0, 2, -1, 0.5]),
    x=st.integers(1, 9) | st.sampled_from([0.5, 0.25, 12.5]),
    swapped=st.booleans(),
)
def test_what_is_left_out_of_a_half_bound_tree_never_changes_its_value(
    *, operator: str, constant: float, x: float, swapped: bool
) -> None:
    operands: tuple[Expr, Expr] = ("x", constant) if swapped else (constant, "x")
    numbers = (x, constant) if swapped else (constant, x)
    assert outcome(lambda: bind(operate(operator, *operands), {"x": x})) == outcome(lambda: operate(operator, *numbers))


def outcome(function: Any) -> Any:
    try:
        return function()
    except FormulaError as error:
        return str(error)


@pytest.mark.parametrize(
    ("operator", "operands", "left"),
    [
        ("*", (0, "x"), 0),
        ("*", ("x", 0), 0),
        ("*", (1, "x"), "x"),
        ("*", ("x", 1), "x"),
        ("+", ("x", 0), "x"),
        ("+", (0, "x"), "x"),
        ("-", ("x", 0), "x"),
        ("-", (0, "x"), ("-", 0, "x")),
        ("/", ("x", 1), "x"),
        ("/", (1, "x"), ("/", 1, "x")),
        ("/", (0, "x"), 0),
        ("/", ("x", math.inf), 0),
        ("//", ("x", 1), ("//", "x", 1)),
        ("**", ("x", 0), ("**", "x", 0)),
        ("**", (1, "x"), ("**", 1, "x")),
        ("max", ("x", 0), ("max", "x", 0)),
    ],
)
def test_only_what_is_neutral_is_left_out(operator: str, operands: tuple[Expr, ...], left: Expr) -> None:
    assert operate(operator, *operands) == left


def test_a_formula_may_take_a_formula_for_a_symbol() -> None:
    assert bind(parse("2 * n"), {"n": parse("d_in * d_out")}) == ("*", 2, ("*", "d_in", "d_out"))
    assert value(parse("2 * n"), {"n": 21}) == 42


def test_symbols_without_a_value_are_named_in_order() -> None:
    with pytest.raises(FormulaError) as caught:
        value(parse("2 * t * n / weight_bytes"), {"t": 1})
    assert str(caught.value) == "no value for n, weight_bytes"


@pytest.mark.parametrize(
    ("source", "given", "message"),
    [
        ("1 / a", {"a": 0}, "1 / 0 has no value: division by zero"),
        ("7 // a", {"a": 0}, "7 div 0 has no value: integer division or modulo by zero"),
        ("1e299 * a", {"a": 1e299}, "1e+299 × 1e+299 has no finite value"),
        ("1e299 * a - 1", {"a": -1e299}, "1e+299 × -1e+299 has no finite value"),
        ("a ** 2.5", {"a": 1e300}, "1e+300^2.5 has no value: (34, 'Numerical result out of range')"),
        ("a ** 0.5", {"a": -8}, "(-8)^0.5 has no finite value"),
        ("sqrt(a)", {"a": -1}, "sqrt(-1) has no value: math domain error"),
        ("log2(a)", {"a": 0}, "log2(0) has no value: math domain error"),
        ("a - b", {"a": math.inf, "b": math.inf}, "infinity - infinity has no finite value"),
        ("ceil(a)", {"a": math.inf}, "ceil(infinity) has no value: cannot convert float infinity to integer"),
        ("a + 1", {"a": math.nan}, "not a number + 1 has no finite value"),
    ],
)
def test_what_has_no_finite_value_is_an_error_that_says_what(
    source: str, given: dict[str, float], message: str
) -> None:
    with pytest.raises(FormulaError) as caught:
        value(parse(source), given)
    # Python words some of these differently from version to version: what stands before the colon is ours
    assert str(caught.value).partition(":")[0] == message.partition(":")[0]


def test_whole_numbers_cannot_grow_without_bound() -> None:
    with pytest.raises(FormulaError) as caught:
        value(parse("((((((9 ** 16) ** 16) ** 16) ** 16) ** 16) ** 16) ** 16"))
    assert str(caught.value).endswith("^16 has no finite value")
    with pytest.raises(FormulaError):
        value(parse("((9 ** 16) ** 16) ** 16 * 1.5"))
    with pytest.raises(FormulaError):
        value(parse("2 ** (9 ** 9)"))
    function = compiled(code([parse("((((a ** 16) ** 16) ** 16) ** 16) ** 16")], ["a"]))
    with pytest.raises(OverflowError):
        function(9)


def test_a_rate_that_is_not_known_takes_no_time() -> None:
    law = parse("max(matrix / matrix_peak, exp / (exp_rate + vector_peak / 6))")
    given = {"matrix": 10, "matrix_peak": 5, "exp": 100, "vector_peak": 60}
    assert value(law, {**given, "exp_rate": math.inf}) == 2
    assert value(law, {**given, "exp_rate": 10}) == 5
    assert value(bind(parse("work / rate"), {"rate": math.inf})) == 0
    assert value(parse("work / rate"), {"work": 0, "rate": math.inf}) == 0
    assert value(parse("work * price"), {"work": 0, "price": math.inf}) == 0


def test_code_may_hold_an_infinite_rate() -> None:
    tree = bind(parse("min(work, cap) / (rate + other)"), {"cap": math.inf, "rate": math.inf})
    function = code([tree, bind(parse("min(work, cap)"), {"cap": math.inf})], ["work", "other"])
    assert compiled(function)(3.0, 4.0) == (0, 3)
    first, second = compiled(function, array_namespace())(np.array([3.0, 5.0]), 4.0)
    assert first.tolist() == [0, 0]
    assert second.tolist() == [3, 5]


def test_a_shared_part_is_computed_once() -> None:
    calls = []

    def root(number: float) -> float:
        calls.append(number)
        return math.sqrt(number)

    shared, alone = parse("sqrt(a + b)"), parse("sqrt(a)")
    function = compiled(code([("*", shared, shared), ("+", shared, alone)], ["a", "b"]), {**SCALAR, "_sqrt": root})
    assert function(9, 16) == (25, 8)
    assert sorted(calls) == [9, 25]


@repeatable
@given(formulas, formulas, values)
def test_sharing_never_changes_a_value(first: str, second: str, given: dict[str, Any]) -> None:
    one, two = evaluated(first, given), evaluated(second, given)
    assume(one is not None and two is not None)
    assert one is not None
    assert two is not None
    trees = [parse(first), parse(second)]
    outputs = [*trees, *reversed(trees), ("min", trees[0], trees[1]), ("max", trees[0], trees[0])]
    function = compiled(code(outputs, NAMES))
    assert function(*(given[name] for name in NAMES)) == (one, two, two, one, min(one, two), one)


@repeatable
@given(formulas)
def test_generated_code_names_nothing_but_its_arguments_and_our_functions(source: str) -> None:
    function: Any = compiled(code([parse(source)], NAMES))
    ours = {"_min", "_max", "_ceil", "_floor", "_sqrt", "_log2", "_pow", "_where"}
    assert set(function.__code__.co_names) <= ours
    assert set(function.__code__.co_varnames[: len(NAMES)]) == set(NAMES)
    assert function.__globals__["__builtins__"] == {}
    assert "f" not in function.__globals__


def test_the_sum_of_many_ops_can_be_compiled() -> None:
    names = [f"x{index}" for index in range(400)]
    function = code([total(names)], names)
    assert compiled(function)(*range(400)) == (79_800,)
    assert compiled(function, array_namespace())(*range(400)) == (79_800,)
    assert total([]) == 0
    assert total(["x0"]) == "x0"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("(a < 3) + (a < 5)", [2, 1, 0]),
        ("(a < 3) - (a >= 3)", [1, -1, -1]),
        ("-(a == 4)", [0, -1, 0]),
        ("where(a < 3, 0, a)", [0, 4, 6]),
        ("min(a, 5, 4.5)", [2, 4, 4.5]),
        ("a * 2 ** -1", [1, 2, 3]),
        ("a ** -1", [0.5, 0.25, 1 / 6]),
        ("a * 99 ** 16", [2.0 * 99**16, 4.0 * 99**16, 6.0 * 99**16]),
        ("a % 4 + a // 4", [2, 1, 3]),
        ("ceil(a / 4) + floor(a / 4)", [1, 2, 3]),
    ],
)
@pytest.mark.parametrize("kind", [np.float64, np.int64])
def test_arrays_of_whole_numbers_are_no_different(source: str, expected: list[float], kind: type) -> None:
    points: np.ndarray[Any, Any] = np.array([2, 4, 6]).astype(kind)
    (ours,) = compiled(code([parse(source)], ["a"]), array_namespace())(points)
    assert ours.tolist() == pytest.approx(expected, rel=1e-14)
    assert [value(parse(source), {"a": int(point)}) for point in points] == pytest.approx(expected, rel=1e-14)
