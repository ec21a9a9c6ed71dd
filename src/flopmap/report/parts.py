"""Parts as text and data: a list, every figure of one, ridges by data type, and where sources disagree."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flopmap.machine.machine import bits, dtypes, matrix_peak
from flopmap.quantity import amount, percent, significant
from flopmap.records.formula import value
from flopmap.records.resolve import law
from flopmap.records.types import Crossover, Figure, Format, Law, Part, Peak

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from flopmap.records.book import Book

GROUPS = (1, 4, 8)
NARROW = (8, 4)  # bits of weights that are converted before they are multiplied
SIXTEEN_BITS = ("bf16", "fp16")


class Entry(NamedTuple):
    """A figure of a part with its name and unit."""

    name: str
    unit: str
    figure: Figure


class Ridge(NamedTuple):
    """Where a part turns from memory to compute in one data type. ``prompt`` is by query heads a key head.

    ``matched`` is the batch for weights in the data type, ``weights_only`` those for narrower weights, by their bits.
    """

    part: str
    dtype: str
    peak: float
    unit: str
    ridge: float
    matched: float
    weights_only: dict[int, float]
    prompt: dict[int, float]


def entries(part: Part) -> Iterator[Entry]:
    """Every figure of a part."""
    yield Entry("capacity", "B", part.capacity_bytes)
    yield Entry("bandwidth", "B/s", part.bandwidth_bytes_per_second)
    for peak in part.peaks:
        yield Entry(peak_name(peak), "OP/s" if peak.dtype.startswith("int") else "FLOP/s", peak)
    if part.exp_per_second:
        yield Entry("exponentials", "op/s", part.exp_per_second)
    if part.clock_hz:
        yield Entry("clock, rated", "Hz", part.clock_hz.rated)
        if part.clock_hz.maximum:
            yield Entry("clock, maximum", "Hz", part.clock_hz.maximum)
    for level in part.on_chip:
        yield Entry(level.name, "B", level)
        if level.bytes_per_second:
            yield Entry(f"{level.name}, bandwidth", "B/s", level.bytes_per_second)
    for link in part.links:
        joins = f" joining {link.domain}" if link.domain > 1 else ""
        yield Entry(f"{link.level} {link.name}{joins}, one direction", "B/s", link)
    single = (
        ("compute units", "", part.compute_units),
        ("power", "W", part.power_watts),
        ("host link, one direction", "B/s", part.host_link_bytes_per_second),
    )
    yield from (Entry(name, unit, figure) for name, unit, figure in single if figure)
    for price in part.prices_usd:
        yield Entry(f"price, {price.date}", "USD/h" if price.per == "hour" else "USD", price)


def peak_name(peak: Peak) -> str:
    """``matrix bf16, dense, accumulates in fp32``."""
    return f"{peak.unit} {peak.dtype}, {peak.sparsity}, accumulates in {peak.accumulate}"


def written(number: float, unit: str) -> str:
    """A figure of an entry as people read it."""
    if unit in ("", "USD", "USD/h"):
        return f"{significant(number)} {unit}".strip()
    return amount(number, unit)


def lines(part: Part) -> list[str]:
    """One part: every figure with its source, and what other sources print for it."""
    shown = [
        f"{part.title} (parts/{part.id}, {part.status}, confidence {part.confidence:g})",
        *([f"  {part.summary}"] if part.summary else []),
        f"  also: {', '.join(part.aliases)}",
        f"  {', '.join(filter(None, (f'{part.vendor} {part.architecture}', part.kind, part.isa, part.memory_type)))}",
    ]
    known = list(entries(part))
    width = max(len(entry.name) for entry in known)
    for name, unit, figure in known:
        note = f": {figure.note}" if figure.note else ""
        shown.append(f"  {name:{width}}  {written(figure.value, unit):>14}  {figure.source}{note}")
        shown += [f"  {'or':>{width}}  {written(it.value, unit):>14}  {it.source}: {it.note}" for it in figure.others]
    return [*shown, *(f"  note: {note}" for note in part.notes)]


def listed(parts: Sequence[Part]) -> list[list[str]]:
    """The rows of a list, its head first."""
    rows = [["part", "vendor", "kind", "memory", "bandwidth", "16-bit", "fp8", "ridge", "status"]]
    for part in parts:
        peaks = [matrix_peak(part, dtype) for dtype in SIXTEEN_BITS]
        half = max((peak.value for peak in peaks if peak), default=None)
        eight = matrix_peak(part, "fp8")
        bandwidth = part.bandwidth_bytes_per_second.value
        rows.append(
            [
                part.id,
                part.vendor,
                part.kind,
                amount(part.capacity_bytes.value, "B"),
                amount(bandwidth, "B/s"),
                amount(half, "FLOP/s") if half else "-",
                amount(eight.value, "FLOP/s") if eight else "-",
                significant(half / bandwidth) if half else "-",
                part.status,
            ]
        )
    return rows


def ridges(parts: Sequence[Part], book: Book, only: str | None = None) -> list[Ridge]:
    """The ridges of parts, by the formulas of the law of that name, in each type that the part multiplies in."""
    found = []
    formulas = law(book.record(Law, "ridge"), {})
    for part in parts:
        for dtype in dtypes(part):
            peak = matrix_peak(part, dtype)
            if peak is None or peak.unit != "matrix" or only not in (None, dtype):
                continue
            width = bits(dtype)
            rates = {
                "matrix_peak": peak.value,
                "bandwidth": part.bandwidth_bytes_per_second.value,
                "weight_bytes": width / 8,
                "kv_bytes": width / 8,
                "kv_heads": 1.0,
            }
            found.append(
                Ridge(
                    part=part.id,
                    dtype=dtype,
                    peak=peak.value,
                    unit="OP/s" if dtype.startswith("int") else "FLOP/s",
                    ridge=value(formulas["ridge"], rates),
                    matched=value(formulas["ridge_batch"], rates),
                    weights_only={
                        narrow: value(formulas["ridge_batch"], {**rates, "weight_bytes": narrow / 8})
                        for narrow in NARROW
                        if narrow < width
                    },
                    prompt={
                        group: value(formulas["ridge_prompt"], {**rates, "heads": float(group)}) for group in GROUPS
                    },
                )
            )
    return found


def ridge_rows(found: Sequence[Ridge]) -> list[list[str]]:
    """The rows of a table of ridges, its head first."""
    heads = ["part", "math", "peak", "ridge", "batch", *(f"{narrow}-bit weights" for narrow in NARROW)]
    rows = [[*heads, *(f"prompt, g = {group}" for group in GROUPS)]]
    for row in found:
        only = [significant(row.weights_only[narrow]) if narrow in row.weights_only else "-" for narrow in NARROW]
        prompts = [significant(row.prompt[group]) for group in GROUPS]
        rows.append(
            [
                row.part,
                row.dtype,
                amount(row.peak, row.unit),
                significant(row.ridge),
                significant(row.matched),
                *only,
                *prompts,
            ]
        )
    return rows


RIDGE_NOTES = (
    "ridge: FLOP a byte, peak over bandwidth. batch: tokens at which a weight GEMM leaves memory, with weights in the",
    "type of the math, or narrower and converted first. prompt: tokens at which causal attention leaves memory, with g",
    "query heads a key head, keys and values in the type of the math.",
)


class MeasuredRidge(NamedTuple):
    """The batch at which weight GEMMs in a format leave memory: by the ridge, and in measured time.

    8 in 10 of the measured ``shapes`` lie from ``low`` to ``high``; ``over_ridge`` is measured over ``batch``.
    """

    part: str
    weights: str
    batch: float
    measured: float
    low: float
    high: float
    over_ridge: float
    shapes: int
    source: str


def measured_ridges(parts: Sequence[Part], book: Book, only: str | None = None) -> list[MeasuredRidge]:
    """What measured GEMMs of the parts say of their ridges, where the book has measurements."""
    found = []
    by_math = {(row.part, row.dtype): row.matched for row in ridges(parts, book, only)}
    for part in parts:
        if book.find("crossovers", part.id) is None:
            continue
        for row in book.record(Crossover, part.id).batches:
            weights = row.dtype.replace("_", "-")
            batch = by_math.get((part.id, book.record(Format, weights).math[0]))
            if batch is None:
                continue
            measured = (row.value, row.low, row.high, row.value / batch)
            found.append(MeasuredRidge(part.id, weights, batch, *measured, row.shapes, row.source))
    return found


def measured_rows(found: Sequence[MeasuredRidge]) -> list[list[str]]:
    """The rows of a table of measured ridges, its head first."""
    head = ["part", "weights", "batch by the ridge", "measured", "8 in 10 shapes", "of the ridge", "shapes", "source"]
    return [
        head,
        *(
            [
                row.part,
                row.weights,
                significant(row.batch),
                significant(row.measured),
                f"{row.low:.0f} to {row.high:.0f}",
                percent(row.over_ridge),
                str(row.shapes),
                row.source,
            ]
            for row in found
        ),
    ]


MEASURED_NOTES = (
    "measured: the batch at which the time of GEMMs whose weights exceed on-chip memory leaves its plateau, the median",
    "over shapes. Real kernels reach less of the peak than of the bandwidth, or the other way round: a batch below the",
    "ridge says the former. The records of crossovers state the method; benchmarks/crossover.py derives them.",
)


def contradictions(parts: Sequence[Part]) -> list[tuple[str, Entry]]:
    """Every figure for which another source prints another value, with its part."""
    return [(part.id, entry) for part in parts for entry in entries(part) if entry.figure.others]


def contradiction_lines(found: Sequence[tuple[str, Entry]]) -> list[str]:
    """Both values, and why the default is the default."""
    shown = []
    for part, (name, unit, figure) in found:
        note = f": {figure.note}" if figure.note else ""
        shown.append(f"{part}  {name}  {written(figure.value, unit)}  {figure.source}{note}")
        shown += [f"    or {written(other.value, unit)}  {other.source}: {other.note}" for other in figure.others]
    return shown


def contradiction_data(found: Sequence[tuple[str, Entry]]) -> list[Mapping[str, object]]:
    """The same as data."""
    return [
        {
            "part": part,
            "figure": name,
            "unit": unit,
            "value": figure.value,
            "source": figure.source,
            "note": figure.note,
            "others": [{"value": it.value, "source": it.source, "note": it.note} for it in figure.others],
        }
        for part, (name, unit, figure) in found
    ]
