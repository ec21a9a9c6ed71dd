"""A record's formulas under the conventions in force, as trees with the record's own names put in."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from flopmap.records.formula import FormulaError, bind, parse, symbols

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flopmap.records.notation import Expr
    from flopmap.records.types import Law, OpClass, Quantity

MAX_PARTS = 1000

parse_once = functools.cache(parse)


def costs(op_class: OpClass, conventions: Mapping[str, str], *, least: bool = False) -> dict[str, Expr]:
    """Every cost formula of an op class, in shapes and step statistics; ``least``: at the lowest that it can be."""
    texts = cost_texts(op_class, conventions) | (op_class.least if least else {})
    return _bound(tuple(op_class.define.items()), tuple(texts.items()))


@functools.cache
def _bound(define: tuple[tuple[str, str], ...], texts: tuple[tuple[str, str], ...]) -> dict[str, Expr]:
    local = _definitions(dict(define))
    return {name: bind(parse_once(text), local) for name, text in texts}


def cost_texts(op_class: OpClass, conventions: Mapping[str, str]) -> dict[str, str]:
    """The formulas as the record writes them, each reading chosen by its convention put in."""
    texts = dict(op_class.cost)
    for convention, readings in op_class.conventions.items():
        texts.update(readings.get(conventions.get(convention, ""), {}))
    return texts


def named(op_class: OpClass, conventions: Mapping[str, str]) -> dict[str, Expr]:
    """Costs, definitions and quantities of an op class, for claims and for display."""
    known = {**_definitions(op_class.define), **costs(op_class, conventions)}
    quantities = {name: bind(parse_once(text), known) for name, text in op_class.quantities.items()}
    return {**known, **quantities}


def _definitions(define: Mapping[str, str]) -> dict[str, Expr]:
    """A record's own names, each of which may use those above it."""
    local: dict[str, Expr] = {}
    for name, text in define.items():
        local[name] = bind(parse_once(text), local)
        if _size(local[name]) > MAX_PARTS:
            raise FormulaError(f"the definition of {name!r} has more than {MAX_PARTS} parts when written out")
    return local


def _size(expr: Expr) -> int:
    """How many operations, symbols and numbers a formula has. (A chain of definitions can double at every link.)."""
    return 1 + sum(map(_size, expr[1:])) if isinstance(expr, tuple) else 1


def law(record: Law, conventions: Mapping[str, str]) -> dict[str, Expr]:
    """Every quantity of a law, with the law's other quantities put in where it names them."""
    return _expanded(tuple((name, _reading(quantity, conventions)) for name, quantity in record.quantities.items()))


def reading(record: Law, name: str, conventions: Mapping[str, str]) -> Expr:
    """One quantity of a law as it is written, in the law's other quantities."""
    return parse_once(_reading(record.quantities[name], conventions))


@functools.cache
def _expanded(readings: tuple[tuple[str, str], ...]) -> dict[str, Expr]:
    texts = dict(readings)
    done: dict[str, Expr] = {}

    def expand(name: str, above: tuple[str, ...]) -> Expr:
        if name in above:
            raise FormulaError(f"a circle of quantities: {' -> '.join((*above, name))}")
        if name not in done:
            tree = parse_once(texts[name])
            own = {symbol: expand(symbol, (*above, name)) for symbol in symbols(tree) & texts.keys() - {name}}
            done[name] = bind(tree, own)
        return done[name]

    return {name: expand(name, ()) for name in texts}


def _reading(quantity: Quantity, conventions: Mapping[str, str]) -> str:
    text = quantity.formula
    for convention, readings in quantity.conventions.items():
        text = readings.get(conventions.get(convention, ""), text)
    return text
