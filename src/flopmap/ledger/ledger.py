"""The FLOP and byte account of a step: each op with its record, its formats and the statistics that it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from flopmap.decoding import FIRST, LATER
from flopmap.ledger.beside import adapting, drafting
from flopmap.ledger.op import Op
from flopmap.ledger.ops import operations
from flopmap.precision import Precision, element_bytes
from flopmap.records.formula import FormulaError, bind, operate, symbols, value
from flopmap.records.resolve import costs
from flopmap.records.types import OpClass
from flopmap.step import MAIN, Statistic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from flopmap.decoding import Speculation
    from flopmap.records.book import Book
    from flopmap.records.notation import Expr
    from flopmap.scenario import Scenario

DEVICE_BYTES = ("weights", "kv_traffic", "state", "activations", "logit_traffic")
STEP_RESOURCES = ("matrix", "vector", "exp", *DEVICE_BYTES, "link", "hops", "launches")
HELD_RESOURCES = ("cache", "held", "parameters", "active", "resident")
RESOURCES = (*STEP_RESOURCES, *HELD_RESOURCES)
STORED = ("parameters", "resident")  # what an op costs that the step does not run


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One op of the ledger.

    ``formats`` are bytes of an element by symbol, ``statistics`` the step's sums by symbol, ``math`` the data type of
    its matrix FLOP, ``fastest_math`` the fastest one that any implementation could use.
    """

    op: Op
    op_class: OpClass
    formats: dict[str, float]
    statistics: dict[str, Statistic]
    math: str
    fastest_math: str


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """The ops of a step in order, and the statistics that their formulas need."""

    lines: tuple[Line, ...]
    statistics: tuple[Statistic, ...]


def account(scenario: Scenario, book: Book) -> Ledger:
    """The ledger of a scenario. It depends on the phases of its step, not on the step's numbers."""
    nominal = scenario.model.nominal_parameters if scenario.conventions["parameters"] == "nominal" else None
    ops = operations(scenario.model.architecture, scenario.step.phases, scenario.step.stacks, nominal)
    ops += adapting(scenario.adapters) if scenario.adapters else ()
    if scenario.plan and scenario.whole:
        from flopmap.ledger.collectives import communicating

        ops += communicating(scenario.model.architecture, scenario.whole, scenario.plan, scenario.step.stacks)
    lines = tuple(_lines(ops, scenario, scenario.precision, book))
    if scenario.speculation and scenario.draft_precision:
        lines += tuple(draft_lines(scenario.speculation, scenario, scenario.draft_precision, book))
    wanted = dict.fromkeys(statistic for line in lines for statistic in line.statistics.values())
    return Ledger(lines=lines, statistics=tuple(wanted))


def draft_lines(speculation: Speculation, scenario: Scenario, precision: Precision, book: Book) -> Iterator[Line]:
    """The lines of a drafter's passes."""
    return _lines(drafting(speculation, scenario.step.phases), scenario, precision, book)


def held_by(lines: Iterable[Line]) -> dict[str, float]:
    """Parameters and bytes that ops hold. They depend on shapes and formats alone."""
    held = dict.fromkeys(STORED, 0.0)
    for line in lines:
        trees, known = costs(line.op_class, {}), {**dict(line.op.shapes), **line.formats}
        for resource in STORED:
            held[resource] += line.op.count * value(trees.get(resource, 0), known)
    return held


def _lines(ops: Iterable[Op], scenario: Scenario, precision: Precision, book: Book) -> Iterator[Line]:
    formats = {weights: _formats(precision, weights, book) for weights in ("weights", "activations")}
    for op in ops:
        yield _line(op, scenario, precision, book, formats[op.weights])


def _formats(precision: Precision, weights: str, book: Book) -> dict[str, float]:
    """Bytes of an element by symbol, for an op whose matrix is stored as ``weights`` or as ``activations``."""
    stored = precision.weights if weights == "weights" else precision.activations
    by_symbol = {"weight_bytes": stored, "act_bytes": precision.activations, "kv_bytes": precision.kv}
    by_symbol["state_bytes"] = precision.state
    return {symbol: element_bytes(stored_as, book) for symbol, stored_as in by_symbol.items()}


def _line(op: Op, scenario: Scenario, precision: Precision, book: Book, formats: dict[str, float]) -> Line:
    record = book.record(OpClass, op.op_class)
    used = frozenset().union(*map(symbols, op_costs(op, record, scenario.conventions).values()))
    stored = precision.stored.get(op.name.replace(f"{LATER}.", f"{FIRST}."))
    if stored is not None:
        formats = {**formats, "weight_bytes": stored}
    statistics = {}
    for symbol in sorted(used - formats.keys() - dict(op.shapes).keys()):
        known = book.glossary.symbols.get(symbol)
        if known is None or not (known.sum or known.value is not None):
            given = ", ".join(sorted((*dict(op.shapes), *formats)))
            raise FormulaError(f"flops/{record.id}: {symbol!r} has no value for the op {op.name} (it has: {given})")
        if known.value is not None:
            formats = {**formats, symbol: known.value}
        else:
            window = op.window if known.windowed else None
            chunked = op.chunked and bool(known.chunked)
            statistics[symbol] = Statistic(symbol, op.phase, window, chunked=chunked, stack=op.stack)
    # a matrix that is stored in its own narrow format may be multiplied as fast as the others: a floor assumes it is
    wide = formats["weight_bytes"] >= formats["act_bytes"]
    own = op.weights == "weights" and not (wide and stored is not None)
    math = precision.math if own else precision.activation_math
    fastest = precision.cache_math if "kv_bytes" in used else math
    return Line(op=op, op_class=record, formats=formats, statistics=statistics, math=math, fastest_math=fastest)


def op_costs(op: Op, record: OpClass, conventions: Mapping[str, str], *, least: bool = False) -> dict[str, Expr]:
    """The formulas of an op. What does not run is held all the same; no text token is multiplied by a tower."""
    formulas = costs(record, conventions, least=least)
    if op.again:
        return {resource: tree for resource, tree in formulas.items() if resource in STEP_RESOURCES}
    if op.stack == MAIN and not op.idle:
        return formulas
    return {
        resource: tree
        for resource, tree in formulas.items()
        if resource in STORED or (not op.idle and resource != "active")
    }


def cost_trees(line: Line, scenario: Scenario, *, least: bool = False) -> dict[str, Expr]:
    """An op's costs over all its runs, as formulas of the step's statistics (by their names)."""
    values: dict[str, Expr] = {**dict(line.op.shapes), **line.formats}
    values |= {symbol: statistic.name for symbol, statistic in line.statistics.items()}
    formulas = op_costs(line.op, line.op_class, scenario.conventions, least=least)
    return {resource: operate("*", line.op.count, bind(tree, values)) for resource, tree in formulas.items()}
