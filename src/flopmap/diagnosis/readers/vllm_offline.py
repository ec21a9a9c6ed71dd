"""``vllm bench latency`` and ``vllm bench throughput``: what they print and the JSON that they write."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from flopmap.diagnosis.readers.run import STATIC, UNSAID, Found, Run, number_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

N = r"([\d.]+(?:e[+-]?\d+)?)"
THROUGHPUT = re.compile(rf"Throughput: {N} requests/s(?:, {N} (?:total )?tokens/s)?(?:, {N} output tokens/s)?")
LATENCY = re.compile(rf"(?:Avg|Mean) latency: {N} seconds")
PERCENTILE = re.compile(rf"\s*(\d+)% percentile latency: {N} seconds")
TOTALS = re.compile(r"Total num (prompt|output) tokens: +(\d+)")
MIXES = "a whole run: prompts and decode steps mixed, at a batch that the output does not say"
REQUEST = "the latency of whole requests, prefill included: a batch that starts and ends together"


def read(lines: Sequence[str]) -> Iterator[Run]:
    """One run a line of throughput, one run a block of latencies."""
    latency: Found | None = None
    start = 0
    for number, line in enumerate(lines, 1):
        if match := THROUGHPUT.search(line):
            found = Found()
            for name, text in zip(
                ("request_throughput", "total_throughput", "output_throughput"), match.groups(), strict=True
            ):
                found.add(name, text)
            yield Run(
                tool="vllm bench throughput", line=number, measurements=found.all(), engine="vllm", notes=(MIXES,)
            )
        elif match := LATENCY.match(line):
            yield from _latency(latency, start)
            latency, start = Found(), number
            latency.add("e2e_latency", match[1])
        elif latency is not None and (match := PERCENTILE.match(line)):
            latency.add("e2e_latency", match[2], f"p{match[1]}")
    yield from _latency(latency, start)


def _latency(found: Found | None, line: int) -> Iterator[Run]:
    if found:
        notes = (REQUEST,)
        yield Run(
            tool="vllm bench latency", line=line, measurements=found.all(), batch=STATIC, engine="vllm", notes=notes
        )


def read_json(value: dict[str, Any], line: int) -> Run | None:
    """The JSON of ``--output-json``."""
    found = Found()
    if "avg_latency" in value:
        found.add("e2e_latency", value["avg_latency"])
        percentiles = value.get("percentiles")
        if isinstance(percentiles, dict):
            for percentile, seconds in percentiles.items():
                if number_of(percentile) is not None:
                    found.add("e2e_latency", seconds, f"p{percentile}")
        tool, notes, batch = "vllm bench latency", (REQUEST,), STATIC
    elif "requests_per_second" in value and "tokens_per_second" in value:
        for key, name, statistic in (
            ("elapsed_time", "duration", "total"),
            ("num_requests", "requests", "total"),
            ("total_num_tokens", "total_tokens", "total"),
            ("requests_per_second", "request_throughput", "mean"),
            ("tokens_per_second", "total_throughput", "mean"),
        ):
            found.add(name, value.get(key), statistic)
        tool, notes, batch = "vllm bench throughput", (MIXES,), UNSAID
    else:
        return None
    return (
        Run(tool=tool, line=line, measurements=found.all(), batch=batch, engine="vllm", notes=notes) if found else None
    )
