"""Levers pulled one after another: each time the one that saves most, as long as it fits and no gate is in the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from flopmap.choices.crossover import prefer
from flopmap.floor.roofline import price
from flopmap.floor.summary import Memory, memory, utilisation
from flopmap.levers import Gain, gains, pulled
from flopmap.records.types import Lever
from flopmap.scenario import Request, make

if TYPE_CHECKING:
    from flopmap.floor.roofline import Pricing
    from flopmap.records.book import Book

LEAST = 1e-9  # a share of time that is saved


class Pulled(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario after a lever: its gain, and the throughput of the whole batch.

    ``turns_at``: the first batch (prompt, in prefill) at which the lever wins no longer, or begins to.
    """

    gain: Gain
    tokens_per_second: float
    memory: Memory
    wins_at_1: bool | None = None
    turns_at: int | None = None


class Levers(msgspec.Struct, frozen=True, kw_only=True):
    """What a scenario is, what each lever makes of it, what the best ones make together; and those that do nothing."""

    seconds: float
    tokens_per_second: float
    memory: Memory
    axis: str
    single: tuple[Pulled, ...]
    together: tuple[Pulled, ...]
    without_effect: tuple[str, ...]


def levers(request: Request, count: int, axis: str, book: Book) -> Levers:
    """Every lever by itself, and up to ``count`` pulled together."""
    pricing = price(make(request, book), book)
    single = []
    for gain in gains(request, pricing, book):
        changed = pulled(book.record(Lever, gain.id), request)
        turns = prefer(changed, request, axis, "time", book)
        after = _after(gain, changed, book)
        single.append(msgspec.structs.replace(after, wins_at_1=turns.first_wins_at_1, turns_at=turns.flips_at))
    found = {one.gain.id for one in single}
    return Levers(
        seconds=pricing.engine_seconds,
        tokens_per_second=_speed(pricing, book),
        memory=memory(pricing, book),
        axis=axis,
        single=tuple(single),
        together=tuple(greedy(request, count, book)),
        without_effect=tuple(name for name in book.ids("levers") if name not in found),
    )


def greedy(request: Request, count: int, book: Book) -> list[Pulled]:
    """Up to ``count`` levers, each the one that saves most after those before it.

    A field that one lever has set is left to it. A lever that makes a scenario not fit is passed over; where the
    scenario itself does not fit, one that holds no less is. Each :class:`Pulled` is relative to the one before it.
    """
    taken: list[Pulled] = []
    locked: set[str] = set()
    while len(taken) < count:
        pricing = price(make(request, book), book)
        now = memory(pricing, book)
        for gain in gains(request, pricing, book):
            lever = book.record(Lever, gain.id)
            if gain.gain <= LEAST or locked & lever.set.keys():
                continue
            changed = pulled(lever, request)
            step = _after(gain, changed, book)
            if step.memory.fits or (not now.fits and _held(step.memory) < _held(now)):
                taken.append(step)
                locked |= lever.set.keys()
                request = changed
                break
        else:
            break
    return taken


def _held(fit: Memory) -> float:
    return fit.weight_bytes + fit.cache_bytes


def _after(gain: Gain, request: Request, book: Book) -> Pulled:
    pricing = price(make(request, book), book)
    return Pulled(gain=gain, tokens_per_second=_speed(pricing, book), memory=memory(pricing, book))


def _speed(pricing: Pricing, book: Book) -> float:
    return utilisation(pricing, pricing.engine_seconds, book)["tokens_per_second"]
