"""What is known of a priced scenario, in the words that conditions of records use (``records/condition.py``)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from flopmap.floor.sensitivity import bound_by
from flopmap.machine.machine import matrix_peak
from flopmap.model.architecture import Attention, Experts, LatentAttention, Recurrence, SharedKeys
from flopmap.records.condition import facts_of, holds, parse

if TYPE_CHECKING:
    from flopmap.floor.roofline import Pricing
    from flopmap.floor.summary import Memory
    from flopmap.model.architecture import Architecture
    from flopmap.records.condition import Fact
    from flopmap.records.types import OpClass, Part

NVIDIA_ISA = "sm_"


class Meaning(NamedTuple):
    """The type of a fact's values, and what they say."""

    kind: type
    meaning: str


FACTS: dict[str, Meaning] = {
    "vendor": Meaning(str, "who makes the part, in small letters"),
    "architecture": Meaning(str, "the part's architecture, as its record names it"),
    "isa": Meaning(str, "the part's instruction set, such as sm_90 or gfx942"),
    "compute_capability": Meaning(float, "the number in sm_90; no comparison holds where the part is not NVIDIA's"),
    "fp8_math": Meaning(bool, "whether the part multiplies 8-bit floating point"),
    "fp4_math": Meaning(bool, "whether it multiplies 4-bit floating point"),
    "int8_math": Meaning(bool, "whether it multiplies 8-bit integers"),
    "part_kind": Meaning(str, "gpu, tpu, npu, cpu or apu"),
    "parts": Meaning(float, "how many parts"),
    "engine": Meaning(str, "the engine's id"),
    "graphs": Meaning(bool, "whether the phase is replayed from captured graphs"),
    "eager": Meaning(bool, "whether graphs are switched off"),
    "phase": Meaning(str, "decode, prefill, mixed or encode"),
    "batch_size": Meaning(float, "sequences in the step"),
    "context_len": Meaning(float, "tokens that a decode step attends to"),
    "input_len": Meaning(float, "prompt tokens of the step"),
    "activations": Meaning(str, "format of activations"),
    "weights": Meaning(str, "general format of the weights"),
    "weight_bits": Meaning(float, "its bits an element, without scales"),
    "kv": Meaning(str, "format of the KV cache"),
    "math": Meaning(str, "data type that GEMMs over the weights multiply in"),
    "native_math": Meaning(bool, "whether weights are multiplied in a data type of their own format"),
    "experts": Meaning(bool, "whether the model is a mixture of experts"),
    "latent_attention": Meaning(bool, "whether it has MLA"),
    "sparse_attention": Meaning(bool, "whether an indexer chooses what attention reads"),
    "windowed": Meaning(bool, "whether some layers attend within a window"),
    "recurrent": Meaning(bool, "whether some layers keep a recurrent state"),
    "head_dim": Meaning(float, "width of a query head, the widest"),
    "group": Meaning(float, "query heads that share a key head, the fewest of any layer"),
    "parameters": Meaning(float, "parameters of the model"),
    "fits": Meaning(bool, "whether weights, cache and state fit"),
    "max_sequences": Meaning(float, "sequences that fit at this context"),
    "bound_by": Meaning(str, "the property that governs most of the floor"),
    "launch_share": Meaning(float, "time that launches alone take, over the operation floor"),
    "kv_share": Meaning(float, "bytes of the cache over all bytes of the step"),
    "measured": Meaning(bool, "whether there is a measurement"),
    "over_floor": Meaning(float, "measured time over the operation floor"),
    "over_device": Meaning(float, "measured time over the device floor"),
}


def facts(pricing: Pricing, fit: Memory, measured_seconds: float | None) -> dict[str, Fact]:
    """Every fact by name; None where it is not known."""
    scenario, precision = pricing.scenario, pricing.scenario.precision
    moved = sum(line.device_bytes for line in pricing.lines)
    return {
        **part_facts(scenario.machine.part),
        **model_facts(scenario.model.architecture),
        "parts": scenario.machine.count,
        "engine": scenario.engine.id,
        "graphs": scenario.phase in scenario.engine.graphs and not scenario.eager,
        "eager": scenario.eager,
        "phase": scenario.phase,
        "batch_size": scenario.batch_size,
        "context_len": scenario.context_len,
        "input_len": scenario.input_len,
        "activations": precision.activations.id,
        "weights": precision.weights.id,
        "weight_bits": precision.weights.bits,
        "kv": precision.kv.id,
        "math": precision.math,
        "native_math": precision.math in precision.weights.math,
        "parameters": pricing.entire.totals["parameters"],
        "fits": fit.fits,
        "max_sequences": fit.max_sequences,
        "bound_by": bound_by(pricing),
        "launch_share": pricing.launch_seconds / pricing.operation_seconds,
        "kv_share": pricing.totals["kv_traffic"] / moved if moved else 0.0,
        "measured": measured_seconds is not None,
        "over_floor": None if measured_seconds is None else measured_seconds / pricing.operation_seconds,
        "over_device": None if measured_seconds is None else measured_seconds / pricing.device_seconds,
    }


def part_facts(part: Part) -> dict[str, Fact]:
    """What is known of a part alone."""
    number = part.isa.removeprefix(NVIDIA_ISA).rstrip("af") if part.isa.startswith(NVIDIA_ISA) else ""
    maths = {f"{dtype}_math": matrix_peak(part, dtype, narrow=True) is not None for dtype in ("fp8", "fp4", "int8")}
    return {
        **maths,
        "vendor": part.vendor.lower(),
        "architecture": part.architecture,
        "isa": part.isa or None,
        "compute_capability": float(number) if number.isdigit() else math.nan,
        "part_kind": part.kind,
    }


def model_facts(architecture: Architecture) -> dict[str, Fact]:
    """What is known of a model alone."""
    layers = set(architecture.layers)
    attentions = [layer.attention for layer in layers if isinstance(layer.attention, Attention)]
    latent = [layer.attention for layer in layers if isinstance(layer.attention, LatentAttention)]
    dims = [attention.head_dim for attention in attentions] + [one.nope_dim + one.rope_dim for one in latent]
    groups = [attention.heads // attention.kv_heads for attention in attentions] + [one.heads for one in latent]
    return {
        "experts": any(isinstance(layer.feed_forward, Experts) for layer in layers),
        "latent_attention": bool(latent),
        "sparse_attention": any(one.indexer for one in attentions)
        or any(one.indexer for one in latent)
        or any(isinstance(piece, SharedKeys) and not piece.values for layer in layers for piece in layer.pieces),
        "windowed": any(attention.window for attention in attentions),
        "recurrent": any(isinstance(piece, Recurrence) for layer in layers for piece in layer.pieces),
        "head_dim": max(dims, default=None),
        "group": min(groups, default=None),
    }


# -- gates ------------------------------------------------------------------------------------------------------------


class Available(NamedTuple):
    """Whether an op class runs: yes, no, emulated; or unknown, and then ``why`` names what would decide it."""

    answer: str
    why: str


def availability(record: OpClass, known: dict[str, Fact]) -> Available:
    """The first answer of a gate whose condition holds, as far as facts are known."""
    for answer in record.available:
        condition = parse(answer.when) if answer.when else None
        held = condition is None or holds(condition, known)
        if held:
            return Available(answer.answer, answer.why)
        if held is None and condition:
            missing = sorted(name for name in facts_of(condition) if known.get(name) is None)
            return Available("unknown", f"depends on {', '.join(missing)}")
    return Available("unknown", "no answer on record")
