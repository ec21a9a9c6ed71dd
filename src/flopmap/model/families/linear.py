"""Families that mix softmax attention with linear attention: delta nets and lightning attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from flopmap.model.architecture import (
    Architecture,
    Attention,
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
    read_feed_forward,
    rotary_share,
    without_rotation,
)
from flopmap.model.families.mixers import (
    FULL,
    LINEAR,
    SCALAR_DECAY_FLOP,
    SLIDING,
    gated_delta,
    integers,
    key_heads,
    layer_kinds,
    must_divide,
    refuse,
    with_defaults,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    Half = FeedForward | Experts


def qwen3_next(config: Config) -> Architecture:
    """Qwen3-Next: three gated delta nets to a gated attention layer, mixtures with a gated shared expert."""
    every = config.integer("decoder_sparse_step", default=1)
    dense, experts = set(integers(config, "mlp_only_layers")), qwen_experts(config, top_k=10, experts=512)

    def half(index: int) -> Half:
        if experts is None or index in dense or (index + 1) % every:
            return read_feed_forward(with_defaults(config, intermediate_size=5632))
        return experts

    return _qwen(config, half, kv_heads=2)


def qwen3_5(config: Config) -> Architecture:
    """Qwen 3.5 (text): as Qwen3-Next with dense feed-forwards."""
    refuse(config, "num_experts")
    config = with_defaults(
        config,
        hidden_size=4096,
        intermediate_size=12_288,
        num_hidden_layers=32,
        num_attention_heads=16,
        vocab_size=248_320,
    )
    feed_forward = read_feed_forward(config)
    return _qwen(config, lambda _: feed_forward, kv_heads=4)


def qwen3_5_moe(config: Config) -> Architecture:
    """Qwen 3.5 (text) with mixtures in every layer."""
    refuse(config, "mlp_only_layers")
    config = with_defaults(config, hidden_size=2048, num_hidden_layers=40, num_attention_heads=16, vocab_size=248_320)
    experts = qwen_experts(config, top_k=8, experts=256)
    if experts is None:
        raise config.error("num_experts", "0 is not understood in a qwen3_5_moe config")
    return _qwen(config, lambda _: experts, kv_heads=2)


def qwen_experts(config: Config, *, top_k: int, experts: int, gate: bool = True) -> Experts | None:
    """Experts and a shared one, gated or not; None where the config has none."""
    count = config.integer("num_experts", default=experts, low=0)
    if not count:
        return None
    return Experts(
        experts=count,
        top_k=config.integer("num_experts_per_tok", default=top_k),
        width=config.integer("moe_intermediate_size", default=512),
        smooth=is_smooth(config, "silu"),
        shared_width=config.integer("shared_expert_intermediate_size", default=512),
        shared_gate=gate,
    )


def _qwen(config: Config, half: Callable[[int], Half], *, kv_heads: int) -> Architecture:
    """Attention with a gate on its output in every fourth layer, gated delta nets in the others."""
    if not config.flag("attnoutput_gate", default=True):
        raise config.error("attnoutput_gate", "false is not understood (the class always has the gate)")
    hidden = config.integer("hidden_size")
    bias = config.flag("attention_bias", default=False)
    attention = biased(read_attention(config, kv_heads=kv_heads, head_dim=256), qkv=bias, out=bias)
    rotary = int(attention.head_dim * rotary_share(config, 0.25))
    attention = replace(attention, qk_norm="shared", rotary_dim=rotary)
    delta = delta_of(config, key_heads=16, value_heads=32, key_dim=128, value_dim=128)
    every = config.integer("full_attention_interval", default=4)
    kinds = layer_kinds(config, (LINEAR, FULL), lambda index: LINEAR if (index + 1) % every else FULL)
    gate = output_gate(attention, hidden, bias=bias)
    layers = tuple(
        Layer(attention=attention, pieces=gate, feed_forward=half(index))
        if kind == FULL
        else Layer(pieces=delta, feed_forward=half(index))
        for index, kind in enumerate(kinds)
    )
    return read_decoder(config, layers, Norm())


def output_gate(attention: Attention, hidden: int, *, bias: bool = False) -> tuple[Piece, ...]:
    """A gate on each element of the attention output, projected with the queries."""
    width = attention.output_width
    return (
        Linear(name="attention.gate", d_in=hidden, d_out=width, bias=bias),
        Vector(name="attention.gate_product", parameters=0, width=width),
    )


def delta_of(config: Config, *, key_heads: int, value_heads: int, key_dim: int, value_dim: int) -> tuple[Piece, ...]:
    """A gated delta net under the names that Qwen gave its parts; the sizes are the class's own."""
    is_smooth(config, "silu")
    keys = config.integer("linear_num_key_heads", default=key_heads)
    values = config.integer("linear_num_value_heads", default=value_heads)
    must_divide(config, "linear_num_key_heads", keys, values)
    return gated_delta(
        config.integer("hidden_size"),
        key_heads=keys,
        value_heads=values,
        key_dim=config.integer("linear_key_head_dim", default=key_dim),
        value_dim=config.integer("linear_value_head_dim", default=value_dim),
        kernel=config.integer("linear_conv_kernel_dim", default=4),
    )


def lara_mini(config: Config) -> Architecture:
    """Lara Mini: gated delta nets, windowed and full attention in a pattern of five; no gates, a tied head."""
    bias = config.flag("attention_bias", default=False)
    attention = biased(read_attention(config, kv_heads=4, head_dim=128), qkv=bias, out=bias)
    attention = replace(attention, qk_norm="shared")
    slides = replace(attention, window=config.integer("sliding_window", default=512))
    delta = delta_of(config, key_heads=8, value_heads=16, key_dim=128, value_dim=128)
    experts = qwen_experts(config, top_k=4, experts=128, gate=False)
    if experts is None:
        raise config.error("num_experts", "0 is not understood in a lara_mini config")
    mixers = {
        LINEAR: Layer(pieces=delta, feed_forward=experts),
        SLIDING: Layer(attention=slides, feed_forward=experts),
        FULL: Layer(attention=attention, feed_forward=experts),
    }
    pattern = (LINEAR, SLIDING, LINEAR, FULL, SLIDING)
    kinds = layer_kinds(config, tuple(mixers), lambda index: pattern[index % len(pattern)])
    return read_decoder(config, tuple(mixers[kind] for kind in kinds), Norm(), tied=True)


def olmo_hybrid(config: Config) -> Architecture:
    """OLMo Hybrid: gated delta nets of keys of three quarters; a norm over all query heads; rotary only if given."""
    heads, hidden = config.integer("num_attention_heads"), config.integer("hidden_size")
    bias = config.flag("attention_bias", default=False)
    attention = replace(biased(read_attention(config), qkv=bias, out=bias), qk_norm="whole")
    if not config.table("rope_parameters").get("rope_theta") and not config.has("rope_theta"):
        attention = without_rotation(attention)
    key_dim = int(0.75 * hidden / config.integer("linear_num_key_heads", default=heads))
    key_dim = config.integer("linear_key_head_dim", default=key_dim)
    delta = delta_of(config, key_heads=heads, value_heads=heads, key_dim=key_dim, value_dim=2 * key_dim)
    feed_forward = read_feed_forward(config)
    last = config.integer("num_hidden_layers", high=MAX_LAYERS) - 1
    default = {index: FULL if index % 4 == 3 or index == last < 3 else LINEAR for index in range(last + 1)}  # noqa: PLR2004
    kinds = layer_kinds(config, (LINEAR, FULL), default.__getitem__)
    mixers = {
        FULL: Layer(attention=attention, feed_forward=feed_forward),
        LINEAR: Layer(pieces=delta, feed_forward=feed_forward),
    }
    return read_decoder(config, tuple(mixers[kind] for kind in kinds), Norm())


def minimax(config: Config) -> Architecture:
    """MiniMax-Text-01: lightning attention (a state of head by head, one fixed decay a head) and softmax by turns."""
    hidden, window = config.integer("hidden_size"), config.optional("sliding_window")
    attention = replace(read_attention(config, kv_heads=key_heads(config, 8)), window=window)
    width = attention.output_width
    lightning = (
        Linear(name="mixer.qkv", d_in=hidden, d_out=3 * width),
        Recurrence(name="mixer.state", elements=width * attention.head_dim, flop=SCALAR_DECAY_FLOP),
        Row(name="mixer.norm", norm=Norm(), width=width),
        Linear(name="mixer.gate", d_in=hidden, d_out=width),
        Vector(name="mixer.gate_product", parameters=0, width=width),
        Linear(name="mixer.out", d_in=width, d_out=hidden),
    )
    experts = Experts(
        experts=config.integer("num_local_experts", "num_experts", default=8),
        top_k=config.integer("num_experts_per_tok", default=2),
        width=config.integer("intermediate_size"),
        smooth=is_smooth(config, "silu"),
    )
    kinds = layer_kinds(config, (LINEAR, FULL), lambda index: LINEAR if index % 2 else FULL)
    layers = {
        FULL: Layer(attention=attention, feed_forward=experts),
        LINEAR: Layer(pieces=lightning, feed_forward=experts),
    }
    return read_decoder(config, tuple(layers[kind] for kind in kinds), Norm())


FAMILIES: dict[str, Callable[[Config], Architecture]] = {
    "qwen3_next": qwen3_next,
    "qwen3_5_text": qwen3_5,
    "qwen3_5_moe_text": qwen3_5_moe,
    "lara_mini": lara_mini,
    "olmo_hybrid": olmo_hybrid,
    "minimax": minimax,
}
