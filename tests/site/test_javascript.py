"""Formulas in JavaScript come to what they come to in Python."""

from __future__ import annotations

import json
import math
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flopmap.records.formula import FormulaError, parse, symbols, value
from flopmap.records.resolve import law, named
from flopmap.records.types import Law, OpClass
from flopmap.site.formulas import LEAST, program, script
from flopmap.site.javascript import function, javascript
from flopmap.site.symbols import BY_UNIT, OTHERWISE, RANGES
from tests.records.random_formulas import formulas, parts, values
from tests.site.browser import evaluate

if TYPE_CHECKING:
    from flopmap.records.book import Book
    from flopmap.records.notation import Expr

POINTS = 1000
TOLERANCE = 1e-12
EXACT = 2**53


def agree(ours: float | None, theirs: float | None) -> bool:
    if ours is None or theirs is None:
        return ours is theirs
    return math.isclose(ours, theirs, rel_tol=TOLERANCE, abs_tol=0)


def in_python(tree: Expr, given: dict[str, Any]) -> float | None:
    try:
        return float(value(tree, given))
    except FormulaError:
        return None


def in_javascript(cases: list[tuple[Expr, list[dict[str, Any]]]]) -> list[list[float | None]]:
    """What each formula comes to at each of its points; JSON has null for what is not finite."""
    written = ",\n".join(f"[{function(tree)}, {json.dumps(points)}]" for tree, points in cases)
    answer: list[list[float | None]] = evaluate(
        f"const cases = [{written}];\nanswer(cases.map(([f, points]) => points.map((e) => f(e, flopmap.F))))"
    )
    return answer


def every_formula(book: Book) -> dict[str, Expr]:
    """Every formula that the book holds, by its place."""
    found: dict[str, Expr] = {}
    for name, symbol in book.glossary.symbols.items():
        texts = {"sum": symbol.sum, "windowed": symbol.windowed, "chunked": symbol.chunked}
        for convention, choices in symbol.conventions.items():
            texts |= {f"{convention}={choice}": text for choice, text in choices.items()}
        found |= {f"symbols/{name} {part}": parse(text) for part, text in texts.items() if text}
    for kind, of in (("flops", OpClass), ("laws", Law)):
        for record_id in book.ids(kind):
            record: OpClass | Law = book.record(of, record_id)  # type: ignore[assignment]
            made = program(record, book)
            place = f"{kind}/{record_id}"
            found |= {f"{place} {each.name}": each.tree for each in made.formulas if each.tree is not None}
            for convention, readings in made.readings.items():
                for choice, trees in readings.items():
                    found |= {f"{place} {name} {convention}={choice}": tree for name, tree in trees.items()}
    return found


def a_point(names: list[str], book: Book, chance: random.Random) -> dict[str, float]:
    """Values within the ranges of the sliders; names that are formulas of their own go by their unit."""
    point: dict[str, float] = {}
    for name in names:
        symbol = book.glossary.symbols.get(name)
        low, high, _ = RANGES.get(name) or BY_UNIT.get(symbol.unit if symbol else "", OTHERWISE)
        number = low * (high / low) ** chance.random() if low > 0 else chance.uniform(low, high)
        point[name] = round(number) if isinstance(low, int) else number
    return point


def test_every_formula_of_the_book_comes_to_the_same_at_a_thousand_points(book: Book) -> None:
    chance = random.Random(9)  # noqa: S311 - points, not secrets
    cases: list[tuple[Expr, list[dict[str, Any]]]] = []
    places = every_formula(book)
    for tree in places.values():
        names = sorted(symbols(tree))
        cases.append((tree, [a_point(names, book, chance) for _ in range(POINTS if names else 1)]))
    found = in_javascript(cases)
    assert len(places) > 290  # those of symbols, op classes and laws, with their other readings
    wrong = [
        (place, point, theirs)
        for (place, (tree, points)), theirs_at in zip(zip(places, cases, strict=True), found, strict=True)
        for point, theirs in zip(points, theirs_at, strict=True)
        if not agree(in_python(tree, point), theirs)
    ]
    assert wrong == []


@pytest.mark.parametrize("kind", ["flops", "laws"])
def test_the_script_of_a_page_comes_to_the_named_formulas_of_its_record(book: Book, kind: str) -> None:
    """The page evaluates names in their order; Python puts them into each other. Each reading alone, and none."""
    questions, expected = [], []
    for record_id in book.ids(kind):
        record: OpClass | Law = book.record(OpClass if kind == "flops" else Law, record_id)  # type: ignore[assignment]
        made = program(record, book)
        stand = {symbol.name: symbol.value for symbol in made.symbols}
        chosen = [
            {},
            *({name: choice} for name, choices in made.readings.items() for choice in choices if name != LEAST),
        ]
        for conventions in chosen:
            trees = named(record, conventions) if isinstance(record, OpClass) else law(record, conventions)
            questions.append(f"flopmap.evaluate({_object(made)}, {json.dumps(stand)}, {json.dumps(conventions)})")
            expected.append((record_id, conventions, {name: in_python(tree, stand) for name, tree in trees.items()}))
    found = evaluate(f"answer([{', '.join(questions)}])")
    for theirs, (record_id, conventions, ours) in zip(found, expected, strict=True):
        wrong = {name: (number, theirs[name]) for name, number in ours.items() if not agree(number, theirs[name])}
        assert (record_id, conventions, wrong) == (record_id, conventions, {})


def _object(made: Any) -> str:
    return script(made).split("flopmap.record = ", 1)[1].rstrip(";\n")


ROUNDS = ("log2", "**", "/")
STEPS = ("floor", "ceil", "//", "%", "<", "=", ">", "where")
cases_of_one_text = st.tuples(formulas, values)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(cases_of_one_text, min_size=20, max_size=60))
def test_random_formulas_come_to_the_same(cases: list[tuple[str, dict[str, Any]]]) -> None:
    """Wherever Python is exact, too: a step after a rounding may fall to either side in two libraries."""
    kept = []
    for text, point in cases:
        found = parts(text, point)
        if found is not None and (
            max(map(abs, found)) >= EXACT
            or (any(word in text for word in ROUNDS) and any(word in text.replace("**", "") for word in STEPS))
        ):
            continue
        kept.append((text, parse(text), point))
    theirs = in_javascript([(tree, [point]) for _, tree, point in kept])
    for (text, tree, point), (number,) in zip(kept, theirs, strict=True):
        ours = in_python(tree, point)
        # what cancels is known to the size of its parts only
        size = max(map(abs, parts(text, point) or [0]))
        near = number is not None and ours is not None and abs(number - ours) <= TOLERANCE * size
        assert near or agree(ours, number), (text, point, ours, number)


@pytest.mark.parametrize(
    ("text", "point", "expected"),
    [
        ("a // b", {"a": -7, "b": 2}, -4),  # rounds down, as Python's, and not towards 0
        ("a % b", {"a": -7, "b": 3}, 2),  # the divisor's sign
        ("a % b", {"a": 7, "b": -3}, -2),
        ("a // b", {"a": 1, "b": 0.1}, 9),  # 0.1 is above a tenth
        ("a / b", {"a": 1, "b": 0}, None),
        ("a % b", {"a": 1, "b": 0}, None),
        ("sqrt(a)", {"a": -1}, None),
        ("log2(a)", {"a": 0}, None),
        ("a ** b", {"a": -8, "b": 0.5}, None),  # a complex number
        ("a ** -1", {"a": 0}, None),
        ("where(a > 1, 2, 1 / a)", {"a": 0}, None),  # both branches must have a value
        ("min(a, 1 / b)", {"a": 3, "b": 0}, None),
        ("(a < b) + (a == b)", {"a": 2, "b": 2}, 1),
        ("-a ** 2", {"a": 3}, -9),
        ("max(a, b, 4)", {"a": 1, "b": 2}, 4),
        ("ceil(a) - floor(a)", {"a": 2.5}, 1),
    ],
)
def test_the_rules_of_arithmetic_are_pythons(text: str, point: dict[str, Any], expected: float | None) -> None:
    tree = parse(text)
    assert in_python(tree, point) == expected
    assert in_javascript([(tree, [point])]) == [[expected]]


def test_a_formula_is_written_in_brackets() -> None:
    assert javascript(parse("a - (b - -1) * 2 ** c")) == "(e.a - ((e.b - (-1)) * F.pow(2, e.c)))"
    assert function(math.inf) == "(e, F) => Infinity"
