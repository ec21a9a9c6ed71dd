"""The lines that an SGLang server logs, and what its ``bench_one_batch`` prints."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from flopmap.diagnosis.readers.run import PARALLEL, SINGLE, STATIC, Found, Run, mean_len, number_of, whole, word

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DECODE = re.compile(r"Decode batch.*?#running-req: (\d+)")
PREFILL = re.compile(r"Prefill batch.*?#new-seq: (\d+), #new-token: (\d+)(?:, #cached-token: (\d+))?")
FIELDS = (
    (re.compile(r"gen throughput \(token/s\): ([\d.]+)"), "output_throughput"),
    (re.compile(r"input throughput \(token/s\): ([\d.]+)"), "input_throughput"),
    (re.compile(r"token usage: ([\d.]+)"), "cache_usage"),
    (re.compile(r"#queue-req: (\d+)"), "waiting"),
    (re.compile(r"accept len: ([\d.]+)"), "acceptance_length"),
    (re.compile(r"accept rate: ([\d.]+)"), "acceptance_rate"),
)
TOKENS = re.compile(r"#token: (\d+)")
GRAPH = re.compile(r"cuda graph: (True|False)")
ARGS = re.compile(r"server_args=ServerArgs\(model_path='([^']+)'.*?\btp_size=(\d+)")
ONE_BATCH = re.compile(
    r"(Prefill|Decode|Total)\. +(?:(median) +)?latency: +([\d.]+) s, +(?:median +)?throughput: +([\d.]+) token/s"
)
STEP = re.compile(r"Decode \d+\.")


def read(lines: Sequence[str]) -> Iterator[Run]:
    """A run a line of the log; the prefill and the decode of a batch that ``bench_one_batch`` ran."""
    known: dict[str, Any] = {}
    for number, line in enumerate(lines, 1):
        if match := ARGS.search(line):
            known = {"model": match[1], "tensor_parallel_size": whole(match[2])}
        elif match := DECODE.search(line):
            yield _decode(match, line, number, known)
        elif match := PREFILL.search(line):
            yield _prefill(match, line, number, known)
        elif (match := ONE_BATCH.match(line.strip())) and not STEP.match(line.strip()):
            yield _one_batch(match, number)


def _fields(line: str) -> Found:
    found = Found()
    for pattern, name in FIELDS:
        if figure := pattern.search(line):
            found.add(name, figure[1], "last" if name != "output_throughput" else "mean")
    return found


def _decode(match: re.Match[str], line: str, number: int, known: dict[str, Any]) -> Run:
    found = _fields(line)
    tokens = TOKENS.search(line)
    graph = GRAPH.search(line)
    context = mean_len(number_of(tokens[1]), number_of(match[1])) if tokens else None
    return Run(
        tool="SGLang log",
        line=number,
        measurements=found.all(),
        phase="decode",
        batch=PARALLEL,
        batch_size=whole(match[1]),
        input_len=context,
        engine="sglang",
        enforce_eager=None if graph is None else graph[1] == "False",
        speculative=True if found.value("acceptance_length", "last") else None,
        notes=("the context is that of the cache: tokens over running requests",) if context else (),
        **known,
    )


def _prefill(match: re.Match[str], line: str, number: int, known: dict[str, Any]) -> Run:
    found = _fields(line)
    found.add("input_tokens", match[2], "last")
    found.add("cached_tokens", match[3], "last")
    return Run(
        tool="SGLang log",
        line=number,
        measurements=found.all(),
        batch=PARALLEL,
        engine="sglang",
        queueing=True,
        **known,
    )


def _one_batch(match: re.Match[str], number: int) -> Run:
    what, median, latency, throughput = match.groups()
    found, phase = Found(), None
    statistic = median or "mean"
    if what == "Decode":
        found.add("step_time", latency, statistic)
        found.add("output_throughput", throughput, statistic)
        phase = "decode"
    elif what == "Prefill":
        found.add("prefill_time", latency, statistic)
        found.add("input_throughput", throughput, statistic)
        phase = "prefill"
    else:
        found.add("e2e_latency", latency, statistic)
        found.add("total_throughput", throughput, statistic)
    speed, seconds = number_of(throughput), number_of(latency)
    together = whole(speed * seconds) if phase == "decode" and speed and seconds else None
    return Run(
        tool="SGLang bench_one_batch",
        line=number,
        measurements=found.all(),
        phase=phase,
        batch=STATIC,
        batch_size=together,
        engine="sglang",
        queueing=False,
        notes=("the batch is throughput times latency",) if together else (),
    )


def read_json(value: dict[str, Any], line: int) -> Run | None:
    """A line of ``bench_one_batch --result-filename``."""
    if "prefill_latency" not in value or "batch_size" not in value:
        return None
    found = Found()
    for key, name, statistic in (
        ("prefill_latency", "prefill_time", "mean"),
        ("prefill_throughput", "input_throughput", "mean"),
        ("median_decode_latency", "step_time", "median"),
        ("median_decode_throughput", "output_throughput", "median"),
        ("total_latency", "e2e_latency", "mean"),
        ("overall_throughput", "total_throughput", "mean"),
    ):
        found.add(name, value.get(key), statistic)
    batch = whole(value["batch_size"])
    return Run(
        tool="SGLang bench_one_batch",
        line=line,
        measurements=found.all(),
        phase="decode",
        batch=SINGLE if batch == 1 else STATIC,
        batch_size=batch,
        input_len=whole(value.get("input_len")),
        output_len=whole(value.get("output_len")),
        model=word(value.get("model_path")),
        engine="sglang",
        queueing=False,
    )
