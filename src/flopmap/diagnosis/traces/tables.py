"""Kernels as CSV: traces and statistics of rocprof (v1, v2, v3), statistics of Nsight Systems, pages of Nsight Compute.

A trace has the times of each kernel. Statistics and Nsight Compute have durations only: shares, and no gaps.
"""

from __future__ import annotations

import codecs
import csv
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from flopmap.diagnosis.errors import ReadingError
from flopmap.diagnosis.traces.activity import Activities

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROCPROF, NCU, NSYS = "rocprof", "Nsight Compute", "Nsight Systems statistics"
NSYS_TOTAL = "Total Time (ns)"
BLOCK = 2**20
LONGEST_LINE = 2**20
LARGEST = 8 * 2**30
NAMES = ("Kernel_Name", "KernelName", "Kernel Name", "Name")
STARTS, ENDS = ("Start_Timestamp", "BeginNs"), ("End_Timestamp", "EndNs")
DEVICES = ("Agent_Id", "GPU_ID", "gpu-id", "Device")
CORRELATIONS = ("Correlation_Id", "Correlation_ID")
MICRO = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
MICRO |= {"nsecond": 1e-3, "usecond": 1.0, "msecond": 1e3, "second": 1e6}
NCU_TIME = ("Duration", "gpu__time_duration.sum")
NUMBER = re.compile(r"\d{1,20}(?:,\d{3})*(?:\.\d{1,20})?")
DURATIONS = "durations only: the time between kernels is not in it"
REPLAYED = "Nsight Compute runs each kernel alone, with clocks fixed and caches emptied: slower than in a real step"
UNTIMED = "an export without the Duration of its kernels: collect --section SpeedOfLight, too"
MOST_CALLS = 10**12
DIGITS = 38  # of two numbers of nanoseconds, below 2**63


class Columns(NamedTuple):
    """Where the columns of a table are; None where it has none."""

    name: int
    start: int | None
    end: int | None
    device: int | None
    correlation: int | None
    calls: int | None
    total: int | None
    metric: int | None
    unit: int | None
    value: int | None
    duration: int | None


def read(read_bytes: Callable[[int], bytes]) -> Activities:
    """The activities of a table. Raises :class:`ReadingError`."""
    found = Activities(ROCPROF)
    columns: Columns | None = None
    duration_unit = ""
    rows = csv.reader(_lines(read_bytes))
    while True:
        try:
            row = next(rows)
        except StopIteration:
            break
        except csv.Error as error:
            raise ReadingError(f"line {rows.line_num}: {error}") from None
        if columns is None or row[:1] == ["ID"]:
            columns = _columns(row) or columns
            found.tool = NSYS if NSYS_TOTAL in row else found.tool
        elif columns.duration is not None and not duration_unit:
            duration_unit = _cell(row, columns.duration) or "ns"  # the second row of a raw page
        elif row:
            _row(row, columns, duration_unit, found)
    if columns is not None and columns.start is None:
        found.timed = False
        found.notes.append(DURATIONS)
    if columns is not None and (columns.metric is not None or columns.duration is not None):
        found.tool = NCU
        found.notes.append(REPLAYED)
    if not found.start:
        if found.tool == NCU and not found.unreadable:
            found.notes = [UNTIMED]
            return found
        raise ReadingError(f"a table of kernels without a duration in it ({found.unreadable:,} rows have none)")
    return found


def _lines(read_bytes: Callable[[int], bytes]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
    rest, taken = "", 0
    while True:
        block = read_bytes(BLOCK)
        taken += len(block)
        if taken > LARGEST:
            raise ReadingError(f"larger than {LARGEST >> 30} GiB")
        lines = (rest + decoder.decode(block, final=not block)).replace("\0", "").split("\n")
        rest = lines.pop()
        if len(rest) > LONGEST_LINE:
            raise ReadingError(f"a line longer than {LONGEST_LINE >> 20} MiB")
        yield from lines
        if not block:
            yield rest
            return


def _columns(row: Sequence[str]) -> Columns | None:
    """The columns of a header, or None for another row."""
    places = {name.strip().strip('"'): at for at, name in reversed(list(enumerate(row)))}

    def first(names: Sequence[str]) -> int | None:
        return next((places[name] for name in names if name in places), None)

    name = first(NAMES)
    found = Columns(
        name=-1 if name is None else name,
        start=first(STARTS),
        end=first(ENDS),
        device=first(DEVICES),
        correlation=first(CORRELATIONS),
        calls=first(("Calls", "Instances")),
        total=first(("TotalDurationNs", NSYS_TOTAL)),
        metric=first(("Metric Name",)),
        unit=first(("Metric Unit",)),
        value=first(("Metric Value",)),
        duration=first(NCU_TIME),
    )
    timed = found.start is not None and found.end is not None
    durations = None not in (found.metric, found.unit, found.value) or None not in (found.calls, found.total)
    return found if name is not None and (timed or durations or found.duration is not None) else None


def _cell(row: Sequence[str], at: int | None) -> str:
    return row[at].strip() if at is not None and 0 <= at < len(row) else ""


def _number(text: str) -> float | None:
    return float(text.replace(",", "")) if NUMBER.fullmatch(text) else None


def _row(row: Sequence[str], columns: Columns, unit: str, found: Activities) -> None:
    name, device = _cell(row, columns.name), _cell(row, columns.device) or "0"
    start, duration, correlation = _times(row, columns, unit, found)
    if start is None or duration is None:
        other = columns.metric is not None and _cell(row, columns.metric) not in NCU_TIME
        found.unreadable += not other and bool(name)
        return
    before = len(found.start)
    found.add(name, start, duration, device, correlation)
    calls = _number(_cell(row, columns.calls))
    if calls is not None and len(found.start) > before:
        found.stands_for(int(min(max(calls, 1), MOST_CALLS)))


def _times(
    row: Sequence[str], columns: Columns, unit: str, found: Activities
) -> tuple[float | None, float | None, Any]:
    """Start and duration of a row in microseconds, and the correlation of its launch."""
    if columns.start is not None:
        start, end = _cell(row, columns.start), _cell(row, columns.end)
        if not (start.isdecimal() and end.isdecimal() and len(start + end) <= DIGITS):
            return None, None, None
        correlation = _cell(row, columns.correlation)
        known = int(correlation) if correlation.isdecimal() and len(correlation) <= DIGITS // 2 else None
        if found.origin is None:
            found.origin = int(start)
        return (int(start) - found.origin) * 1e-3, (int(end) - int(start)) * 1e-3, known
    if columns.total is not None:
        total = _number(_cell(row, columns.total))
        return 0.0, None if total is None else total * 1e-3, None
    if columns.metric is not None:
        if _cell(row, columns.metric) not in NCU_TIME:
            return None, None, None
        unit, text = _cell(row, columns.unit), _cell(row, columns.value)
    else:
        text = _cell(row, columns.duration)
    number, scale = _number(text), MICRO.get(unit)
    return 0.0, None if number is None or scale is None else number * scale, None
