"""A scenario as a query string: the fields of a request under their own names, and one measurement.

A stranger may ask less than the command line takes: models of the book by name, and no file of the machine.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from flopmap.decoding import read_settings
from flopmap.model.reading import looks_like_path
from flopmap.quantity import (
    QuantityError,
    parse_count,
    parse_number,
    parse_seconds,
    parse_size,
    parse_tokens_per_second,
    shown,
)
from flopmap.records.book import UnknownRecordError
from flopmap.scenario import PHASE_NAMES, Request
from flopmap.step import ScenarioError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from flopmap.records.book import Book

LONGEST = 2000  # characters of a value


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise QuantityError(f"{shown(text)} is neither true nor false")
    return text == "true"


def _share(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise QuantityError(f"{shown(text)} is not a number (such as 0.7)") from None


def _phase(text: str) -> str:
    if text not in PHASE_NAMES:
        raise QuantityError(f"{shown(text)} is no phase (accepted: {', '.join(PHASE_NAMES)})")
    return text


COUNTS: tuple[str, ...] = (
    "batch_size",
    "context_len",
    "input_len",
    "output_len",
    "cached_len",
    "images",
    "video_frames",
)
COUNTS += ("block_length", "diffusion_steps", "lora_rank", "max_loras")
COUNTS += ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "expert_parallel_size")
READERS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(COUNTS, parse_count),
    "image_size": parse_size,
    "audio_seconds": parse_number,
    "acceptance_rate": _share,
    "enforce_eager": _flag,
    "enable_expert_parallel": _flag,
    "phase": _phase,
}
TEXTS = ("model", "on", "dtype", "quantization", "kv_cache_dtype", "engine", "speculative_config", "lora_modules")
# what is measured, and the phase that it is a time of
MEASURED = {"tpot": "decode", "itl": "decode", "ttft": "prefill", "step_time": None, "throughput": None}
FIELDS = (*TEXTS, *READERS, "convention")


def read_query(pairs: Iterable[tuple[str, str]], book: Book) -> tuple[Request, tuple[str, float] | None]:
    """The request and the measurement of a query; an empty value is none. Raises :class:`ScenarioError` and its kin."""
    fields, measured = read_fields(pairs, book)
    for name in ("model", "on"):
        if name not in fields:
            raise ScenarioError(f"{name}: is missing")
    if measured:
        phase = MEASURED[measured[0]]
        if phase and fields.get("phase", phase) not in (phase, "mixed"):
            raise ScenarioError(f"{measured[0]} measures {phase}, but phase is {fields['phase']}")
        if phase:
            fields.setdefault("phase", phase)
        measured = (measured[0].replace("_", "-"), measured[1])
    return Request(**fields), measured


def read_fields(pairs: Iterable[tuple[str, str]], book: Book) -> tuple[dict[str, Any], tuple[str, float] | None]:
    """The fields of a request that are given, and the measurement, if any."""
    fields: dict[str, Any] = {}
    conventions: list[tuple[str, str]] = []
    measured: tuple[str, float] | None = None
    for name, text in pairs:
        if not text:
            continue
        if len(text) > LONGEST:
            raise ScenarioError(f"{name}: longer than {LONGEST} characters")
        if name == "convention":
            conventions.append(_convention(text))
        elif name in fields or (name in MEASURED and measured):
            raise ScenarioError(
                f"{name}: is given twice" if name in fields else f"{name}: something is measured already"
            )
        elif name in MEASURED:
            reader = parse_tokens_per_second if name == "throughput" else parse_seconds
            measured = (name, _read(name, text, reader))
        elif name in FIELDS:
            fields[name] = _read(name, text, READERS.get(name, str))
        else:
            known = (*FIELDS, *MEASURED)
            close = difflib.get_close_matches(name, known, n=1)
            raise ScenarioError(
                f"unknown field {shown(name)} ("
                + (f"did you mean {close[0]}?)" if close else f"known: {', '.join(known)})")
            )
    _refuse_files(fields, book)
    return {**fields, "conventions": tuple(conventions)} if conventions else fields, measured


def _read(name: str, text: str, reader: Callable[[str], Any]) -> Any:
    try:
        return reader(text)
    except QuantityError as error:
        raise QuantityError(f"{name}: {error}") from None


def _convention(text: str) -> tuple[str, str]:
    name, _, choice = text.partition("=")
    if not name or not choice:
        raise ScenarioError(f"convention: {shown(text)} is not NAME=VALUE (such as mask=full)")
    return name, choice


def _refuse_files(fields: dict[str, Any], book: Book) -> None:
    """Nothing that a stranger names is opened: models are those of the book."""
    drafter = read_settings(fields["speculative_config"]).get("model") if "speculative_config" in fields else None
    for name in (fields.get("model"), drafter):
        if name is not None and (not isinstance(name, str) or book.find("models", name) is None):
            raise UnknownRecordError("models", str(name), book.nearest("models", str(name)))
    modules = fields.get("lora_modules", "")
    if looks_like_path(modules):
        raise ScenarioError(f"lora_modules: {shown(modules)} is a file (accepted: names of matrices, all-linear)")
