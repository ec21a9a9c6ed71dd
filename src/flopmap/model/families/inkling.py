"""Inkling: short convolutions after most projections, and a learned bias by distance in place of rotation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from flopmap.model.architecture import (
    Architecture,
    Attention,
    Convolution,
    Experts,
    FeedForward,
    Layer,
    Linear,
    Norm,
    Piece,
    Row,
    Vector,
)
from flopmap.model.config import MAX_LAYERS, Config
from flopmap.model.families.common import is_smooth, read_decoder
from flopmap.model.families.mixers import integers, layer_kinds, must_divide, with_defaults

if TYPE_CHECKING:
    from collections.abc import Callable

KINDS = ("hybrid", "hybrid_sliding")


def inkling(config: Config) -> Architecture:
    """Inkling: convolutions after keys, values and both halves; a learned bias by distance in place of rotation.

    Windowed layers have heads of their own. The router also scores the shared experts.
    """
    config = with_defaults(
        config, hidden_size=6144, num_hidden_layers=66, num_attention_heads=64, vocab_size=201_024, n_routed_experts=256
    )
    count = config.integer("num_hidden_layers", high=MAX_LAYERS)
    local = set(integers(config, "local_layer_ids"))
    if not config.has("local_layer_ids"):
        local = {index for index in range(count) if (index + 1) % 6}
    kinds = layer_kinds(config, KINDS, lambda index: KINDS[index in local])
    mixers = {kind: _inkling_attention(config, slides=kind == "hybrid_sliding") for kind in dict.fromkeys(kinds)}
    halves = {kind: _inkling_half(config, kind) for kind in ("dense", "sparse")}
    layers = []
    for kind, width in zip(kinds, _inkling_widths(config, count), strict=True):
        attention, pieces = mixers[kind]
        layers.append(replace(halves[width], attention=attention, pieces=(*pieces, *halves[width].pieces)))
    norm = Row(name="embedding.norm", norm=Norm(), width=config.integer("hidden_size"))
    return replace(read_decoder(config, tuple(layers), Norm()), tied=False, before=(norm,))


def _inkling_attention(config: Config, *, slides: bool) -> tuple[Attention, tuple[Piece, ...]]:
    """Attention of one kind with its convolutions and its bias by distance."""
    hidden, kernel = config.integer("hidden_size"), config.integer("conv_kernel_size", "sconv_kernel_size", default=4)
    prefix = "swa_" if slides else ""
    heads = config.integer(f"{prefix}num_attention_heads", default=64)
    keys = config.integer(f"{prefix}num_key_value_heads", default=16 if slides else 8)
    must_divide(config, f"{prefix}num_key_value_heads", keys, heads)
    dim = config.integer(f"{prefix}head_dim", default=128)
    window = config.integer("sliding_window_size", "sliding_window", default=512)
    rank, extent = config.integer("d_rel", default=16), window if slides else config.integer("rel_extent", default=1024)
    attention = Attention(
        heads=heads, kv_heads=keys, head_dim=dim, value_dim=dim, window=window if slides else None, qk_norm="shared"
    )
    pieces: tuple[Piece, ...] = (
        Convolution(name="attention.kv_conv", channels=2 * keys * dim, kernel=kernel),
        Linear(name="attention.distance", d_in=hidden, d_out=heads * rank),
        Linear(name="attention.distance_bias", d_in=rank, d_out=extent),  # one matrix for every head
        Linear(name="attention.distance_bias_heads", d_in=rank, d_out=(heads - 1) * extent, shared=True),
        Convolution(name="attention.conv", channels=hidden, kernel=kernel),
        Convolution(name="mlp.conv", channels=hidden, kernel=kernel),
    )
    return attention, pieces


def _inkling_half(config: Config, kind: str) -> Layer:
    """A feed-forward of one kind, with its scale and, for a mixture, the router."""
    width, routed = config.integer("intermediate_size", default=24_576), "moe_intermediate_size"
    smooth, scale = is_smooth(config, "silu"), Vector(name="mlp.scale", parameters=1)
    legacy = config.optional("dense_intermediate_size")
    if kind == "dense":
        return Layer(feed_forward=FeedForward(width=legacy or width, gated=True, smooth=smooth), pieces=(scale,))
    width = width if legacy else config.integer(routed, default=3072)
    experts = config.integer("n_routed_experts", "num_local_experts", default=256)
    shared = config.integer("n_shared_experts", default=2, low=0)
    mixture = Experts(
        experts=experts,
        top_k=config.integer("num_experts_per_tok", default=6),
        width=width,
        smooth=smooth,
        shared_width=shared * width,
        router=False,
    )
    router = Linear(name="moe.router", d_in=config.integer("hidden_size"), d_out=experts + shared)
    return Layer(feed_forward=mixture, pieces=(router, scale))


def _inkling_widths(config: Config, count: int) -> list[str]:
    kinds = config.strings("mlp_layer_types")
    first = config.integer("dense_mlp_idx", default=0, low=0)
    kinds = kinds or ["dense" if index < first else "sparse" for index in range(count)]
    if len(kinds) != count or set(kinds) - {"dense", "sparse"}:
        raise config.error("mlp_layer_types", f"{count} entries of dense or sparse are needed")
    return kinds


INKLING2 = {
    "hidden_size": 4608,
    "num_hidden_layers": 48,
    "num_attention_heads": 48,
    "swa_num_attention_heads": 48,
    "swa_num_key_value_heads": 8,
    "sliding_window_size": 1024,
    "vocab_size": 201_024,
    "unpadded_vocab_size": 200_058,
}


def inkling2(config: Config) -> Architecture:
    """Inkling 2: each half reads a mix of what earlier blocks of layers left; a gate and a sink a head on attention.

    Full layers mix once for queries, keys and values each, and project the taps of their convolutions. The LM head
    has rows for the vocabulary without padding.
    """
    config = with_defaults(config, **INKLING2)
    hidden, vocab = config.integer("hidden_size"), config.integer("vocab_size")
    count = config.integer("num_hidden_layers", high=MAX_LAYERS)
    kinds = layer_kinds(config, KINDS, lambda index: KINDS[bool((index + 1) % 6)])
    experts = Experts(
        experts=config.integer("n_routed_experts", "num_local_experts", default=384),
        top_k=config.integer("num_experts_per_tok", default=8),
        width=config.integer("moe_intermediate_size", "intermediate_size", default=2304),
        smooth=is_smooth(config, "silu"),
    )
    mixers = {kind: _inkling2_attention(config, slides=kind == "hybrid_sliding") for kind in dict.fromkeys(kinds)}
    block = config.integer("n_layers_per_attn_res_block", default=6)
    layers = []
    for index, kind in enumerate(kinds):
        rows, before = 1 if kind == "hybrid_sliding" else 3, -(-index // block)
        mixes = (_mix(hidden, rows, before + 1),) if index else ()
        attention, pieces = mixers[kind]
        pieces = (*mixes, *pieces, _mix(hidden, 1, index // block + 2))
        layers.append(Layer(attention=attention, pieces=pieces, feed_forward=experts))
    decoder = replace(read_decoder(config, tuple(layers), Norm()), tied=False, logits_capped=True)
    head = config.integer("unpadded_vocab_size", high=vocab)
    padding = (Vector(name="embedding.padding", parameters=(vocab - head) * hidden),) if vocab > head else ()
    norm = Row(name="embedding.norm", norm=Norm(), width=hidden)
    return replace(decoder, vocab=head, before=(*padding, norm), after=(_mix(hidden, 1, -(-count // block) + 1),))


def _mix(hidden: int, rows: int, states: int) -> Vector:
    """A softmax over what the blocks left, for each of ``rows`` queries: scores and sum, a multiply-add an element."""
    return Vector(name="residual.mix", parameters=rows * hidden, width=4 * rows * states * hidden)


def _inkling2_attention(config: Config, *, slides: bool) -> tuple[Attention, tuple[Piece, ...]]:
    """As Inkling's, clipped and scaled by weights a head where that norms, with a gate and a sink."""
    attention, base = _inkling_attention(config, slides=slides)
    attention = replace(attention, qk_norm="none")
    hidden, width = config.integer("hidden_size"), attention.output_width
    kernel, rank = (
        config.integer("conv_kernel_size", "sconv_kernel_size", default=4),
        config.integer("d_rel", default=16),
    )
    pieces: tuple[Piece, ...] = (
        Vector(name="attention.scale", parameters=attention.query_width, width=attention.query_width),
        Vector(name="attention.distance_scale", parameters=attention.heads * rank, width=attention.heads * rank),
        Linear(name="attention.gate", d_in=hidden, d_out=width),
        Vector(name="attention.gate_product", parameters=0, width=width),
        Linear(name="attention.sink", d_in=hidden, d_out=attention.heads),
    )
    if not slides:
        pieces += (
            Linear(name="attention.taps", d_in=hidden, d_out=2 * attention.kv_heads * kernel),
            Row(name="attention.k_norm_in", norm=Norm(), width=hidden),
            Row(name="attention.v_norm_in", norm=Norm(), width=hidden),
        )
    return attention, (*base, *pieces)


FAMILIES: dict[str, Callable[[Config], Architecture]] = {"inkling2_text": inkling2, "inkling_text": inkling}
