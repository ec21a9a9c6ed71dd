"""The JSON and the tables of guidellm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flopmap.diagnosis.readers.run import CLOSED, OPEN, SINGLE, UNSAID, Found, Run, number_of, whole, word

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

METRICS = {
    "requests_per_second": ("request_throughput", 1.0),
    "request_concurrency": ("concurrency", 1.0),
    "request_latency": ("e2e_latency", 1.0),
    "prompt_token_count": ("input_len", 1.0),
    "output_token_count": ("output_len", 1.0),
    "time_to_first_token_ms": ("ttft", 1e-3),
    "time_per_output_token_ms": ("tpot", 1e-3),
    "inter_token_latency_ms": ("itl", 1e-3),
    "prompt_tokens_per_second": ("input_throughput", 1.0),
    "output_tokens_per_second": ("output_throughput", 1.0),
    "tokens_per_second": ("total_throughput", 1.0),
}
STATISTICS = {"mean": "mean", "median": "median", "min": "min", "max": "max", "std_dev": "std"}
PERCENTILES = ("p90", "p95", "p99")
ALL_TOKENS = "guidellm's TPOT counts the first token too (the whole latency over all tokens); ITL leaves it out"
COLUMNS = (
    ("lat", "e2e_latency", 1.0),
    ("request latency", "e2e_latency", 1.0),
    ("ttft", "ttft", 1e-3),
    ("itl", "itl", 1e-3),
    ("tpot", "tpot", 1e-3),
    ("req", "request_throughput", 1.0),
)


def read_json(value: dict[str, Any], line: int) -> list[Run] | None:
    """A run a benchmark of a report."""
    benchmarks = value.get("benchmarks")
    if not isinstance(benchmarks, list) or not any(isinstance(each, dict) and "metrics" in each for each in benchmarks):
        return None
    arguments = value.get("args")
    return [run for each in benchmarks if isinstance(each, dict) for run in _benchmark(each, arguments, line)]


def _benchmark(benchmark: dict[str, Any], arguments: Any, line: int) -> Iterator[Run]:
    found, metrics = Found(), benchmark.get("metrics")
    if not isinstance(metrics, dict):
        return
    for key, (name, scale) in METRICS.items():
        summary = metrics.get(key)
        good = summary.get("successful") if isinstance(summary, dict) else None
        if not isinstance(good, dict):
            continue
        for spelled, statistic in STATISTICS.items():
            found.add(name, good.get(spelled), statistic, scale)
        percentiles = good.get("percentiles")
        for percentile in PERCENTILES if isinstance(percentiles, dict) else ():
            found.add(name, (percentiles or {}).get(percentile), percentile, scale)
    totals = metrics.get("request_totals")
    if isinstance(totals, dict):
        found.add("requests", totals.get("successful"), "total")
        found.add("failed_requests", totals.get("errored"), "total")
    found.add("duration", benchmark.get("duration"), "total")
    if not found:
        return
    config = benchmark.get("config")
    strategy = config.get("strategy") if isinstance(config, dict) else None
    kind = strategy.get("type_") if isinstance(strategy, dict) else None
    streams = strategy.get("max_concurrency", strategy.get("streams")) if isinstance(strategy, dict) else None
    alone = kind == "synchronous"
    yield Run(
        tool="guidellm",
        line=line,
        measurements=found.all(),
        batch=SINGLE if alone else CLOSED if kind in ("concurrent", "throughput") else OPEN if kind else UNSAID,
        batch_size=1 if alone else None,
        max_concurrency=1 if alone else whole(streams),
        input_len=whole(found.value("input_len")),
        output_len=whole(found.value("output_len")),
        model=word(arguments.get("model")) if isinstance(arguments, dict) else None,
        queueing=not alone,
        notes=(ALL_TOKENS,),
    )


def read(lines: Sequence[str]) -> Iterator[Run]:
    """The table of statistics that is printed: two rows of heads, then a row a rate."""
    heads: list[str] = []
    seen: list[tuple[int, list[str]]] = []
    for number, line in enumerate(lines, 1):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if "|" not in line or set(line) <= set("|-=+: "):
            continue
        low = [cell.lower() for cell in cells]
        if low[0] in ("benchmark", "strategy") and any("ttft" in cell or "itl" in cell for cell in low):
            heads = low
        elif (heads and len(cells) == len(heads) and low[0] in ("synchronous", "throughput")) or low[0].startswith(
            ("constant@", "concurrent@")
        ):
            seen.append((number, cells))
    for number, cells in seen if heads else ():
        found = Found()
        for head, cell in zip(heads, cells, strict=False):
            for key, name, scale in COLUMNS:
                if head.startswith(key) and number_of(cell) is not None:
                    words = head.split()
                    statistic = words[-1] if words[-1] in ("mean", "median", "p99", "p95") else "mean"
                    found.add(name, cell, statistic, scale)
                    break
        if found:
            alone = cells[0].lower() == "synchronous"
            yield Run(
                tool="guidellm",
                line=number,
                measurements=found.all(),
                batch=SINGLE if alone else UNSAID,
                batch_size=1 if alone else None,
                queueing=not alone,
                notes=(ALL_TOKENS,),
            )
