"""Families that mix attention with short convolutions or gated linear recurrences."""

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
    Recurrence,
    Row,
    Vector,
)
from flopmap.model.config import MAX_LAYERS, Config
from flopmap.model.families.common import (
    biased,
    is_smooth,
    read_attention,
    read_decoder,
    rotary_share,
    with_window,
)
from flopmap.model.families.mixers import (
    FULL,
    SLIDING,
    integers,
    key_heads,
    layer_kinds,
    must_divide,
    with_defaults,
)
from flopmap.quantity import shown

if TYPE_CHECKING:
    from collections.abc import Callable


def lfm2(config: Config) -> Architecture:
    """LFM2: gated short convolutions and attention with norms on query and key heads; the width may be rounded."""
    config = with_defaults(config, hidden_size=2560, num_hidden_layers=32, num_attention_heads=32, vocab_size=65_536)
    count = config.integer("num_hidden_layers", high=MAX_LAYERS)
    attends = set(integers(config, "full_attn_idxs")) if config.has("full_attn_idxs") else set(range(count))
    kinds = layer_kinds(config, ("conv", FULL), lambda index: FULL if index in attends else "conv")
    width = config.integer("block_ff_dim", "intermediate_size", default=12_288)
    if config.flag("block_auto_adjust_ff_dim", default=True):
        width = 2 * width // 3
        if "block_ffn_dim_multiplier" not in config.fields or config.has("block_ffn_dim_multiplier"):
            width = int(config.number("block_ffn_dim_multiplier", default=1.0) * width)
            multiple = config.integer("block_multiple_of", default=256)
            width = -(-width // multiple) * multiple
    feed_forward = FeedForward(width=width, gated=True)
    return _lfm2(config, kinds, lambda _: feed_forward)


def lfm2_moe(config: Config) -> Architecture:
    """LFM2 with mixtures after the first dense layers; the bias of the router's choice is a buffer."""
    experts = Experts(
        experts=config.integer("num_experts", default=32),
        top_k=config.integer("num_experts_per_tok", default=4),
        width=config.integer("moe_intermediate_size", default=1792),
    )
    dense = FeedForward(width=config.integer("intermediate_size", default=7168), gated=True)
    first = config.integer("num_dense_layers", default=2, low=0)
    kinds = layer_kinds(config, ("conv", FULL))
    return _lfm2(config, kinds, lambda index: dense if index < first else experts)


def _lfm2(config: Config, kinds: list[str], half: Callable[[int], FeedForward | Experts]) -> Architecture:
    attention = replace(read_attention(config, kv_heads=key_heads(config, 8)), qk_norm="shared")
    convolution = _gated_convolution(config, 3)
    layers = tuple(
        Layer(attention=attention, feed_forward=half(index))
        if kind == FULL
        else Layer(pieces=convolution, feed_forward=half(index))
        for index, kind in enumerate(kinds)
    )
    tied = config.flag("tie_embedding", default=config.flag("tie_word_embeddings", default=True))
    return replace(read_decoder(config, layers, Norm()), tied=tied)


def recurrent_gemma(config: Config) -> Architecture:
    """RecurrentGemma: two gated linear recurrent layers to one of windowed attention; the output has a bias."""
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads", default=10)
    attention = biased(read_attention(config), qkv=config.flag("attention_bias", default=False), out=True)
    attention = replace(attention, rotary_dim=int(attention.head_dim * rotary_share(config, 0.5)))
    width = config.integer("lru_width", default=hidden)
    block = must_divide(config, "num_attention_heads", heads, width)
    mixer: tuple[Piece, ...] = (
        Linear(name="mixer.in", d_in=hidden, d_out=2 * width, bias=True),
        Convolution(name="mixer.conv", channels=width, kernel=config.integer("conv1d_width", default=4), bias=True),
        Linear(name="mixer.gates", d_in=block, d_out=2 * width, bias=True),
        Vector(name="mixer.decay", parameters=width, width=width),
        Recurrence(name="mixer.state", elements=width, flop=6, exps=4),
        Vector(name="mixer.gate_product", parameters=0, width=width),
        Linear(name="mixer.out", d_in=width, d_out=hidden, bias=True),
    )
    feed_forward = FeedForward(
        width=config.integer("intermediate_size") // 2, gated=True, bias=True, smooth=is_smooth(config, "gelu")
    )
    windowed = with_window(
        Layer(attention=attention, feed_forward=feed_forward),
        config.integer("attention_window_size", "sliding_window", default=2048),
    )
    kinds = {"recurrent": Layer(pieces=mixer, feed_forward=feed_forward), "attention": windowed}
    pattern = config.strings("block_types") or ["recurrent", "recurrent", "attention"]
    if set(pattern) - set(kinds):
        raise config.error("block_types", f"{shown(pattern)} is not understood (understood: recurrent, attention)")
    count = config.integer("num_hidden_layers", high=min(MAX_LAYERS, 100 * len(pattern)))
    layers = tuple(kinds[pattern[index % len(pattern)]] for index in range(count))
    return replace(read_decoder(config, layers, Norm(), tied=True), embedding_scaled=True, logits_capped=True)


def _gated_convolution(config: Config, kernel: int) -> tuple[Piece, ...]:
    """A short convolution between two gates, all three projected at once."""
    hidden, bias = config.integer("hidden_size"), config.flag("conv_bias", default=False)
    kernel = config.integer("conv_L_cache", default=kernel)
    return (
        Linear(name="mixer.in", d_in=hidden, d_out=3 * hidden, bias=bias),
        Convolution(name="mixer.conv", channels=hidden, kernel=kernel, bias=bias),
        Vector(name="mixer.gates", parameters=0, width=2 * hidden),
        Linear(name="mixer.out", d_in=hidden, d_out=hidden, bias=bias),
    )


def lfm3(config: Config) -> Architecture:
    """LFM3: wider convolutions, windows on half of the attention layers, a gate a head, norms on both sides."""
    hidden, bias = config.integer("hidden_size"), config.flag("attention_bias", default=False)
    attention = biased(read_attention(config, kv_heads=key_heads(config, 4), head_dim=128), qkv=bias, out=bias)
    attention = replace(attention, qk_norm="shared")
    gate: tuple[Piece, ...] = ()
    if config.flag("use_attention_gate", default=True):
        gate = (
            Linear(name="attention.gate", d_in=hidden, d_out=attention.heads),
            Vector(name="attention.gate_product", parameters=0, width=attention.output_width),
        )
    feed_forward = FeedForward(width=config.integer("intermediate_size", default=7680), gated=True)
    norms = 4 if config.flag("use_sandwich_norm", default=True) else 2
    slides = replace(attention, window=config.integer("sliding_window", default=256))
    half = replace(attention, rotary_dim=_full_rotary(config, attention.head_dim))
    mixers = {
        FULL: Layer(attention=half, pieces=gate, feed_forward=feed_forward, norms=norms),
        SLIDING: Layer(attention=slides, pieces=gate, feed_forward=feed_forward, norms=norms),
        "conv": Layer(pieces=_gated_convolution(config, 7), feed_forward=feed_forward, norms=norms),
    }
    pattern = ("conv", "conv", FULL, "conv")
    kinds = layer_kinds(
        config, tuple(mixers), lambda index: SLIDING if index and index % 4 == 0 else pattern[index % 4]
    )
    return read_decoder(config, tuple(mixers[kind] for kind in kinds), Norm(), tied=True)


def _full_rotary(config: Config, head_dim: int) -> int:
    """The rotated part of a head in full attention: half unless the config's table for it says otherwise."""
    table = Config(config.table("rope_parameters"), config.name).table(FULL)
    share = Config(table, config.name).number("partial_rotary_factor", default=1.0 if table else 0.5)
    return int(head_dim * min(1.0, share))


def zaya(config: Config) -> Architecture:
    """ZAYA: queries and keys pass two convolutions, half of each value is the last token's; the router is an MLP.

    It scores one class more than there are experts: to skip them.
    """
    hidden, bias = config.integer("hidden_size"), config.flag("attention_bias", default=False)
    if config.integer("num_experts_per_tok", default=1) != 1:
        raise config.error("num_experts_per_tok", "only 1 is understood in a zaya config")
    attention = biased(read_attention(config, kv_heads=2, head_dim=128), qkv=bias, out=bias)
    attention = replace(attention, rotary_dim=attention.head_dim // 2)
    experts = Experts(
        experts=config.integer("num_experts", default=16),
        top_k=1,
        width=config.integer("moe_intermediate_size", default=2048),
        smooth=is_smooth(config, "silu"),
        router=False,
    )
    kinds = layer_kinds(config, ("hybrid", "hybrid_sliding"), lambda _: "hybrid")
    mixer = _compressed_convolution(config, attention)
    layers = []
    for index, kind in enumerate(kinds):
        pieces = (*mixer, *_zaya_router(config, experts.experts + 1, is_first=index == 0))
        layer = Layer(attention=attention, pieces=pieces, feed_forward=experts)
        layers.append(with_window(layer, config.integer("sliding_window")) if kind == "hybrid_sliding" else layer)
    scale = Vector(name="embedding.scale", parameters=2 * hidden, width=2 * hidden)
    head_bias = config.flag("lm_head_bias", default=False)
    decoder = read_decoder(config, tuple(layers), Norm(), tied=True)
    return replace(decoder, before=(scale,), head_bias=head_bias)


def _compressed_convolution(config: Config, attention: Attention) -> tuple[Piece, ...]:
    """Two convolutions over queries and keys, one a channel and one a head; half of a value is the last token's."""
    channels = attention.query_width + attention.key_width
    first, second = config.integer("cca_time0", default=2), config.integer("cca_time1", default=2)
    if attention.value_width % 2:
        raise config.error("head_dim", "an even width of all key heads is needed")
    return (
        Convolution(name="attention.conv", channels=channels, kernel=first, bias=True),
        Convolution(
            name="attention.head_conv", channels=channels, kernel=second, per_channel=attention.head_dim, bias=True
        ),
        Recurrence(name="attention.delayed_value", elements=attention.value_width // 2, flop=0),
        Row(name="attention.qk_norm", norm=Norm(affine=False), width=channels),
        Vector(name="attention.temperature", parameters=attention.kv_heads, width=attention.key_width),
    )


def _zaya_router(config: Config, classes: int, *, is_first: bool) -> tuple[Piece, ...]:
    """The router's MLP, the scales of both residuals, and that of the last layer's router row."""
    hidden, width = config.integer("hidden_size"), config.integer("router_hidden_size", default=256)
    carried = () if is_first else (Vector(name="moe.router_scale", parameters=width, width=width),)
    return (
        Linear(name="moe.router_in", d_in=hidden, d_out=width, bias=True),
        *carried,
        Row(name="moe.router_norm", norm=Norm(), width=width),
        Linear(name="moe.router_1", d_in=width, d_out=width, bias=True),
        Linear(name="moe.router_2", d_in=width, d_out=width, bias=True),
        Linear(name="moe.router_out", d_in=width, d_out=classes),
        Vector(name="residual.scales", parameters=8 * hidden, width=8 * hidden),
    )


FAMILIES: dict[str, Callable[[Config], Architecture]] = {
    "lfm2": lfm2,
    "lfm2_moe": lfm2_moe,
    "lfm3": lfm3,
    "recurrent_gemma": recurrent_gemma,
    "zaya": zaya,
}
