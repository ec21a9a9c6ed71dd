"""What a checkpoint's ``quantization_config`` says: the formats of its matrices, and which of them are left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from flopmap.model.architecture import Experts
from flopmap.model.config import ConfigError
from flopmap.model.methods import EIGHT, METHODS, Scheme, Settings, method_of
from flopmap.model.modules import Module, Names, modules
from flopmap.quantity import shown
from flopmap.records.types import Format

if TYPE_CHECKING:
    from collections.abc import Callable

    from flopmap.model.reading import Checkpoint
    from flopmap.records.book import Book

# as small as a router, and left alone like one
NEVER = (
    "indexer.weights",
    "moe.shared_gate",
    "attention.hc.weights",
    "mlp.hc.weights",
    "collapse.weights",
    "attention.blocks.score",
    "mlp.blocks.score",
    "output.blocks.score",
)


class Quantization(NamedTuple):
    """The general format, bytes a parameter of the ops (by name) in others, and what was taken for granted."""

    weights: Format
    stored: dict[str, float]
    assumptions: tuple[str, ...]


def read_quantization(
    checkpoint: Checkpoint, book: Book, activations: Format, element_bytes: Callable[[Format], float]
) -> Quantization:
    """The formats of a checkpoint's matrices. Raises :class:`ConfigError` for what is not understood."""
    settings = Settings(checkpoint.quantization or {}, f"{checkpoint.name}: quantization_config", book)
    scheme = METHODS[method_of(settings)](settings)
    if scheme.experts_only:
        layers = checkpoint.architecture.layers
        scheme = scheme._replace(experts_only=any(isinstance(layer.feed_forward, Experts) for layer in layers))
    elements, formats = _elements(checkpoint, scheme, settings, activations)
    general = _most(elements, formats, activations)
    stored, notes = {}, []
    for op, shares in elements.items():
        plain = activations if op == "lm_head" else formats[general]
        if set(shares) == {plain.title}:
            continue
        total = sum(shares.values())
        stored[op] = sum(size * element_bytes(formats[title]) for title, size in shares.items()) / total
        if len(shares) > 1:
            parts = ", ".join(f"{size / total:.0%} {formats[title].id}" for title, size in shares.items())
            notes.append(f"{op}: {parts}; its bytes are the mean over its layers")
    # where the part lacks the general format's data type, a floor takes that of the other narrow formats for all
    others = (name for title, other in formats.items() if title != activations.title for name in other.math)
    math = tuple(dict.fromkeys((*formats[general].math, *others)))
    return Quantization(replace(formats[general], math=math), stored, tuple(notes))


def _elements(
    checkpoint: Checkpoint, scheme: Scheme, settings: Settings, activations: Format
) -> tuple[dict[str, dict[str, int]], dict[str, Format]]:
    """Elements of every op by the title of their format, and the formats."""
    kept = Names(scheme.kept, settings.refuse)
    named = [(Names(names, settings.refuse), stored) for names, stored in scheme.named]
    elements: dict[str, dict[str, int]] = {}
    formats = {activations.title: activations}
    for index, module in modules(checkpoint.architecture):
        found = _format_of(index, module, scheme, kept, named) or activations
        formats[found.title] = found
        shares = elements.setdefault(module.op, {})
        shares[found.title] = shares.get(found.title, 0) + module.size
    return elements, formats


def _format_of(
    index: int | None, module: Module, scheme: Scheme, kept: Names, named: list[tuple[Names, Format]]
) -> Format | None:
    if module.op in NEVER or kept.has(index, module.names):
        return None
    for names, stored in named:
        if names.has(index, module.names):
            return stored
    if module.op == "lm_head":
        return scheme.head
    return None if scheme.experts_only and module.op != "moe.experts" else scheme.general


def _most(elements: dict[str, dict[str, int]], formats: dict[str, Format], activations: Format) -> str:
    """The format that holds the most of what is quantised."""
    totals = dict.fromkeys(formats, 0)
    for shares in elements.values():
        for title, size in shares.items():
            totals[title] += size
    totals[activations.title] = 0
    return max(totals, key=totals.__getitem__)


def read_cache_format(checkpoint: Checkpoint, book: Book) -> Format | None:
    """The format of the KV cache that a checkpoint asks for, or None."""
    fields = checkpoint.quantization or {}
    asked = fields.get("kv_cache_scheme") or fields.get("kv_cache_quant_algo")
    if fields.get("quant_method") == "quark" and isinstance(fields.get("kv_cache_quant_config"), dict):
        groups = fields["kv_cache_quant_config"].values()
        tensors = [group.get("output_tensors") for group in groups if isinstance(group, dict)]
        asked = next((table.get("dtype") for table in tensors if isinstance(table, dict)), None)
    if not asked or asked in ("NONE", "auto"):
        return None
    if isinstance(asked, dict) and asked.get("num_bits") == EIGHT:
        asked = {"float": "FP8", "int": "INT8"}.get(str(asked.get("type")), asked)
    known = {"FP8": "fp8", "FP8_E4M3": "fp8", "INT8": "int8"}
    if not isinstance(asked, str) or asked.upper() not in known:
        raise ConfigError(
            f"{checkpoint.name}: quantization_config: a KV cache of {shown(asked)} is not understood (understood: FP8, "
            "INT8); name the cache's format with --kv-cache-dtype"
        )
    return book.record(Format, known[asked.upper()])
