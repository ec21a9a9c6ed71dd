"""The three floors of a step: a ledger's costs under a machine's rates, by the laws of the book.

``device``: no correct implementation beats it. ``operation``: ops one after another, each at its roofline. ``engine``:
the operation floor with what the engine adds. See the law records for the formulas and their assumptions.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import msgspec

from flopmap.ledger.ledger import DEVICE_BYTES, RESOURCES, Ledger, Line, account
from flopmap.machine.machine import clock_ratio, matrix_peak, on_chip_bytes, vector_peak
from flopmap.records.formula import code, compiled, operate, symbols, value
from flopmap.records.resolve import costs, law, reading
from flopmap.records.types import Glossary, Law
from flopmap.scenario import Scenario
from flopmap.step import Statistic, Step, statistics_function

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from flopmap.records.book import Book
    from flopmap.records.notation import Expr

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


class PricedLine(msgspec.Struct, frozen=True, kw_only=True):
    """One op with its numbers, over all its runs: costs by resource, times by term, and the roofline time."""

    line: Line
    amounts: tuple[float, ...]
    times: tuple[float, ...]
    seconds: float

    @property
    def costs(self) -> dict[str, float]:
        """The cost of every resource, 0 where the op does not use it."""
        return dict(zip(RESOURCES, self.amounts, strict=True))

    @property
    def terms(self) -> dict[str, float]:
        """The time that each of the machine's resources needs for the op, in seconds."""
        return dict(zip(TERMS, self.times, strict=True))

    @property
    def bound_by(self) -> str:
        """The property whose time is the longest."""
        return PROPERTY_OF[TERMS[self.times.index(max(self.times))]]

    @property
    def device_bytes(self) -> float:
        """Bytes through device memory, all kinds."""
        costs = self.costs
        return sum(costs[kind] for kind in DEVICE_BYTES)


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


class Pricer:
    """A scenario's ledger with its formulas compiled; calling it with a step of the same phases gives its numbers."""

    def __init__(self, scenario: Scenario, book: Book) -> None:
        self.scenario = scenario
        self.glossary = book.glossary
        self.ledger = account(scenario, book)
        self.rates = rates(scenario, book)
        self._sums = statistics_function(self.ledger.statistics, book.glossary, scenario.conventions)
        self._costs = [cost_function(line, self.ledger, scenario) for line in self.ledger.lines]
        roofline, device, engine = law_trees(scenario.conventions, book).values()
        self._roofline = law_function(tuple(roofline.items()), (*TERMS, "seconds"))
        self._device = law_function(tuple(device.items()), TERMS)
        self._device_whole = device_whole(scenario.conventions, book)
        self._engine = law_function(tuple(engine.items()), ("launch_seconds_total", "seconds"))

    def __call__(self, step: Step) -> Pricing:
        """Every number of a step."""
        sums = self._sums(step)
        lines = []
        by_math = dict.fromkeys(self.rates.matrix, 0.0)
        for line, cost in zip(self.ledger.lines, self._costs, strict=True):
            amounts = cost(sums)
            *times, seconds = self._roofline(self.rates, amounts, self.rates.matrix[line.math])
            lines.append(PricedLine(line=line, amounts=amounts, times=tuple(times), seconds=seconds))
            by_math[line.math] += amounts[0]
        totals = tuple(map(sum, zip(*[line.amounts for line in lines], strict=True)))
        operation_seconds = sum(line.seconds for line in lines)
        launch_seconds, engine_seconds = self._engine(self.rates, totals, 0.0, operation_seconds)
        return Pricing(
            scenario=self.scenario,
            ledger=self.ledger,
            rates=self.rates,
            glossary=self.glossary,
            statistics=dict(zip(self.ledger.statistics, sums, strict=True)),
            lines=tuple(lines),
            totals=dict(zip(RESOURCES, totals, strict=True)),
            device_seconds=self._device_seconds(totals, by_math),
            operation_seconds=operation_seconds,
            launch_seconds=launch_seconds,
            engine_seconds=engine_seconds,
        )

    def _device_seconds(self, totals: tuple[float, ...], by_math: Mapping[str, float]) -> float:
        """The law over the whole step; matrix times of several data types add up, each at its own peak."""
        matrix_seconds = 0.0
        times: dict[str, float] = {}
        for math_type, flop in by_math.items():
            found = self._device(self.rates, (flop, *totals[1:]), self.rates.matrix[math_type])
            times = dict(zip(TERMS, found, strict=True))
            matrix_seconds += times["matrix_seconds"]
        return value(self._device_whole, {**times, "matrix_seconds": matrix_seconds})


def price(scenario: Scenario, book: Book) -> Pricing:
    """Every number of a scenario's step."""
    return Pricer(scenario, book)(scenario.step)


# -- costs ------------------------------------------------------------------------------------------------------------


def cost_function(line: Line, ledger: Ledger, scenario: Scenario) -> Callable[[Sequence[float]], tuple[float, ...]]:
    """From the step's sums (in the ledger's order) to an op's costs over all its runs (in the order of RESOURCES)."""
    formulas = costs(line.op_class, scenario.conventions)
    names, function = _compiled_costs(tuple(formulas.items()))
    known = {**dict(line.op.shapes), **line.formats, "_count": line.op.count}
    fixed = [known.get(name, 0) for name in names]
    from_step = [
        (place, ledger.statistics.index(line.statistics[name]))
        for place, name in enumerate(names)
        if name in line.statistics
    ]

    def evaluate(sums: Sequence[float]) -> tuple[float, ...]:
        arguments = fixed.copy()
        for place, index in from_step:
            arguments[place] = sums[index]
        return function(*arguments)

    return evaluate


@functools.cache
def _compiled_costs(formulas: tuple[tuple[str, Expr], ...]) -> tuple[list[str], Callable[..., tuple[float, ...]]]:
    """The formulas of an op class as one function, compiled once however many ops and scenarios use it."""
    by_resource = dict(formulas)
    trees = [operate("*", "_count", by_resource.get(resource, 0)) for resource in RESOURCES]
    names = sorted(set().union(*map(symbols, trees)))
    return names, compiled(code(trees, names))


# -- laws -------------------------------------------------------------------------------------------------------------


class LawFunction:
    """Quantities of a law, compiled once: called with rates, amounts in the order of RESOURCES, and the matrix peak."""

    def __init__(self, trees: Sequence[Expr]) -> None:
        names = sorted(set().union(*map(symbols, trees)))
        self._function = compiled(code(trees, names))
        self._amounts = [(place, RESOURCES.index(name)) for place, name in enumerate(names) if name in RESOURCES]
        self._rates = [(place, name) for place, name in enumerate(names) if name not in RESOURCES]
        self._size = len(names)

    def __call__(
        self, machine: Rates, amounts: Sequence[float], peak: float, operation_seconds: float = 0.0
    ) -> tuple[float, ...]:
        """The quantities, in order."""
        arguments: list[float] = [0.0] * self._size
        for place, index in self._amounts:
            arguments[place] = amounts[index]
        for place, name in self._rates:
            if name == "matrix_peak":
                arguments[place] = peak
            elif name == "operation_seconds":
                arguments[place] = operation_seconds
            else:
                arguments[place] = machine.values[name]
        return self._function(*arguments)


def law_trees(conventions: Mapping[str, str], book: Book) -> dict[str, dict[str, Expr]]:
    """The quantities of the three floors' laws."""
    return {name: law(book.record(Law, name), conventions) for name in ("roofline", "device-floor", "engine-floor")}


def device_whole(conventions: Mapping[str, str], book: Book) -> Expr:
    """The device floor as its law writes it: a formula of the times of the machine's resources."""
    return reading(book.record(Law, "device-floor"), "seconds", conventions)


@functools.cache
def law_function(trees: tuple[tuple[str, Expr], ...], outputs: tuple[str, ...]) -> LawFunction:
    """Some of a law's quantities as one function."""
    by_name = dict(trees)
    return LawFunction([by_name[name] for name in outputs])


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
