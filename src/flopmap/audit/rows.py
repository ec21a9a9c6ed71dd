"""One row of a table of measurements as steps: what is priced, how often each runs, and the seconds that were measured.

What a row does not say is read so that the floor stays a floor: a closed loop of N clients may run fewer than N
sequences at once, an unstated cache may be of 8 bits, and requests that come and go may share a step with others.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple

from flopmap.audit.names import WIDE, format_id, model_id, part_id
from flopmap.step import Step, decode_step, prefill_step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flopmap.records.book import Book

NEEDED = ("hardware", "model", "metric", "value")
SCALE = {"ms": 1e-3, "s": 1.0, "us": 1e-6, "tok/s": 1.0, "tok/s/user": 1.0, "tokens/s": 1.0, "": None}
TIMES, RATES = (
    ("tpot_ms", "itl_ms", "ttft_ms"),
    ("decode_tok_s_per_user", "decode_tok_s_total", "prefill_tok_s", "e2e_tok_s_total"),
)
ANY_BATCH = 10**6  # a batch that is not stated: no larger one would bring a token cheaper
LARGEST = 1e12
FILES_OF_ANY_FORMAT = ("llama.cpp", "Ollama", "MLX", "mlx", "TT-Metalium")
EIGHT_BIT_CACHE = "fp8"


class RowError(ValueError):
    """A row that says too little or something impossible. One line that names the column and its value."""


class Piece(NamedTuple):
    """A step, its phase, and how often it runs."""

    phase: str
    step: Step
    times: int


class Reading(NamedTuple):
    """A row as it is priced. ``together``: its pieces may share steps, so that only the longest of them bounds it."""

    line: int
    cells: dict[str, str]
    part: str
    devices: int
    model: str
    dtype: str
    quantization: str | None
    kv: str
    pieces: tuple[Piece, ...]
    seconds: float
    batch: int
    static: bool
    together: bool

    @property
    def phase(self) -> str:
        """The phase that its metric is about."""
        return self.pieces[-1].phase


def read(line: int, cells: Mapping[str, str], book: Book) -> Reading:
    """A row's steps. Raises :class:`RowError`, or :class:`UnknownRecordError` for a name that nothing is known of."""
    for name in NEEDED:
        if not cells.get(name, "").strip():
            raise RowError(f"{name} is missing or empty")
    notes, metric = cells.get("notes", ""), cells["metric"].strip()
    _accepted(metric, notes)
    value = _value(cells, metric)
    stored = format_id(cells.get("weight_dtype", ""), book)
    engine = cells.get("engine", "").strip()
    if stored is None and engine.startswith(FILES_OF_ANY_FORMAT):
        raise RowError(f"weight_dtype is empty: what {engine} runs comes in many formats")
    kv = _cache(cells, stored, book)
    batch = _whole(cells, "batch_or_concurrency") or 0
    static = "batch_kind=static" in notes or "single_stream" in notes or batch == 1
    pieces, seconds, together = _pieces(cells, metric, value, batch, static=static)
    return Reading(
        line=line,
        cells=dict(cells),
        part=part_id(cells["hardware"].strip(), book),
        devices=_whole(cells, "num_devices") or 1,
        model=model_id(cells["model"].strip(), book),
        dtype=stored if stored in ("bf16", "fp16") else "auto",
        quantization=None if stored in (*WIDE, None) else stored,
        kv=kv,
        pieces=pieces,
        seconds=seconds,
        batch=batch,
        static=static,
        together=together,
    )


def _accepted(metric: str, notes: str) -> None:
    if metric not in (*TIMES, *RATES):
        raise RowError(f"metric {metric!r}: unknown (accepted: {', '.join((*TIMES, *RATES))})")
    speculative = re.search(r"spec_decode=(\w+)", notes)
    if speculative and speculative[1] != "none":
        raise RowError(f"speculative decoding ({speculative[1]}): a step brings more than one token")
    if re.search(r"prefix cach", notes) and metric in ("ttft_ms", "prefill_tok_s", "e2e_tok_s_total"):
        raise RowError("prefix caching: not all of the input is processed")


def _value(cells: Mapping[str, str], metric: str) -> float:
    """The measured value in seconds or in tokens a second."""
    text, unit = cells["value"].strip(), cells.get("unit", "").strip()
    try:
        value = float(text)
    except ValueError:
        raise RowError(f"value {text!r}: not a number") from None
    if not 0 < value < LARGEST:
        raise RowError(f"value {text}: not a positive, finite number")
    timed = metric in TIMES
    scale = SCALE.get(unit, math.nan)
    if unit and (math.isnan(scale or 0) or timed != (unit in ("ms", "s", "us"))):
        accepted = "ms, s, us" if timed else "tok/s, tok/s/user, tokens/s"
        raise RowError(f"unit {unit!r}: no unit of {metric} (accepted: {accepted})")
    return value * (scale or (1e-3 if timed else 1.0))


def _whole(cells: Mapping[str, str], name: str) -> int | None:
    """A whole number, None where the cell is empty."""
    text = cells.get(name, "").strip()
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (number == number // 1 and 0 <= number <= LARGEST):
        raise RowError(f"{name} {text!r}: not a whole number")
    return int(number)


def _cache(cells: Mapping[str, str], stored: str | None, book: Book) -> str:
    text = cells.get("kv_dtype", "").strip()
    if text:
        return {"f16": "fp16"}.get(text.lower()) or format_id(text, book) or "auto"
    narrow = stored not in (*WIDE, None) and not cells.get("engine", "").startswith(FILES_OF_ANY_FORMAT)
    return EIGHT_BIT_CACHE if narrow else "auto"


def _pieces(
    cells: Mapping[str, str], metric: str, value: float, batch: int, *, static: bool
) -> tuple[tuple[Piece, ...], float, bool]:
    """Pieces, seconds, and whether they may share steps."""
    past, prompt, output = (_whole(cells, name) or 0 for name in ("context_len", "input_len", "output_len"))
    if re.search(r"range.ratio 0\.8", cells.get("notes", "")):
        prompt, output = prompt * 9 // 10, output * 9 // 10  # lengths are drawn between 0.8 and 1 of what is stated
    mean = max(1, past + prompt + output // 2)
    alone = batch if static and batch else 1  # of a closed loop, one sequence is all that must be there
    if metric in ("tpot_ms", "itl_ms"):
        return (Piece("decode", decode_step(alone, mean), 1),), value, False
    if metric == "decode_tok_s_per_user":
        return (Piece("decode", decode_step(alone, mean), 1),), 1 / value, False
    many = batch or ANY_BATCH
    if metric == "decode_tok_s_total":
        return (Piece("decode", decode_step(many, mean), 1),), many / value, False
    if not prompt and metric in ("ttft_ms", "prefill_tok_s"):
        raise RowError("input_len is missing or 0: a prefill has tokens")
    if metric == "ttft_ms":
        return (Piece("prefill", prefill_step(alone, prompt, past), 1),), value, False
    if metric == "prefill_tok_s":
        return (Piece("prefill", prefill_step(many, prompt, past), 1),), prompt * many / value, False
    if not output:
        raise RowError("output_len is missing or 0")
    return _end_to_end(cells, value, many, prompt, output, static=static)


def _end_to_end(
    cells: Mapping[str, str], value: float, batch: int, prompt: int, output: int, *, static: bool
) -> tuple[tuple[Piece, ...], float, bool]:
    both = "tokens_counted=input+output" in cells.get("notes", "")
    pieces = [Piece("decode", decode_step(batch, max(1, prompt + output // 2)), max(1, output - 1))]
    if prompt:
        pieces.insert(0, Piece("prefill", prefill_step(batch, prompt), 1))
    return tuple(pieces), (output + prompt * both) * batch / value, not static
