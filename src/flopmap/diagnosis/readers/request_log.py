"""Logs that LLMServingSim's bench writes of a vLLM engine: settings, a line a request, and a state a second."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

from flopmap.diagnosis.readers.run import PARALLEL, Found, Run, number_of, whole, word

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HEAD = "t,prompt_throughput,gen_throughput,running,waiting,kv_cache_pct"
STAMPS = ("queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts")


def read_settings(value: dict[str, Any], line: int) -> Run | None:
    """``meta.json``: what ran, without a figure of speed."""
    given = value.get("engine_kwargs")
    if not isinstance(given, dict) or "vllm_version" not in value:
        return None
    found = Found()
    found.add("requests", value.get("num_requests"), "total")
    return Run(
        tool="vLLM settings",
        line=line,
        measurements=found.all(),
        model=word(value.get("model")),
        engine="vllm",
        tensor_parallel_size=whole(given.get("tensor_parallel_size")),
        data_parallel_size=whole(given.get("data_parallel_size")),
        max_concurrency=whole(given.get("max_num_seqs")),
    )


def read_requests(values: Sequence[dict[str, Any]], line: int) -> Run | None:
    """All requests as one run; means over the requests."""
    rows = [value for value in values if all(number_of(value.get(name)) is not None for name in STAMPS)]
    if not rows:
        return None
    sums = {
        "ttft": 0.0,
        "queue_time": 0.0,
        "prefill_time": 0.0,
        "e2e_latency": 0.0,
        "tpot": 0.0,
        "input_len": 0.0,
        "output_len": 0.0,
    }
    for row in rows:
        queued, scheduled, first, last = (float(row[name]) for name in STAMPS)
        tokens = number_of(row.get("output_toks")) or 0.0
        sums["ttft"] += first - queued
        sums["queue_time"] += scheduled - queued
        sums["prefill_time"] += first - scheduled
        sums["e2e_latency"] += last - queued
        sums["tpot"] += (last - first) / (tokens - 1) if tokens > 1 else 0.0
        sums["input_len"] += number_of(row.get("input_toks")) or 0.0
        sums["output_len"] += tokens
    found = Found()
    for name, total in sums.items():
        found.add(name, total / len(rows))
    found.add("requests", len(rows), "total")
    elapsed = max(float(row["last_token_ts"]) for row in rows) - min(float(row["queued_ts"]) for row in rows)
    if elapsed > 0:
        found.add("duration", elapsed, "total")
        found.add("output_throughput", sums["output_len"] / elapsed)
    return Run(
        tool="vLLM requests",
        line=line,
        measurements=found.all(),
        input_len=whole(found.value("input_len")),
        output_len=whole(found.value("output_len")),
        engine="vllm",
        queueing=sums["queue_time"] > 0,
        notes=(
            "TTFT counts from when a request was queued",
            "prefill time: from its first schedule to the first token",
        ),
    )


def read(lines: Sequence[str]) -> Iterator[Run]:
    """The states of ``timeseries.csv`` as one run: the mean over the seconds in which no prompt was processed."""
    for start, line in enumerate(lines):
        if line != HEAD:
            continue
        names = line.split(",")
        rows = []
        for later in lines[start + 1 :]:
            cells = [number_of(cell) for cell in next(csv.reader([later]), [])]
            if len(cells) != len(names) or any(cell is None for cell in cells):
                break
            rows.append({name: cell or 0.0 for name, cell in zip(names, cells, strict=True)})
        yield from _states(rows, start + 1)


def _states(rows: list[dict[str, float]], line: int) -> Iterator[Run]:
    steady = [row for row in rows if row["prompt_throughput"] == 0 and row["gen_throughput"] > 0]
    if not steady:
        return
    most = max(row["running"] for row in steady)
    steady = [row for row in steady if row["running"] == most]
    found = Found()
    found.add("output_throughput", sum(row["gen_throughput"] for row in steady) / len(steady))
    found.add("concurrency", most, "last")
    found.add("waiting", max(row["waiting"] for row in steady), "max")
    note = f"the {len(steady)} of {len(rows)} seconds in which {most:g} sequences ran and no prompt was processed"
    yield Run(
        tool="vLLM states",
        line=line,
        measurements=found.all(),
        phase="decode",
        batch=PARALLEL,
        batch_size=whole(most),
        engine="vllm",
        queueing=True,
        notes=(note,),
    )
