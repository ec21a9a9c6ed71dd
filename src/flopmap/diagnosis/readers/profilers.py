"""Profiles as tables: recognised, their kernels listed, and said what they cannot tell. Traces are refused by name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from flopmap.diagnosis.errors import ReadingError
from flopmap.diagnosis.readers.run import Found, Run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TIME = r"([\d.]+)(ns|us|ms|s)"
SCALE = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
NVPROF = re.compile(rf"(?:GPU activities:)? *([\d.]+)% +{TIME} +(\d+) +{TIME} +{TIME} +{TIME} +(\S.*)")
COLUMNS = re.compile(r" {2,}")
MOST = 40
NVPROF_NOTE = "a summary by kernel: shares of GPU time, without the gaps between kernels"
TORCH_NOTE = "a table by operator: times of CPU and GPU summed over threads and streams, without gaps and overlap"
NCU = "an export of Nsight Compute (CSV): kernels without the time between them; recognised, and not judged yet"
TRACE = "a trace of the torch profiler (Chrome JSON): recognised, and not read yet (give results or logs)"


def read(lines: Sequence[str]) -> Iterator[Run]:
    """A run a kernel of nvprof, a run an operator of torch: what took the longest is first."""
    columns: list[str] = []
    count = 0
    for number, line in enumerate(lines, 1):
        if count >= MOST:
            return
        if match := NVPROF.match(line.strip()):
            found = Found()
            found.add("time_share", match[1], "mean", 0.01)
            for at, statistic in ((2, "total"), (5, "mean"), (7, "min"), (9, "max")):
                found.add("kernel_time", match[at], statistic, SCALE[match[at + 1]])
            found.add("calls", match[4], "total")
            count += 1
            yield Run(
                tool="nvprof", line=number, measurements=found.all(), notes=(f"kernel {match[11][:80]}", NVPROF_NOTE)
            )
        elif "Self CPU %" in line and "# of Calls" in line:
            columns = COLUMNS.split(line.strip())
        elif columns:
            cells = COLUMNS.split(line.strip())
            if len(cells) == len(columns) and not cells[0].startswith("--"):
                count += 1
                yield _operator(dict(zip(columns, cells, strict=True)), number)
    if any(line.startswith('"ID","Process ID"') and "Metric Name" in line for line in lines):
        yield Run(tool="Nsight Compute", line=1, notes=(NCU,))


def _operator(row: dict[str, str], line: int) -> Run:
    found = Found()
    for column, statistic in (
        ("Self CPU", "self CPU"),
        ("CPU total", "CPU"),
        ("CPU time avg", "CPU a call"),
        ("Self CUDA", "self GPU"),
        ("CUDA total", "GPU"),
        ("CUDA time avg", "GPU a call"),
    ):
        match = re.fullmatch(TIME, row.get(column, ""))
        if match:
            found.add("kernel_time", match[1], statistic, SCALE[match[2]])
    for column, statistic in (("Self CPU %", "self CPU"), ("CPU total %", "CPU"), ("Self CUDA %", "self GPU")):
        found.add("time_share", row.get(column, "").rstrip("%"), statistic, 0.01)
    found.add("calls", row.get("# of Calls"), "total")
    return Run(
        tool="torch profiler table",
        line=line,
        measurements=found.all(),
        notes=(f"operator {row.get('Name', '')}", TORCH_NOTE),
    )


def refuse_trace(value: dict[str, Any]) -> None:
    """Raise :class:`ReadingError` for a Chrome trace."""
    if isinstance(value.get("traceEvents"), list):
        raise ReadingError(TRACE)
