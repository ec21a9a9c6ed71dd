"""The CSV, JSON and table of genai-perf and aiperf: a metric a row, its unit in its name, a statistic a column."""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING, Any

from flopmap.diagnosis.readers.run import UNSAID, Found, Run, whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

METRIC = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9 ]*?) *\((?P<unit>[^)]*)\)")
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0}
RATES = ("tokens/sec", "tokens/sec/user", "requests/sec", "per sec", "tokens/s", "requests/s", "tokens", "count", "")
NAMES = {
    "time to first token": "ttft",
    "inter token latency": "itl",
    "request latency": "e2e_latency",
    "input sequence length": "input_len",
    "output sequence length": "output_len",
    "requested osl": "requested_output_len",
    "output token throughput": "output_throughput",
    "output token throughput per user": "output_throughput_per_user",
    "input token throughput": "input_throughput",
    "total token throughput": "total_throughput",
    "request throughput": "request_throughput",
    "request count": "requests",
    "benchmark duration": "duration",
    "effective concurrency": "concurrency",
    "effective decode concurrency": "batch_size",
    "total input sequence length": "input_tokens",
    "total output sequence length": "output_tokens",
    "total output tokens": "output_tokens",
}
TOTALS = ("duration", "requests", "input_tokens", "output_tokens")
STATISTICS = re.compile(r"avg|min|max|std|sum|value|p[\d.]+")
CELL = re.compile(r"\s*[│┃|]\s*")


class Table:
    """Rows of a table under its heads."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.found = Found()
        self.decoding: int | None = None

    def take(self, metric: str, unit: str, statistic: str, value: Any) -> None:
        """Add a cell."""
        name = NAMES.get(metric.lower().replace("_", " ").strip())
        unit = unit.strip().lower()
        if name is None or value in (None, "", "N/A") or statistic == "sum":
            return
        if name == "batch_size":
            if statistic == "avg":
                self.decoding = whole(value)
            return
        if unit not in UNITS and unit not in RATES:
            return
        value = value.replace(",", "") if isinstance(value, str) else value
        statistic = "mean" if statistic == "value" else statistic
        self.found.add(name, value, "total" if name in TOTALS else statistic, UNITS.get(unit, 1.0))

    def run(self, tool: str, **more: Any) -> Run:
        """The run of the rows."""
        limit = more.get("max_concurrency")
        return Run(
            tool=tool,
            line=self.line,
            measurements=self.found.all(),
            batch="parallel sequences" if self.decoding else UNSAID,
            batch_size=self.decoding,
            input_len=whole(self.found.value("input_len")),
            output_len=whole(self.found.value("output_len")),
            requested_output_len=whole(self.found.value("requested_output_len")),
            queueing=limit != 1,
            notes=("ITL of aiperf is a mean of each request, first token left out: what others call TPOT",),
            **more,
        )


def read(lines: Sequence[str]) -> Iterator[Run]:
    """A run of all the tables of a text."""
    table, head, split = None, [""], ","
    for number, line in enumerate(lines, 1):
        separator = "│" if "│" in line or "┃" in line else ","
        cells = _cells(line, separator)
        heads = [cell.lower() for cell in cells]
        if (
            heads[0] in ("metric", "statistic")
            and all(STATISTICS.fullmatch(cell) for cell in heads[1:])
            and len(heads) > 1
        ):
            table, head, split = table or Table(number), heads, separator
        elif table is not None and separator == split and len(cells) == len(head):
            match = METRIC.match(cells[0])
            metric, unit = (match["name"], match["unit"]) if match else (cells[0], "")
            for statistic, value in zip(head[1:], cells[1:], strict=True):
                table.take(metric, unit, statistic, value)
    if table and table.found:
        yield table.run("genai-perf" if split == "│" else "aiperf or genai-perf")


def _cells(line: str, separator: str) -> list[str]:
    if separator == ",":
        return [cell.strip() for cell in next(csv.reader([line]), [""])] or [""]
    return [cell.strip() for cell in CELL.split(line.strip(" │┃"))]


def read_json(value: dict[str, Any], line: int) -> Run | None:
    """``profile_export_aiperf.json`` and its like: ``{metric: {"unit": ..., "avg": ...}}``."""
    table = Table(line)
    records = value.get("records") if isinstance(value.get("records"), dict) else value
    for metric, cells in (records or {}).items():
        if isinstance(cells, dict) and isinstance(cells.get("unit"), str):
            for statistic, number in cells.items():
                if STATISTICS.fullmatch(str(statistic)):
                    table.take(str(metric), cells["unit"], str(statistic), number)
    if not table.found or not any(figure.unit in ("s", "tokens/s") for figure in table.found.all()):
        return None
    config = value.get("input_config")
    given = config if isinstance(config, dict) else {}
    model = given.get("model") or (given.get("model_names") or [None])[0] if given else None
    limit = whole(given.get("concurrency"))
    return table.run("aiperf or genai-perf", model=model if isinstance(model, str) else None, max_concurrency=limit)
