"""A model as the operations of a step: every op class it runs, with its shapes and how often.

Shapes only. What an op costs is in its record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from flopmap.ledger.attention import attention_ops, cross_attention_ops, latent_attention_ops, shared_keys_ops
from flopmap.ledger.op import Op, activation_op, elementwise_op, gemm_op, norm_op
from flopmap.model.architecture import (
    Attention,
    Convolution,
    CrossAttention,
    DenseConvolution,
    Experts,
    FeedForward,
    Linear,
    Recurrence,
    Row,
    SharedKeys,
    Table,
    Vector,
)
from flopmap.step import CROSSED, MAIN, Phase

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from flopmap.model.architecture import Architecture, Layer, Piece, Stack


MATRICES = ("weight-gemm", "shared-gemm", "lm-head", "embedding", "moe-router", "moe-experts")
SANDWICH_NORMS = 4  # before and after each half of the layer


def operations(
    architecture: Architecture,
    phases: tuple[Phase, ...],
    running: Collection[str] = (MAIN, CROSSED),
    nominal: float | None = None,
) -> list[Op]:
    """The ops of one step, in the order they run; like ops of several layers are one op with a count.

    ``phases`` are those of the main layers, ``running`` the stacks that run; the others are idle. ``nominal`` puts one
    matrix of that many parameters in place of every matrix of the main layers.
    """
    ops = [op for stack in architecture.stacks for op in _of_stack(stack)]
    ops += [*_before(architecture), *_of_layers(architecture, phases, running), *_after(architecture)]
    ops = [op if op.stack in running else msgspec.structs.replace(op, idle=True) for op in ops]
    if nominal is None:
        return ops
    kept = [op for op in ops if op.op_class not in MATRICES or op.stack != MAIN]
    whole = Op(
        name="model",
        op_class="weight-gemm",
        shapes=(("d_in", 1), ("d_out", int(nominal)), ("bias", 0)),
        weights="weights",
    )
    return [whole, *kept]


def _of_stack(stack: Stack) -> Iterator[Op]:
    """The ops of a stack, under its name."""
    ops = [*map(_piece, stack.before), *_of_layers(stack, ("encode",)), *map(_piece, stack.after)]
    for op in ops:
        weights = op.weights if stack.quantized else "activations"
        yield msgspec.structs.replace(op, name=f"{stack.name}.{op.name}", stack=op.stack or stack.name, weights=weights)


def _of_layers(
    architecture: Architecture | Stack, phases: tuple[Phase, ...], running: Collection[str] = (CROSSED,)
) -> list[Op]:
    kinds: dict[Layer, int] = {}
    for layer in architecture.layers:
        kinds[layer] = kinds.get(layer, 0) + 1
    merged: dict[Op, int] = {}
    for layer, count in kinds.items():
        skipped = layer.only_crosses and CROSSED not in running
        for op in _of_layer(architecture, layer, phases):
            op = msgspec.structs.replace(op, idle=True) if skipped else op  # noqa: PLW2901 - the same op
            merged[op] = merged.get(op, 0) + op.count * count
    return [msgspec.structs.replace(op, count=count) for op, count in merged.items()]


def _of_layer(architecture: Architecture | Stack, layer: Layer, phases: tuple[Phase, ...]) -> Iterator[Op]:
    hidden, norm = architecture.hidden, architecture.norm
    if layer.norms:
        yield norm_op("attention.norm", norm, hidden)
    if isinstance(layer.attention, Attention):
        yield from _owned(layer, attention_ops(layer.attention, hidden, phases))
    elif layer.attention is not None:
        yield from latent_attention_ops(layer.attention, hidden, phases)
    for piece in layer.pieces:
        if isinstance(piece, SharedKeys):
            yield from shared_keys_ops(piece, phases)
        elif isinstance(piece, Experts):
            yield from _experts(piece, hidden)
        elif isinstance(piece, CrossAttention):
            yield from cross_attention_ops(piece, hidden, phases)
        else:
            yield from _recurrence(piece, phases) if isinstance(piece, Recurrence) else (_piece(piece),)
    if layer.norms == SANDWICH_NORMS:
        yield norm_op("attention.post_norm", norm, hidden)
    if layer.attention is not None or any(not isinstance(piece, CrossAttention) for piece in layer.pieces):
        yield elementwise_op("attention.residual", "residual", hidden)
    if layer.feed_forward is None:
        return
    if layer.norms > 1:
        yield norm_op("mlp.norm", norm, hidden)
    if isinstance(layer.feed_forward, FeedForward):
        yield from _owned(layer, _feed_forward("mlp", layer.feed_forward, hidden))
    else:
        yield from _experts(layer.feed_forward, hidden)
    if layer.norms == SANDWICH_NORMS:
        yield norm_op("mlp.post_norm", norm, hidden)
    yield elementwise_op("mlp.residual", "residual", hidden)


def _owned(layer: Layer, ops: Iterator[Op]) -> Iterator[Op]:
    """The ops of a half; its matrices are counted elsewhere where an earlier layer holds them."""
    for op in ops:
        shared = layer.shared and op.op_class == "weight-gemm"
        yield msgspec.structs.replace(op, op_class="shared-gemm") if shared else op


def _feed_forward(name: str, feed_forward: FeedForward, hidden: int) -> Iterator[Op]:
    width, gated = feed_forward.width, int(feed_forward.gated)
    yield gemm_op(f"{name}.gate_up" if gated else f"{name}.up", hidden, width * (1 + gated), bias=feed_forward.bias)
    yield activation_op(f"{name}.activation", width, gated=feed_forward.gated, smooth=feed_forward.smooth)
    yield gemm_op(f"{name}.down", width, hidden, bias=feed_forward.bias)


def _experts(experts: Experts, hidden: int) -> Iterator[Op]:
    """Router, routed experts, shared experts, and the weighted sum of what they give."""
    if experts.router:
        router = (("d_in", hidden), ("experts", experts.experts), ("bias", int(experts.router_bias)))
        yield Op(name=f"{experts.name}.router", op_class="moe-router", shapes=router)
    inner = experts.latent or hidden
    if experts.latent:
        yield gemm_op(f"{experts.name}.latent_in", hidden, inner, bias=experts.shared_bias)
    top_k = experts.top_k / experts.ranks if experts.ranks > 1 else experts.top_k
    shapes = (
        ("d_in", inner),
        ("width", experts.width),
        ("experts", experts.experts // experts.ranks),
        ("top_k", top_k),
        ("gated", int(experts.gated)),
        ("bias", int(experts.bias)),
    )
    if experts.replicas == 1:
        yield Op(name=f"{experts.name}.experts", op_class="moe-experts", shapes=shapes, weights="weights")
    else:
        gathered = (*shapes, ("replicas", experts.replicas))
        yield Op(name=f"{experts.name}.experts", op_class="spread-experts", shapes=gathered, weights="weights")
    routed = top_k * experts.width * experts.replicas
    yield activation_op(f"{experts.name}.activation", routed, gated=experts.gated, smooth=experts.smooth)
    if experts.shared_width:
        shared = FeedForward(
            width=experts.shared_width, gated=experts.gated, bias=experts.shared_bias, smooth=experts.smooth
        )
        yield from _feed_forward(f"{experts.name}.shared", shared, hidden)
    if experts.shared_gate:
        yield gemm_op(f"{experts.name}.shared_gate", hidden, 1)
    yield elementwise_op(f"{experts.name}.combine", "residual", top_k * inner * experts.replicas)
    if experts.latent:
        yield gemm_op(f"{experts.name}.latent_out", inner, hidden, bias=experts.shared_bias)


def _recurrence(piece: Recurrence, phases: tuple[Phase, ...]) -> Iterator[Op]:
    """A state's update, token by token in decode; in prefill by chunks where its decay allows."""
    state = (("state_elements", piece.elements), ("state_flop", piece.flop), ("state_exps", piece.exps))
    for phase in phases:
        if phase != "decode" and piece.scans_in_chunks:
            yield Op(name=f"{piece.name}.scan", op_class="state-scan", shapes=state[:1], phase=phase)
        else:
            yield Op(name=f"{piece.name}.{phase}", op_class="state-update", shapes=state, phase=phase)


def _piece(piece: Piece) -> Op:
    """The op of what is no part of the usual blocks."""
    if isinstance(piece, Linear):
        if piece.head:
            head = (("d_in", piece.d_in), ("d_out", piece.d_out), ("bias", int(piece.bias)), ("stored", 1))
            return Op(name=piece.name, op_class="lm-head", shapes=head)
        op = gemm_op(piece.name, piece.d_in, piece.d_out, bias=piece.bias)
        return msgspec.structs.replace(op, op_class="shared-gemm") if piece.shared else op
    if isinstance(piece, Row):
        return norm_op(piece.name, piece.norm, piece.width, piece.norm_width)
    if isinstance(piece, Vector):
        return Op(
            name=piece.name, op_class="elementwise", shapes=(("norm_width", piece.parameters), ("width", piece.width))
        )
    if isinstance(piece, Table):
        rows = (("rows", piece.rows), ("width", piece.width), ("scaled", 0), ("stored", 1))
        return Op(name=piece.name, op_class="embedding", shapes=rows)
    if isinstance(piece, Convolution):
        shapes = (("channels", piece.channels), ("kernel", piece.kernel), ("per_channel", piece.per_channel))
        return Op(name=piece.name, op_class="short-convolution", shapes=(*shapes, ("bias", int(piece.bias))))
    if isinstance(piece, DenseConvolution):
        read = (("kernel", piece.kernel), ("stride", piece.stride), ("bias", int(piece.bias)))
        widths = (("d_in", piece.d_in), ("d_out", piece.d_out))
        return Op(name=piece.name, op_class="dense-convolution", shapes=(*widths, *read))
    raise TypeError(f"{piece} is a piece of a layer")


def _before(architecture: Architecture) -> Iterator[Op]:
    width, scaled = architecture.embedding_width, int(architecture.embedding_scaled)
    if architecture.vocab and architecture.embedding != "none":
        share = width // architecture.vocab_ranks  # of each row: ranks share words, and so what a step looks up
        rows = (("rows", architecture.vocab), ("width", share), ("scaled", scaled))
        stored = ("stored", int(architecture.embedding == "own"))
        yield Op(name="embedding", op_class="embedding", shapes=(*rows, stored))
    if architecture.positions:
        shapes = (("rows", architecture.positions), ("width", architecture.hidden), ("scaled", 0), ("stored", 1))
        yield Op(name="position_embedding", op_class="embedding", shapes=shapes)
    if width != architecture.hidden:
        yield gemm_op("project_in", width, architecture.hidden)
    yield from map(_piece, architecture.before)


def _after(architecture: Architecture) -> Iterator[Op]:
    yield from map(_piece, architecture.after)
    if architecture.final_norm:
        yield norm_op("final_norm", architecture.norm, architecture.hidden)
    if not architecture.head:
        return
    width = architecture.head_width or architecture.embedding_width
    if architecture.head_width is None and width != architecture.hidden:
        yield gemm_op("project_out", architecture.hidden, width)
    stored, words = (
        int(not architecture.tied),
        -(-(architecture.head_vocab or architecture.vocab) // architecture.vocab_ranks),
    )
    head = (("d_in", width), ("d_out", words), ("bias", int(architecture.head_bias)), ("stored", stored))
    yield Op(name="lm_head", op_class="lm-head", shapes=head)
    capped = ("capped", int(architecture.logits_capped))
    yield Op(name="sampling", op_class="sampling", shapes=(("vocab", words), capped))
