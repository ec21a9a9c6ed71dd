"""The three floors of a step, as formulas: a ledger under a machine's rates and the laws of the book.

``device``: no correct implementation beats it. ``operation``: ops one after another, each at its roofline. ``engine``:
the operation floor with what the engine adds. See the law records for the formulas and their assumptions.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec

from flopmap.ledger.ledger import DEVICE_BYTES, STEP_RESOURCES, Ledger, Line, account, held
from flopmap.machine.machine import clock_ratio, matrix_peak, on_chip_bytes, vector_peak
from flopmap.records.formula import SCALAR, Expr, bind, code, compiled, total
from flopmap.records.resolve import law
from flopmap.records.types import Glossary, Law
from flopmap.scenario import Scenario
from flopmap.step import Statistic, Step, statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from flopmap.records.book import Book

PROPERTY_OF = {
    "memory_seconds": "memory_bandwidth",
    "matrix_seconds": "matrix_peak",
    "vector_seconds": "vector_peak",
    "exp_seconds": "exp_rate",
}
TERMS = tuple(PROPERTY_OF)


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """A machine's rates as the laws name them, and those that are not known (taken as infinite, and said so)."""

    values: dict[str, float]
    matrix: dict[str, float]
    unknown: tuple[str, ...]


class StepFormulas(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario's times as formulas of its statistics. ``lines[i]`` holds costs, terms and seconds of one op."""

    ledger: Ledger
    lines: tuple[dict[str, Expr], ...]
    totals: dict[str, Expr]
    device: dict[str, Expr]
    engine: dict[str, Expr]
    rates: Rates

    def function(
        self, outputs: Sequence[Expr], namespace: Mapping[str, Any] = SCALAR
    ) -> Callable[..., tuple[Any, ...]]:
        """Compiled outputs; the arguments are the ledger's statistics in order."""
        return compiled(code(outputs, [statistic.name for statistic in self.ledger.statistics]), namespace)


def rates(scenario: Scenario, book: Book) -> Rates:
    """The rates of the scenario's machine and engine."""
    part, engine = scenario.machine.part, scenario.engine
    sheet = scenario.conventions["peak"] == "sheet"
    vector = vector_peak(part)
    graphs = scenario.phase in engine.graphs and not scenario.eager
    known = {
        "bandwidth": part.bandwidth_bytes_per_second.value,
        "capacity": part.capacity_bytes.value,
        "vector_peak": vector.value if vector else None,
        "exp_rate": part.exp_per_second.value if part.exp_per_second else None,
        "on_chip": on_chip_bytes(part),
        "clock_ratio": clock_ratio(part),
        "launched": 0.0 if graphs else 1.0,
        "launch_seconds": engine.launch_seconds.value if engine.launch_seconds else 0.0,
        "host_seconds": engine.host_seconds_per_step.value if engine.host_seconds_per_step else 0.0,
    }
    constants = {name: symbol.value for name, symbol in book.glossary.symbols.items() if symbol.value is not None}
    values = {name: math.inf if number is None else number for name, number in known.items()}
    maths = (scenario.precision.math, scenario.precision.activation_math)
    peaks = {dtype: peak.value for dtype in maths if (peak := matrix_peak(part, dtype, sheet=sheet))}
    return Rates(
        values=values | constants, matrix=peaks, unknown=tuple(name for name, number in known.items() if number is None)
    )


def step_formulas(scenario: Scenario, book: Book) -> StepFormulas:
    """The ledger of a scenario and its floors, as formulas that any step of the same phases can be put into."""
    ledger = account(scenario, book)
    machine = rates(scenario, book)
    laws = {
        name: law(book.record(Law, name), scenario.conventions) for name in ("roofline", "device-floor", "engine-floor")
    }
    lines = tuple(_line_formulas(line, laws["roofline"], machine) for line in ledger.lines)
    totals = {resource: total(line.cost(resource) for line in ledger.lines) for resource in (*STEP_RESOURCES, "cache")}
    operation = total(line["seconds"] for line in lines)
    engine = {
        name: bind(tree, {**machine.values, **totals, "operation_seconds": operation})
        for name, tree in laws["engine-floor"].items()
    }
    return StepFormulas(
        ledger=ledger,
        lines=lines,
        totals={**totals, "operation_seconds": operation},
        device=_device_formulas(ledger, laws["device-floor"], machine, totals),
        engine=engine,
        rates=machine,
    )


def _line_formulas(line: Line, roofline: Mapping[str, Expr], machine: Rates) -> dict[str, Expr]:
    values: dict[str, Expr] = {**machine.values, "matrix_peak": machine.matrix[line.math]}
    values.update({resource: line.cost(resource) for resource in STEP_RESOURCES})
    return {resource: line.cost(resource) for resource in STEP_RESOURCES} | {
        name: bind(tree, values) for name, tree in roofline.items()
    }


def _device_formulas(
    ledger: Ledger, device: Mapping[str, Expr], machine: Rates, totals: Mapping[str, Expr]
) -> dict[str, Expr]:
    """The law over the totals of the step; matrix time adds up over the data types, each at its own peak."""
    values: dict[str, Expr] = {**machine.values, **totals}
    matrix = []
    for dtype, peak in machine.matrix.items():
        amount = total(line.cost("matrix") for line in ledger.lines if line.math == dtype)
        matrix.append(bind(device["matrix_seconds"], {**values, "matrix": amount, "matrix_peak": peak}))
    terms = {name: bind(device[name], values) for name in TERMS if name != "matrix_seconds"} | {
        "matrix_seconds": total(matrix)
    }
    seconds: Expr = 0
    for term in terms.values():
        seconds = ("max", seconds, term)
    return {**terms, "device_bytes": bind(device["device_bytes"], values), "seconds": bind(seconds, {})}


# -- one step ---------------------------------------------------------------------------------------------------------


class PricedLine(msgspec.Struct, frozen=True, kw_only=True):
    """One op with its numbers: costs by resource, time by term, roofline seconds and the property that binds."""

    line: Line
    costs: dict[str, float]
    terms: dict[str, float]
    seconds: float
    bound_by: str

    @property
    def device_bytes(self) -> float:
        """Bytes through device memory, all kinds."""
        return sum(self.costs[kind] for kind in DEVICE_BYTES)


class Pricing(msgspec.Struct, frozen=True, kw_only=True):
    """A step with its numbers. Seconds for the floors; bytes, FLOP and counts for the totals."""

    scenario: Scenario
    glossary: Glossary
    formulas: StepFormulas
    statistics: dict[Statistic, float]
    lines: tuple[PricedLine, ...]
    totals: dict[str, float]
    device_terms: dict[str, float]
    device_seconds: float
    operation_seconds: float
    engine_seconds: float

    @property
    def launch_bound(self) -> bool:
        """Whether launching the kernels takes longer than the kernels."""
        launch = self.formulas.engine["launch_seconds_total"]
        return bool(self.value(launch) > self.operation_seconds)

    def value(self, formula: Expr) -> float:
        """The number that a formula of the step's statistics comes to."""
        bound = bind(formula, {statistic.name: number for statistic, number in self.statistics.items()})
        assert isinstance(bound, int | float)
        return bound

    def held(self, resource: str) -> float:
        """The sum of a resource that no step changes: parameters, active parameters, resident bytes."""
        return held(self.formulas.ledger.lines, resource)


def price(scenario: Scenario, book: Book) -> Pricing:
    """Every number of a scenario's step."""
    formulas = step_formulas(scenario, book)
    return price_step(scenario, formulas, scenario.step, book)


def price_step(scenario: Scenario, formulas: StepFormulas, step: Step, book: Book) -> Pricing:
    """As :func:`price`, for another step of the same phases."""
    sums = statistics(step, formulas.ledger.statistics, book.glossary, scenario.conventions)
    return evaluate(scenario, formulas, sums, book.glossary)


def evaluate(scenario: Scenario, formulas: StepFormulas, sums: dict[Statistic, float], glossary: Glossary) -> Pricing:
    """A step's numbers from its statistics."""
    values: dict[str, Expr] = {statistic.name: number for statistic, number in sums.items()}

    def numbers(trees: Mapping[str, Expr]) -> dict[str, float]:
        return {name: bind(tree, values) for name, tree in trees.items()}  # type: ignore[misc]

    lines = []
    for line, trees in zip(formulas.ledger.lines, formulas.lines, strict=True):
        amounts = numbers(trees)
        terms = {term: amounts[term] for term in TERMS}
        binding = max(terms, key=lambda term: terms[term])
        costs = {resource: amounts[resource] for resource in STEP_RESOURCES}
        lines.append(
            PricedLine(line=line, costs=costs, terms=terms, seconds=amounts["seconds"], bound_by=PROPERTY_OF[binding])
        )
    totals = numbers(formulas.totals)
    device = numbers(formulas.device)
    return Pricing(
        scenario=scenario,
        glossary=glossary,
        formulas=formulas,
        statistics=sums,
        lines=tuple(lines),
        totals=totals,
        device_terms={term: device[term] for term in TERMS},
        device_seconds=device["seconds"],
        operation_seconds=totals["operation_seconds"],
        engine_seconds=numbers({"seconds": formulas.engine["seconds"]})["seconds"],
    )
