"""What tables call hardware, models and formats, and which records those are."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from flopmap.records.book import UnknownRecordError

if TYPE_CHECKING:
    from flopmap.records.book import Book

# A file's ending says how it is stored; the model is what stands before it.
_ENDING = re.compile(
    r"(\.gguf|-gguf|-\d{5}-of-\d{5}|[-.](ud-)?(i1-)?(iq|q|tq)\d\w*|[-.](bf16|f16|fp16|mxfp4|nvfp4|fp8|awq|gptq|int4|int8)"
    r"|-ud|-qat|[-.]i1|-instruct|-it|-chat|-hf|-\d{4})$",
    re.IGNORECASE,
)
# Files whose name says one format are mixtures of several: the narrowest that the name stands for is a floor.
_MIXTURES = {
    "ud-iq2_xxs": "iq2_xxs", "ud-iq3_xxs": "iq2_xxs", "ud-q2_k_xl": "iq2_xxs", "ud-q3_k_xl": "iq2_xxs",
    "ud-q3_k_s": "iq2_xxs", "ud-q4_k_xl": "iq3_xxs", "ud-q5_k_xl": "q4_k", "ud-q6_k_xl": "q5_k", "ud-q8_k_xl": "q8_0",
    "f16": "fp16", "int8-cw": "int8-weight-only", "int4": "int4-group", "int4-mixed": "int4-group",
    "4bit": "int4-group",
}  # fmt: skip
WIDE = ("bf16", "fp16", "fp32")


def part_id(name: str, book: Book) -> str:
    """The part that a table's hardware stands for. Raises :class:`UnknownRecordError` with the nearest names."""
    return _or_raise(_part_id(name, book))


def model_id(name: str, book: Book) -> str:
    """The bundled model that a table's model stands for. Raises :class:`UnknownRecordError` with the nearest names."""
    return _or_raise(_model_id(name, book))


def _or_raise(found: str | UnknownRecordError) -> str:
    if isinstance(found, UnknownRecordError):
        raise found
    return found


@functools.lru_cache(maxsize=4096)  # finding what is nearest to an unknown name takes longer than pricing a row
def _part_id(name: str, book: Book) -> str | UnknownRecordError:
    plain = re.sub(r"\s*\([^)]*\)", "", name).strip()
    bare = re.sub(r"\s+\d+\s*GB$", "", plain)
    for spelling in (name, plain, bare, re.sub(r"^(NVIDIA|AMD|Intel|Apple|Google)\s+(GeForce\s+)?", "", bare)):
        for candidate in (spelling, spelling.replace(" ", "-")):
            found = book.find("parts", candidate)
            if found:
                return found
    return UnknownRecordError("parts", name, book.nearest("parts", bare))


@functools.lru_cache(maxsize=4096)
def _model_id(name: str, book: Book) -> str | UnknownRecordError:
    found = book.find("models", name)
    bare = name
    while found is None:
        found = _model_index(book).get(_key(bare))
        shorter = _ENDING.sub("", bare)
        if shorter == bare:
            break
        bare = shorter
    return found or UnknownRecordError("models", name, book.nearest("models", bare))


@functools.lru_cache(maxsize=4)
def _model_index(book: Book) -> dict[str, str]:
    """Bundled models by their bare name, where only one has it."""
    names: dict[str, set[str]] = {}
    for model in book.ids("models"):
        for key in {_key(model), _key(re.sub(r"-(Instruct|it|hf|chat)$", "", model, flags=re.IGNORECASE))}:
            names.setdefault(key, set()).add(model)
    return {key: min(models, key=len) for key, models in names.items()}


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.rpartition("/")[2].lower())


def format_id(text: str, book: Book) -> str | None:
    """The format of weights that a cell names; None when it is empty. Raises :class:`UnknownRecordError`."""
    name = re.sub(r"^GGUF\s+", "", re.sub(r"\s*\([^)]*\)", "", text).strip(), flags=re.IGNORECASE).lower()
    if not name:
        return None
    for candidate in (_MIXTURES.get(name, name), re.sub(r"_(xs|s|m|l|xl)$", "", name)):
        found = book.find("formats", candidate)
        if found:
            return found
    raise UnknownRecordError("formats", text, book.nearest("formats", name))
