"""The three floors of a step: a ledger's costs under a machine's rates, by the laws of the book.

``device``: no correct implementation beats it. ``operation``: ops one after another, each at its roofline. ``engine``:
the operation floor with what the engine adds. See the law records for the formulas and their assumptions.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import msgspec

from flopmap.ledger.ledger import DEVICE_BYTES, STEP_RESOURCES, Ledger, Line, account, held
from flopmap.machine.machine import clock_ratio, matrix_peak, on_chip_bytes, vector_peak
from flopmap.records.formula import Expr, bind, code, compiled, symbols
from flopmap.records.resolve import law
from flopmap.records.types import Glossary, Law
from flopmap.scenario import Scenario
from flopmap.step import Statistic, Step, statistics, statistics_function

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
ZERO_COSTS = dict.fromkeys((*STEP_RESOURCES, "cache"), 0.0)


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """A machine's rates as the laws name them, and those that are not known (taken as infinite, and said so)."""

    values: dict[str, float]
    matrix: dict[str, float]
    unknown: tuple[str, ...]


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
    ledger: Ledger
    rates: Rates
    glossary: Glossary
    statistics: dict[Statistic, float]
    lines: tuple[PricedLine, ...]
    totals: dict[str, float]
    device_seconds: float
    operation_seconds: float
    launch_seconds: float
    engine_seconds: float

    def value(self, formula: Expr) -> float:
        """The number that a formula of the step's statistics comes to."""
        bound = bind(formula, {statistic.name: number for statistic, number in self.statistics.items()})
        return bound if isinstance(bound, int | float) else math.nan

    def held(self, resource: str) -> float:
        """The sum of a resource that no step changes: parameters, active parameters, resident bytes."""
        return held(self.ledger.lines, resource)


class Pricer:
    """A scenario's ledger, compiled once; calling it with a step of the same phases gives that step's numbers."""

    def __init__(self, scenario: Scenario, book: Book) -> None:
        self.scenario = scenario
        self.glossary = book.glossary
        self.ledger = account(scenario, book)
        self.rates = rates(scenario, book)
        self._laws = _laws(scenario, book)
        self._sums: Callable[[Step], Sequence[float]] | None = None
        self._costs: Callable[..., tuple[float, ...]] | None = None

    def __call__(self, step: Step) -> Pricing:
        """Every number of a step."""
        if self._sums is None or self._costs is None:
            wanted = self.ledger.statistics
            self._sums = statistics_function(wanted, self.glossary, self.scenario.conventions)
            trees = [tree for line in self.ledger.lines for tree in line.step_costs.values()]
            self._costs = compiled(code(trees, [statistic.name for statistic in wanted]))
        sums = self._sums(step)
        return self._priced(sums, self._costs(*sums))

    def once(self, step: Step) -> Pricing:
        """As calling it, without compiling: quicker for a single step."""
        sums = statistics(step, self.ledger.statistics, self.glossary, self.scenario.conventions)
        values: dict[str, Expr] = {wanted.name: number for wanted, number in zip(self.ledger.statistics, sums, strict=True)}
        trees = [tree for line in self.ledger.lines for tree in line.step_costs.values()]
        return self._priced(sums, [bind(tree, values) for tree in trees])  # type: ignore[misc]

    def _priced(self, sums: Sequence[float], amounts: Sequence[float]) -> Pricing:
        roofline, device, engine = self._laws
        lines, start = [], 0
        totals = dict(ZERO_COSTS)
        by_math = dict.fromkeys(self.rates.matrix, 0.0)
        operation_seconds = 0.0
        for line in self.ledger.lines:
            end = start + len(line.step_costs)
            costs = ZERO_COSTS | dict(zip(line.step_costs, amounts[start:end], strict=True))
            start = end
            *times, seconds = roofline(self.rates, costs, self.rates.matrix[line.math])
            terms = dict(zip(TERMS, times, strict=True))
            binding = PROPERTY_OF[TERMS[times.index(max(times))]]
            lines.append(PricedLine(line=line, costs=costs, terms=terms, seconds=seconds, bound_by=binding))
            operation_seconds += seconds
            by_math[line.math] += costs["matrix"]
            for resource in line.step_costs:
                totals[resource] += costs[resource]
        launch_seconds, engine_seconds = engine(self.rates, {**totals, "operation_seconds": operation_seconds}, 0.0)
        return Pricing(
            scenario=self.scenario,
            ledger=self.ledger,
            rates=self.rates,
            glossary=self.glossary,
            statistics=dict(zip(self.ledger.statistics, sums, strict=True)),
            lines=tuple(lines),
            totals=totals,
            device_seconds=_device_seconds(device, self.rates, totals, by_math),
            operation_seconds=operation_seconds,
            launch_seconds=launch_seconds,
            engine_seconds=engine_seconds,
        )


def price(scenario: Scenario, book: Book) -> Pricing:
    """Every number of a scenario's step."""
    return Pricer(scenario, book).once(scenario.step)


# -- laws -------------------------------------------------------------------------------------------------------------


class LawFunction:
    """Quantities of a law, compiled once: called with rates, costs and the matrix peak."""

    def __init__(self, trees: Sequence[Expr]) -> None:
        self._names = sorted(set().union(*map(symbols, trees)))
        self._function = compiled(code(trees, self._names))

    def __call__(self, machine: Rates, costs: Mapping[str, float], peak: float) -> tuple[float, ...]:
        """The quantities, in order."""
        known = machine.values
        return self._function(
            *[costs[name] if name in costs else peak if name == "matrix_peak" else known[name] for name in self._names]
        )


def _laws(scenario: Scenario, book: Book) -> tuple[LawFunction, LawFunction, LawFunction]:
    trees = law_trees(scenario.conventions, book)
    roofline, device, engine = (tuple(trees[name].items()) for name in ("roofline", "device-floor", "engine-floor"))
    return (
        _law_function(roofline, (*TERMS, "seconds")),
        _law_function(device, TERMS),
        _law_function(engine, ("launch_seconds_total", "seconds")),
    )


def law_trees(conventions: Mapping[str, str], book: Book) -> dict[str, dict[str, Expr]]:
    """The quantities of the three floors' laws."""
    return {name: law(book.record(Law, name), conventions) for name in ("roofline", "device-floor", "engine-floor")}


@functools.cache
def _law_function(trees: tuple[tuple[str, Expr], ...], outputs: tuple[str, ...]) -> LawFunction:
    by_name = dict(trees)
    return LawFunction([by_name[name] for name in outputs])


def _device_seconds(
    device: LawFunction, machine: Rates, totals: Mapping[str, float], by_math: Mapping[str, float]
) -> float:
    """The longest time of any resource over the whole step; matrix times of several data types add up."""
    matrix_seconds = 0.0
    times: dict[str, float] = {}
    for math_type, flop in by_math.items():
        times = dict(zip(TERMS, device(machine, {**totals, "matrix": flop}, machine.matrix[math_type]), strict=True))
        matrix_seconds += times["matrix_seconds"]
    return max({**times, "matrix_seconds": matrix_seconds}.values())


def rates(scenario: Scenario, book: Book) -> Rates:
    """The rates of the scenario's machine and engine."""
    part, engine = scenario.machine.part, scenario.engine
    sheet = scenario.conventions["peak"] == "sheet"
    vector = vector_peak(part)
    replayed = scenario.phase in engine.graphs and not scenario.eager
    known: dict[str, Any] = {
        "bandwidth": part.bandwidth_bytes_per_second.value,
        "capacity": part.capacity_bytes.value,
        "vector_peak": vector.value if vector else None,
        "exp_rate": part.exp_per_second.value if part.exp_per_second else None,
        "on_chip": on_chip_bytes(part),
        "clock_ratio": clock_ratio(part),
        "launched": 0.0 if replayed else 1.0,
        "launch_seconds": engine.launch_seconds.value if engine.launch_seconds else 0.0,
        "host_seconds": engine.host_seconds_per_step.value if engine.host_seconds_per_step else 0.0,
    }
    constants = {name: symbol.value for name, symbol in book.glossary.symbols.items() if symbol.value is not None}
    maths = (scenario.precision.math, scenario.precision.activation_math)
    peaks = {dtype: peak.value for dtype in maths if (peak := matrix_peak(part, dtype, sheet=sheet))}
    return Rates(
        values={name: math.inf if number is None else number for name, number in known.items()} | constants,
        matrix=peaks,
        unknown=tuple(name for name, number in known.items() if number is None),
    )
