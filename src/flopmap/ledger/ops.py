"""A model as the operations of a step: every op class it runs, with its shapes and how often.

Shapes only. What an op costs is in its record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from flopmap.step import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopmap.model.architecture import Architecture, Attention, FeedForward, Layer, Norm


SANDWICH_NORMS = 4  # before and after each half of the layer


class Op(msgspec.Struct, frozen=True, kw_only=True):
    """An op class bound to shapes. ``weights`` says which format its matrix is stored in."""

    name: str
    op_class: str
    count: int = 1
    shapes: tuple[tuple[str, int], ...] = ()
    phase: Phase | None = None
    window: int | None = None
    weights: Literal["weights", "activations"] = "activations"


def operations(architecture: Architecture, phases: tuple[Phase, ...], nominal: float | None = None) -> list[Op]:
    """The ops of one step, in the order they run; like ops of several layers are one op with a count.

    ``nominal`` puts one matrix of that many parameters in place of every matrix of the model.
    """
    ops = [*_before(architecture), *_of_layers(architecture, phases), *_after(architecture)]
    if nominal is None:
        return ops
    kept = [op for op in ops if op.op_class not in ("weight-gemm", "lm-head", "embedding")]
    whole = Op(
        name="model",
        op_class="weight-gemm",
        shapes=(("d_in", 1), ("d_out", int(nominal)), ("bias", 0)),
        weights="weights",
    )
    return [whole, *kept]


def _of_layers(architecture: Architecture, phases: tuple[Phase, ...]) -> list[Op]:
    kinds: dict[Layer, int] = {}
    for layer in architecture.layers:
        kinds[layer] = kinds.get(layer, 0) + 1
    merged: dict[Op, int] = {}
    for layer, count in kinds.items():
        for op in _of_layer(architecture, layer, phases):
            merged[op] = merged.get(op, 0) + op.count * count
    return [msgspec.structs.replace(op, count=count) for op, count in merged.items()]


def _of_layer(architecture: Architecture, layer: Layer, phases: tuple[Phase, ...]) -> Iterator[Op]:
    hidden = architecture.hidden
    attention, feed_forward = layer.attention, layer.feed_forward
    sandwich = layer.norms == SANDWICH_NORMS
    yield _norm("attention.norm", architecture.norm, hidden)
    yield from _attention(attention, hidden, phases)
    if sandwich:
        yield _norm("attention.post_norm", architecture.norm, hidden)
    yield _elementwise("attention.residual", "residual", hidden)
    if layer.norms > 1:
        yield _norm("mlp.norm", architecture.norm, hidden)
    yield from _feed_forward(feed_forward, hidden)
    if sandwich:
        yield _norm("mlp.post_norm", architecture.norm, hidden)
    yield _elementwise("mlp.residual", "residual", hidden)


def _attention(attention: Attention, hidden: int, phases: tuple[Phase, ...]) -> Iterator[Op]:
    heads = (("heads", attention.heads), ("kv_heads", attention.kv_heads))
    widths = (("head_dim", attention.head_dim), ("value_dim", attention.value_dim))
    qkv = attention.query_width + attention.key_width + attention.value_width
    yield _gemm("attention.qkv", hidden, qkv, bias=attention.qkv_bias)
    yield from _head_norms(attention)
    if attention.rotary_dim:
        yield Op(name="attention.rope", op_class="rope", shapes=(*heads, ("rotary_dim", attention.rotary_dim)))
    suffix = f"[window {attention.window}]" if attention.window else ""
    yield Op(
        name=f"attention.kv_write{suffix}", op_class="kv-write", shapes=(heads[1], *widths), window=attention.window
    )
    for phase in phases:
        yield Op(
            name=f"attention.{phase}{suffix}",
            op_class=f"{phase}-attention",
            shapes=(*heads, *widths, ("capped", int(attention.capped))),
            phase=phase,
            window=attention.window,
        )
    yield _gemm("attention.out", attention.output_width, hidden, bias=attention.out_bias)


def _head_norms(attention: Attention) -> Iterator[Op]:
    """The norms of query and key heads. A shared weight vector is one head wide."""
    if attention.qk_norm == "none":
        return
    shared = attention.head_dim if attention.qk_norm == "shared" else None
    yield _norm("attention.q_norm", attention.qk_norm_kind, attention.query_width, shared)
    yield _norm("attention.k_norm", attention.qk_norm_kind, attention.key_width, shared)


def _feed_forward(feed_forward: FeedForward, hidden: int) -> Iterator[Op]:
    width, gated = feed_forward.width, int(feed_forward.gated)
    name = "mlp.gate_up" if gated else "mlp.up"
    yield _gemm(name, hidden, width * (1 + gated), bias=feed_forward.bias)
    shapes = (("width", width), ("gated", gated), ("smooth", int(feed_forward.smooth)))
    yield Op(name="mlp.activation", op_class="activation", shapes=shapes)
    yield _gemm("mlp.down", width, hidden, bias=feed_forward.bias)


def _before(architecture: Architecture) -> Iterator[Op]:
    width, scaled = architecture.embedding_width, int(architecture.embedding_scaled)
    yield Op(
        name="embedding",
        op_class="embedding",
        shapes=(("rows", architecture.vocab), ("width", width), ("scaled", scaled)),
    )
    if architecture.positions:
        shapes = (("rows", architecture.positions), ("width", architecture.hidden), ("scaled", 0))
        yield Op(name="position_embedding", op_class="embedding", shapes=shapes)
    if width != architecture.hidden:
        yield _gemm("project_in", width, architecture.hidden)


def _after(architecture: Architecture) -> Iterator[Op]:
    if architecture.final_norm:
        yield _norm("final_norm", architecture.norm, architecture.hidden)
    width = architecture.embedding_width
    if width != architecture.hidden:
        yield _gemm("project_out", architecture.hidden, width)
    stored = int(not architecture.tied)
    head = (("d_in", width), ("d_out", architecture.vocab), ("bias", int(architecture.head_bias)), ("stored", stored))
    yield Op(name="lm_head", op_class="lm-head", shapes=head)
    yield Op(
        name="sampling",
        op_class="sampling",
        shapes=(("vocab", architecture.vocab), ("capped", int(architecture.logits_capped))),
    )


def _gemm(name: str, d_in: int, d_out: int, *, bias: bool = False) -> Op:
    return Op(
        name=name,
        op_class="weight-gemm",
        shapes=(("d_in", d_in), ("d_out", d_out), ("bias", int(bias))),
        weights="weights",
    )


def _norm(name: str, norm: Norm, width: int, norm_width: int | None = None) -> Op:
    shapes = (("width", width), ("norm_width", (norm_width or width) if norm.affine else 0))
    if norm.kind == "rms":
        return Op(name=name, op_class="rms-norm", shapes=shapes)
    return Op(name=name, op_class="layer-norm", shapes=(*shapes, ("bias", int(norm.bias))))


def _elementwise(name: str, op_class: str, width: int) -> Op:
    return Op(name=name, op_class=op_class, shapes=(("width", width),))
