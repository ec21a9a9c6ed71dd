"""What many families share: grouped attention, feed-forwards, windows, and the decoder around the layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from flopmap.model.architecture import Architecture, Attention, FeedForward, Layer, Norm
from flopmap.model.config import MAX_LAYERS, Config
from flopmap.quantity import shown

if TYPE_CHECKING:
    from collections.abc import Callable

RELU = ("relu", "relu2")
SMOOTH = ("silu", "swish", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_tanh", "quick_gelu")


def read_attention(config: Config, *, kv_heads: int | None = None, head_dim: int | None = None) -> Attention:
    """Grouped attention under the common names. ``kv_heads`` and ``head_dim`` are the family's own defaults."""
    hidden = config.integer("hidden_size", "n_embd")
    heads = config.integer("num_attention_heads", "n_head")
    keys = config.integer("num_key_value_heads", default=heads if kv_heads is None else kv_heads)
    if heads % keys:
        raise config.error("num_key_value_heads", f"{keys} does not divide num_attention_heads {heads}")
    if not config.has("head_dim") and head_dim is None and hidden % heads:
        raise config.error(
            "num_attention_heads", f"{heads} does not divide hidden_size {hidden}, and head_dim is not given"
        )
    width = config.integer("head_dim", default=head_dim or hidden // heads)
    rotated = min(width, int(width * rotary_share(config, 1.0)))
    return Attention(heads=heads, kv_heads=keys, head_dim=width, value_dim=width, rotary_dim=rotated)


def rotary_share(config: Config, default: float) -> float:
    """The share of a head that is rotated, in either spelling. ``default`` is the family's."""
    nested = Config(config.table("rope_parameters"), config.name).number("partial_rotary_factor", default=default)
    return min(1.0, config.number("partial_rotary_factor", default=nested))


def read_feed_forward(
    config: Config, activation: str = "silu", *, gated: bool = True, bias: bool = False
) -> FeedForward:
    """A feed-forward under the common names; ``activation`` is the family's own."""
    return FeedForward(
        width=config.integer("intermediate_size"), gated=gated, bias=bias, smooth=is_smooth(config, activation)
    )


def is_smooth(config: Config, default: str) -> bool:
    """Whether the activation has an exponential."""
    field, name = config.named_string("hidden_activation", "hidden_act", "activation_function", default=default)
    if name not in (*RELU, *SMOOTH):
        raise config.error(field, f"{shown(name)} is not understood (understood: {', '.join((*RELU, *SMOOTH))})")
    return name in SMOOTH


def read_layers(
    config: Config, layer: Layer, window: int | None, is_windowed: Callable[[int], bool]
) -> tuple[Layer, ...]:
    """All layers: ``layer``, with the window where the config's layer_types (or else the family's rule) put it."""
    count = config.integer("num_hidden_layers", "n_layer", high=MAX_LAYERS)
    types = config.strings("layer_types")
    if types and len(types) != count:
        raise config.error("layer_types", f"has {len(types)} entries for {count} layers")
    unknown = set(types) - {"full_attention", "sliding_attention"}
    if unknown:
        raise config.error(
            "layer_types", f"{shown(min(unknown))} is not understood (understood: full_attention, sliding_attention)"
        )
    windowed = [kind == "sliding_attention" for kind in types] or [is_windowed(index) for index in range(count)]
    if window is None:
        return (layer,) * count
    narrow = with_window(layer, window)
    return tuple(narrow if slides else layer for slides in windowed)


def with_window(layer: Layer, window: int) -> Layer:
    """The layer with a sliding window, where its attention can have one."""
    if not isinstance(layer.attention, Attention):
        return layer
    return replace(layer, attention=replace(layer.attention, window=window))


def read_decoder(
    config: Config, layers: tuple[Layer, ...], norm: Norm, *, tied: bool = False, embedding_width: int | None = None
) -> Architecture:
    """A decoder with what all families share; ``replace`` adds what is a family's own."""
    hidden = config.integer("hidden_size", "n_embd")
    return Architecture(
        family=config.string("model_type"),
        hidden=hidden,
        vocab=config.integer("vocab_size"),
        layers=layers,
        norm=norm,
        embedding_width=embedding_width or hidden,
        tied=config.flag("tie_word_embeddings", default=tied),
    )


def biased(attention: Attention, *, qkv: bool, out: bool) -> Attention:
    """Attention with biases on queries, keys and values, and on the output."""
    return replace(attention, qkv_bias=qkv, out_bias=out)


def without_rotation(attention: Attention) -> Attention:
    """Attention whose positions are learned or absent."""
    return replace(attention, rotary_dim=0)
