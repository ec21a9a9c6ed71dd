"""The lines of timing that llama.cpp prints, and those of ``ollama run --verbose`` and ``ollama ps``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from flopmap.diagnosis.readers.run import GB, SINGLE, Found, Run, number_of, whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TIME = re.compile(
    r"(?P<what>prompt eval|eval|total|load) time = *(?P<ms>[\d.]+) ms(?: / *(?P<tokens>\d+) (?:tokens|runs))?"
    r"(?: *\( *(?P<each>[\d.]+) ms per token, *(?P<speed>[\d.]+|inf|nan) tokens per second\))?"
)
DRAFT = re.compile(
    r"draft acceptance(?: rate)? = *([\d.]+) *\( *(\d+) accepted */ *(\d+) generated\)(?:, mean len = *([\d.]+))?"
)
SLOT = re.compile(r"n_decoded = *(\d+), tg = *([\d.]+) t/s")
OLLAMA = re.compile(r"(?P<what>total|load|prompt eval|eval) (?P<kind>duration|count|rate): +(?P<value>\S+)")
DURATION = re.compile(r"([\d.]+)(h|ms|µs|us|ns|m|s)")
SCALE = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "us": 1e-6, "ns": 1e-9}
PROCESSES = re.compile(r"(\S+) +([0-9a-f]{12}) +([\d.]+) ([KMG]B) +(.*?(?:CPU/GPU|GPU|CPU))")


def read(lines: Sequence[str]) -> Iterator[Run]:
    """A run for each prompt and for each generation; drafts belong to the generation before them."""
    pending: list[Run] = []
    prompt = 0
    for number, line in enumerate(lines, 1):
        if match := TIME.search(line):
            run = _time(match, number, prompt)
            if match["what"] == "prompt eval":
                prompt = whole(match["tokens"]) or 0
                yield from pending
                pending = []
            if run:
                pending.append(run)
        elif (match := DRAFT.search(line)) and pending:
            pending = [_with_drafts(run, match) if run.phase == "decode" else run for run in pending]
        elif match := SLOT.search(line):
            found = Found()
            found.add("output_throughput", match[2])
            yield _run("llama.cpp", number, found, "decode", None, whole(match[1]))
    yield from pending
    yield from _ollama(lines)


def _run(  # noqa: PLR0917 - the parts of a timing
    tool: str, line: int, found: Found, phase: str | None, prompt: int | None, generated: int | None
) -> Run:
    return Run(
        tool=tool,
        line=line,
        measurements=found.all(),
        phase=phase,
        batch=SINGLE,
        batch_size=1,
        input_len=prompt or None,
        output_len=generated,
        engine="ollama" if tool == "ollama" else "llama.cpp",
        queueing=False,
        notes=("what the cache held before is not printed: a prompt eval counts new tokens only",)
        if phase == "prefill"
        else (),
    )


def _time(match: re.Match[str], line: int, prompt: int) -> Run | None:
    found, what = Found(), match["what"]
    tokens = whole(match["tokens"])
    if what == "prompt eval":
        found.add("prefill_time", match["ms"], "total", 1e-3)
        found.add("input_tokens", tokens, "total")
        found.add("input_throughput", match["speed"])
        return _run("llama.cpp", line, found, "prefill", tokens, None)
    if what == "eval":
        found.add("decode_time", match["ms"], "total", 1e-3)
        found.add("output_tokens", tokens, "total")
        found.add("output_throughput", match["speed"])
        if match["each"]:
            found.add("tpot", match["each"], "mean", 1e-3)
        timed = found.value("output_throughput") and found.value("decode_time", "total")
        return _run("llama.cpp", line, found, "decode" if timed else None, prompt, tokens)
    found.add("load_time" if what == "load" else "duration", match["ms"], "total", 1e-3)
    found.add("total_tokens", tokens, "total")
    return _run("llama.cpp", line, found, None, None, None)


def _with_drafts(run: Run, match: re.Match[str]) -> Run:
    """The generation that a line of drafts is about; where no length is printed, it is tokens over steps that ran."""
    from msgspec.structs import replace

    found = Found()
    found.add("acceptance_rate", match[1])
    found.add("accepted_tokens", match[2], "total")
    found.add("draft_tokens", match[3], "total")
    found.add("acceptance_length", match[4])
    tokens, accepted = run.get("output_tokens"), number_of(match[2])
    if not match[4] and tokens and accepted is not None and tokens > accepted:
        found.add("acceptance_length", tokens / (tokens - accepted))  # each step adds one token of its own
    return replace(run, measurements=(*run.measurements, *found.all()), speculative=True)


def duration(text: str) -> float | None:
    """Seconds of a duration as Go prints it: ``3.046232704s``, ``1m2.5s``."""
    parts = DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    numbers = [number_of(number) for number, _ in parts]
    return sum(number * SCALE[unit] for number, (_, unit) in zip(numbers, parts, strict=True) if number is not None)


def _ollama(lines: Sequence[str]) -> Iterator[Run]:
    values: dict[str, str] = {}
    start = 0
    for number, line in enumerate(lines, 1):
        match = OLLAMA.search(line)
        if match:
            key = f"{match['what']} {match['kind']}"
            if key in values:
                yield from _ollama_runs(values, start)
                values = {}
            start = start if values else number
            values[key] = match["value"]
        elif process := PROCESSES.match(line.strip()):
            found = Found()
            found.add("memory", process[3], "last", {"KB": 1e3, "MB": 1e6, "GB": GB}[process[4]])
            split = "/" in process[5]
            note = f"{process[1]} runs on {process[5].strip()}" + (
                ": layers on the CPU set the pace, and the accelerator waits for them" if split else ""
            )
            yield Run(
                tool="ollama ps",
                line=number,
                measurements=found.all(),
                model=process[1],
                engine="ollama",
                notes=(note,),
            )
    yield from _ollama_runs(values, start)


def _ollama_runs(values: dict[str, str], start: int) -> Iterator[Run]:
    prompt, generated = whole(values.get("prompt eval count")), whole(values.get("eval count"))
    for what, phase, time, tokens, speed, length in (
        ("prompt eval", "prefill", "prefill_time", "input_tokens", "input_throughput", prompt),
        ("eval", "decode", "decode_time", "output_tokens", "output_throughput", generated),
    ):
        found = Found()
        found.add(time, duration(values.get(f"{what} duration", "")), "total")
        found.add(tokens, length, "total")
        found.add(speed, values.get(f"{what} rate"))
        if phase == "decode":
            found.add("duration", duration(values.get("total duration", "")), "total")
            found.add("load_time", duration(values.get("load duration", "")), "total")
        if found:
            timed = found.value(speed) is not None
            yield _run(
                "ollama", start, found, phase if timed else None, prompt, generated if phase == "decode" else None
            )
