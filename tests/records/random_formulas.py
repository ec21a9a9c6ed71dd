"""Random formulas as text, and Python's own evaluation of that text: the oracle of the tests beside this file."""

from __future__ import annotations

import ast
import math
from typing import Any

from hypothesis import strategies as st

NAMES = ("a", "b", "c", "d")
LARGEST = 1.7e308
FUNCTIONS: dict[str, Any] = {
    "min": min,
    "max": max,
    "ceil": math.ceil,
    "floor": math.floor,
    "sqrt": math.sqrt,
    "log2": math.log2,
    "where": lambda condition, yes, no: yes if condition else no,
}

Texts = st.SearchStrategy[str]


def _joined(children: Texts, operators: str) -> Texts:
    """Two formulas with an operator, with and without brackets, so that precedence is at stake."""
    form = st.sampled_from(("({} {} {})", "{} {} {}"))
    return st.builds(str.format, form, children, st.sampled_from(operators.split()), children)


def _compared(children: Texts) -> Texts:
    sign = st.sampled_from(("<", "<=", ">", ">=", "==", "!="))
    return st.builds(str.format, st.just("(({}) {} ({}))"), children, sign, children)


def _called(children: Texts, names: tuple[str, ...]) -> Texts:
    return st.builds(str.format, st.sampled_from([f"{name}({{}})" for name in names]), children)


def _chosen(children: Texts) -> Texts:
    forms = ("where({}, {}, {})", "min({}, {}, {})", "max({}, {}, {})")
    return st.builds(str.format, st.sampled_from(forms), children, children, children)


def _powers(children: Texts, low: int, high: int) -> Texts:
    return st.builds(str.format, st.just("({}) ** {}"), children, st.integers(low, high).map(str))


def _negative(children: Texts) -> Texts:
    return children.map("-({})".format)


symbols: Texts = st.sampled_from(NAMES)
whole_numbers: Texts = st.integers(0, 2000).map(str)
fractions: Texts = st.integers(1, 800).map(lambda eighths: str(eighths / 8))

whole_formulas: Texts = st.recursive(
    symbols | st.integers(0, 20).map(str),
    lambda of: (
        _joined(of, "+ - * // %")
        | _compared(of)
        | _chosen(of)
        | _powers(of, 0, 3)
        | _negative(of)
        | _called(of, ("ceil", "floor"))
    ),
    max_leaves=8,
)
"""Formulas whose value is a whole number when their symbols' are."""

formulas: Texts = st.recursive(
    symbols | whole_numbers | fractions,
    lambda of: (
        _joined(of, "+ - * / // %")
        | _compared(of)
        | _chosen(of)
        | _powers(of, -3, 4)
        | _negative(of)
        | _called(of, ("ceil", "floor", "sqrt", "log2"))
    ),
    max_leaves=10,
)
"""Any formula of the language."""

smooth_formulas: Texts = st.recursive(
    whole_formulas,
    lambda of: _joined(of, "+ - * /") | _chosen(of) | _negative(of) | _called(of, ("sqrt", "log2")),
    max_leaves=4,
)
"""Formulas that round only where a difference in the last digit stays a difference in the last digit."""

whole_values = st.fixed_dictionaries({name: st.integers(-50, 5000) for name in NAMES})
values = st.fixed_dictionaries(
    {name: st.integers(-50, 5000) | st.integers(-80, 800).map(lambda eighths: eighths / 8) for name in NAMES}
)


def parts(source: str, given: dict[str, Any]) -> list[Any] | None:
    """What every part of a formula comes to in Python, the whole first; None when a part has no finite value."""
    found = []
    for node in ast.walk(ast.parse(source.strip(), mode="eval").body):
        if not isinstance(node, ast.expr) or getattr(node, "id", None) in FUNCTIONS:
            continue
        try:
            part = eval(  # noqa: S307 - the oracle: this text was made by the strategies above
                compile(ast.Expression(node), "", "eval"), {"__builtins__": {}} | FUNCTIONS | given
            )
        except (ArithmeticError, ValueError):
            return None
        if isinstance(part, complex) or not -LARGEST < part < LARGEST:
            return None
        found.append(part)
    return found
