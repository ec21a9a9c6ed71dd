"""The FLOP and byte account of a step: each op's cost per resource, as formulas of the step's statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from flopmap.ledger.ops import Op, operations
from flopmap.records.formula import Expr, bind, operate, symbols, value
from flopmap.records.resolve import costs
from flopmap.records.types import OpClass
from flopmap.scenario import Precision, Scenario, element_bytes
from flopmap.step import Statistic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flopmap.records.book import Book

DEVICE_BYTES = ("weights", "kv_traffic", "state", "activations", "logit_traffic")
STEP_RESOURCES = ("matrix", "vector", "exp", *DEVICE_BYTES, "link", "launches")
HELD_RESOURCES = ("parameters", "active", "resident")


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One op of the ledger. Costs are for all its runs; a resource that it does not use is absent.

    ``step_costs`` are formulas of the step's statistics, ``held_costs`` numbers that no step changes.
    ``math`` is the data type of its matrix FLOP, ``formats`` the bytes of an element by symbol.
    """

    op: Op
    op_class: OpClass
    step_costs: dict[str, Expr]
    held_costs: dict[str, float]
    formats: dict[str, float]
    math: str

    def cost(self, resource: str) -> Expr:
        """The formula of a resource, 0 when the op does not use it."""
        return self.step_costs.get(resource, self.held_costs.get(resource, 0))


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """The ops of a step in order, and the statistics that their formulas need."""

    lines: tuple[Line, ...]
    statistics: tuple[Statistic, ...]


def account(scenario: Scenario, book: Book) -> Ledger:
    """The ledger of a scenario. It depends on the phases of its step, not on the step's numbers."""
    nominal = scenario.model.nominal_parameters if scenario.conventions["parameters"] == "nominal" else None
    wanted: dict[Statistic, None] = {}
    ops = operations(scenario.model.architecture, scenario.step.phases, nominal)
    formats = {weights: _formats(scenario.precision, weights, book) for weights in ("weights", "activations")}
    lines = tuple(_line(op, scenario, book, formats[op.weights], wanted) for op in ops)
    return Ledger(lines=lines, statistics=tuple(wanted))


def _formats(precision: Precision, weights: str, book: Book) -> dict[str, float]:
    """Bytes of an element by symbol, for an op whose matrix is stored as ``weights`` or as ``activations``."""
    stored = precision.weights if weights == "weights" else precision.activations
    by_symbol = {"weight_bytes": stored, "act_bytes": precision.activations, "kv_bytes": precision.kv}
    return {symbol: element_bytes(stored_as, book) for symbol, stored_as in by_symbol.items()}


def _line(op: Op, scenario: Scenario, book: Book, formats: dict[str, float], wanted: dict[Statistic, None]) -> Line:
    record = book.record(OpClass, op.op_class)
    precision = scenario.precision
    values: dict[str, Expr] = {**dict(op.shapes), **formats}
    step_costs: dict[str, Expr] = {}
    held_costs: dict[str, float] = {}
    for resource, formula in costs(record, scenario.conventions).items():
        for symbol in sorted(symbols(formula) - values.keys()):
            statistic = Statistic(symbol, op.phase, op.window if book.glossary.symbols[symbol].windowed else None)
            wanted.setdefault(statistic)
            values[symbol] = statistic.name
        bound = operate("*", op.count, bind(formula, values))
        if resource in HELD_RESOURCES:
            held_costs[resource] = value(bound)
        elif bound != 0:
            step_costs[resource] = bound
    math = precision.math if op.weights == "weights" else precision.activation_math
    return Line(op=op, op_class=record, step_costs=step_costs, held_costs=held_costs, formats=formats, math=math)


def held(lines: Iterable[Line], resource: str) -> float:
    """The sum of a resource that does not depend on the step (parameters, resident bytes)."""
    return sum(line.held_costs.get(resource, 0) for line in lines)
