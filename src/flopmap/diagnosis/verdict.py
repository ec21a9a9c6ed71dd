"""The verdict on a scenario: what binds, how far a measurement is above the floor, and what usually causes that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from flopmap.estimate.estimate import Estimate, estimate
from flopmap.facts import facts
from flopmap.floor.drafts import Drafts, drafts, left_out
from flopmap.floor.roofline import Pricing, price
from flopmap.floor.sensitivity import Doubling, bound_by, doublings, elasticity
from flopmap.floor.summary import Memory, memory, utilisation
from flopmap.levers import Gain, gains
from flopmap.records.condition import facts_of, holds, parse
from flopmap.records.types import Band, Reading, Trap
from flopmap.scenario import Request, make
from flopmap.step import ScenarioError

if TYPE_CHECKING:
    from flopmap.records.book import Book
    from flopmap.records.condition import Fact

CAUSE_OF = {
    "memory_bandwidth": "memory bandwidth",
    "matrix_peak": "compute",
    "vector_peak": "compute",
    "exp_rate": "compute",
    "link_bandwidth": "interconnect",
    "link_latency": "interconnect",
    "launch": "launch-host",
    "host": "launch-host",
}
UNKNOWN_RATES = {
    "vector_peak": "time of vector FLOP: the part has no vector peak on record",
    "exp_rate": "time of exponentials: the part has no rate on record",
    "scale-up_bandwidth": "time of bytes between parts: the part has no link on record",
    "scale-out_bandwidth": "time of bytes beyond a scale-up domain: the part has no link on record",
    "scale-up_latency": "latency of links: the part has none on record",
    "scale-out_latency": "latency of links beyond a scale-up domain: the part has none on record",
}


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What the user measured: a time of the step, or the tokens per second that give one."""

    name: str
    seconds: float
    text: str


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """A possible cause with its weight (they add up to 1) and the check that would confirm it."""

    cause: str
    weight: float
    check: str


class Warned(msgspec.Struct, frozen=True, kw_only=True):
    """A trap whose condition holds here."""

    id: str
    title: str
    why: str
    remedy: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a report shows."""

    request: Request
    pricing: Pricing
    memory: Memory
    estimate: Estimate | None
    bound_by: str
    elasticity: dict[str, float]
    doublings: tuple[Doubling, ...]
    levers: tuple[Gain, ...]
    at_floor: dict[str, float]
    drafts: Drafts | None
    measured: Measured | None
    over_floor: float | None
    over_device: float | None
    at_measured: dict[str, float] | None
    meaning: str
    causes: tuple[Cause, ...]
    traps: tuple[Warned, ...]
    assumptions: tuple[str, ...]
    not_counted: tuple[str, ...]


def judge(request: Request, book: Book, measured: tuple[str, float] | None = None) -> Verdict:
    """Price a scenario and hold a measurement against it.

    ``measured`` is ``("tpot" | "itl" | "ttft" | "step", seconds)`` or ``("throughput", tokens per second)``.
    Raises what :func:`flopmap.scenario.make` raises, and :class:`ScenarioError` for a measurement that is no time.
    """
    scenario = make(request, book)
    if scenario.model.architecture.embedding != "own":
        raise ScenarioError(f"{request.model} drafts for another model: give it with --speculative-config")
    pricing = price(scenario, book)
    fit = memory(pricing, book)
    if scenario.plan:
        from flopmap.floor.ranks import refuse_unfit

        refuse_unfit(request, pricing, fit, book)
    reading = _measured(measured, pricing) if measured else None
    over = reading.seconds / pricing.operation_seconds if reading else None
    band = _band(reading.seconds, pricing, book) if reading else None
    unknown = [UNKNOWN_RATES[name] for name in pricing.rates.unknown if name in UNKNOWN_RATES]
    return Verdict(
        request=request,
        pricing=pricing,
        memory=fit,
        estimate=estimate(pricing, book),
        bound_by=bound_by(pricing),
        elasticity=elasticity(pricing),
        doublings=tuple(doublings(pricing)),
        levers=tuple(gains(request, pricing, book)),
        at_floor=utilisation(pricing, pricing.operation_seconds, book),
        drafts=drafts(pricing, book),
        measured=reading,
        over_floor=over,
        over_device=reading.seconds / pricing.device_seconds if reading else None,
        at_measured=utilisation(pricing, reading.seconds, book) if reading else None,
        meaning=band.meaning if band else "",
        causes=_causes(band, pricing, fit, book) if band else (),
        traps=_traps(facts(pricing, fit, reading.seconds if reading else None), book),
        assumptions=scenario.assumptions,
        not_counted=(*scenario.model.not_counted, *left_out(scenario, book), *unknown),
    )


def _traps(known: dict[str, Fact], book: Book) -> tuple[Warned, ...]:
    """The traps whose condition holds, those that ask for the most facts first; none on an unknown fact."""
    records = (book.record(Trap, trap_id) for trap_id in book.ids("traps"))
    near = [trap for trap in records if trap.when and holds(parse(trap.when), known)]
    near.sort(key=lambda trap: -len(facts_of(parse(trap.when))))
    return tuple(Warned(id=trap.id, title=trap.title, why=trap.summary, remedy=trap.remedy) for trap in near)


def _measured(measured: tuple[str, float], pricing: Pricing) -> Measured:
    name, number = measured
    if not 0 < number < float("inf"):
        raise ScenarioError(f"--{name} {number}: a measurement is a positive number")
    scenario = pricing.scenario
    fewest, most = scenario.kept
    if name in ("tpot", "throughput") and fewest < most:
        raise ScenarioError(f"--{name} of drafts needs --acceptance-rate, since a cycle yields more than one token")
    if name == "throughput":
        return Measured(name=name, seconds=scenario.tokens / number, text=f"{number:g} tokens/s")
    # chunks come once a step: their gap is the time of all tokens that it yields
    seconds = number * fewest if name == "tpot" else number
    return Measured(name=name, seconds=seconds, text=f"{name.upper()} {number}")


def _band(seconds: float, pricing: Pricing, book: Book) -> Band:
    """The band of a measured time. Only what beats the device floor is impossible; the operation floor is no bound."""
    bands = book.record(Reading, "measured-over-floor").bands
    if seconds < pricing.device_seconds:
        return bands[0]
    over = max(1.0, seconds / pricing.operation_seconds)
    return next(band for band in bands[1:] if over <= band.up_to)


def _causes(band: Band, pricing: Pricing, fit: Memory, book: Book) -> tuple[Cause, ...]:
    """The causes of a band, likeliest first, as far as they can occur here."""
    reading = book.record(Reading, "measured-over-floor")
    weights = dict(band.causes)
    far = "launch-host" in weights
    if far and pricing.scenario.eager:
        weights = dict(reading.eager_causes)
    if "impossible input" not in weights and not fit.fits and not fit.borderline:
        weights = {"capacity": 1.0}
    if pricing.scenario.machine.count == 1:
        weights.pop("interconnect", None)
    named: dict[str, float] = {}
    for cause, weight in weights.items():
        name = CAUSE_OF[bound_by(pricing)] if cause == "bound" else cause
        named[name] = named.get(name, 0.0) + weight
    whole = sum(named.values())
    ranked = sorted(named.items(), key=lambda item: -item[1])
    return tuple(Cause(cause=cause, weight=weight / whole, check=reading.checks[cause]) for cause, weight in ranked)
