"""Formulas as people read them: one line of maths, or LaTeX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

Expr: TypeAlias = "int | float | str | tuple[Any, ...]"

FUNCTIONS = ("min", "max", "ceil", "floor", "sqrt", "log2", "where")
PRECEDENCE = {"<": 1, "<=": 1, ">": 1, ">=": 1, "==": 1, "!=": 1, "+": 2, "-": 2}
PRECEDENCE |= {"*": 3, "/": 3, "//": 3, "%": 3, "neg": 4, "**": 5}
ATOM = 6


def text(expr: Expr, names: Mapping[str, str] | None = None, outer: int = 0) -> str:
    """The formula as one line of maths; ``names`` replaces symbols, for instance by their values."""
    if isinstance(expr, str):
        return (names or {}).get(expr, expr)
    if not isinstance(expr, tuple):
        return number_text(expr)
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
        written = f"{text(operands[0], names, level)} {sign} {text(operands[1], names, level + 1)}"
    return f"({written})" if level < outer else written


def number_text(number: float) -> str:
    """A number without noise: whole numbers with thousands commas, others to six figures."""
    if number == int(number) and abs(number) < 1e15:
        return f"{int(number):,}"
    return f"{number:.6g}"


def latex(expr: Expr, names: Mapping[str, str] | None = None, outer: int = 0) -> str:
    """The formula as LaTeX maths."""
    if isinstance(expr, str):
        return (names or {}).get(expr) or r"\mathrm{" + expr.replace("_", r"\_") + "}"
    if not isinstance(expr, tuple):
        return number_text(expr).replace(",", r"{,}")
    operator, *operands = expr
    level = PRECEDENCE.get(operator, ATOM)
    if operator in _LATEX_FORMS:
        return _LATEX_FORMS[operator].format(*(latex(operand, names) for operand in operands))
    if operator in ("min", "max"):
        return rf"\{operator}\left({', '.join(latex(operand, names) for operand in operands)}\right)"
    if operator == "neg":
        written = f"-{latex(operands[0], names, level)}"
    elif operator == "**":
        written = f"{latex(operands[0], names, level + 1)}^{{{latex(operands[1], names)}}}"
    else:
        written = f"{latex(operands[0], names, level)} {_LATEX_SIGNS.get(operator, operator)} {latex(operands[1], names, level + 1)}"
    return rf"\left({written}\right)" if level < outer else written


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
