"""What a change to the scenario buys: a lever's record says which fields it sets; the changed scenario is priced."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from flopmap.facts import availability, part_facts
from flopmap.floor.roofline import price
from flopmap.floor.summary import memory
from flopmap.records.types import Lever, OpClass
from flopmap.scenario import make
from flopmap.step import ScenarioError

if TYPE_CHECKING:
    from flopmap.floor.roofline import Pricing
    from flopmap.records.book import Book
    from flopmap.scenario import Request


FORMATS = {"quantization": "weights", "kv_cache_dtype": "kv"}  # fields of a request, and what they are called inside


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """A lever's effect: the engine floor with it, and the share of time it saves (negative when it loses).

    Where a step yields another number of tokens with it, ``step_seconds`` is the time of as many as before.
    """

    id: str
    title: str
    step_seconds: float
    gain: float
    max_sequences: int | None
    gates: tuple[str, ...]
    traps: tuple[str, ...]


def gains(request: Request, pricing: Pricing, book: Book) -> list[Gain]:
    """Every lever that changes this scenario, best first."""
    found = []
    for lever_id in book.ids("levers"):
        gain = _gain(book.record(Lever, lever_id), request, pricing, book)
        if gain is not None:
            found.append(gain)
    return sorted(found, key=lambda gain: gain.step_seconds)


def pulled(lever: Lever, request: Request) -> Request:
    """The request with a lever's fields set."""
    return msgspec.structs.replace(request, **lever.set)


def _let_through(lever: Lever, pricing: Pricing, book: Book) -> bool:
    """Whether every gate of a lever opens on the scenario's part."""
    known = part_facts(pricing.scenario.machine.part) if lever.gates else {}
    return all(
        availability(book.record(OpClass, gate), known).answer in accepted for gate, accepted in lever.gates.items()
    )


def _gain(lever: Lever, request: Request, pricing: Pricing, book: Book) -> Gain | None:
    """None when the lever changes nothing here: it is in force already, or the scenario has no such part."""
    changed = pulled(lever, request)
    if changed == request or not _let_through(lever, pricing, book):
        return None
    try:
        scenario = make(changed, book)
    except ScenarioError:
        return None
    after = price(scenario, book)
    if after.totals == pricing.totals and after.engine_seconds == pricing.engine_seconds:
        return None
    if lever.set.keys() <= FORMATS.keys() and _as_wide(lever, after, pricing):
        return None
    step_seconds = after.engine_seconds * (pricing.scenario.kept[0] / scenario.kept[0])
    new_notes = [note for note in scenario.assumptions if note not in pricing.scenario.assumptions]
    return Gain(
        id=lever.id,
        title=lever.title,
        step_seconds=step_seconds,
        gain=1 - step_seconds / pricing.engine_seconds,
        max_sequences=memory(after, book).max_sequences,
        gates=(*lever.needs, *new_notes),
        traps=(lever.caveat,) if lever.caveat else (),
    )


def _as_wide(lever: Lever, after: Pricing, before: Pricing) -> bool:
    """Whether the formats that a lever sets have as many bits as those in force, and multiply no faster."""
    old, new = before.scenario.precision, after.scenario.precision
    faster = after.rates.matrix[new.math] > before.rates.matrix[old.math]
    return not faster and all(
        getattr(new, name).bits >= getattr(old, name).bits for field, name in FORMATS.items() if field in lever.set
    )
