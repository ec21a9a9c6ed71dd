"""How many parameters the towers of an architecture have, and which tensors of a checkpoint are theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopmap.model.architecture import (
    Attention,
    Convolution,
    CrossAttention,
    DenseConvolution,
    FeedForward,
    Linear,
    Row,
    Table,
    Vector,
)

if TYPE_CHECKING:
    from flopmap.model.architecture import Architecture, Layer, Norm

# how the names of their modules begin, at any depth
NAMES = (
    *("visual", "vision", "image_newline", "embed_vision", "multi_modal_projector", "mm_projector", "connector"),
    *("patch_merger", "perceiver", "aligner", "video_tower", "image_tower", "audio_tower", "vit_", "merger"),
)


def tower_parameters(architecture: Architecture) -> int:
    """Parameters of all stacks before the main layers, vectors and tables with them."""
    total = 0
    for stack in architecture.stacks:
        total += sum(_piece(piece) for piece in (*stack.before, *stack.after))
        total += sum(_layer(layer, stack.hidden, stack.norm) for layer in stack.layers)
    return total


def is_tower(name: str) -> bool:
    """Whether a tensor's name leads to a tower or a connector."""
    return any(part.startswith(NAMES) for part in name.split("."))


def _layer(layer: Layer, hidden: int, norm: Norm) -> int:
    total = layer.norms * _norm(norm, hidden) + sum(_piece(piece) for piece in layer.pieces)
    if isinstance(layer.attention, Attention):
        total += _attention(layer.attention, hidden, hidden)
    if isinstance(layer.feed_forward, FeedForward):
        inner = layer.feed_forward.width * (1 + layer.feed_forward.gated)
        total += hidden * (inner + layer.feed_forward.width) + layer.feed_forward.bias * (inner + hidden)
    return total


def _attention(attention: Attention, hidden: int, source: int) -> int:
    key = attention.qkv_bias if attention.key_bias is None else attention.key_bias
    value = attention.qkv_bias if attention.value_bias is None else attention.value_bias
    total = (hidden + attention.qkv_bias) * attention.query_width
    total += (source + key) * attention.key_width + (source + value) * attention.value_width
    total += attention.output_width * hidden + attention.out_bias * hidden
    if attention.qk_norm == "shared":
        total += 2 * _norm(attention.qk_norm_kind, attention.head_dim)
    elif attention.qk_norm != "none":
        total += _norm(attention.qk_norm_kind, attention.query_width) + _norm(
            attention.qk_norm_kind, attention.key_width
        )
    return total


def _norm(norm: Norm, width: int) -> int:
    return width * norm.affine * (1 + (norm.kind == "layer" and norm.bias))


def _piece(piece: object) -> int:
    if isinstance(piece, Linear):
        return (piece.d_in + piece.bias) * piece.d_out
    if isinstance(piece, Row):
        return _norm(piece.norm, piece.norm_width or piece.width)
    if isinstance(piece, Vector):
        return piece.parameters
    if isinstance(piece, Table):
        return piece.rows * piece.width
    if isinstance(piece, Convolution):
        return piece.channels * (piece.kernel * piece.per_channel + piece.bias)
    if isinstance(piece, DenseConvolution):
        return piece.d_out * (piece.kernel * piece.d_in + piece.bias)
    if isinstance(piece, CrossAttention):
        norm = _norm(piece.norm, piece.source_width) if piece.norm else 0
        return norm + _attention(piece.attention, piece.source_width, piece.source_width)
    raise TypeError(f"{piece} is no piece of a tower")
