"""The block that ``vllm bench serve`` and SGLang's ``bench_serving`` print, in their old and new spellings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from flopmap.diagnosis.readers.run import CLOSED, OPEN, UNSAID, Found, Run, mean_len, whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HEAD = "Serving Benchmark Result"
LONGEST = 200
LINE = re.compile(r"\s*(?P<label>[A-Za-z][\w .()/%+-]*?(?:\([^)]*\))?):\s+(?P<value>\S.*)")
LATENCY = re.compile(
    r"(?P<statistic>Mean|Median|Std|Min|Max|P[\d.]+) (?P<what>TTFT|TPOT|ITL|E2EL|E2E Latency) \((?P<unit>ms|s)\)",
    re.IGNORECASE,
)
LATENCIES = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2el": "e2e_latency", "e2e latency": "e2e_latency"}
COUNTS = {
    "successful requests": ("requests", "total"),
    "failed requests": ("failed_requests", "total"),
    "benchmark duration (s)": ("duration", "total"),
    "total input tokens": ("input_tokens", "total"),
    "total generated tokens": ("output_tokens", "total"),
    "total generated tokens (retokenized)": ("output_tokens_retokenized", "total"),
    "request throughput (req/s)": ("request_throughput", "mean"),
    "input token throughput (tok/s)": ("input_throughput", "mean"),
    "output token throughput (tok/s)": ("output_throughput", "mean"),
    "peak output token throughput (tok/s)": ("peak_output_throughput", "max"),
    "total token throughput (tok/s)": ("total_throughput", "mean"),
    "peak concurrent requests": ("peak_concurrency", "max"),
    "concurrency": ("concurrency", "mean"),
    "request rate configured (rps)": ("request_rate", "requested"),
    "traffic request rate": ("request_rate", "requested"),
    "acceptance length": ("acceptance_length", "mean"),
    "accept length": ("acceptance_length", "mean"),
    "drafts": ("drafts", "total"),
    "draft tokens": ("draft_tokens", "total"),
    "accepted tokens": ("accepted_tokens", "total"),
}
LIMITS = ("maximum request concurrency", "max request concurrency")


class Block:
    """The lines of one block as they come."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.found = Found()
        self.backend: str | None = None
        self.limit: int | None = None
        self.sglang = False

    def take(self, label: str, value: str) -> bool:
        """Take a labelled line; False where it would repeat a figure, that is, belongs to the next block."""
        number = value.split(maxsplit=1)[0].rstrip("%")
        latency = LATENCY.fullmatch(label)
        if latency:
            name, statistic = LATENCIES[latency["what"].lower()], latency["statistic"]
            if self.found.has(name, statistic) and statistic.lower() != "p50":
                return self.found.value(name, statistic.lower()) == float_or(number) * 1e-3
            self.found.add(name, number, statistic, 1e-3 if latency["unit"].lower() == "ms" else 1.0)
        elif label in COUNTS:
            name, statistic = COUNTS[label]
            if name in ("requests", "duration") and self.found.has(name, statistic):
                return False
            self.found.add(name, number, statistic)
        elif label == "acceptance rate (%)":
            self.found.add("acceptance_rate", number, "mean", 0.01)
        elif label in LIMITS:
            self.limit = whole(number)
        elif label == "backend":
            self.backend = value.split(maxsplit=1)[0]
        self.sglang |= "E2E Latency" in label or label in ("traffic request rate", "concurrency", "backend")
        return True

    def run(self) -> Run | None:
        """The run, if the block had figures."""
        found = self.found
        if not found:
            return None
        requests = found.value("requests", "total")
        notes = () if found.value("tpot") else ("no TPOT is printed: a token's time comes from ITL",)
        spoken = any(found.value(name, how) for name, how in (("acceptance_length", "mean"), ("drafts", "total")))
        return Run(
            tool="SGLang bench_serving" if self.sglang else "vllm bench serve",
            line=self.line,
            measurements=found.all(),
            batch=CLOSED if self.limit else OPEN if found.value("request_rate", "requested") else UNSAID,
            max_concurrency=self.limit,
            input_len=mean_len(found.value("input_tokens", "total"), requests),
            output_len=mean_len(found.value("output_tokens", "total"), requests),
            engine=engine_of(self.backend),
            speculative=True if spoken else None,
            queueing=self.limit != 1,
            notes=notes,
        )


def float_or(text: str) -> float:
    """A number, or NaN."""
    try:
        return float(text)
    except ValueError:
        return float("nan")


def engine_of(backend: str | None) -> str | None:
    """The engine of a client's backend; an OpenAI client names none."""
    known = {"sglang": "sglang", "vllm": "vllm", "trt": "tensorrt-llm", "tensorrt-llm": "tensorrt-llm", "tgi": "tgi"}
    known |= {"lmdeploy": "lmdeploy"}
    return known.get(backend.lower().split("-")[0].split("_")[0]) if backend else None


def read(lines: Sequence[str]) -> Iterator[Run]:
    """The blocks of a text. One without its head is read too: people cut it off."""
    block: Block | None = None
    for number, line in enumerate(lines, 1):
        if HEAD in line:
            yield from finished(block)
            block = Block(number)
            continue
        match = LINE.match(line) if len(line) < LONGEST else None
        if not match:
            continue
        label = match["label"] if LATENCY.fullmatch(match["label"]) else match["label"].lower()
        if block is None:
            if not (LATENCY.fullmatch(label) or (label in COUNTS and "(" in label)):
                continue
            block = Block(number)
        if not block.take(label, match["value"]):
            yield from finished(block)
            block = Block(number)
            block.take(label, match["value"])
    yield from finished(block)


def finished(block: Block | None) -> Iterator[Run]:
    """The run of a block that has ended."""
    run = block.run() if block else None
    if run:
        yield run
