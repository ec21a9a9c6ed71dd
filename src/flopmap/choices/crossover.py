"""Where bounds and preferences flip: along an axis of the ledger, between two scenarios, and by laws of the book."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from flopmap.choices.axes import Open, at, memory_of, opened
from flopmap.choices.solve import Flip, first_whole, solve
from flopmap.floor.drafts import drafts
from flopmap.floor.roofline import price, rates
from flopmap.floor.summary import memory
from flopmap.machine.machine import matrix_peak
from flopmap.precision import element_bytes
from flopmap.records.formula import bind, operate, total, value
from flopmap.records.resolve import law
from flopmap.records.types import Crossover as Measured
from flopmap.records.types import Format, Law
from flopmap.scenario import MAX_LENGTH, Request, Scenario, make
from flopmap.step import ScenarioError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from flopmap.floor.roofline import Pricing
    from flopmap.records.book import Book
    from flopmap.records.notation import Expr

BOUNDS = ("matrix peak", "memory bandwidth")
STEP = "step"
LEAN = "step, weights of GEMMs and cache only"
MANY = 2**20  # a batch at which a step touches every expert and its weights are few bytes beside the cache
SECONDS_AN_HOUR = 3600.0
METRICS = ("time", "price")


class Crossover(msgspec.Struct, frozen=True, kw_only=True):
    """Where something flips along an axis: ``below`` holds from 1 on, ``beyond`` from the first flip; none is never.

    ``sensitivity`` of a flip: percent that the point moves for a percent of the ratio of the two, such as the ridge.
    """

    what: str
    axis: str
    below: str
    beyond: str
    flips: tuple[Flip, ...]
    exact: bool

    @property
    def at(self) -> float | None:
        """The first flip, or None for never."""
        return self.flips[0].at if self.flips else None


class LawFigure(msgspec.Struct, frozen=True, kw_only=True):
    """A crossover that a law of the book gives at once; None is never."""

    what: str
    value: float | None
    unit: str
    law: str


class Crossovers(msgspec.Struct, frozen=True, kw_only=True):
    """All crossovers of a scenario along an axis. ``most`` are the sequences that fit at the request's lengths."""

    axis: str
    scenario: Scenario
    found: tuple[Crossover, ...]
    figures: tuple[LawFigure, ...]
    most: int | None


def crossovers(request: Request, axis: str, book: Book) -> Crossovers:
    """Every bound and preference that flips along an axis, and what the laws say beside. Raises ScenarioError."""
    scenario, ops = opened(request, axis, book)
    found = [
        _between(STEP, axis, BOUNDS, _matrix(ops), _memory(ops)),
        _between(LEAN, axis, BOUNDS, _matrix(ops), _lean(ops, scenario, book)),
        *_poles(request, axis, scenario, book),
    ]
    for op_class in dict.fromkeys(op.op_class for op in ops):
        members = [op for op in ops if op.op_class == op_class]
        if _matrix(members) != 0:
            found.append(_between(op_class, axis, BOUNDS, _matrix(members), _memory(members)))
    found += _preferences(ops, axis, scenario, book)
    pricing = price(make(request, book), book)
    return Crossovers(
        axis=axis,
        scenario=pricing.scenario,
        found=tuple(found),
        figures=tuple(_figures(pricing, ops, axis, book)),
        most=memory(pricing, book).max_sequences,
    )


def _matrix(ops: Iterable[Open]) -> Expr:
    return total(op.matrix_seconds for op in ops)


def _memory(ops: Iterable[Open]) -> Expr:
    return total(op.memory_seconds for op in ops)


def _lean(ops: list[Open], scenario: Scenario, book: Book) -> Expr:
    """The time of what back-of-envelope crossovers count: weights that are multiplied, and the cache."""
    multiplied = memory_of((op for op in ops if op.costs["matrix"] != 0), ("weights",), scenario, book)
    return operate("+", multiplied, memory_of(ops, ("kv_traffic",), scenario, book))


def _between(what: str, axis: str, names: tuple[str, str], left: Expr, right: Expr) -> Crossover:
    """Where the larger of two formulas changes; ``names`` say what it means that the one or the other is."""
    solved = solve(left, right, MAX_LENGTH)
    below, beyond = names if solved.first_leads else names[::-1]
    return Crossover(what=what, axis=axis, below=below, beyond=beyond, flips=solved.flips, exact=solved.exact)


def _poles(request: Request, axis: str, scenario: Scenario, book: Book) -> Iterator[Crossover]:
    """The context from which on no batch is enough: a further sequence brings more time of bytes than of FLOP."""
    if axis != "batch" or scenario.phase != "decode":
        return
    (_, few), (_, many) = (opened(replace(request, batch_size=batch), "context", book) for batch in (MANY, 2 * MANY))
    matrix = operate("-", _matrix(many), _matrix(few))
    for what, pair in (
        (STEP, (_memory(few), _memory(many))),
        (LEAN, (_lean(few, scenario, book), _lean(many, scenario, book))),
    ):
        memory_seconds = operate("-", pair[1], pair[0])
        yield _between(f"{what}: does any batch do", "context", ("some batch", "no batch"), matrix, memory_seconds)


def _preferences(ops: list[Open], axis: str, scenario: Scenario, book: Book) -> Iterator[Crossover]:
    """Which of two kinds of work is the larger, and whether to load a prompt's cache or to compute it again."""
    attention = [op for op in ops if "attention" in op.op_class]
    others = [op for op in ops if "attention" not in op.op_class]
    if _matrix(attention) != 0 and axis != "batch":
        names = ("FLOP of attention", "FLOP of the GEMMs")
        yield _between("most FLOP", axis, names, _matrix(attention), _matrix(others))
    weights, cache, state = (memory_of(ops, (kind,), scenario, book) for kind in ("weights", "kv_traffic", "state"))
    if scenario.phase == "decode" and cache != 0:
        yield _between("most bytes", axis, ("cache", "weights"), cache, weights)
    if cache != 0 and state != 0 and axis == "context":
        yield _between("attention against recurrence", axis, ("cache", "recurrent state"), cache, state)
    link = scenario.machine.part.host_link_bytes_per_second
    held = total(op.costs["cache"] for op in ops)
    if link and scenario.phase == "prefill" and axis == "prompt" and held != 0:
        load = bind(_law("kv-offload", book)["load_seconds"], {"cache": held, "host_bandwidth": link.value})
        again = total(op.seconds for op in ops)
        yield _between("offload against recomputing", axis, ("load the cache", "compute it again"), again, load)


def _law(name: str, book: Book) -> dict[str, Expr]:
    return law(book.record(Law, name), {})


def _figures(pricing: Pricing, ops: list[Open], axis: str, book: Book) -> Iterator[LawFigure]:
    """What laws give in one formula: experts, absorption, drafts, prefix cache; and what is measured."""
    scenario = pricing.scenario
    machine = rates(scenario, book)
    known = {**machine.values, "matrix_peak": machine.matrix[scenario.precision.math]}
    experts = next((op for op in ops if op.op_class == "moe-experts"), None)
    if experts and axis == "batch":
        trees = _law("ridge-of-experts", book)
        given = {**known, **experts.shapes, **pricing.totals}
        for name, what in (("ridge_batch", "experts, all touched"), ("ridge_batch_whole", "all weights, no cache")):
            yield LawFigure(what=what, value=value(trees[name], given), unit="tokens", law="ridge-of-experts")
    latent = next(
        (op for op in ops if "latent" in op.op_class and "latent" in op.shapes and "heads" in op.shapes), None
    )
    if latent and axis == "context":
        given = {**latent.shapes, "weight_bytes": element_bytes(scenario.precision.weights, book)}
        for name, what in (
            ("tokens", "absorption"),
            ("tokens_with_rope", "absorption, as published with rotated elements"),
        ):
            figure = value(_law("mla-absorption", book)[name], given)
            yield LawFigure(what=what, value=figure, unit="tokens", law="mla-absorption")
    drafted = drafts(pricing, book)
    if drafted:
        yield LawFigure(
            what="drafts pay from an acceptance of", value=drafted.break_even, unit="", law="speculative-decoding"
        )
    link = scenario.machine.part.host_link_bytes_per_second
    if link and scenario.phase == "prefill" and pricing.totals["cache"]:
        given = {"cache": pricing.totals["cache"], "prompt_seconds": pricing.operation_seconds}
        rate = value(_law("kv-offload", book)["hit_rate"], {**given, "host_bandwidth": link.value})
        what = "prefix cache in host memory pays from a hit rate of"
        yield LawFigure(what=what, value=rate if 0 <= rate <= 1 else None, unit="", law="kv-offload")
    if axis == "batch" and scenario.machine.part.id in book.ids("crossovers"):
        for crossing in book.record(Measured, scenario.machine.part.id).batches:
            what = f"GEMMs in {crossing.dtype}, measured"
            yield LawFigure(what=what, value=crossing.value, unit="tokens", law=crossing.source)


# -- formats ----------------------------------------------------------------------------------------------------------


class FormatRidge(msgspec.Struct, frozen=True, kw_only=True):
    """The batch at which a weight GEMM leaves memory, by the elements' bits alone and with their scales."""

    format: str
    bits: float
    math: str
    batch_of_elements: float
    batch: float


def by_format(scenario: Scenario, book: Book) -> list[FormatRidge]:
    """The crossover of every format of weights on the scenario's part, the narrowest first."""
    part, tree = scenario.machine.part, _law("ridge", book)["ridge_batch"]
    known = rates(scenario, book).values
    rows = []
    for name in book.ids("formats"):
        record = book.record(Format, name)
        if "weights" not in record.applies_to:
            continue
        math_type = next(
            (dtype for dtype in record.math if matrix_peak(part, dtype)), scenario.precision.activation_math
        )
        peak = matrix_peak(part, math_type)
        if peak is None:
            continue
        batches = [
            value(bind(tree, {**known, "matrix_peak": peak.value, "weight_bytes": width}))
            for width in (record.bits / 8, element_bytes(record, book))
        ]
        rows.append(
            FormatRidge(format=name, bits=record.bits, math=math_type, batch_of_elements=batches[0], batch=batches[1])
        )
    return sorted(rows, key=lambda row: (row.batch, row.format))


# -- two scenarios ----------------------------------------------------------------------------------------------------


class Preference(msgspec.Struct, frozen=True, kw_only=True):
    """Which of two scenarios is the better at the request's own point, and the first point where that changes."""

    axis: str
    metric: str
    values: tuple[float, float]
    first_wins: bool
    first_wins_at_1: bool
    flips_at: int | None


def cost(request: Request, metric: str, book: Book) -> float:
    """Seconds of a step for a token that it yields, at the engine floor, or dollars."""
    scenario = make(request, book)
    seconds = price(scenario, book).engine_seconds
    if metric == "time":
        return seconds / scenario.tokens
    known = {"usd_per_second": _usd_per_second(scenario), "seconds": seconds, "tokens": scenario.tokens}
    return value(_law("price", book)["usd_per_token"], known)


def _usd_per_second(scenario: Scenario) -> float:
    hourly = hourly_price(scenario)
    if hourly is None:
        raise ScenarioError(f"{scenario.machine.part.id}: no price of an hour on record (accepted: --metric time)")
    return hourly * scenario.machine.count / SECONDS_AN_HOUR


def hourly_price(scenario: Scenario) -> float | None:
    """The lowest price of an hour on record for a part of the machine."""
    return min((one.value for one in scenario.machine.part.prices_usd if one.per == "hour"), default=None)


def prefer(first: Request, second: Request, axis: str, metric: str, book: Book, *, last: int = 2**20) -> Preference:
    """Which of two requests costs less a token, and the first whole point of an axis at which that flips."""

    def first_wins(point: int) -> bool:
        left, right = (cost(at(request, axis, point), metric, book) for request in (first, second))
        return left < right and not math.isclose(left, right, rel_tol=1e-9)

    values = (cost(first, metric, book), cost(second, metric, book))
    return Preference(
        axis=axis,
        metric=metric,
        values=values,
        first_wins=values[0] < values[1],
        first_wins_at_1=first_wins(1),
        flips_at=first_whole(first_wins, 1, last),
    )


def default_axis(scenario: Scenario) -> str:
    """The axis that people ask for first: the batch in decode, else the prompt."""
    return "batch" if scenario.phase in ("decode", "mixed") else "prompt"
