"""Every row of a table with its floor and its estimate, in the row's own metric and unit, or why it has none."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from flopmap.audit.measurements import Held, Unpriced
from flopmap.audit.rows import RATES
from flopmap.estimate.estimate import Estimate, estimate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from flopmap.records.book import Book

ADDED = ("floor", "estimate", "estimate_low", "estimate_high", "not_priced")


@contextlib.contextmanager
def writer(path: Path | None, book: Book) -> Iterator[Callable[[dict[str, str], Held | Unpriced], None] | None]:
    """A function that writes a row, or None without a path."""
    import csv

    if path is None:
        yield None
        return
    with path.open("w", encoding="utf-8", newline="") as file:
        table: Any = None

        def write(cells: dict[str, str], found: Held | Unpriced) -> None:
            nonlocal table
            if table is None:
                table = csv.DictWriter(file, [*cells, *ADDED], extrasaction="ignore")
                table.writeheader()
            table.writerow({**cells, **added(found, book)})

        yield write


def added(found: Held | Unpriced, book: Book) -> dict[str, Any]:
    """The columns that are added to a row. An estimate is of one part: what several add to each other is not in it."""
    if isinstance(found, Unpriced):
        return {"not_priced": found.why}
    reading = found.reading
    columns: dict[str, Any] = {"floor": _as_stated(found, found.floor)}
    estimates = [estimate(pricing, book) for pricing, _ in found.pricings]
    if reading.devices == 1 and None not in estimates:
        for name, of in (("estimate", "value"), ("estimate_low", "low"), ("estimate_high", "high")):
            total = sum(_field(one, of) * runs for one, (_, runs) in zip(estimates, found.pricings, strict=True))
            columns[name] = _as_stated(found, total)
    return columns


def _field(one: Estimate | None, name: str) -> float:
    return float(getattr(one, name))


def _as_stated(found: Held, seconds: float) -> float:
    """A time in the row's own metric and unit: the measured value, scaled by the ratio of the times."""
    reading = found.reading
    value, ratio = float(reading.cells["value"]), seconds / reading.seconds
    return value / ratio if reading.cells["metric"].strip() in RATES else value * ratio
