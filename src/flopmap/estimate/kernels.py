"""How long kernels of a part take: laws of the book with the figures of its efficiency records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopmap.machine.machine import fastest_peak
from flopmap.records.formula import bind
from flopmap.records.kernels import Efficiency
from flopmap.records.resolve import law
from flopmap.records.types import Law, Part

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from flopmap.records.book import Book
    from flopmap.records.kernels import Fit
    from flopmap.records.notation import Expr

COLD = 1.0  # byte: hot_bytes of a step, whose kernels find nothing of theirs in on-chip memory


class NoFigureError(ValueError):
    """A part lacks a rate that the law of a kernel needs. One line."""


def kernel_rates(part: Part, maths: Iterable[str]) -> dict[str, float]:
    """The rates that laws of kernels name: byte/s, units, FLOP/s of the fastest of these data types.

    Raises :class:`NoFigureError` where the record has no compute units or no peak.
    """
    peak = max((fastest_peak(part, math) for math in maths), default=0.0)
    if part.compute_units is None or not peak:
        missing = "compute_units" if part.compute_units is None else f"peak of {', '.join(maths)}"
        raise NoFigureError(f"parts/{part.id} has no {missing}")
    return {
        "bandwidth": part.bandwidth_bytes_per_second.value,
        "compute_units": part.compute_units.value,
        "matrix_peak": peak,
    }


def link_rates(part: Part) -> dict[str, float]:
    """The rate of a part's link to its like, or of that to the host where it has none. byte/s, one direction."""
    for link in part.links:
        if link.level == "scale-up":
            return {"link_bandwidth": link.value}
    if part.host_link_bytes_per_second:
        return {"link_bandwidth": part.host_link_bytes_per_second.value}
    raise NoFigureError(f"parts/{part.id} has neither links nor host_link_bytes_per_second")


def kernel_seconds(law_id: str, known: Mapping[str, Expr], book: Book) -> Expr:
    """A law's time of a kernel, in what is not ``known``: shapes, formats, rates and figures by their symbols."""
    return bind(law(book.record(Law, law_id), {})["seconds"], known)


def fits(part: Part, book: Book) -> tuple[Fit, ...]:
    """The fits of a part's kernels; none where no timings of it are known."""
    found = book.find("efficiency", part.id)
    return book.record(Efficiency, found).fits if found else ()
