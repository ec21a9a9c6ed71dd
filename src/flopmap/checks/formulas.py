"""Every formula can be read, uses known symbols, and comes out in the unit of what it stands for."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from flopmap.ledger.ledger import RESOURCES
from flopmap.records.formula import FormulaError, parse, symbols
from flopmap.records.resolve import law
from flopmap.records.types import Law, OpClass
from flopmap.records.units import Dimension, dimension, unit_dimension, unit_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from flopmap.records.author import Source
    from flopmap.records.book import Book
    from flopmap.records.types import Symbol
    from flopmap.records.yaml_file import File, Path_, Problem


def check(book: Book, source: Source) -> Iterator[Problem]:
    """The faults of all formulas: the glossary's, the op classes', the laws'."""
    units = {name: unit_dimension(symbol.unit, book.glossary.counts) for name, symbol in book.glossary.symbols.items()}
    for name, symbol in book.glossary.symbols.items():
        for path, text in _symbol_formulas(name, symbol):
            yield from _fault(source.singles["symbols"], path, text, units, units[name])
    for record_id, file in source.records["flops"].items():
        yield from _op_class(book.record(OpClass, record_id), file, units)
    for record_id, file in source.records["laws"].items():
        yield from _law(book.record(Law, record_id), file, units, book)


def _symbol_formulas(name: str, symbol: Symbol) -> Iterator[tuple[Path_, str]]:
    at = ("symbols", name)
    if symbol.sum:
        yield (*at, "sum"), symbol.sum
    if symbol.windowed:
        yield (*at, "windowed"), symbol.windowed
    if symbol.chunked:
        yield (*at, "chunked"), symbol.chunked
    for convention, readings in symbol.conventions.items():
        for choice, text in readings.items():
            yield (*at, "conventions", convention, choice), text


def _op_class(record: OpClass, file: File, units: Mapping[str, Dimension]) -> Iterator[Problem]:
    known = dict(units)
    for name, text in record.define.items():
        yield from _fault(file, ("define", name), text, known, None)
        known[name] = _dimension(text, known)
    costs: list[tuple[Path_, str, str]] = [(("cost", name), name, text) for name, text in record.cost.items()]
    costs += [(("least", name), name, text) for name, text in record.least.items()]
    for convention, readings in record.conventions.items():
        for choice, texts in readings.items():
            costs += [(("conventions", convention, choice, name), name, text) for name, text in texts.items()]
    for path, name, text in costs:
        if name not in RESOURCES:
            close = difflib.get_close_matches(name, RESOURCES, n=1) or RESOURCES
            yield file.problem(path, f"unknown resource {name!r}", f"use {', '.join(close)}")
        else:
            yield from _fault(file, path, text, known, units[name])
    for name, text in record.quantities.items():
        yield from _fault(file, ("quantities", name), text, known, None)


def _law(record: Law, file: File, units: Mapping[str, Dimension], book: Book) -> Iterator[Problem]:
    own = {name: unit_dimension(quantity.unit, book.glossary.counts) for name, quantity in record.quantities.items()}
    known = {**units, **own}
    for name, quantity in record.quantities.items():
        yield from _fault(file, ("quantities", name, "formula"), quantity.formula, known, own[name])
        for convention, readings in quantity.conventions.items():
            for choice, text in readings.items():
                path = ("quantities", name, "conventions", convention, choice)
                yield from _fault(file, path, text, known, own[name])
    yield from _circles(record, file)


def _circles(record: Law, file: File) -> Iterator[Problem]:
    """The first circle of quantities, under the defaults or any one convention."""
    chosen: list[dict[str, str]] = [{}]
    for quantity in record.quantities.values():
        chosen += [{convention: choice} for convention, readings in quantity.conventions.items() for choice in readings]
    for conventions in chosen:
        try:
            law(record, conventions)
        except FormulaError as error:
            if "circle" in str(error):
                yield file.problem(("quantities",), str(error), "write one of them in symbols only")
                return


def _dimension(text: str, known: Mapping[str, Dimension]) -> Dimension:
    try:
        return dimension(parse(text), known)
    except FormulaError:
        return {}


def _fault(
    file: File, path: Path_, text: str, known: Mapping[str, Dimension], expected: Dimension | None
) -> Iterator[Problem]:
    """What is wrong with one formula, if anything. ``expected`` None takes any unit."""
    try:
        tree = parse(text)
    except FormulaError as error:
        yield file.problem(path, f"{error} (column {error.column} of {text!r})")
        return
    unknown = sorted(symbols(tree) - known.keys())
    if unknown:
        yield file.problem(path, f"unknown symbol {unknown[0]!r} in {text!r}", _near(unknown[0], known))
        return
    try:
        found = dimension(tree, known)
    except FormulaError as error:
        yield file.problem(path, str(error))
        return
    if expected is not None and found != expected and tree != 0:
        yield file.problem(path, f"{text!r} comes out in {unit_text(found)}, not in {unit_text(expected)}")


def _near(name: str, known: Mapping[str, Dimension]) -> str:
    close = difflib.get_close_matches(name, known, n=2)
    return f"use {' or '.join(close)}, or add it to symbols.yaml" if close else "add it to symbols.yaml"
