"""The lines that a vLLM engine logs: throughput with the sequences that run, cache, preemptions, and its start."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from flopmap.diagnosis.readers.run import GIB, PARALLEL, Found, Run, number_of, whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

N = r"([\d.]+)"
STATE = re.compile(
    rf"Avg prompt throughput: {N} tokens/s, Avg generation throughput: {N} tokens/s, Running: (\d+) reqs"
    rf"(?:, Swapped: (\d+) reqs)?(?:, (?:Pending|Waiting): (\d+) reqs)?"
)
CACHE = re.compile(rf"GPU KV cache usage: {N}%")
HITS = re.compile(rf"Prefix cache hit rate: (?:GPU: )?{N}%")
ACCEPTED = re.compile(rf"Mean acceptance length: {N}")
MEMORY = re.compile(rf"Available KV cache memory: {N} GiB")
PREEMPTED = re.compile(r"preempted by PreemptionMode\.(\w+).*total_num_cumulative_preemption=(\d+)")
ENGINE = re.compile(r"Initializing .*LLM engine.*? with config: .*?model='([^']+)'")
PLAN = re.compile(r"(tensor|pipeline|data)_parallel_size=(\d+)")
EAGER = re.compile(r"enforce_eager=(True|False)")


def read(lines: Sequence[str]) -> Iterator[Run]:
    """A run a line of throughput; what the engine says of itself goes to the lines below it."""
    known: dict[str, object] = {}
    for number, line in enumerate(lines, 1):
        if match := ENGINE.search(line):
            known = {"model": match[1]}
            known |= {f"{kind}_parallel_size": whole(size) for kind, size in PLAN.findall(line)}
            if eager := EAGER.search(line):
                known["enforce_eager"] = eager[1] == "True"
        elif match := STATE.search(line):
            yield _state(match, line, number, known)
        else:
            yield from _other(line, number)


def _state(match: re.Match[str], line: str, number: int, known: dict[str, object]) -> Run:
    prompt, generated, running, _, waiting = match.groups()
    found = Found()
    found.add("input_throughput", prompt)
    found.add("output_throughput", generated)
    found.add("concurrency", running, "last")
    found.add("waiting", waiting, "last")
    for pattern, name, scale in (
        (CACHE, "cache_usage", 0.01),
        (HITS, "prefix_hit_rate", 0.01),
        (ACCEPTED, "acceptance_length", 1),
    ):
        if figure := pattern.search(line):
            found.add(name, figure[1], "last", scale)
    prompts, tokens = number_of(prompt), number_of(generated)
    decodes = prompts == 0 and bool(tokens)
    notes = []
    if prompts and tokens:
        notes.append("prompts were processed meanwhile: no decode step by itself")
    if whole(waiting):
        notes.append(f"{waiting} requests wait: more load would not make more throughput")
    return Run(
        tool="vLLM log",
        line=number,
        measurements=found.all(),
        phase="decode" if decodes else None,
        batch=PARALLEL,
        batch_size=whole(running),
        engine="vllm",
        queueing=bool(whole(waiting)),
        notes=tuple(notes),
        **known,  # type: ignore[arg-type]
    )


def _other(line: str, number: int) -> Iterator[Run]:
    found, notes = Found(), ""
    if match := MEMORY.search(line):
        found.add("memory", match[1], "last", GIB)
        notes = "memory that is left for the KV cache"
    elif match := PREEMPTED.search(line):
        found.add("preemptions", match[2], "total")
        notes = f"the cache was full and a sequence was preempted ({match[1].lower()}): capacity, not speed, binds"
    if found:
        yield Run(tool="vLLM log", line=number, measurements=found.all(), engine="vllm", notes=(notes,))
