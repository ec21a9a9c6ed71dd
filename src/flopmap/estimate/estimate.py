"""The estimate: the engine floor, raised to where public results lie. Absent where the book has no results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from flopmap.records.formula import value
from flopmap.records.resolve import law
from flopmap.records.types import Law, Spread

if TYPE_CHECKING:
    from flopmap.floor.roofline import Pricing
    from flopmap.records.book import Book


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """Likely seconds of a step, and the interval that 8 of 10 public results fall into."""

    value: float
    low: float
    high: float


def estimate(pricing: Pricing, book: Book) -> Estimate | None:
    """The estimate of a step, or None when the book has no results of its kind."""
    if pricing.scenario.blocks or book.find("measurements", pricing.scenario.phase) is None:
        return None
    spread = book.record(Spread, pricing.scenario.phase)
    formula = law(book.record(Law, "estimate"), pricing.scenario.conventions)["seconds"]
    floors = {"floor_seconds": pricing.engine_seconds, "operation_seconds": pricing.operation_seconds}

    def at(ratio: float) -> float:
        return value(formula, {**floors, "floor_ratio": ratio})

    return Estimate(value=at(spread.middle.value), low=at(spread.low.value), high=at(spread.high.value))
