"""Formulas as JavaScript: the same tree, over an environment ``e`` of symbols, with Python's rules of arithmetic.

What differs between the languages (division by zero, remainders of negative numbers, whole division) is in the helpers
``F`` of ``assets/formulas.js``. A formula without a finite value in Python is not a finite number in JavaScript either.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from flopmap.records.notation import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flopmap.records.notation import Expr

HELPERS = {"/": "div", "//": "whole", "%": "mod", "**": "pow"}
COMPARED = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
CALLED = HELPERS | COMPARED | {name: name for name in FUNCTIONS}


def function(expr: Expr) -> str:
    """A function of the symbols' environment and the helpers: ``(e, F) => 2 * e.t``."""
    return f"(e, F) => {javascript(expr)}"


def javascript(expr: Expr) -> str:
    """The tree as an expression of JavaScript, fully bracketed."""
    if isinstance(expr, str):
        return f"e.{expr}"
    if not isinstance(expr, tuple):
        return _number(expr)
    operator, *operands = expr
    written = [javascript(operand) for operand in operands]
    if operator == "neg":
        return f"(-{written[0]})"
    if operator in CALLED:
        return f"F.{CALLED[operator]}({', '.join(written)})"
    return f"({written[0]} {operator} {written[1]})"


def _number(number: float) -> str:
    if math.isinf(number):
        return "Infinity" if number > 0 else "(-Infinity)"
    return repr(number) if number >= 0 else f"({number!r})"


def functions(formulas: Mapping[str, Expr]) -> str:
    """An object of functions by name."""
    return "{" + ", ".join(f"{json.dumps(name)}: {function(expr)}" for name, expr in formulas.items()) + "}"
