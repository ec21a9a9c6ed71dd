"""Families that mix attention with state-space, gated linear recurrent or convolution layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from flopmap.model.architecture import (
    Architecture,
    Convolution,
    Experts,
    FeedForward,
    Layer,
    Linear,
    Norm,
    Piece,
    Recurrence,
    Vector,
)
from flopmap.model.config import MAX_LAYERS, Config
from flopmap.model.families.common import (
    biased,
    is_smooth,
    read_attention,
    read_decoder,
    read_feed_forward,
    rotary_share,
    with_window,
    without_rotation,
)
from flopmap.model.families.mixers import (
    FULL,
    LINEAR,
    expanded,
    integers,
    key_heads,
    layer_kinds,
    must_divide,
    refuse,
    smooth,
    state_space,
    state_space_heads,
    step_rank,
)
from flopmap.quantity import shown

if TYPE_CHECKING:
    from collections.abc import Callable


def jamba(config: Config) -> Architecture:
    """Jamba: Mamba with norms on its step, B and C, attention without positions, mixtures in every other layer."""
    mamba = state_space(
        config.integer("hidden_size"),
        expanded(config, "mamba_expand"),
        state=config.integer("mamba_d_state", default=16),
        rank=step_rank(config, "mamba_dt_rank"),
        kernel=config.integer("mamba_d_conv", default=4),
        bias=config.flag("mamba_proj_bias", default=False),
        conv_bias=config.flag("mamba_conv_bias", default=True),
        norms=(Norm(), Norm()),
    )
    attention = without_rotation(read_attention(config, kv_heads=key_heads(config, 8)))
    count = config.integer("num_hidden_layers", high=MAX_LAYERS)
    attends = _every(config, "attn_layer", 8, 4)
    mixes = _every(config, "expert_layer", 2, 1)
    experts, dense = _experts(config, top_k=2, experts=16), read_feed_forward(config)
    halves = [experts if mixes(index) and experts.experts > 1 else dense for index in range(count)]
    layers = tuple(
        Layer(attention=attention, feed_forward=half) if attends(index) else Layer(pieces=mamba, feed_forward=half)
        for index, half in enumerate(halves)
    )
    return read_decoder(config, layers, Norm())


def _every(config: Config, name: str, period: int, offset: int) -> Callable[[int], bool]:
    """Whether a layer is one of those a period and an offset name."""
    period = config.integer(f"{name}_period", default=period)
    offset = config.integer(f"{name}_offset", default=offset, low=0)
    if offset >= period:
        raise config.error(f"{name}_offset", f"{offset} is not below {name}_period {period}")
    return lambda index: index % period == offset


def _experts(config: Config, *, top_k: int, experts: int) -> Experts:
    """Experts of the width of the dense feed-forward."""
    return Experts(
        experts=config.integer("num_local_experts", "num_experts", default=experts),
        top_k=config.integer("num_experts_per_tok", default=top_k),
        width=config.integer("intermediate_size"),
        smooth=is_smooth(config, "silu"),
    )


def _heads_mixer(config: Config, inner: int, **options: bool | None) -> tuple[Piece, ...]:
    """A Mamba-2 mixer under the names that Bamba gave its parts."""
    heads = config.integer("mamba_n_heads", default=128)
    head_dim = must_divide(config, "mamba_n_heads", heads, inner)
    if config.fields.get("mamba_d_head", "auto") not in ("auto", head_dim):
        raise config.error("mamba_d_head", f"{shown(config.fields['mamba_d_head'])} heads of {heads} are not {inner}")
    return state_space_heads(
        config.integer("hidden_size"),
        heads,
        head_dim,
        groups=config.integer("mamba_n_groups", default=1),
        state=config.integer("mamba_d_state", default=256),
        kernel=config.integer("mamba_d_conv", default=4),
        bias=config.flag("mamba_proj_bias", default=False),
        conv_bias=config.flag("mamba_conv_bias", default=True),
        out_bias=options.get("out_bias"),
        norm=bool(options.get("norm", True)),
    )


def bamba(config: Config) -> Architecture:
    """Bamba: Mamba-2, attention where a list says so with half of each head rotated, a feed-forward in every layer."""
    bias = config.flag("attention_bias", default=False)
    attention = biased(read_attention(config, kv_heads=key_heads(config, 8)), qkv=bias, out=bias)
    attention = replace(attention, rotary_dim=attention.head_dim // 2)
    mamba = _heads_mixer(config, expanded(config, "mamba_expand"))
    feed_forward = read_feed_forward(config, bias=config.flag("mlp_bias", default=False))
    attends = set(integers(config, "attn_layer_indices"))
    layers = tuple(
        Layer(attention=attention, feed_forward=feed_forward)
        if index in attends
        else Layer(pieces=mamba, feed_forward=feed_forward)
        for index in range(config.integer("num_hidden_layers", high=MAX_LAYERS))
    )
    return read_decoder(config, layers, Norm())


def granite(config: Config) -> Architecture:
    """Granite 4: Mamba-2 and a few attention layers, mixtures with a shared expert or only that one."""
    bias = config.flag("attention_bias", default=False)
    attention = biased(read_attention(config), qkv=bias, out=bias)
    if config.string("position_embedding_type") != "rope":
        attention = without_rotation(attention)
    mamba = _heads_mixer(config, expanded(config, "mamba_expand"))
    shared = config.integer("shared_intermediate_size", default=1024)
    half: Experts | FeedForward = FeedForward(width=shared, gated=True, smooth=is_smooth(config, "silu"))
    if config.integer("num_local_experts", default=8, low=0):
        half = replace(_experts(config, top_k=2, experts=8), shared_width=shared)
    layers = tuple(
        Layer(attention=attention, feed_forward=half) if kind == FULL else Layer(pieces=mamba, feed_forward=half)
        for kind in layer_kinds(config, (LINEAR, FULL), lambda _: LINEAR)
    )
    scaled = config.number("embedding_multiplier", default=1.0) != 1.0
    return replace(read_decoder(config, layers, Norm()), embedding_scaled=scaled)


def falcon_h1(config: Config) -> Architecture:
    """Falcon-H1: attention and Mamba-2 side by side in every layer; the gated norm is off by default."""
    bias = config.flag("attention_bias", default=False)
    attention = biased(read_attention(config, kv_heads=key_heads(config, 8)), qkv=bias, out=bias)
    if config.fields.get("mamba_d_ssm", 1024) is None:
        inner = expanded(config, "mamba_expand")
    else:
        inner = config.integer("mamba_d_ssm", default=1024)
    mamba = _heads_mixer(
        config,
        inner,
        out_bias=config.flag("projectors_bias", default=False),
        norm=config.flag("mamba_rms_norm", default=False),
    )
    feed_forward = read_feed_forward(config, bias=config.flag("mlp_bias", default=False))
    layer = Layer(attention=attention, pieces=mamba, feed_forward=feed_forward)
    decoder = read_decoder(config, (layer,) * config.integer("num_hidden_layers", high=MAX_LAYERS), Norm())
    return replace(decoder, embedding_scaled=config.number("embedding_multiplier", default=1.0) != 1.0)


NEMOTRON = {"M": LINEAR, "E": "moe", "*": FULL, "-": "mlp"}


def nemotron_h(config: Config) -> Architecture:
    """Nemotron-H and Nemotron 3: one part a layer, under one norm: Mamba-2, attention, feed-forward or mixture."""
    refuse(config, "sliding_window")
    pattern = config.string("hybrid_override_pattern")
    if pattern and not config.has("layers_block_type", "layer_types"):
        unknown = set(pattern) - set(NEMOTRON)
        if unknown:
            understood = f"understood: {' '.join(NEMOTRON)}"
            raise config.error("hybrid_override_pattern", f"{shown(min(unknown))} is not understood ({understood})")
        kinds = [NEMOTRON[letter] for letter in pattern]
    else:
        listed = config.strings("layers_block_type") or config.strings("layer_types")
        default = tuple(NEMOTRON.values())  # the class's own pattern is one of each
        kinds = layer_kinds(config, default, default.__getitem__, len(listed) or len(default))
    used = {kind: _nemotron_layer(config, kind) for kind in dict.fromkeys(kinds)}
    return replace(read_decoder(config, tuple(used[kind] for kind in kinds), Norm()), tied=False)


def _nemotron_layer(config: Config, kind: str) -> Layer:
    """A layer of one kind. The class ignores ``attention_bias`` and has biases on feed-forwards by ``mlp_bias``."""
    if kind == LINEAR:
        smooth(config, "mamba_hidden_act", "silu")
        mamba = state_space_heads(
            config.integer("hidden_size"),
            config.integer("mamba_num_heads", default=128),
            config.integer("mamba_head_dim", default=64),
            groups=config.integer("mamba_n_groups", "n_groups", default=8),
            state=config.integer("ssm_state_size", default=128),
            kernel=config.integer("mamba_d_conv", "conv_kernel", default=4),
            bias=config.flag("use_bias", default=False),
            conv_bias=config.flag("mamba_conv_bias", default=config.flag("use_conv_bias", default=True)),
        )
        return Layer(norms=1, pieces=mamba)
    if kind == FULL:
        attention = read_attention(config, kv_heads=key_heads(config, 8), head_dim=128)
        return Layer(norms=1, attention=without_rotation(attention))
    bias, is_smooth = config.flag("mlp_bias", default=False), smooth(config, "mlp_hidden_act", "relu2")
    if kind == "mlp":
        width = config.integer("intermediate_size", default=21_504)
        return Layer(norms=1, feed_forward=FeedForward(width=width, gated=False, bias=bias, smooth=is_smooth))
    experts = Experts(
        experts=config.integer("n_routed_experts", "num_local_experts", default=8),
        top_k=config.integer("num_experts_per_tok", default=2),
        width=config.integer("moe_intermediate_size", default=7688),
        gated=False,
        smooth=is_smooth,
        shared_width=config.integer("moe_shared_expert_intermediate_size", default=7688),
        shared_bias=bias,
        latent=config.integer("moe_latent_size", default=0, low=0),
    )
    return Layer(norms=1, feed_forward=experts)


def lfm2(config: Config) -> Architecture:
    """LFM2: gated short convolutions and attention with norms on query and key heads; the width may be rounded."""
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
    hidden, bias = config.integer("hidden_size"), config.flag("conv_bias", default=False)
    attention = replace(read_attention(config, kv_heads=key_heads(config, 8)), qk_norm="shared")
    convolution: tuple[Piece, ...] = (
        Linear(name="mixer.in", d_in=hidden, d_out=3 * hidden, bias=bias),
        Convolution(name="mixer.conv", channels=hidden, kernel=config.integer("conv_L_cache", default=3), bias=bias),
        Vector(name="mixer.gates", parameters=0, width=2 * hidden),
        Linear(name="mixer.out", d_in=hidden, d_out=hidden, bias=bias),
    )
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
        Convolution(
            name="mixer.conv", channels=width, kernel=config.integer("conv1d_width", default=4), bias=True
        ),
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
        Layer(attention=attention, feed_forward=feed_forward), config.integer("attention_window_size", default=2048)
    )
    kinds = {"recurrent": Layer(pieces=mixer, feed_forward=feed_forward), "attention": windowed}
    pattern = config.strings("block_types") or ["recurrent", "recurrent", "attention"]
    if set(pattern) - set(kinds):
        raise config.error("block_types", f"{shown(pattern)} is not understood (understood: recurrent, attention)")
    count = config.integer("num_hidden_layers", high=min(MAX_LAYERS, 100 * len(pattern)))
    layers = tuple(kinds[pattern[index % len(pattern)]] for index in range(count))
    return replace(read_decoder(config, layers, Norm(), tied=True), embedding_scaled=True, logits_capped=True)


FAMILIES: dict[str, Callable[[Config], Architecture]] = {
    "jamba": jamba,
    "bamba": bamba,
    "granitemoehybrid": granite,
    "falcon_h1": falcon_h1,
    "nemotron_h": nemotron_h,
    "lfm2": lfm2,
    "lfm2_moe": lfm2_moe,
    "recurrent_gemma": recurrent_gemma,
}
