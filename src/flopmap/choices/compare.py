"""Scenarios side by side along one field: ranked, with what makes the difference and where the winner changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from flopmap.choices.crossover import cost, hourly_price, prefer
from flopmap.floor.roofline import price
from flopmap.floor.sensitivity import bound_by, shares
from flopmap.floor.summary import memory, utilisation
from flopmap.scenario import Request, make

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flopmap.records.book import Book

MILLION = 1e6


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario of a comparison, at the engine floor. ``terms`` are the seconds that each property governs.

    Against the winner: ``wins_at_1`` and, from 1 on along the axis, the first point where that changes (None: never).
    """

    name: str
    step_seconds: float
    device_seconds: float
    tokens_per_second: float
    usd_per_million: float | None
    bound_by: str
    mbu: float
    mfu: float
    weight_bytes: float
    held_bytes: float
    capacity_bytes: float
    fits: bool
    max_sequences: int | None
    terms: dict[str, float]
    wins_at_1: bool = False
    flips_at: int | None = None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Scenarios in their order: those that fit first, and of each the ones that cost least a token."""

    field: str
    metric: str
    axis: str
    rows: tuple[Compared, ...]


def compare(requests: Sequence[tuple[str, Request]], field: str, metric: str, axis: str, book: Book) -> Comparison:
    """Rank named requests. Raises the error of one that cannot be made, or that has no price where it is asked for."""
    costs = {name: cost(request, metric, book) for name, request in requests}
    rows = [_row(name, request, book) for name, request in requests]
    rows.sort(key=lambda row: (not row.fits, costs[row.name]))
    by_name = dict(requests)
    winner = by_name[rows[0].name]
    ranked = [rows[0]]
    for row in rows[1:]:
        found = prefer(by_name[row.name], winner, axis, metric, book)
        ranked.append(msgspec.structs.replace(row, wins_at_1=found.first_wins_at_1, flips_at=found.flips_at))
    return Comparison(field=field, metric=metric, axis=axis, rows=tuple(ranked))


def _row(name: str, request: Request, book: Book) -> Compared:
    pricing = price(make(request, book), book)
    fit = memory(pricing, book)
    used = utilisation(pricing, pricing.engine_seconds, book)
    priced = hourly_price(pricing.scenario) is not None
    return Compared(
        name=name,
        step_seconds=pricing.engine_seconds,
        device_seconds=pricing.device_seconds,
        tokens_per_second=used["tokens_per_second"],
        usd_per_million=cost(request, "price", book) * MILLION if priced else None,
        bound_by=bound_by(pricing),
        mbu=used["mbu"],
        mfu=used["mfu"],
        weight_bytes=fit.weight_bytes,
        held_bytes=pricing.totals["resident"] + pricing.totals["cache"] + pricing.totals["held"],
        capacity_bytes=fit.capacity_bytes,
        fits=fit.fits,
        max_sequences=fit.max_sequences,
        terms={term: seconds for term, seconds in shares(pricing).items() if seconds},
    )
