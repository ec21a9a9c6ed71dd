"""Three small outputs: MLX-LM, the benchmark of TGI, and the log of LMCache."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from flopmap.diagnosis.readers.run import GB, GIB, SINGLE, STATIC, Found, Run, whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MLX = re.compile(r"(Prompt|Generation): (\d+) tokens, ([\d.]+) tokens-per-sec")
PEAK = re.compile(r"Peak memory: ([\d.]+) GB")
CELL = re.compile(r"([\d.]+) (ms|s|tokens/secs?)")
PARAMETER = re.compile(r"\| *(Model|Sequence Length|Decode Length) *\| *(\S+) *\|")
STEPS = ("Prefill", "Decode (token)", "Decode (total)", "Decode")
LMCACHE = re.compile(
    r"(Stored|Retrieved) (\d+) out of (?:total )?(\d+)(?: required tokens)?.*?size: ([\d.]+) (?:gb|GB).*?"
    r"(?:cost|time:?) ([\d.]+) ms.*?throughput: ([\d.]+) GB/s"
)
TGI_PREFILL = "TGI's throughput of prefill counts first tokens: a sequence each, and not those of the prompt"


def read(lines: Sequence[str]) -> Iterator[Run]:
    """The runs of all three."""
    yield from _mlx(lines)
    yield from _tgi(lines)
    yield from _lmcache(lines)


def _mlx(lines: Sequence[str]) -> Iterator[Run]:
    prompt, runs = None, list[Run]()
    for number, line in enumerate(lines, 1):
        found = Found()
        if match := MLX.search(line):
            decode = match[1] == "Generation"
            tokens = whole(match[2])
            if not decode:
                prompt = tokens
            found.add("output_tokens" if decode else "input_tokens", match[2], "total")
            found.add("output_throughput" if decode else "input_throughput", match[3])
            runs.append(
                Run(
                    tool="MLX-LM",
                    line=number,
                    measurements=found.all(),
                    phase="decode" if decode else "prefill",
                    batch=SINGLE,
                    batch_size=1,
                    input_len=prompt,
                    output_len=tokens if decode else None,
                    engine="mlx-lm",
                    queueing=False,
                )
            )
        elif match := PEAK.search(line):
            found.add("memory", match[1], "max", GB)
            runs.append(
                Run(tool="MLX-LM", line=number, measurements=found.all(), engine="mlx-lm", notes=("peak memory",))
            )
    yield from runs


def _tgi(lines: Sequence[str]) -> Iterator[Run]:
    """A run a step and batch size; the columns are those of the head above."""
    known: dict[str, str] = {}
    head: list[str] = []
    step = ""
    for number, line in enumerate(lines, 1):
        if match := PARAMETER.match(line):
            known[match[1]] = match[2]
        if "|" not in line:
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if cells[:2] == ["Step", "Batch Size"]:
            head = cells
        elif head and len(cells) == len(head) and whole(cells[1]):
            step = cells[0] or step
            if step in STEPS:
                yield _tgi_row(step, dict(zip(head, cells, strict=True)), number, known)


def _tgi_row(step: str, row: dict[str, str], line: int, known: dict[str, str]) -> Run:
    found, phase = Found(), None
    notes: tuple[str, ...] = ()
    batch = whole(row["Batch Size"])
    for column, statistic in (
        ("Average", "mean"),
        ("Lowest", "min"),
        ("Highest", "max"),
        ("p50", "p50"),
        ("p90", "p90"),
        ("p99", "p99"),
    ):
        match = CELL.fullmatch(row.get(column, ""))
        if not match:
            continue
        if match[2].startswith("tokens"):
            name, scale = "output_throughput", 1.0
            notes = (TGI_PREFILL,) if step == "Prefill" else ()
            phase = None if step == "Prefill" else "decode"
        else:
            name = {"Prefill": "prefill_time", "Decode (token)": "step_time"}.get(step, "decode_time")
            phase = {"Prefill": "prefill", "Decode (token)": "decode"}.get(step)
            scale = 1e-3 if match[2] == "ms" else 1.0
        found.add(name, match[1], statistic, scale)
    return Run(
        tool="TGI benchmark",
        line=line,
        measurements=found.all(),
        phase=phase,
        batch=SINGLE if batch == 1 else STATIC,
        batch_size=batch,
        input_len=whole(known.get("Sequence Length")),
        output_len=whole(known.get("Decode Length")),
        model=known.get("Model"),
        engine="tgi",
        queueing=False,
        notes=notes,
    )


def _lmcache(lines: Sequence[str]) -> Iterator[Run]:
    for number, line in enumerate(lines, 1):
        if match := LMCACHE.search(line):
            found = Found()
            found.add("cached_tokens", match[2], "total")
            found.add("memory", match[4], "total", GIB)
            found.add("duration", match[5], "total", 1e-3)
            found.add("memory_throughput", match[6], "mean", GIB)
            note = f"{match[1].lower()} {match[2]} of {match[3]} tokens of cache; LMCache's GB are taken for GiB"
            yield Run(tool="LMCache log", line=number, measurements=found.all(), notes=(note,))
