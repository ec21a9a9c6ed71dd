"""The three floors of a step: a ledger's costs under a machine's rates, by the laws of the book.

``device``: no correct implementation beats it. ``operation``: ops one after another, each at its roofline. ``engine``:
the operation floor with what the engine adds. See the law records for the formulas and their assumptions.
"""

from __future__ import annotations

import functools
import math
import operator
from typing import TYPE_CHECKING, Any

import msgspec

from flopmap.ledger.ledger import DEVICE_BYTES, RESOURCES, Ledger, Line, account, op_costs
from flopmap.machine.machine import clock_ratio, matrix_peak, on_chip_bytes, vector_peak
from flopmap.records.formula import FormulaError, code, compiled, operate, symbols, value
from flopmap.records.resolve import law, reading
from flopmap.records.types import Glossary, Law, Part
from flopmap.scenario import Scenario
from flopmap.step import Statistic, Step, statistics_function

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from flopmap.plans.plan import Wire
    from flopmap.records.book import Book
    from flopmap.records.notation import Expr

PROPERTY_OF = {
    "memory_seconds": "memory_bandwidth",
    "matrix_seconds": "matrix_peak",
    "vector_seconds": "vector_peak",
    "exp_seconds": "exp_rate",
    "link_seconds": "link_bandwidth",
    "latency_seconds": "link_latency",
}
TERMS = tuple(PROPERTY_OF)
NO_LINK = {"link_bandwidth": math.inf, "link_latency": 0.0}


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """A machine's rates as the laws name them, and those that are not known (taken as infinite, and said so).

    ``matrix`` are peaks by data type with wide accumulation, ``fastest`` with any: the device floor takes those.
    ``links`` are bandwidth and latency by the level of a link.
    """

    values: dict[str, float]
    matrix: dict[str, float]
    fastest: dict[str, float]
    unknown: tuple[str, ...]
    links: dict[str, dict[str, float]]

    def of(self, line: Line) -> dict[str, float]:
        """The rates of an op's own kind: the peak of its data type, and the links that it sends over."""
        return {"matrix_peak": self.matrix[line.math], **self.links[line.op.level]}


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
    """A step with its numbers. Seconds for the floors; bytes, FLOP and counts for the totals.

    Under a plan they are one rank's, over all stages of a pipeline; ``stage`` is the one that holds most, and ``whole``
    the model on one part.
    """

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
    stage: Pricing | None = None
    whole: Pricing | None = None

    @property
    def entire(self) -> Pricing:
        """All of the model as if one part had it."""
        return self.whole or self

    @property
    def held(self) -> Pricing:
        """What one part holds: the stage that holds most, or all of it."""
        return self.stage or self


class Pricer:
    """A scenario's ledger with its formulas compiled; calling it with a step of the same phases gives its numbers."""

    def __init__(self, scenario: Scenario, book: Book) -> None:
        self.scenario = scenario
        self.glossary = book.glossary
        self.ledger = account(scenario, book)
        self.rates = rates(scenario, book)
        self._sums = statistics_function(self.ledger.statistics, book.glossary, scenario.conventions)
        self._costs = [cost_function(line, self.ledger, scenario) for line in self.ledger.lines]
        self._least = [
            cost_function(line, self.ledger, scenario, least=True) if line.op_class.least else None
            for line in self.ledger.lines
        ]
        roofline, device, engine = law_trees(scenario.conventions, book).values()
        lines_law = law_function(tuple(roofline.items()), (*TERMS, "seconds"))
        device_law = law_function(tuple(device.items()), TERMS)
        self._roofline = {
            (dtype, level): lines_law.under(self.rates, peak, **link)
            for dtype, peak in self.rates.matrix.items()
            for level, link in self.rates.links.items()
        }
        self._device = {dtype: device_law.under(self.rates, peak) for dtype, peak in self.rates.fastest.items()}
        self._links = {
            level: device_law.under(self.rates, math.inf, **link) for level, link in self.rates.links.items()
        }
        self._device_whole = device_whole(scenario.conventions, book)
        self._engine = law_function(tuple(engine.items()), ("launch_seconds_total", "seconds"))

    def __call__(self, step: Step) -> Pricing:
        """Every number of a step."""
        sums = self._sums(step)
        lines, least = [], []
        by_math = dict.fromkeys(self.rates.fastest, 0.0)
        for line, cost, least_cost in zip(self.ledger.lines, self._costs, self._least, strict=True):
            try:
                amounts = cost(sums)
                least.append(least_cost(sums) if least_cost else amounts)
            except (ArithmeticError, ValueError) as error:
                where = f"flops/{line.op_class.id}: a cost of {line.op.name}"
                raise FormulaError(f"{where} has no value at this step: {error}") from None
            times = self._roofline[line.math, line.op.level](amounts)
            lines.append(PricedLine(line=line, amounts=amounts, times=times[:-1], seconds=times[-1]))
            by_math[line.fastest_math] += least[-1][0]
        totals = tuple(map(sum, zip(*[line.amounts for line in lines], strict=True)))
        lowest = tuple(map(sum, zip(*least, strict=True))) if any(self._least) else totals
        operation_seconds = sum(line.seconds for line in lines)
        engine = self._engine.under(self.rates, math.nan, operation_seconds=operation_seconds)
        launch_seconds, engine_seconds = engine(totals)
        return Pricing(
            scenario=self.scenario,
            ledger=self.ledger,
            rates=self.rates,
            glossary=self.glossary,
            statistics=dict(zip(self.ledger.statistics, sums, strict=True)),
            lines=tuple(lines),
            totals=dict(zip(RESOURCES, totals, strict=True)),
            device_seconds=self._device_seconds(lowest, by_math, least),
            operation_seconds=operation_seconds,
            launch_seconds=launch_seconds,
            engine_seconds=engine_seconds,
        )

    def _device_seconds(
        self, totals: tuple[float, ...], by_math: Mapping[str, float], least: Sequence[tuple[float, ...]]
    ) -> float:
        """The law over the whole step; matrix times of several data types add up, each at its own peak.

        Links of several levels work side by side, but a message waits for those before it, whatever their level.
        """
        matrix_seconds = 0.0
        times: dict[str, float] = {}
        for math_type, flop in by_math.items():
            times = dict(zip(TERMS, self._device[math_type]((flop, *totals[1:])), strict=True))
            matrix_seconds += times["matrix_seconds"]
        times["matrix_seconds"] = matrix_seconds
        if totals[RESOURCES.index("hops")]:
            by_level = [self._link_seconds(level, least) for level in self._links]
            times["link_seconds"] = max(link for link, _ in by_level)
            times["latency_seconds"] = sum(latency for _, latency in by_level)
        return value(self._device_whole, times)

    def _link_seconds(self, level: str, least: Sequence[tuple[float, ...]]) -> tuple[float, float]:
        """Times of bytes and of messages over the links of a level."""
        sent = [0.0] * len(RESOURCES)
        for line, amounts in zip(self.ledger.lines, least, strict=True):
            if line.op.level == level:
                sent = list(map(operator.add, sent, amounts))
        times = dict(zip(TERMS, self._links[level](sent), strict=True))
        return times["link_seconds"], times["latency_seconds"]


def price(scenario: Scenario, book: Book) -> Pricing:
    """Every number of a scenario's step."""
    pricing = Pricer(scenario, book)(scenario.step)
    if scenario.plan is None:
        return pricing
    from flopmap.floor.ranks import with_shares

    return with_shares(pricing, book)


# -- costs ------------------------------------------------------------------------------------------------------------


def cost_function(
    line: Line, ledger: Ledger, scenario: Scenario, *, least: bool = False
) -> Callable[[Sequence[float]], tuple[float, ...]]:
    """From the step's sums (in the ledger's order) to an op's costs over all its runs (in the order of RESOURCES)."""
    formulas = op_costs(line.op, line.op_class, scenario.conventions, least=least)
    names, function = _compiled_costs(tuple(formulas.items()), tuple(line.statistics))
    known = {**dict(line.op.shapes), **line.formats, "_count": line.op.count}
    fixed = [known[name] for name in names[len(line.statistics) :]]
    pick = picker([ledger.statistics.index(statistic) for statistic in line.statistics.values()])
    return lambda sums: function(*pick(sums), *fixed)


@functools.cache
def _compiled_costs(
    formulas: tuple[tuple[str, Expr], ...], from_step: tuple[str, ...]
) -> tuple[list[str], Callable[..., tuple[float, ...]]]:
    """The formulas of an op class as one function, compiled once however many ops and scenarios use it.

    Its arguments are the step's statistics, then the op's shapes and formats.
    """
    by_resource = dict(formulas)
    trees = [operate("*", "_count", by_resource.get(resource, 0)) for resource in RESOURCES]
    names = [*from_step, *sorted(set().union(*map(symbols, trees)) - set(from_step))]
    return names, compiled(code(trees, names))


def picker(places: list[int]) -> Callable[[Sequence[float]], Sequence[float]]:
    """A function that takes the values at some places of a sequence."""
    if len(places) > 1:
        return operator.itemgetter(*places)
    return lambda values: [values[place] for place in places]


# -- laws -------------------------------------------------------------------------------------------------------------


class LawFunction:
    """Quantities of a law, compiled once; :meth:`under` a machine's rates it is a function of amounts."""

    def __init__(self, trees: Sequence[Expr]) -> None:
        names = set().union(*map(symbols, trees))
        amounts = sorted(names & set(RESOURCES))
        self._rates = sorted(names - set(RESOURCES))
        self._function = compiled(code(trees, [*amounts, *self._rates]))
        self._pick = picker([RESOURCES.index(name) for name in amounts])

    def under(self, machine: Rates, peak: float, **more: float) -> Callable[[Sequence[float]], tuple[float, ...]]:
        """The quantities, in order, as a function of amounts in the order of RESOURCES."""
        known = {**NO_LINK, **machine.values, "matrix_peak": peak, **more}
        fixed = [known[name] for name in self._rates]
        function, pick = self._function, self._pick
        return lambda amounts: function(*pick(amounts), *fixed)


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
    replayed = scenario.phase in engine.graphs and not scenario.eager
    plan = scenario.plan
    passes = (1 + (scenario.speculation.passes if scenario.speculation else 0)) * (plan.pipeline if plan else 1)
    wires = {wire.level: wire for wire in plan.wires} if plan else {}
    known: dict[str, Any] = {
        **_of_part(part),
        "on_chip": on_chip_bytes(part) * passes,  # what it holds may save traffic once in each pass or stage
        "launched": 0.0 if replayed else 1.0,
        "launch_seconds": engine.launch_seconds.value if engine.launch_seconds else 0.0,
        "host_seconds": engine.host_seconds_per_step.value if engine.host_seconds_per_step else 0.0,
    }
    precisions = (scenario.precision, *((scenario.draft_precision,) if scenario.draft_precision else ()))
    maths = [math_type for precision in precisions for math_type in (precision.math, precision.activation_math)]
    widest = [precision.cache_math for precision in precisions]
    peaks = {dtype: peak.value for dtype in maths if (peak := matrix_peak(part, dtype, sheet=sheet))}
    fastest = {
        dtype: peak.value for dtype in (*maths, *widest) if (peak := matrix_peak(part, dtype, sheet=sheet, narrow=True))
    }
    return Rates(
        values=_known(known, book),
        matrix=peaks,
        fastest=fastest,
        unknown=(
            *(name for name, number in known.items() if number is None),
            *(f"{level}_bandwidth" for level, wire in wires.items() if wire.bytes_per_second is None),
            *(f"{level}_latency" for level, wire in wires.items() if wire.latency_seconds is None),
        ),
        links={level: _of_wire(wire) for level, wire in wires.items()} or {"scale-up": NO_LINK},
    )


def _of_wire(wire: Wire) -> dict[str, float]:
    """The rates of a link; what is not known takes no time."""
    bandwidth = math.inf if wire.bytes_per_second is None else wire.bytes_per_second
    return {"link_bandwidth": bandwidth, "link_latency": wire.latency_seconds or 0.0}


def part_rates(part: Part, book: Book) -> dict[str, float]:
    """The rates of a part alone, without the peak of any data type; infinite where its sources do not give them."""
    return _known(_of_part(part), book)


def _of_part(part: Part) -> dict[str, Any]:
    vector = vector_peak(part)
    return {
        "bandwidth": part.bandwidth_bytes_per_second.value,
        "capacity": part.capacity_bytes.value,
        "vector_peak": vector.value if vector else None,
        "exp_rate": part.exp_per_second.value if part.exp_per_second else None,
        "on_chip": on_chip_bytes(part),
        "clock_ratio": clock_ratio(part),
    }


def _known(given: Mapping[str, Any], book: Book) -> dict[str, float]:
    constants = NO_LINK | {
        name: symbol.value for name, symbol in book.glossary.symbols.items() if symbol.value is not None
    }
    return {name: math.inf if number is None else number for name, number in given.items()} | constants
