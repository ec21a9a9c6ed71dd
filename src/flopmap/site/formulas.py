"""The formulas of an op class or a law as one program: names in their order, each with its readings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from flopmap.records.formula import FormulaError, parse, symbols, value
from flopmap.records.notation import Expr
from flopmap.records.types import Law, OpClass
from flopmap.records.units import dimension, unit_dimension, unit_text
from flopmap.site.javascript import functions
from flopmap.site.symbols import Range, ranges

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from flopmap.records.book import Book

LEAST = "least"


class Formula(msgspec.Struct, frozen=True, kw_only=True):
    """A named formula. ``part`` is its place in the record: define, cost, quantities."""

    name: str
    part: str
    tree: Expr | None
    unit: str
    why: str = ""


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """Formulas in the order of evaluation, other readings by convention and value, and the symbols left open.

    The reading ``least`` holds the costs that luck can lower, at the lowest that they can be.
    """

    formulas: tuple[Formula, ...]
    readings: dict[str, dict[str, dict[str, Expr]]]
    symbols: tuple[Range, ...]


def program(record: OpClass | Law, book: Book) -> Program:
    """The program of a record; it has no formulas where the record has none."""
    formulas = _of_class(record, book) if isinstance(record, OpClass) else _of_law(record)
    readings = _readings(record)
    trees = [formula.tree for formula in formulas if formula.tree is not None]
    trees += [tree for choices in readings.values() for texts in choices.values() for tree in texts.values()]
    used = set().union(*map(symbols, trees)) - {formula.name for formula in formulas if formula.tree is not None}
    given = record.claims[0].given if record.claims else {}
    return Program(formulas=tuple(formulas), readings=readings, symbols=tuple(ranges(used, book, given)))


def _of_class(record: OpClass, book: Book) -> list[Formula]:
    units = {name: unit_dimension(symbol.unit, book.glossary.counts) for name, symbol in book.glossary.symbols.items()}
    costs: dict[str, str] = dict(record.cost)
    for choices in record.conventions.values():
        for texts in choices.values():
            costs |= {name: "" for name in texts if name not in costs}  # a reading may be the only one that has it
    parts = {"define": record.define, "cost": costs, "quantities": record.quantities}
    formulas = []
    for part, texts in parts.items():
        for name, text in texts.items():
            tree = parse(text) if text else None
            if part != "cost" and tree is not None:
                units[name] = dimension(tree, units)
            stated = book.glossary.symbols.get(name)
            unit = stated.unit if stated and part == "cost" else unit_text(units[name])
            formulas.append(Formula(name=name, part=part, tree=tree, unit=unit, why=record.why.get(name, "")))
    return formulas


def _of_law(record: Law) -> list[Formula]:
    """The quantities, each behind those that it names."""
    trees = {name: parse(quantity.formula) for name, quantity in record.quantities.items()}
    needs = {name: symbols(tree) & trees.keys() for name, tree in trees.items()}
    for name, quantity in record.quantities.items():
        for choices in quantity.conventions.values():
            needs[name] |= set().union(*(symbols(parse(text)) for text in choices.values())) & trees.keys()
    order: list[str] = []
    while len(order) < len(trees):
        ready = [name for name in trees if name not in order and needs[name] <= set(order)]
        if not ready:
            raise FormulaError(f"{record.id}: a circle of quantities: {', '.join(trees.keys() - set(order))}")
        order += ready
    units = {name: quantity.unit for name, quantity in record.quantities.items()}
    why = {name: quantity.meaning for name, quantity in record.quantities.items()}
    return [Formula(name=name, part="quantities", tree=trees[name], unit=units[name], why=why[name]) for name in order]


def _readings(record: OpClass | Law) -> dict[str, dict[str, dict[str, Expr]]]:
    found: dict[str, dict[str, dict[str, Expr]]] = {}
    if isinstance(record, OpClass):
        for convention, choices in record.conventions.items():
            found[convention] = {choice: _parsed(texts.items()) for choice, texts in choices.items()}
        if record.least:
            found[LEAST] = {LEAST: _parsed(record.least.items())}
        return found
    for name, quantity in record.quantities.items():
        for convention, readings in quantity.conventions.items():
            for choice, text in readings.items():
                found.setdefault(convention, {}).setdefault(choice, {})[name] = parse(text)
    return found


def _parsed(texts: Iterable[tuple[str, str]]) -> dict[str, Expr]:
    return {name: parse(text) for name, text in texts}


def script(of: Program) -> str:
    """The program as the script of its page."""
    formulas = functions({formula.name: formula.tree for formula in of.formulas if formula.tree is not None})
    readings = ", ".join(
        f"{json.dumps(convention)}: {{{', '.join(_reading(choice, trees) for choice, trees in choices.items())}}}"
        for convention, choices in of.readings.items()
    )
    order = json.dumps([formula.name for formula in of.formulas])
    return f'"use strict";\nflopmap.record = {{order: {order},\nformulas: {formulas},\nreadings: {{{readings}}}}};\n'


def _reading(choice: str, trees: Mapping[str, Expr]) -> str:
    return f"{json.dumps(choice)}: {functions(trees)}"


def values(of: Program) -> dict[str, float | None]:
    """What every formula comes to where the sliders stand at first; None where it has no value."""
    known: dict[str, Any] = {symbol.name: symbol.value for symbol in of.symbols}
    found: dict[str, float | None] = {}
    for formula in of.formulas:
        if formula.tree is None:
            continue
        try:
            found[formula.name] = known[formula.name] = value(formula.tree, known)
        except FormulaError:
            found[formula.name] = None
    return found
