"""Families whose layers are all recurrent: state-space models and their kin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from flopmap.model.architecture import Architecture, FeedForward, Layer, Linear, Norm, Piece, Recurrence, Row, Vector
from flopmap.model.config import MAX_LAYERS, Config
from flopmap.model.families.common import read_decoder
from flopmap.model.families.mixers import (
    SCALAR_DECAY_FLOP,
    expanded,
    must_divide,
    smooth,
    state_space,
    state_space_heads,
    step_rank,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def mamba(config: Config) -> Architecture:
    """Mamba: no feed-forward, one norm a layer; the embedding is tied."""
    return _mamba(config, None)


def falcon_mamba(config: Config) -> Architecture:
    """Falcon Mamba: norms without weights on the step and on B and C."""
    plain = Norm(affine=False)
    return _mamba(config, (plain, plain))


def _mamba(config: Config, norms: tuple[Norm, Norm] | None) -> Architecture:
    smooth(config, "hidden_act", "silu")
    pieces = state_space(
        config.integer("hidden_size"),
        config.optional("intermediate_size") or expanded(config, "expand"),
        state=config.integer("state_size", default=16),
        rank=step_rank(config, "time_step_rank"),
        kernel=config.integer("conv_kernel", default=4),
        bias=config.flag("use_bias", default=False),
        conv_bias=config.flag("use_conv_bias", default=True),
        norms=norms,
    )
    layer = Layer(norms=1, pieces=pieces)
    count = config.integer("num_hidden_layers", high=MAX_LAYERS)
    return read_decoder(config, (layer,) * count, Norm(), tied=True)


def mamba2(config: Config) -> Architecture:
    """Mamba-2: heads of one decay each; the embedding is not tied by default."""
    smooth(config, "hidden_act", "silu")
    heads, head_dim = config.integer("num_heads", default=128), config.integer("head_dim", default=64)
    if heads * head_dim != expanded(config, "expand"):
        raise config.error("num_heads", f"{heads} heads of {head_dim} are not the expanded hidden width")
    pieces = state_space_heads(
        config.integer("hidden_size"),
        heads,
        head_dim,
        groups=config.integer("n_groups", default=8),
        state=config.integer("state_size", default=128),
        kernel=config.integer("conv_kernel", default=4),
        bias=config.flag("use_bias", default=False),
        conv_bias=config.flag("use_conv_bias", default=True),
    )
    layer = Layer(norms=1, pieces=pieces)
    return read_decoder(config, (layer,) * config.integer("num_hidden_layers", high=MAX_LAYERS), Norm())


def rwkv(config: Config) -> Architecture:
    """RWKV-4: three state elements a channel, the last token's row before each half, a gate on the feed-forward."""
    hidden = config.integer("hidden_size")
    inner = config.integer("attention_hidden_size", default=hidden)
    pieces = (
        Recurrence(name="mixer.shift", elements=hidden, flop=0),
        Vector(name="mixer.mix", parameters=3 * hidden, width=3 * hidden),
        Linear(name="mixer.kvr", d_in=hidden, d_out=3 * inner),
        Vector(name="mixer.decay", parameters=2 * inner, width=inner),
        Recurrence(name="mixer.state", elements=3 * inner, flop=5, exps=1),
        Linear(name="mixer.out", d_in=inner, d_out=hidden),
        Recurrence(name="mlp.shift", elements=hidden, flop=0),
        Vector(name="mlp.mix", parameters=2 * hidden, width=2 * hidden),
        Linear(name="mlp.receptance", d_in=hidden, d_out=hidden),
    )
    width = config.integer("intermediate_size", default=4 * hidden)
    layer = Layer(feed_forward=FeedForward(width=width, gated=False, smooth=False), pieces=pieces)
    norm = Norm(kind="layer", bias=True)
    decoder = read_decoder(config, (layer,) * config.integer("num_hidden_layers", high=MAX_LAYERS), norm)
    return replace(decoder, before=(Row(name="first_norm", norm=norm, width=hidden),))


def xlstm(config: Config) -> Architecture:
    """XLSTM: a matrix memory a head with exponential gates, a normaliser, a stabiliser; the LM head is never tied."""
    hidden = config.integer("hidden_size", "embedding_dim")
    if config.integer("embedding_dim", default=hidden) != hidden:
        raise config.error("embedding_dim", f"must be hidden_size {hidden}")
    bias = config.flag("use_bias", default=False)
    width = config.number("ffn_proj_factor", default=2.667) * hidden
    multiple = config.integer("ffn_round_up_to_multiple_of", default=64)
    width = int((width + multiple - 1) // multiple * multiple)
    layer = Layer(
        pieces=_matrix_memory(config, hidden, bias=bias),
        feed_forward=FeedForward(width=width, gated=True, bias=bias),
    )
    count = config.integer("num_blocks", "num_hidden_layers", high=MAX_LAYERS)
    fields = {**config.fields, "hidden_size": hidden, "tie_word_embeddings": False}
    decoder = read_decoder(Config(fields, config.name), (layer,) * count, Norm())
    return replace(decoder, logits_capped=True)


def _matrix_memory(config: Config, hidden: int, *, bias: bool) -> tuple[Piece, ...]:
    heads = config.integer("num_heads", default=8)
    keys = int(hidden * config.number("qk_dim_factor", default=0.5))
    values = int(hidden * config.number("v_dim_factor", default=1.0))
    must_divide(config, "num_heads", heads, values)
    key_dim = must_divide(config, "num_heads", heads, keys)
    biases = (Vector(name="norms.bias", parameters=2 * hidden, width=2 * hidden),) if bias else ()
    return (
        *biases,  # of the two norms of the layer
        Linear(name="mixer.qkvo", d_in=hidden, d_out=2 * keys + 2 * values, bias=bias),
        Linear(name="mixer.gates", d_in=hidden, d_out=2 * heads, bias=True),
        Recurrence(name="mixer.state", elements=key_dim * values, flop=SCALAR_DECAY_FLOP),
        Recurrence(name="mixer.normaliser", elements=keys + heads, flop=SCALAR_DECAY_FLOP),
        Row(name="mixer.norm", norm=Norm(kind="layer", bias=bias), width=values),
        Vector(name="mixer.gate", parameters=0, width=values),
        Linear(name="mixer.out", d_in=values, d_out=hidden, bias=bias),
    )


FAMILIES: dict[str, Callable[[Config], Architecture]] = {
    "mamba": mamba,
    "falcon_mamba": falcon_mamba,
    "mamba2": mamba2,
    "rwkv": rwkv,
    "xlstm": xlstm,
}
