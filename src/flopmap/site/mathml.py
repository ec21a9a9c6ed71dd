"""Formulas as MathML, which browsers set and screen readers read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopmap.records.notation import ATOM, COMPARISONS, PRECEDENCE, number_text, text
from flopmap.site.html import Markup, tag

if TYPE_CHECKING:
    from flopmap.records.notation import Expr

SIGNS = {"*": "·", "-": "−", "%": "mod", "<=": "≤", ">=": "≥", "==": "=", "!=": "≠"}
TALL = ("mfrac", "mtable", "msup")
FENCES = {"//": "⌊⌋", "floor": "⌊⌋", "ceil": "⌈⌉"}


def equation(name: str, expr: Expr) -> Markup:
    """``name = formula``, on a line of its own."""
    return _math(f"{name} = {text(expr)}", [_symbol(name), tag("mo", "="), mathml(expr)], display="block")


def inline(expr: Expr) -> Markup:
    """A formula within a line."""
    return _math(text(expr), mathml(expr))


def _math(spoken: str, inside: Markup | list[Markup], display: str | None = None) -> Markup:
    return tag("math", tag("mrow", inside), alttext=spoken, display=display)


def _symbol(name: str) -> Markup:
    return tag("mi", name)


def mathml(expr: Expr, outer: int = 0) -> Markup:
    """The tree as presentation MathML; brackets stand where the one line of maths has them."""
    if isinstance(expr, str):
        return _symbol(expr)
    if not isinstance(expr, tuple):
        number = tag("mn", number_text(expr).replace("-", "−"))
        return _fenced(number) if expr < 0 and outer > PRECEDENCE["neg"] else number
    operator, *operands = expr
    level = PRECEDENCE.get(operator, ATOM)
    if operator in ("/", "//"):
        quotient = tag("mfrac", *(tag("mrow", mathml(operand)) for operand in operands))
        if operator == "//":
            return _fenced(quotient, FENCES[operator])
        return _fenced(quotient) if outer > PRECEDENCE["neg"] else quotient
    if operator in FENCES:
        return _fenced(mathml(operands[0]), FENCES[operator])
    if operator == "sqrt":
        return tag("msqrt", mathml(operands[0]))
    if operator in ("min", "max", "log2"):
        return _called(operator, operands)
    if operator == "where":
        return _cases(operands)
    written = _written(operator, operands, level)
    return _fenced(written) if level < outer else written


def _written(operator: str, operands: list[Expr], level: int) -> Markup:
    if operator == "neg":
        return tag("mrow", tag("mo", "−", form="prefix"), mathml(operands[0], level))
    if operator == "**":
        return tag("msup", tag("mrow", mathml(operands[0], level + 1)), tag("mrow", mathml(operands[1])))
    left = mathml(operands[0], level + 1 if operator in COMPARISONS else level)
    return tag("mrow", left, tag("mo", SIGNS.get(operator, operator)), mathml(operands[1], level + 1))


def _called(operator: str, operands: list[Expr]) -> Markup:
    name = tag("msub", tag("mi", "log"), tag("mn", 2)) if operator == "log2" else tag("mi", operator)
    given: list[Markup] = []
    for operand in operands:
        given += [tag("mo", ","), mathml(operand)] if given else [mathml(operand)]
    return tag("mrow", name, _fenced(tag("mrow", given)))


def _cases(operands: list[Expr]) -> Markup:
    condition, yes, no = map(mathml, operands)
    rows = (
        tag("mtr", tag("mtd", yes), tag("mtd", tag("mtext", "if "), condition)),
        tag("mtr", tag("mtd", no), tag("mtd", tag("mtext", "otherwise"))),
    )
    return tag("mrow", tag("mo", "{"), tag("mtable", rows))


def _fenced(inside: Markup, fence: str = "()") -> Markup:
    tall = any(f"<{high}" in inside for high in TALL)
    left, right = (tag("mo", bracket, stretchy=None if tall else "false") for bracket in fence)
    return tag("mrow", left, inside, right)
