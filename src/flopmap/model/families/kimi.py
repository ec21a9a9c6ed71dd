"""Kimi Linear, Kimi K3 and Ling 3: delta nets with a decay a key channel, and latent attention between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from flopmap.model.architecture import (
    Architecture,
    Convolution,
    Experts,
    LatentAttention,
    Layer,
    Linear,
    Norm,
    Piece,
    Recurrence,
    Row,
    Vector,
)
from flopmap.model.config import Config
from flopmap.model.families.common import is_smooth, read_decoder, read_feed_forward
from flopmap.model.families.mixers import DELTA_FLOP, FULL, LINEAR, integers, layer_kinds, refuse, with_defaults

if TYPE_CHECKING:
    from collections.abc import Callable


def kimi_linear(config: Config) -> Architecture:
    """Kimi Linear: three delta nets with a decay a key channel to a latent attention without rotation.

    Kimi K3 adds a gate to the attention, a full-rank gate to the delta nets, experts on a narrower row, and sums over
    blocks of layers in place of residuals. Its SiTU activation counts as a SiLU: a floor with fewer exponentials.
    """
    refuse(config, "mla_useoutput_gate")
    hidden, table = config.integer("hidden_size"), Config(config.table("linear_attn_config"), config.name)
    if config.string("hidden_act") == "situ":
        config = Config({**config.fields, "hidden_act": "silu"}, config.name)
    if config.integer("moe_layer_freq", default=1) != 1:
        raise config.error("moe_layer_freq", "only 1 is understood in a kimi_linear config")
    attention = replace(_kimi_attention(config), rotated=False)
    delta = _kimi_delta(
        hidden,
        heads=table.integer("num_heads", default=config.integer("linear_num_heads", default=32)),
        head_dim=table.integer("head_dim", default=config.integer("linear_head_dim", default=128)),
        kernel=table.integer("short_conv_kernel_size", default=config.integer("linear_conv_kernel_dim", default=4)),
        gate_waist=not table.flag("use_full_rank_gate", default=False),
    )
    if not config.flag("mla_use_nope", default=True):
        raise config.error("mla_use_nope", "false is not understood (the class never rotates)")
    listed = integers(table, "full_attn_layers") if table.has("kda_layers") else []
    attending = {index - 1 for index in listed}
    default = attending.__contains__ if attending else lambda index: index > 0 and index % 4 == 0
    kinds = layer_kinds(config, (LINEAR, FULL), lambda index: FULL if default(index) else LINEAR)
    config = with_defaults(config, moe_intermediate_size=1024)
    gate = _output_gate(hidden, attention) if config.flag("mla_use_output_gate", default=False) else ()
    full = Layer(attention=attention, pieces=gate)
    layers = _kimi_layers(config, kinds, full, Layer(pieces=delta), dense=1, experts=256)
    model = replace(read_decoder(config, layers, Norm()), tied=False)  # the class knows no tied head
    return _with_block_residuals(model, config) if config.has("attn_res_block_size") else model


def _output_gate(hidden: int, attention: LatentAttention) -> tuple[Piece, ...]:
    """A gate on every element that attention gives."""
    width = attention.heads * attention.value_dim
    return (
        Linear(name="attention.gate", d_in=hidden, d_out=width),
        Vector(name="attention.gate_product", parameters=0, width=width),
    )


def _with_block_residuals(model: Architecture, config: Config) -> Architecture:
    """Both halves of a layer read a weighted sum: over what each block of layers before them gave, and their own block.

    A norm and one score weigh each row. The first layer has nothing to weigh before its attention, but the parameters.
    """
    block, hidden = config.integer("attn_res_block_size"), model.hidden
    layers = []
    for index, layer in enumerate(model.layers):
        before = -(-index // block)
        within = before + (index % block == 0)
        sums = (*_block_sum("attention.blocks", hidden, before), *_block_sum("mlp.blocks", hidden, within))
        layers.append(replace(layer, pieces=(*layer.pieces, *sums)))
    blocks = -(-len(model.layers) // block)
    return replace(model, layers=tuple(layers), after=(*model.after, *_block_sum("output.blocks", hidden, blocks)))


def _block_sum(name: str, hidden: int, blocks: int) -> tuple[Piece, ...]:
    """The weighted sum of ``blocks`` rows and the current one."""
    rows = blocks + 1 if blocks else 0
    score = Linear(name=f"{name}.score", d_in=hidden, d_out=1)
    if not rows:
        return (Vector(name=name, parameters=2 * hidden),)
    return (
        Row(name=f"{name}.norm", norm=Norm(), width=rows * hidden, norm_width=hidden),
        score,
        *(replace(score, shared=True),) * blocks,
        Vector(name=f"{name}.sum", parameters=0, width=rows * hidden),
    )


def bailing_hybrid(config: Config) -> Architecture:
    """Ling 3: five delta nets with full-rank decay and gate to a rotated latent attention with a gate a head."""
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    attention = _kimi_attention(config)
    gate = (
        Linear(name="attention.gate", d_in=hidden, d_out=heads),
        Vector(name="attention.gate_product", parameters=0, width=heads * attention.value_dim),
    )
    delta = _kimi_delta(
        hidden,
        heads=config.integer("linear_num_heads", default=heads),
        head_dim=config.integer("linear_head_dim", "head_dim", default=128),
        kernel=config.integer("linear_conv_kernel_dim", "short_conv_kernel_size", default=4),
        decay_waist=False,
        gate_waist=False,
    )
    every = config.integer("layer_group_size", default=6)
    kinds = layer_kinds(config, (LINEAR, FULL), lambda index: LINEAR if (index + 1) % every else FULL)
    config = with_defaults(config, moe_intermediate_size=768)
    layers = _kimi_layers(
        config, kinds, Layer(attention=attention, pieces=gate), Layer(pieces=delta), dense=2, experts=512
    )
    return replace(read_decoder(config, layers, Norm()), tied=False)


def _kimi_attention(config: Config) -> LatentAttention:
    return LatentAttention(
        heads=config.integer("num_attention_heads"),
        query_rank=config.optional("q_lora_rank"),
        latent=config.integer("kv_lora_rank", default=512),
        nope_dim=config.integer("qk_nope_head_dim", default=128),
        rope_dim=config.integer("qk_rope_head_dim", default=64),
        value_dim=config.integer("v_head_dim", default=128),
        bias=config.flag("attention_bias", default=False),
    )


def _kimi_layers(
    config: Config, kinds: list[str], full: Layer, delta: Layer, *, dense: int, experts: int
) -> tuple[Layer, ...]:
    """The layers with their feed-forwards: the first ``dense``, or those that the config lists, have no experts."""
    sparse = _kimi_sparse(config, len(kinds), dense)
    mixed, wide = _kimi_experts(config, experts), read_feed_forward(config)
    norm: tuple[Piece, ...] = ()
    if mixed.latent and config.flag("latent_moe_use_norm", default=True):
        norm = (Row(name="moe.latent_norm", norm=Norm(), width=mixed.latent),)
    layers = []
    for kind, mixture in zip(kinds, sparse, strict=True):
        layer = full if kind == FULL else delta
        pieces = (*layer.pieces, *norm) if mixture else layer.pieces
        layers.append(replace(layer, feed_forward=mixed if mixture else wide, pieces=pieces))
    return tuple(layers)


def _kimi_sparse(config: Config, count: int, dense: int) -> list[bool]:
    """Which layers are mixtures: all but the first, or as the config lists them."""
    kinds = config.strings("mlp_layer_types")
    if not kinds:
        first = config.integer("first_k_dense_replace", default=dense, low=0)
        return [index >= first for index in range(count)]
    if len(kinds) != count or set(kinds) - {"dense", "sparse"}:
        raise config.error("mlp_layer_types", f"{count} entries of dense or sparse are needed")
    return [kind == "sparse" for kind in kinds]


def _kimi_experts(config: Config, experts: int) -> Experts:
    width = config.integer("moe_intermediate_size")
    return Experts(
        experts=config.integer("num_local_experts", "num_experts", default=experts),
        top_k=config.integer("num_experts_per_tok", "num_experts_per_token", default=8),
        width=width,
        shared_width=width * config.integer("n_shared_experts", "num_shared_experts", default=1, low=0),
        smooth=is_smooth(config, "silu"),
        latent=config.optional("routed_expert_hidden_size") or 0,
    )


def _kimi_delta(
    hidden: int, *, heads: int, head_dim: int, kernel: int, decay_waist: bool = True, gate_waist: bool = True
) -> tuple[Piece, ...]:
    """Kimi delta attention: decay and output gate come through a waist of one head, or straight."""
    width = heads * head_dim
    decay, gate = (
        (
            Linear(name=f"mixer.{name}_a", d_in=hidden, d_out=head_dim),
            Linear(name=f"mixer.{name}_b", d_in=head_dim, d_out=width),
        )
        if waist
        else (Linear(name=f"mixer.{name}", d_in=hidden, d_out=width),)
        for name, waist in (("decay_row", decay_waist), ("gate_row", gate_waist))
    )
    return (
        Linear(name="mixer.qkv", d_in=hidden, d_out=3 * width),
        Linear(name="mixer.b", d_in=hidden, d_out=heads),
        Convolution(name="mixer.conv", channels=3 * width, kernel=kernel),
        *decay,
        Vector(name="mixer.decay", parameters=width + heads, width=width),
        Recurrence(name="mixer.state", elements=width * head_dim, flop=DELTA_FLOP),
        *gate,
        Row(name="mixer.norm", norm=Norm(), width=width, norm_width=head_dim),
        Vector(name="mixer.gate", parameters=0, width=width),
        Linear(name="mixer.out", d_in=width, d_out=hidden),
    )


FAMILIES: dict[str, Callable[[Config], Architecture]] = {
    "bailing_hybrid": bailing_hybrid,
    "kimi_linear": kimi_linear,
}
