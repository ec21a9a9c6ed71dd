"""The text of ``/metrics`` of vLLM and SGLang, and the table that aiperf makes of it."""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING

from flopmap.diagnosis.readers.run import OPEN, Found, Run, mean_len, number_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SAMPLE = re.compile(r"(?P<name>(?:vllm|sglang):\w+)(?:\{(?P<labels>[^}]*)\})? +(?P<value>\S+)(?: \d+)?$")
MODEL = re.compile(r'model_name="([^"]*)"')
TABLE = "Endpoint,Type,Metric,Unit,"
# histograms: their sum over their count is a mean since the server started
MEANS = {
    "time_to_first_token_seconds": "ttft",
    "time_per_output_token_seconds": "tpot",
    "request_time_per_output_token_seconds": "tpot",
    "inter_token_latency_seconds": "itl",
    "e2e_request_latency_seconds": "e2e_latency",
    "request_queue_time_seconds": "queue_time",
    "queue_time_seconds": "queue_time",
    "request_prefill_time_seconds": "prefill_time",
    "request_decode_time_seconds": "decode_time",
    "request_prompt_tokens": "input_len",
    "request_generation_tokens": "output_len",
}
GAUGES = {
    "num_requests_running": "concurrency",
    "num_running_reqs": "concurrency",
    "num_requests_waiting": "waiting",
    "num_queue_reqs": "waiting",
    "gpu_cache_usage_perc": "cache_usage",  # a share of 1 in spite of its name
    "kv_cache_usage_perc": "cache_usage",
    "token_usage": "cache_usage",
    "cache_hit_rate": "prefix_hit_rate",
    "gen_throughput": "output_throughput",
    "spec_accept_length": "acceptance_length",
}
COUNTERS = {
    "prompt_tokens_total": "input_tokens",
    "generation_tokens_total": "output_tokens",
    "num_preemptions_total": "preemptions",
    "request_success_total": "requests",
    "num_requests_total": "requests",
}
SINCE = "means since the server started, over all loads that it has seen; the batch is that of the last moment"


def read(lines: Sequence[str]) -> Iterator[Run]:
    """All samples of a server as one run."""
    samples: dict[tuple[str, str], float] = {}
    sums: dict[str, float] = {}
    engine, model, start = "", None, 0
    for number, line in enumerate(lines, 1):
        match = SAMPLE.match(line)
        value = number_of(match["value"]) if match else None
        if match is None or value is None:
            continue
        start = start or number
        engine, name = match["name"].split(":", 1)
        if label := MODEL.search(match["labels"] or ""):
            model = label[1]
        samples[name, match["labels"] or ""] = value  # pasted twice: the later one
    for (name, _), value in samples.items():
        sums[name] = sums.get(name, 0.0) + value
    found = Found()
    for name, figure in MEANS.items():
        count = sums.get(f"{name}_count")
        if count and f"{name}_sum" in sums:
            found.add(figure, sums[f"{name}_sum"] / count)
    for names, statistic in ((GAUGES, "last"), (COUNTERS, "total")):
        for name, figure in names.items():
            if name in sums:
                found.add(figure, sums[name], statistic)
    if found:
        yield _run(found, start, engine, model, "Prometheus metrics")
    yield from _aiperf_table(lines)


def _run(found: Found, line: int, engine: str, model: str | None, tool: str) -> Run:
    spoken = found.value("acceptance_length", "last")
    return Run(
        tool=tool,
        line=line,
        measurements=found.all(),
        batch=OPEN,
        input_len=mean_len(found.value("input_len"), 1) or None,
        output_len=mean_len(found.value("output_len"), 1),
        model=model or None,
        engine=engine or None,
        speculative=True if spoken else None,
        queueing=True,
        notes=(SINCE,) if tool == "Prometheus metrics" else (),
    )


def _aiperf_table(lines: Sequence[str]) -> Iterator[Run]:
    """The gauges and histograms of ``server_metrics_export.csv``."""
    found, head, start, model, engine = Found(), [""], 0, None, ""
    for number, line in enumerate(lines, 1):
        if line.startswith("Endpoint,"):
            head, start = next(csv.reader([line])), start or number
            continue
        if not start or "," not in line:
            continue
        row = dict(zip(head, next(csv.reader([line])), strict=False))
        source, _, name = row.get("Metric", "").partition(":")
        if not name:
            continue
        engine, model = source, row.get("model_name") or model
        if name in MEANS:
            found.add(MEANS[name], row.get("avg"))
            for percentile in (
                "p50",
                "p50_estimate",
                "p90",
                "p90_estimate",
                "p95",
                "p95_estimate",
                "p99",
                "p99_estimate",
            ):
                found.add(MEANS[name], row.get(percentile) or None, percentile.removesuffix("_estimate"))
        elif name in GAUGES:
            for statistic in ("avg", "min", "max", "p50", "p90", "p99"):
                found.add(GAUGES[name], row.get(statistic) or None, statistic)
        elif f"{name}_total" in COUNTERS:
            found.add(COUNTERS[f"{name}_total"], row.get("total") or None, "total")
    if found:
        yield _run(found, start, engine, model, "aiperf server metrics")
