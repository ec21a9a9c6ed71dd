"""The report of ``trtllm-bench``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from flopmap.diagnosis.readers.run import CLOSED, Found, Run, whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LINE = re.compile(r"\s*(?P<label>[A-Za-z][^:]*?):\s+(?P<value>\S+)")
BREAKDOWN = re.compile(
    r"\s*\[(?P<what>TPOT|TTFT|GTPS|Latency)\] (?P<statistic>MINIMUM|MAXIMUM|AVERAGE|P[\d.]+)\s*: *(?P<value>[\d.]+)"
)
LENGTHS = re.compile(r"(MIN|MAX|AVG|P[\d.]+):\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)$")
NAMES = {
    "TPOT": ("tpot", 1e-3),
    "TTFT": ("ttft", 1e-3),
    "GTPS": ("output_throughput_per_user", 1.0),
    "Latency": ("e2e_latency", 1e-3),
}
FIGURES = {
    "Request Throughput (req/sec)": ("request_throughput", "mean", 1.0),
    "Total Output Throughput (tokens/sec)": ("output_throughput", "mean", 1.0),
    "Total Token Throughput (tokens/sec)": ("total_throughput", "mean", 1.0),
    "Total Latency (ms)": ("duration", "total", 1e-3),
    "Average request latency (ms)": ("e2e_latency", "mean", 1e-3),
    "Average time-to-first-token [TTFT] (ms)": ("ttft", "mean", 1e-3),
    "Average time-per-output-token [TPOT] (ms)": ("tpot", "mean", 1e-3),
    "Per User Output Speed (tps/user)": ("output_throughput_per_user", "mean", 1.0),
    "Per User Output Throughput [w/ ctx] (tps/user)": ("output_throughput_per_user", "with prefill", 1.0),
    "Per GPU Output Throughput (tps/gpu)": ("output_throughput", "per part", 1.0),
    "Number of Sequences": ("requests", "total", 1.0),
    "Issue Rate (req/sec)": ("request_rate", "requested", 1.0),
    "Number of concurrent requests": ("concurrency", "mean", 1.0),
}
SECTION = "WORLD + RUNTIME INFORMATION"
OVERVIEW = "PERFORMANCE OVERVIEW"


def read(lines: Sequence[str]) -> Iterator[Run]:
    """The reports of a text."""
    starts = [i for i, line in enumerate(lines) if SECTION in line or "ENGINE DETAILS" in line]
    overviews = [i for i, line in enumerate(lines) if OVERVIEW in line]
    starts = [max((s for s in starts if s <= o), default=o) for o in overviews]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=False):
        run = _report(lines[start:end], start + 1)
        if run:
            yield run


def _report(lines: Sequence[str], number: int) -> Run | None:
    found, facts = Found(), {}
    for line in lines:
        if match := BREAKDOWN.match(line):
            name, scale = NAMES[match["what"]]
            found.add(name, match["value"], match["statistic"], scale)
        elif match := LENGTHS.match(line.strip()):
            found.add("input_len", match[2], match[1])
            found.add("output_len", match[3], match[1])
        elif match := LINE.match(line):
            label = match["label"].strip()
            if label in FIGURES:
                name, statistic, scale = FIGURES[label]
                found.add(name, match["value"], statistic, scale)
            else:
                facts[label] = match["value"]
    if not found:
        return None
    return Run(
        tool="trtllm-bench",
        line=number,
        measurements=found.all(),
        batch=CLOSED,
        max_concurrency=whole(facts.get("Max Runtime Batch Size")),
        input_len=whole(found.value("input_len")),
        output_len=whole(found.value("output_len")),
        model=facts.get("Model"),
        engine="tensorrt-llm",
        queueing=True,
        tensor_parallel_size=whole(facts.get("TP Size")),
        pipeline_parallel_size=whole(facts.get("PP Size")),
        expert_parallel_size=whole(facts.get("EP Size")),
    )
