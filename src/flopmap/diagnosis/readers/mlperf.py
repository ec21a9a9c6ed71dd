"""The summary of MLPerf LoadGen."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from flopmap.diagnosis.readers.run import OPEN, UNSAID, Found, Run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HEAD = "MLPerf Results Summary"
LINE = re.compile(r"\s*(?P<label>[A-Za-z0-9.][^:]*?)\s*:\s*(?P<value>\S+)")
PERCENTILE = re.compile(r"(\d+(?:\.\d+)?) percentile (latency|first token latency|time to output token) \(ns\)")
FIGURES = {
    "Samples per second": ("request_throughput", "mean", 1.0),
    "Completed samples per second": ("request_throughput", "mean", 1.0),
    "Tokens per second": ("output_throughput", "mean", 1.0),
    "Completed tokens per second": ("output_throughput", "mean", 1.0),
    "Tokens per second (inferred)": ("output_throughput", "inferred", 1.0),
    "target_qps": ("request_rate", "requested", 1.0),
    "samples_per_query": ("requests", "total", 1.0),
}
WHATS = {"latency": "e2e_latency", "first token latency": "ttft", "time to output token": "tpot"}
STATISTIC = re.compile(r"(Min|Max|Mean) (latency|First Token latency|Time to Output Token) \(ns\)")


def read(lines: Sequence[str]) -> Iterator[Run]:
    """The summaries of a text, from one head to the next."""
    starts = [index for index, line in enumerate(lines) if HEAD in line]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=False):
        found, scenario = Found(), ""
        for line in lines[start:end]:
            match = LINE.match(line)
            if not match:
                continue
            label, value = match["label"], match["value"]
            if label == "Scenario":
                scenario = value
            elif label in FIGURES:
                name, statistic, scale = FIGURES[label]
                found.add(name, value, statistic, scale)
            elif statistic_of := STATISTIC.fullmatch(label):
                found.add(WHATS[statistic_of[2].lower()], value, statistic_of[1], 1e-9)
            elif percentile := PERCENTILE.fullmatch(label):
                found.add(WHATS[percentile[2]], value, f"p{float(percentile[1]):g}", 1e-9)
        if found:
            yield Run(
                tool="MLPerf LoadGen",
                line=start + 1,
                measurements=found.all(),
                batch=OPEN if scenario == "Server" else UNSAID,
                queueing=True,
                notes=(
                    "scenario Offline: all queries are there at once, so latencies are times of waiting"
                    if scenario == "Offline"
                    else f"scenario {scenario or 'not stated'}",
                ),
            )
