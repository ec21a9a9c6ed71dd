"""Families that mix attention with state-space layers."""

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
        if config.integer("attention_head_dim", default=attention.head_dim) != attention.head_dim:
            raise config.error("attention_head_dim", f"is not head_dim {attention.head_dim}, which the class reads")
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


def zamba(config: Config) -> Architecture:
    """Zamba: Mamba-1 in every layer; some first run one attention block, whose weights all of them share.

    That block reads the layer's row and the embedding beside each other; a matrix of the layer's own leads back. The
    class ties blocks as it ties the head: where ``tie_word_embeddings`` is false, each has its own.
    """
    hidden = config.integer("hidden_size")
    heads = config.integer("num_attention_heads", default=16)
    smooth(config, "hidden_mamba_act", "silu")
    mamba = state_space(
        hidden,
        expanded(config, "mamba_expand"),
        state=config.integer("mamba_d_state", default=16),
        rank=step_rank(config, "mamba_dt_rank"),
        kernel=config.integer("mamba_d_conv", default=4),
        bias=config.flag("mamba_proj_bias", default=False),
        conv_bias=config.flag("mamba_conv_bias", default=True),
        heads=_mamba_heads(config),
    )
    attention = _pair_attention(config, config.integer("attention_head_dim", default=2 * hidden // heads), 16)
    feed_forward = read_feed_forward(config, "gelu")
    attends = _every(config, "attn_layer", 6, 4)  # after a first three, of which the last attends
    kinds = layer_kinds(
        config,
        (LINEAR, "hybrid"),
        lambda index: "hybrid" if (attends(index - 3) if index > 2 else index == 2) else LINEAR,  # noqa: PLR2004
    )
    first = kinds.index("hybrid") if "hybrid" in kinds else 0
    block, tied = (
        Layer(attention=attention, feed_forward=feed_forward),
        config.flag("tie_word_embeddings", default=True),
    )
    layers = tuple(
        _zamba_layer(hidden, mamba, block if kind == "hybrid" else None, shared=tied and index != first)
        for index, kind in enumerate(kinds)
    )
    return read_decoder(config, layers, Norm(), tied=True)


def _mamba_heads(config: Config) -> int:
    heads = config.integer("n_mamba_heads", default=2)
    must_divide(config, "n_mamba_heads", heads, expanded(config, "mamba_expand"))
    return heads


def _pair_attention(config: Config, head_dim: int, kv_heads: int | None) -> Attention:
    """Attention over the layer's row and the embedding beside each other."""
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    if config.integer("attention_hidden_size", default=2 * hidden) != 2 * hidden:
        raise config.error("attention_hidden_size", f"must be twice hidden_size {hidden}")
    absent = heads if "num_key_value_heads" in config.fields else kv_heads or heads
    keys = config.integer("num_key_value_heads", default=absent)
    must_divide(config, "num_key_value_heads", keys, heads)
    return Attention(heads=heads, kv_heads=keys, head_dim=head_dim, value_dim=head_dim, input_width=2 * hidden)


def _zamba_layer(
    hidden: int, mamba: tuple[Piece, ...], block: Layer | None, *, shared: bool, adapters: tuple[Piece, ...] = ()
) -> Layer:
    """A Mamba layer under its norm, after the attention block where it has one."""
    mixer = (Row(name="mixer.norm_in", norm=Norm(), width=hidden), *mamba)
    if block is None:
        return Layer(norms=0, pieces=mixer)
    norm = Norm(affine=not shared)
    own: tuple[Piece, ...] = (
        Row(name="attention.norm", norm=norm, width=2 * hidden),
        Row(name="mlp.norm", norm=norm, width=hidden),
        *adapters,
        Linear(name="block.out", d_in=hidden, d_out=hidden),
    )
    return replace(block, norms=0, pieces=(*own, *mixer), shared=shared)


ZAMBA2 = "L" + 7 * "LLLLLH" + "LLLLHLLLHLL"  # the class's own pattern, of the 2.7B


def zamba2(config: Config) -> Architecture:
    """Zamba2: as Zamba with Mamba-2, several shared blocks by turns, and low-rank adapters of each layer's own."""
    hidden = config.integer("hidden_size")
    heads = config.integer("num_attention_heads", default=32)
    mamba_heads = config.integer("n_mamba_heads", default=8)
    head_dim = must_divide(config, "n_mamba_heads", mamba_heads, expanded(config, "mamba_expand"))
    if config.integer("mamba_headdim", default=head_dim) != head_dim:
        raise config.error("mamba_headdim", f"is not {head_dim}, the inner width over {mamba_heads} heads")
    mamba = state_space_heads(
        hidden,
        mamba_heads,
        head_dim,
        groups=config.integer("mamba_ngroups", default=1),
        state=config.integer("mamba_d_state", default=64),
        kernel=config.integer("mamba_d_conv", default=4),
        bias=config.flag("add_bias_linear", default=False),
        conv_bias=True,
    )
    attention = _pair_attention(config, config.integer("attention_head_dim", default=2 * hidden // heads), None)
    if config.flag("use_mem_rope", default=False):
        attention = replace(attention, rotary_dim=attention.head_dim)
    width = config.integer("intermediate_size", default=4 * hidden)
    bias = config.flag("add_bias_linear", default=False)
    feed_forward = FeedForward(width=width, gated=True, bias=bias, smooth=is_smooth(config, "gelu"))
    if not config.has("layers_block_type", "layer_types") and config.integer("num_hidden_layers") != len(ZAMBA2):
        raise config.error("layers_block_type", f"is missing, and the class's pattern is of {len(ZAMBA2)} layers")
    kinds = layer_kinds(config, (LINEAR, "hybrid"), lambda index: LINEAR if ZAMBA2[index] == "L" else "hybrid")
    hybrids = [index for index, kind in enumerate(kinds) if kind == "hybrid"]
    if config.has("hybrid_layer_ids") and integers(config, "hybrid_layer_ids") != hybrids:
        raise config.error("hybrid_layer_ids", f"are not the hybrid layers {shown(hybrids)} of layers_block_type")
    blocks = config.integer("num_mem_blocks", default=1)
    block, adapters = Layer(attention=attention, feed_forward=feed_forward), _adapters(config, attention, width)
    tied = config.flag("tie_word_embeddings", default=True)
    own = set(hybrids[:blocks] if tied else hybrids)
    size = sum(piece.d_in * piece.d_out for piece in adapters)
    layers = []
    for index, kind in enumerate(kinds):
        if kind != "hybrid":
            layers.append(_zamba_layer(hidden, mamba, None, shared=False))
            continue
        place = hybrids.index(index) % blocks  # an untied block holds the adapters of all layers that would share it
        unused = 0 if tied else len(hybrids[place::blocks]) - 1
        held = (Vector(name="adapters.unused", parameters=unused * size),) if unused else ()
        layers.append(_zamba_layer(hidden, mamba, block, shared=index not in own, adapters=(*adapters, *held)))
    return read_decoder(config, tuple(layers), Norm(), tied=True)


def _adapters(config: Config, attention: Attention, width: int) -> tuple[Linear, ...]:
    """Low-rank matrices beside those that layers share: always on the feed-forward, if asked for on attention."""
    hidden, rank = config.integer("hidden_size"), config.integer("adapter_rank", default=128)
    sides = [("mlp", hidden, 2 * width)]
    if config.flag("use_shared_attention_adapter", default=False):
        if attention.kv_heads != attention.heads:
            raise config.error("use_shared_attention_adapter", "is not understood with fewer key heads than heads")
        sides += [(f"attention.{name}", 2 * hidden, 2 * hidden) for name in ("q", "k", "v")]
    return tuple(
        piece
        for name, d_in, d_out in sides
        for piece in (
            Linear(name=f"{name}.adapter_in", d_in=d_in, d_out=rank),
            Linear(name=f"{name}.adapter_out", d_in=rank, d_out=d_out),
        )
    )


FAMILIES: dict[str, Callable[[Config], Architecture]] = {
    "jamba": jamba,
    "bamba": bamba,
    "granitemoehybrid": granite,
    "falcon_h1": falcon_h1,
    "nemotron_h": nemotron_h,
    "zamba": zamba,
    "zamba2": zamba2,
}
