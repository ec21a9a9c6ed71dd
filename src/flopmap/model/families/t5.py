"""T5 and its kin: an encoder and a decoder with tables of relative positions and one embedding for both.

Checked against transformers 5.24.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from flopmap.model.architecture import (
    Architecture,
    Attention,
    CrossAttention,
    FeedForward,
    Layer,
    Norm,
    Row,
    Stack,
    Vector,
)
from flopmap.model.config import MAX_LAYERS, Config
from flopmap.model.families.classic import refuse_true
from flopmap.quantity import shown

if TYPE_CHECKING:
    from collections.abc import Callable

ACTIVATIONS = ("relu", "gelu", "gelu_new", "silu")


def t5(config: Config) -> Architecture:
    """T5, mT5, UMT5: norms before each half without a bias, no biases at all; UMT5 has a table in every layer."""
    refuse_true(config, "is_decoder", "a decoder by itself is not understood")
    hidden, heads = config.integer("d_model"), config.integer("num_heads")
    width = config.integer("d_kv", default=64)
    attention = Attention(heads=heads, kv_heads=heads, head_dim=width, value_dim=width)
    half = _feed_forward(config)
    count = config.integer("num_layers", high=MAX_LAYERS)
    decoders = config.integer("num_decoder_layers", default=count, high=MAX_LAYERS)
    cross = CrossAttention(source="encoder", source_width=hidden, attention=attention, norm=Norm())
    table = Vector(
        name="attention.relative_bias",
        parameters=heads * config.integer("relative_attention_num_buckets", default=32),
    )
    every = config.string("model_type") == "umt5"
    encoder = Stack(
        name="encoder",
        hidden=hidden,
        layers=_layers(Layer(attention=replace(attention, causal=False), feed_forward=half), count, table, every=every),
        before=(Vector(name="embedding", parameters=0, width=hidden),),  # the table of words is the decoder's
        after=(Row(name="norm", norm=Norm(), width=hidden),),
        quantized=True,
    )
    decoder = Layer(attention=attention, feed_forward=half, pieces=(cross,))
    return Architecture(
        family=config.string("model_type"),
        hidden=hidden,
        vocab=config.integer("vocab_size"),
        layers=_layers(decoder, decoders, table, every=every),
        norm=Norm(),
        embedding_width=hidden,
        tied=config.flag("tie_word_embeddings", default=True),
        stacks=(encoder,),
    )


def _layers(layer: Layer, count: int, table: Vector, *, every: bool) -> tuple[Layer, ...]:
    """The layers; the first (or ``every`` one) holds a table of biases by distance."""
    first = replace(layer, pieces=(table, *layer.pieces))
    return (first,) * count if every else (first, *(layer,) * (count - 1))


def _feed_forward(config: Config) -> FeedForward:
    """The feed-forward: ``gated-gelu`` has two input matrices."""
    named = config.string("feed_forward_proj", default="relu")
    gated, _, activation = named.rpartition("-")
    if gated not in ("", "gated") or activation not in ACTIVATIONS:
        understood = f"{', '.join(ACTIVATIONS)}, each also after gated-"
        raise config.error("feed_forward_proj", f"{shown(named)} is not understood (understood: {understood})")
    return FeedForward(width=config.integer("d_ff"), gated=bool(gated), smooth=activation != "relu")


FAMILIES: dict[str, Callable[[Config], Architecture]] = {"mt5": t5, "t5": t5, "umt5": t5}
