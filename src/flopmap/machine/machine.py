"""The machine of a scenario: a part, how many, and the rates that the laws need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

from flopmap.quantity import shown
from flopmap.records.book import to_data
from flopmap.records.types import Crossing, Crossover, Figure, MachineRecord, Part, Peak

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopmap.records.book import Book

F = TypeVar("F", bound=Figure)
MAX_COUNT = 1_000_000
MAX_DIGITS = 7


class MachineError(ValueError):
    """A machine that cannot be priced. One line."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """``count`` equal parts."""

    part: Part
    count: int = 1


def read_machine(text: str, book: Book) -> Machine:
    """A machine from ``PART``, ``PART:N``, or the name of a machine, such as ``p5.48xlarge``.

    ``PART@SOURCE`` takes that source's values where sources disagree. Raises :class:`MachineError` or
    :class:`UnknownRecordError`.
    """
    name, count = _split(text, book)
    machine = None
    if book.find("parts", name.partition("@")[0]) is None and _is_machine(name, book):
        machine = book.record(MachineRecord, name)
        name, count = machine.part, machine.count * count
    part = read_part(name, book)
    return Machine(part=part if machine is None else linked(part, machine), count=count)


def _is_machine(name: str, book: Book) -> bool:
    """Whether a name that no part has is a machine's, or looks like one more than like a part's."""
    if book.find("machines", name):
        return True
    return bool(book.nearest("machines", name)) and not book.nearest("parts", name)


def linked(part: Part, machine: MachineRecord) -> Part:
    """A part with the links of the machine that it is in, in place of its own of the same level."""
    levels = {link.level for link in machine.links}
    return replace(part, links=(*machine.links, *(link for link in part.links if link.level not in levels)))


def read_part(text: str, book: Book) -> Part:
    """A part from ``PART`` or ``PART@SOURCE``: with the values that the source prints where others are the default."""
    name, at, source = text.partition("@")
    part = book.record(Part, name)
    if not at:
        return part
    data = to_data(part)
    sources = set(_others(data))
    if source not in sources:
        accepted = ", ".join(sorted(sources)) or "none: no source disagrees about this part"
        raise MachineError(f"{text}: {part.id} has no other values of {shown(source)} (accepted: {accepted})")
    return msgspec.convert(_printed(data, source), type=Part)


def _others(data: Any) -> Iterator[str]:
    """The sources of every other value."""
    if isinstance(data, dict):
        yield from (other["source"] for other in data.get("others", ()))
    for value in data.values() if isinstance(data, dict) else data if isinstance(data, list | tuple) else ():
        yield from _others(value)


def _printed(data: Any, source: str) -> Any:
    """A record's data with the other values of a source put in."""
    if isinstance(data, list | tuple):
        return [_printed(value, source) for value in data]
    if not isinstance(data, dict):
        return data
    other: dict[str, Any] = next((it for it in data.get("others", ()) if it["source"] == source), {})
    return {key: _printed(value, source) for key, value in (data | other).items()}


def _split(text: str, book: Book) -> tuple[str, int]:
    if book.find("parts", text) or book.find("machines", text):
        return text, 1
    if not text.strip():
        raise MachineError(f"--on {text!r}: give PART or PART:COUNT, such as h100-sxm")
    name, colon, count = text.strip().rpartition(":")
    if not colon:
        return text.strip(), 1
    if not (count.isascii() and count.isdigit()) or len(count) > MAX_DIGITS or not 1 <= int(count) <= MAX_COUNT:
        raise MachineError(f"--on {text}: {shown(count)} is not a count of parts (accepted: 1 to {MAX_COUNT})")
    return name, int(count)


def bits(dtype: str) -> int:
    """The bits of an element of a data type: its name ends in them."""
    return int(dtype.lstrip("abcdefghijklmnopqrstuvwxyz"))


def dtypes(part: Part) -> list[str]:
    """The data types that the part can multiply in, matrix units first."""
    return list(dict.fromkeys(peak.dtype for unit in ("matrix", "vector") for peak in part.peaks if peak.unit == unit))


def matrix_peak(part: Part, dtype: str, *, sheet: bool = False, narrow: bool = False) -> Peak | None:
    """The peak that GEMMs of a data type run at: matrix units with wide accumulation, else the vector units.

    ``sheet`` takes the largest figure that the vendor prints, sparsity included; ``narrow`` allows accumulation in
    16 bits, which some parts do faster. None when the part does not multiply in this type.
    """
    found = [peak for peak in part.peaks if peak.dtype == dtype]
    for unit in ("matrix", "vector"):
        rows = [
            peak
            for peak in found
            if peak.unit == unit and (sheet or (peak.sparsity == "dense" and (narrow or peak.accumulate != "fp16")))
        ]
        if rows:
            return max(rows, key=lambda peak: peak.value)
    return None


def measured_crossing(part: Part, dtype: str, book: Book) -> Crossing | None:
    """The batch at which measured GEMMs in a format leave memory for compute; None where the book has none."""
    if book.find("crossovers", part.id) is None:
        return None
    return next((row for row in book.record(Crossover, part.id).batches if row.dtype == dtype), None)


def fastest_peak(part: Part, dtype: str) -> float:
    """The peak with the fastest accumulation, 0 when the part does not multiply in this type."""
    peak = matrix_peak(part, dtype, narrow=True)
    return peak.value if peak else 0.0


def vector_peak(part: Part) -> Peak | None:
    """The fp32 peak of the vector units."""
    return next((peak for peak in part.peaks if peak.unit == "vector" and peak.dtype == "fp32"), None)


def clock_ratio(part: Part) -> float:
    """The highest clock over the rated one; 1 where it is not known."""
    clock = part.clock_hz
    return max(1.0, clock.maximum.value / clock.rated.value) if clock and clock.maximum else 1.0


def together(part: Part, count: int) -> Part:
    """``count`` parts as one with all their rates and memories. No plan over them beats it: links cost nothing here."""
    if count == 1:
        return part

    def times(figure: F) -> F:
        return replace(figure, value=figure.value * count)

    return replace(
        part,
        capacity_bytes=times(part.capacity_bytes),
        bandwidth_bytes_per_second=times(part.bandwidth_bytes_per_second),
        peaks=tuple(map(times, part.peaks)),
        exp_per_second=times(part.exp_per_second) if part.exp_per_second else None,
        on_chip=tuple(map(times, part.on_chip)),
    )


def on_chip_bytes(part: Part) -> float:
    """On-chip memory over all levels; 0 where none is known."""
    return sum(level.value for level in part.on_chip)
