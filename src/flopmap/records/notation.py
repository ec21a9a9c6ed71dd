"""Formulas as people read them: one line of maths, or LaTeX."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

Expr: TypeAlias = "int | float | str | tuple[Any, ...]"

FUNCTIONS = ("min", "max", "ceil", "floor", "sqrt", "log2", "where")
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
PRECEDENCE = {"<": 1, "<=": 1, ">": 1, ">=": 1, "==": 1, "!=": 1, "+": 2, "-": 2}
PRECEDENCE |= {"*": 3, "/": 3, "//": 3, "%": 3, "neg": 4, "**": 5}
ATOM = 6
EXACT = 1e15


def text(expr: Expr, names: Mapping[str, str] | None = None, outer: int = 0) -> str:
    """The formula as one line of maths; ``names`` replaces symbols, for instance by their values."""
    if isinstance(expr, str):
        return (names or {}).get(expr, expr)
    if not isinstance(expr, tuple):
        return f"({number_text(expr)})" if expr < 0 and outer > PRECEDENCE["neg"] else number_text(expr)
    operator, *operands = expr
    level = PRECEDENCE.get(operator, ATOM)
    if operator in FUNCTIONS:
        return f"{operator}({', '.join(text(operand, names) for operand in operands)})"
    if operator == "neg":
        written = f"-{text(operands[0], names, level)}"
    elif operator == "**":
        written = f"{text(operands[0], names, level + 1)}^{text(operands[1], names, level)}"
    else:
        sign = {"*": "×", "//": "div", "%": "mod"}.get(operator, operator)
        left = level + 1 if operator in COMPARISONS else level
        written = f"{text(operands[0], names, left)} {sign} {text(operands[1], names, level + 1)}"
    return f"({written})" if level < outer else written


def number_text(number: float) -> str:
    """A number without noise: whole numbers with thousands commas, others to six figures."""
    if not abs(number) < math.inf:
        return "not a number" if math.isnan(number) else "infinity" if number > 0 else "-infinity"
    if abs(number) < EXACT and number == int(number):
        return f"{int(number):,}"
    try:
        return f"{number:.6g}"
    except OverflowError:  # a whole number beyond any float
        return f"about 10^{len(str(abs(number))) - 1}"


def latex(expr: Expr, names: Mapping[str, str] | None = None, outer: int = 0) -> str:
    """The formula as LaTeX maths."""
    if isinstance(expr, str):
        return (names or {}).get(expr) or r"\mathrm{" + expr.replace("_", r"\_") + "}"
    if not isinstance(expr, tuple):
        number = number_text(expr).replace(",", r"{,}")
        return _bracketed(number) if expr < 0 and outer > PRECEDENCE["neg"] else number
    operator, *operands = expr
    level = PRECEDENCE.get(operator, ATOM)
    if operator in _LATEX_FORMS:
        written = _LATEX_FORMS[operator].format(*(latex(operand, names) for operand in operands))
        ambiguous = (operator == "/" and outer > PRECEDENCE["neg"]) or (operator == "where" and outer > 0)
        return _bracketed(written) if ambiguous else written
    if operator in ("min", "max"):
        return rf"\{operator}\left({', '.join(latex(operand, names) for operand in operands)}\right)"
    if operator == "neg":
        written = f"-{latex(operands[0], names, level)}"
    elif operator == "**":
        written = f"{latex(operands[0], names, level + 1)}^{{{latex(operands[1], names)}}}"
    else:
        left = latex(operands[0], names, level + 1 if operator in COMPARISONS else level)
        written = f"{left} {_LATEX_SIGNS.get(operator, operator)} {latex(operands[1], names, level + 1)}"
    return _bracketed(written) if level < outer else written


def _bracketed(written: str) -> str:
    return rf"\left({written}\right)"


_LATEX_SIGNS = {"*": r"\cdot", "%": r"\bmod", "<=": r"\le", ">=": r"\ge", "==": "=", "!=": r"\ne"}
_LATEX_FORMS = {
    "/": r"\frac{{{0}}}{{{1}}}",
    "//": r"\left\lfloor \frac{{{0}}}{{{1}}} \right\rfloor",
    "ceil": r"\left\lceil {0} \right\rceil",
    "floor": r"\left\lfloor {0} \right\rfloor",
    "sqrt": r"\sqrt{{{0}}}",
    "log2": r"\log_2\left({0}\right)",
    "where": r"\begin{{cases}} {1} & {0} \\ {2} & \text{{otherwise}} \end{{cases}}",
}
