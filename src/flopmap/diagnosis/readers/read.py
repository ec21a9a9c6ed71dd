"""Which reader reads what: every reader looks at all of a text and takes what is its own, so a mixed paste works."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from flopmap.diagnosis.errors import ReadingError
from flopmap.diagnosis.readers import (
    genai_perf,
    guidellm,
    llama_bench,
    llama_timings,
    mlperf,
    nvidia_smi,
    profilers,
    prometheus,
    request_log,
    serving,
    serving_json,
    sglang_log,
    small_tools,
    trtllm,
    vllm_log,
    vllm_offline,
)
from flopmap.diagnosis.readers.text import LARGEST, inflate, paste
from flopmap.model.config import MissingFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from flopmap.diagnosis.readers.run import Run

TEXT: tuple[Callable[[Sequence[str]], Iterator[Run]], ...] = (
    serving.read,
    vllm_offline.read,
    vllm_log.read,
    sglang_log.read,
    prometheus.read,
    trtllm.read,
    genai_perf.read,
    guidellm.read,
    mlperf.read,
    llama_bench.read,
    llama_timings.read,
    small_tools.read,
    nvidia_smi.read,
    profilers.read,
    request_log.read,
)
OBJECTS: tuple[Callable[[dict[str, Any], int], Run | None], ...] = (
    vllm_offline.read_json,
    llama_bench.read_json,
    sglang_log.read_json,
    request_log.read_settings,
    genai_perf.read_json,
    serving_json.read,
)
KNOWN = (
    "vllm bench serve, latency and throughput, logs and /metrics of vLLM and SGLang, SGLang bench_serving and "
    "bench_one_batch, trtllm-bench, genai-perf, aiperf, guidellm, InferenceX, MLPerf LoadGen, llama-bench, "
    "llama-batched-bench, llama.cpp timings, ollama --verbose, MLX-LM, TGI benchmark, LMCache, nvidia-smi, "
    "tables of torch profiler and nvprof"
)
MOST_RUNS = 10_000
EMPTY = "nothing in it"


def read_file(path: str) -> tuple[Run, ...]:
    """The runs of a file, ``-`` for stdin. Raises :class:`ReadingError` and :class:`MissingFileError`."""
    import sys

    try:
        if path == "-":
            data = sys.stdin.buffer.read(LARGEST + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(LARGEST + 1)
    except FileNotFoundError:
        raise MissingFileError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise ReadingError(f"{path}: cannot be read: {getattr(error, 'strerror', error)}") from None
    name = "stdin" if path == "-" else path
    try:
        return read_bytes(data)
    except ReadingError as error:
        raise ReadingError(f"{name}: {error}") from None


def read_bytes(data: bytes) -> tuple[Run, ...]:
    """The runs of a text in the order of its lines, each once however often it was pasted.

    Raises :class:`ReadingError` for what no reader knows, naming what is there as far as it was recognised.
    """
    text = inflate(data)
    if not text.strip():
        raise ReadingError(EMPTY)
    pasted = paste(text)
    runs: list[Run] = []
    requests: dict[str, dict[str, Any]] = {}
    for document in pasted.documents:
        for value in document.value if isinstance(document.value, list) else (document.value,):
            if isinstance(value, dict):
                runs += _object(value, document.line)
                if "first_token_ts" in value:
                    requests[str(value.get("request_id", len(requests)))] = value
    lines_of_json = {document.line for document in pasted.documents}
    logged = request_log.read_requests(list(requests.values()), 1)
    runs += (logged,) if logged else ()
    for reader in TEXT:
        for run in reader(pasted.lines):
            runs.append(run)
            if len(runs) > MOST_RUNS:
                raise ReadingError(f"more than {MOST_RUNS} results: give the part that matters")
    if pasted.ambiguous and any(run.line not in lines_of_json for run in runs):
        raise ReadingError(f"{pasted.ambiguous} may have decimals or thousands: write its numbers as 1234.5")
    if not runs:
        raise ReadingError(_unknown(pasted.broken, len(pasted.documents)))
    once = {replace(run, line=0): run for run in reversed(runs)}
    if pasted.broken:
        last = min(once.values(), key=lambda run: run.line)
        cut = f"JSON that starts in line {pasted.broken[0]} is cut off or damaged, and not read"
        once = {key: replace(run, notes=(*run.notes, cut)) if run is last else run for key, run in once.items()}
    return tuple(sorted(once.values(), key=lambda run: run.line))


def _object(value: dict[str, Any], line: int) -> list[Run]:
    profilers.refuse_trace(value)
    report = guidellm.read_json(value, line)
    if report is not None:
        return report
    for reader in OBJECTS:
        run = reader(value, line)
        if run is not None:
            return [run]
    return []


def _unknown(broken: list[int], documents: int) -> str:
    if broken:
        return (
            f"line {broken[0]}: JSON that is cut off or damaged, and no result around it that is known (known: {KNOWN})"
        )
    if documents:
        return f"JSON of a kind that is not known (known: {KNOWN})"
    return f"no result in it that is known (known: {KNOWN})"
