"""``llama-bench`` as Markdown, JSON, JSONL, CSV and SQL, and the table of ``llama-batched-bench``."""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING, Any

from flopmap.diagnosis.readers.run import PARALLEL, SINGLE, Found, Run, number_of, whole, word

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TEST = re.compile(r"(?:pp(?P<pp>\d+))?(?:\+?tg(?P<tg>\d+))?(?: @ d(?P<depth>\d+))?")
SPEED = re.compile(r"([\d.]+)(?: *(?:±|\+/-|\?|Â±) *([\d.]+))?")
DEVICE = re.compile(r"Device \d+: ([^,]+), (?:gfx|compute capability)")
FILE_TYPE = re.compile(r"\b(I?Q\d(?:_[KSML01]|_NL|_X?XS|_XXS)*|BF16|F16|F32|MXFP4|TQ\d_0)\b")
INSERT = re.compile(r"INSERT INTO \w+ \(([^)]*)\) VALUES \((.*)\);")
BATCHED = ("PP", "TG", "B", "N_KV", "T_PP s", "S_PP t/s", "T_TG s", "S_TG t/s", "T s", "S t/s")
MOST_DIGITS = 9
PHYSICAL = "a prompt is processed in pieces of n_ubatch tokens, one sequence"


def read(lines: Sequence[str]) -> Iterator[Run]:
    """A run a row, whatever the layout."""
    device: str | None = None
    markdown: list[str] = []
    head: list[str] = []
    for number, line in enumerate(lines, 1):
        if match := DEVICE.search(line):
            device = match[1].strip()
        elif "|" in line:
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if "t/s" in cells or "S_TG t/s" in cells:
                markdown = cells
            elif markdown and len(cells) == len(markdown):
                row = dict(zip(markdown, cells, strict=True))
                run = _batched(row, number) if "S_TG t/s" in row else _markdown(row, number, device)
                yield from (run,) if run else ()
        elif line.startswith("build_commit,"):
            head = _split(line)
        elif (match := INSERT.search(line)) or (head and line.count(",") >= len(head) - 1):
            names, cells = (_split(match[1]), _split(match[2])) if match else (head, _split(line))
            run = read_json(dict(zip(names, cells, strict=False)), number)
            yield from (run,) if run else ()


def _split(line: str) -> list[str]:
    quote = "'" if "'" in line else '"'
    return [cell.strip() for cell in next(csv.reader([line], quotechar=quote, skipinitialspace=True), [])]


def file_type(text: str | None) -> tuple[str | None, str | None]:
    """The format on record (its K-quant without the mixture's size) and the data type that a type's text names."""
    match = FILE_TYPE.search(text or "")
    if not match:
        return None, None
    named = match[1].lower()
    if named in ("bf16", "f16", "f32"):
        return None, {"f16": "fp16", "f32": "fp32"}.get(named, named)
    named = re.sub(r"^(q\d_k)_[sml]$", r"\1", named)
    return named, None


def _run(  # noqa: PLR0917 - the parts of a test
    line: int, found: Found, prompt: int, generated: int, depth: int, notes: tuple[str, ...], **facts: Any
) -> Run:
    """A test: prompt tokens or generated tokens after ``depth`` cached ones; both is a mix and no step."""
    phase = "prefill" if prompt and not generated else "decode" if generated and not prompt else None
    return Run(
        tool="llama-bench",
        line=line,
        measurements=found.all(),
        phase=phase,
        batch=SINGLE,
        batch_size=1,
        input_len=prompt or (depth if phase == "decode" else 0) or None,
        cached_len=depth if phase == "prefill" and depth else None,
        output_len=generated or None,
        engine="llama.cpp",
        queueing=False,
        notes=notes if phase else (*notes, "prompt and generation in one figure: no step by itself"),
        **facts,
    )


def _markdown(row: dict[str, str], line: int, device: str | None) -> Run | None:
    test, speed = TEST.fullmatch(row.get("test", "")), SPEED.match(row["t/s"])
    if not test or not speed or not (test["pp"] or test["tg"]):
        return None
    prompt, generated, depth = (
        int(test[name] or 0) if len(test[name] or "") <= MOST_DIGITS else 0 for name in ("pp", "tg", "depth")
    )
    found = Found()
    _speeds(found, prompt, generated, number_of(speed[1]), number_of(speed[2] or ""))
    stored, dtype = file_type(row.get("model"))
    notes = (PHYSICAL,) if prompt else ()
    if "ngl" in row and row["ngl"] == "0":
        notes = (*notes, "ngl 0: no layer is on the accelerator")
    return _run(
        line,
        found,
        prompt,
        generated,
        depth,
        (*notes, f"model {row['model']}") if "model" in row else notes,
        part=device,
        quantization=stored,
        dtype=dtype,
        kv_cache_dtype=_cache(row.get("type_k")),
    )


def _speeds(found: Found, prompt: int, generated: int, speed: float | None, spread: float | None) -> None:
    name = "total_throughput" if prompt and generated else "input_throughput" if prompt else "output_throughput"
    found.add(name, speed)
    found.add(name, spread, "std")


def _cache(text: Any) -> str | None:
    return None if not word(text) or text == "f16" else str(text)


def read_json(value: dict[str, Any], line: int) -> Run | None:
    """An object of JSON or JSONL, or a row of CSV or SQL."""
    if "avg_ts" not in value or "n_prompt" not in value:
        return None
    found = Found()
    prompt, generated, depth = (whole(value.get(name)) or 0 for name in ("n_prompt", "n_gen", "n_depth"))
    _speeds(found, prompt, generated, number_of(value["avg_ts"]), number_of(value.get("stddev_ts")))
    found.add("duration", value.get("avg_ns"), "mean", 1e-9)
    stored, dtype = file_type(word(value.get("model_type")))
    notes = (PHYSICAL,) if prompt else ()
    return _run(
        line,
        found,
        prompt,
        generated,
        depth,
        (*notes, f"model file {value.get('model_filename')}"),
        part=word(value.get("gpu_info")) or word(value.get("cpu_info")),
        quantization=stored,
        dtype=dtype,
        kv_cache_dtype=_cache(value.get("type_k")),
    )


def _batched(row: dict[str, str], line: int) -> Run | None:
    """A row of ``llama-batched-bench``: B sequences of PP prompt tokens, then TG tokens of each."""
    if not set(BATCHED) <= set(row) or any(number_of(row[name]) is None for name in BATCHED):
        return None
    found = Found()
    for name, figure in (("T_PP s", "prefill_time"), ("T_TG s", "decode_time"), ("T s", "duration")):
        found.add(figure, row[name], "total")
    for name, figure in (
        ("S_PP t/s", "input_throughput"),
        ("S_TG t/s", "output_throughput"),
        ("S t/s", "total_throughput"),
    ):
        found.add(figure, row[name])
    return Run(
        tool="llama-batched-bench",
        line=line,
        measurements=found.all(),
        phase="decode",
        batch=PARALLEL,
        batch_size=whole(row["B"]),
        input_len=whole(row["PP"]),
        output_len=whole(row["TG"]),
        engine="llama.cpp",
        queueing=False,
    )
