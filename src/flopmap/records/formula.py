"""The expression language of the book: a safe subset of Python arithmetic, as small trees.

A formula is text such as ``2 * t * n``. :func:`parse` turns it into a tree of tuples, and everything else is a walk
over that tree: :func:`bind` puts values in and folds, :func:`compiled` makes one code object that runs on floats and on
NumPy arrays alike. Units are in :mod:`flopmap.records.units`, writing in :mod:`flopmap.records.notation`.

An :data:`Expr` is a number, a symbol (``str``), or ``(operator, operand, ...)``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from flopmap.records.notation import Expr, text

if TYPE_CHECKING:
    import ast
    from collections.abc import Callable, Iterable, Mapping
    from types import CodeType

MAX_TEXT = 2000
MAX_DEPTH = 60
MAX_EXPONENT = 16
LARGEST_LITERAL = 1e300
LONGEST_LINE = 500  # of generated code, so that its brackets never nest too deeply
LARGEST = 1.7e308
MAX_BITS = 1024  # beyond it a float overflows, and so shall a whole number

BINARY = {"Add": "+", "Sub": "-", "Mult": "*", "Div": "/", "FloorDiv": "//", "Mod": "%", "Pow": "**"}
COMPARE = {"Lt": "<", "LtE": "<=", "Gt": ">", "GtE": ">=", "Eq": "==", "NotEq": "!="}
ARITY = {"min": (2, 9), "max": (2, 9), "ceil": (1, 1), "floor": (1, 1), "sqrt": (1, 1), "log2": (1, 1), "where": (3, 3)}


class FormulaError(ValueError):
    """A formula that cannot be read, or has no value. ``line`` and ``column`` count from 1 within the formula."""

    def __init__(self, message: str, *, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


# -- reading ----------------------------------------------------------------------------------------------------------


def parse(source: str) -> Expr:
    """Read one formula. Raises :class:`FormulaError` at the first thing that the language does not have."""
    import ast

    if len(source) > MAX_TEXT:
        raise FormulaError(f"a formula has at most {MAX_TEXT} characters, this one has {len(source)}")
    if not source.strip():
        raise FormulaError("a formula is empty")
    for column, character in enumerate(source, 1):
        if not character.isascii():
            raise FormulaError(f"a formula is ASCII, {character!r} is not", column=column)
    lead = len(source) - len(source.lstrip())
    try:
        tree = ast.parse(source.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line, column = getattr(error, "lineno", None) or 1, getattr(error, "offset", None) or 1
        reason = getattr(error, "msg", None) or "it is nested too deeply"
        raise FormulaError(f"not a formula: {reason}", line=line, column=column + lead * (line == 1)) from None
    try:
        return _read(tree.body, 0)
    except FormulaError as error:
        error.column += lead * (error.line == 1)
        raise


def _read(node: ast.expr, depth: int) -> Expr:
    kind = type(node).__name__
    if depth > MAX_DEPTH:
        raise _error(node, f"a formula is at most {MAX_DEPTH} operations deep")
    reader = _READERS.get(kind)
    if reader is None:
        raise _error(node, f"{_NAMES.get(kind, kind)} is not allowed in a formula; allowed: {ALLOWED}")
    return reader(node, depth + 1)


def _error(node: Any, message: str) -> FormulaError:
    return FormulaError(message, line=node.lineno, column=node.col_offset + 1)


def _read_constant(node: Any, _depth: int) -> Expr:
    value = node.value
    if type(value) not in (int, float):
        raise _error(node, f"{value!r} is not a number")
    if not abs(value) < LARGEST_LITERAL:
        raise _error(node, "a number in a formula must be below 1e300")
    return value  # type: ignore[no-any-return]


def _read_name(node: Any, _depth: int) -> Expr:
    if node.id.startswith("_"):
        raise _error(node, f"a symbol begins with a letter, {node.id!r} does not")
    if node.id in ARITY:
        raise _error(node, f"{node.id!r} is a function: write {node.id}(...)")
    return node.id  # type: ignore[no-any-return]


def _read_binary(node: Any, depth: int) -> Expr:
    operator = BINARY.get(type(node.op).__name__)
    if operator is None:
        raise _error(node, f"this operator is not allowed in a formula; allowed: {ALLOWED}")
    right = _read(node.right, depth)
    if operator == "**" and isinstance(right, int | float) and abs(right) > MAX_EXPONENT:
        raise _error(node.right, f"an exponent is at most {MAX_EXPONENT}, this one is {right}")
    return (operator, _read(node.left, depth), right)


def _read_unary(node: Any, depth: int) -> Expr:
    operand = _read(node.operand, depth)
    if type(node.op).__name__ == "UAdd":
        return operand
    if type(node.op).__name__ != "USub":
        raise _error(node, f"this operator is not allowed in a formula; allowed: {ALLOWED}")
    return -operand if isinstance(operand, int | float) else ("neg", operand)


def _read_compare(node: Any, depth: int) -> Expr:
    operator = COMPARE.get(type(node.ops[0]).__name__)
    if operator is None or len(node.ops) > 1:
        raise _error(node, "one comparison at a time: a < b, a <= b, a > b, a >= b, a == b or a != b")
    return (operator, _read(node.left, depth), _read(node.comparators[0], depth))


def _read_call(node: Any, depth: int) -> Expr:
    name = getattr(node.func, "id", None)
    if name not in ARITY or node.keywords:
        raise _error(node, f"only these functions can be called: {', '.join(ARITY)}")
    low, high = ARITY[name]
    if not low <= len(node.args) <= high:
        raise _error(node, f"{name} takes {_arguments(low, high)}, not {len(node.args)}")
    return (name, *(_read(argument, depth) for argument in node.args))


def _arguments(low: int, high: int) -> str:
    if low != high:
        return f"{low} to {high} arguments"
    return f"{low} argument{'' if low == 1 else 's'}"


_READERS: dict[str, Callable[[Any, int], Expr]] = {
    "Constant": _read_constant,
    "Name": _read_name,
    "BinOp": _read_binary,
    "UnaryOp": _read_unary,
    "Compare": _read_compare,
    "Call": _read_call,
}
_COMPREHENSIONS = dict.fromkeys(("ListComp", "SetComp", "DictComp", "GeneratorExp"), "a comprehension")
_NAMES = {
    "Attribute": "attribute access",
    "Subscript": "indexing",
    "BoolOp": "and/or",
    "Lambda": "lambda",
    "IfExp": "if/else",
    "NamedExpr": "assignment",
    "JoinedStr": "text",
    "List": "a list",
    "Tuple": "a tuple",
    "Set": "a set",
    "Dict": "a table",
    "Starred": "unpacking",
    "Await": "await",
    **_COMPREHENSIONS,
}
ALLOWED = f"numbers, symbols, + - * / // % **, one comparison, {', '.join(ARITY)}"


def symbols(expr: Expr) -> set[str]:
    """Every symbol that the formula uses."""
    if isinstance(expr, str):
        return {expr}
    if isinstance(expr, tuple):
        return set().union(*(symbols(part) for part in expr[1:]))
    return set()


# -- values -----------------------------------------------------------------------------------------------------------


def _power(base: Any, exponent: Any) -> Any:
    """Whole powers of whole numbers stay exact; everything else is a float, so no integer can grow without bound."""
    if isinstance(exponent, int) and abs(exponent) <= MAX_EXPONENT:
        if isinstance(base, int) and base.bit_length() > MAX_BITS:
            base = float(base)
        return base**exponent
    return float(base) ** float(exponent)


SCALAR: dict[str, Any] = {
    "__builtins__": {},
    "_inf": math.inf,
    "_min": min,
    "_max": max,
    "_ceil": math.ceil,
    "_floor": math.floor,
    "_sqrt": math.sqrt,
    "_log2": math.log2,
    "_pow": _power,
    "_where": lambda condition, yes, no: yes if condition else no,
}
_FOLD: dict[str, Callable[..., Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "**": _power,
    "neg": lambda a: -a,
    "<": lambda a, b: int(a < b),
    "<=": lambda a, b: int(a <= b),
    ">": lambda a, b: int(a > b),
    ">=": lambda a, b: int(a >= b),
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    **{name: SCALAR[f"_{name}"] for name in ARITY},
}


def bind(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """Put values (or other formulas) in place of symbols, and fold what has become a number.

    Raises :class:`FormulaError` when a folded part has no finite value (division by zero, overflow).
    """
    if type(expr) is str:
        return values.get(expr, expr)
    if type(expr) is not tuple:
        return expr
    if len(expr) == 3:  # noqa: PLR2004 - two operands, by far the most common
        return operate(expr[0], bind(expr[1], values), bind(expr[2], values))
    return operate(expr[0], *[bind(part, values) for part in expr[1:]])


def operate(operator: str, *operands: Expr) -> Expr:
    """``operator`` over operands: a number when they are all numbers, else a tree without the neutral parts.

    A rate that is not known is infinite, so that its time is 0; any other infinity is an error.
    """
    if operator == "*" and 0 in operands:
        return 0
    for operand in operands:
        if type(operand) is str or type(operand) is tuple:
            return _simplified(operator, operands)
    return _folded(operator, operands)


def _folded(operator: str, operands: tuple[Any, ...]) -> Expr:
    try:
        number = _FOLD[operator](*operands)
    except (ArithmeticError, ValueError) as error:
        raise FormulaError(f"{text((operator, *operands))} has no value: {error}") from None
    if type(number) is complex or not (
        -LARGEST < number < LARGEST or (math.inf in operands and not math.isnan(number))
    ):
        raise FormulaError(f"{text((operator, *operands))} has no finite value")
    return number  # type: ignore[no-any-return]


def _simplified(operator: str, operands: tuple[Expr, ...]) -> Expr:
    first, last = operands[0], operands[-1]
    if operator == "*":
        if first == 1:
            return last
        if last == 1:
            return first
    elif operator == "/":
        if first == 0 or last == math.inf:
            return 0
        if last == 1:
            return first
    elif operator == "+":
        if first == 0:
            return last
        if last == 0:
            return first
    elif operator == "-" and last == 0:
        return first
    return (operator, *operands)


def total(parts: Iterable[Expr]) -> Expr:
    """The sum of formulas."""
    result: Expr = 0
    for part in parts:
        result = operate("+", result, part)
    return result


def value(expr: Expr, values: Mapping[str, Expr] | None = None) -> float:
    """The number that a formula comes to. Raises :class:`FormulaError` when symbols are left over."""
    result = bind(expr, values or {})
    if not isinstance(result, int | float):
        raise FormulaError(f"no value for {', '.join(sorted(symbols(result)))}")
    return result


# -- code -------------------------------------------------------------------------------------------------------------


def code(outputs: Iterable[Expr], arguments: Iterable[str]) -> CodeType:
    """One function ``f(*arguments)`` that returns the outputs as a tuple; shared parts are computed once."""
    outputs = tuple(outputs)
    uses: dict[Expr, int] = {}
    for output in outputs:
        _count(output, uses)
    lines: list[str] = []
    names: dict[Expr, str] = {}
    results = [_emit(output, uses, names, lines) for output in outputs]
    body = "".join(f"    {line}\n" for line in lines)
    source = f"def f({', '.join(arguments)}):\n{body}    return ({''.join(f'{result}, ' for result in results)})\n"
    return compile(source, "<formula>", "exec")


def compiled(function: CodeType, namespace: Mapping[str, Any] = SCALAR) -> Callable[..., tuple[Any, ...]]:
    """The function of :func:`code`, over floats (default) or over arrays (:func:`array_namespace`)."""
    scope = dict(namespace)
    exec(function, scope)  # noqa: S102 - our own generated arithmetic over a whitelisted tree: no names but ours can occur in it
    return scope.pop("f")  # type: ignore[no-any-return]


def array_namespace() -> dict[str, Any]:
    """The names that :func:`compiled` needs to run on NumPy arrays."""
    import functools

    import numpy as np

    def over(function: Any) -> Callable[..., Any]:
        return lambda *operands: functools.reduce(function, operands)

    return {
        "__builtins__": {},
        "_inf": math.inf,
        "_min": over(np.minimum),
        "_max": over(np.maximum),
        "_ceil": np.ceil,
        "_floor": np.floor,
        "_sqrt": np.sqrt,
        "_log2": np.log2,
        "_pow": np.float_power,
        "_where": np.where,
    }


def _count(expr: Expr, uses: dict[Expr, int]) -> None:
    if isinstance(expr, tuple):
        uses[expr] = uses.get(expr, 0) + 1
        if uses[expr] == 1:
            for part in expr[1:]:
                _count(part, uses)


def _emit(expr: Expr, uses: dict[Expr, int], names: dict[Expr, str], lines: list[str]) -> str:
    if isinstance(expr, str):
        return expr
    if not isinstance(expr, tuple):
        return "_inf" if expr == math.inf else repr(expr)
    if expr in names:
        return names[expr]
    operands = [_emit(part, uses, names, lines) for part in expr[1:]]
    operator = expr[0]
    if operator == "neg":
        result = f"(-{operands[0]})"
    elif operator == "**":
        result = f"_pow({operands[0]}, {operands[1]})"
    elif operator in ARITY:
        result = f"_{operator}({', '.join(operands)})"
    elif operator in COMPARE.values():
        result = f"(1 * ({operands[0]} {operator} {operands[1]}))"
    else:
        result = f"({operands[0]} {operator} {operands[1]})"
    if uses[expr] > 1 or len(result) > LONGEST_LINE:
        names[expr] = f"_{len(names)}"
        lines.append(f"{names[expr]} = {result}")
        return names[expr]
    return result
