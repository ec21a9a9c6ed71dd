"""Dense decoders.

What a class assumes when a field is absent is part of the family: Mistral has 8 key heads and a window of 4096 by
default, Qwen3 heads of 128 whatever the hidden size, Gemma heads of 256. Checked against transformers 5.24.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from flopmap.model.architecture import Architecture, FeedForward, Layer, Norm
from flopmap.model.config import Config
from flopmap.model.families.common import (
    biased,
    is_smooth,
    read_attention,
    read_decoder,
    read_feed_forward,
    read_layers,
    rotary_share,
    without_rotation,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def llama(config: Config) -> Architecture:
    """Llama 1 to 3, and the many that kept its shape."""
    bias = config.flag("attention_bias", default=False)
    attention = biased(read_attention(config), qkv=bias, out=bias)
    layer = Layer(
        attention=attention, feed_forward=read_feed_forward(config, bias=config.flag("mlp_bias", default=False))
    )
    return read_decoder(config, read_layers(config, layer, None, lambda _: False), Norm())


def mistral(config: Config) -> Architecture:
    """Mistral: an absent window is 4096, a null one is none."""
    window = config.optional("sliding_window") if "sliding_window" in config.fields else 4096
    layer = Layer(attention=read_attention(config, kv_heads=8), feed_forward=read_feed_forward(config))
    return read_decoder(config, read_layers(config, layer, window, lambda _: True), Norm())


def qwen2(config: Config) -> Architecture:
    """Qwen 1.5 to 2.5: biases on queries, keys and values only."""
    attention = biased(read_attention(config, kv_heads=32), qkv=True, out=False)
    return read_decoder(
        config, _qwen_layers(config, Layer(attention=attention, feed_forward=read_feed_forward(config))), Norm()
    )


def qwen3(config: Config) -> Architecture:
    """Qwen 3: heads of 128 by default, a norm shared by all query heads and one by all key heads."""
    bias = config.flag("attention_bias", default=False)
    attention = biased(read_attention(config, kv_heads=32, head_dim=128), qkv=bias, out=bias)
    attention = replace(attention, qk_norm="shared")
    return read_decoder(
        config, _qwen_layers(config, Layer(attention=attention, feed_forward=read_feed_forward(config))), Norm()
    )


def _qwen_layers(config: Config, layer: Layer) -> tuple[Layer, ...]:
    window = (
        config.integer("sliding_window", default=4096) if config.flag("use_sliding_window", default=False) else None
    )
    first = config.integer("max_window_layers", default=28, low=0)
    return read_layers(config, layer, window, lambda index: index >= first)


def phi(config: Config) -> Architecture:
    """Phi 1 to 2: a parallel block under one LayerNorm, biases everywhere, the LM head included."""
    attention = biased(read_attention(config), qkv=True, out=True)
    attention = replace(attention, rotary_dim=int(attention.head_dim * rotary_share(config, 0.5)))
    norm = Norm(kind="layer", bias=True)
    if config.flag("qk_layernorm", default=False):
        attention = replace(attention, qk_norm="shared", qk_norm_kind=norm)
    feed_forward = read_feed_forward(config, "gelu_new", gated=False, bias=True)
    layer = Layer(attention=attention, feed_forward=feed_forward, norms=1)
    return replace(read_decoder(config, read_layers(config, layer, None, lambda _: False), norm), head_bias=True)


def phi3(config: Config) -> Architecture:
    """Phi 3 and 4 (dense): Llama's shape with a window on every layer where one is given."""
    layer = Layer(attention=read_attention(config), feed_forward=read_feed_forward(config))
    return read_decoder(config, read_layers(config, layer, config.optional("sliding_window"), lambda _: True), Norm())


def gemma(config: Config) -> Architecture:
    """Gemma 1."""
    bias = config.flag("attention_bias", default=False)
    attention = biased(read_attention(config, kv_heads=16, head_dim=256), qkv=bias, out=bias)
    layer = Layer(attention=attention, feed_forward=read_feed_forward(config, "gelu"))
    decoder = read_decoder(config, read_layers(config, layer, None, lambda _: False), Norm(), tied=True)
    return replace(decoder, embedding_scaled=True)


def gemma2(config: Config) -> Architecture:
    """Gemma 2: norms before and after each half, a window on every other layer, soft caps on scores and logits."""
    bias = config.flag("attention_bias", default=False)
    attention = biased(read_attention(config, kv_heads=4, head_dim=256), qkv=bias, out=bias)
    capped = "attn_logit_softcapping" not in config.fields or config.has("attn_logit_softcapping")
    attention = replace(attention, capped=capped)
    layer = Layer(attention=attention, feed_forward=read_feed_forward(config, "gelu"), norms=4)
    window = config.integer("sliding_window", default=4096)
    layers = read_layers(config, layer, window, lambda index: index % 2 == 0)
    logits = "final_logit_softcapping" not in config.fields or config.has("final_logit_softcapping")
    return replace(read_decoder(config, layers, Norm(), tied=True), embedding_scaled=True, logits_capped=logits)


def gemma3(config: Config) -> Architecture:
    """Gemma 3 (text): as Gemma 2, norms on query and key heads, no soft caps, five windowed layers to a full one."""
    defaults = {
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "vocab_size": 262_208,
    }
    config = Config({**defaults, **config.fields}, config.name)
    bias = config.flag("attention_bias", default=False)
    attention = biased(read_attention(config, kv_heads=4, head_dim=256), qkv=bias, out=bias)
    attention = replace(attention, qk_norm="shared")
    layer = Layer(attention=attention, feed_forward=read_feed_forward(config, "gelu"), norms=4)
    pattern = config.integer("sliding_window_pattern", default=6)
    window = config.integer("sliding_window", default=4096)
    layers = read_layers(config, layer, window, lambda index: (index + 1) % pattern != 0)
    return replace(read_decoder(config, layers, Norm(), tied=True), embedding_scaled=True)


def gpt2(config: Config) -> Architecture:
    """GPT-2: learned positions, LayerNorm, biases, an ungated feed-forward of four times the width."""
    hidden = config.integer("n_embd", "hidden_size")
    attention = biased(read_attention(config), qkv=True, out=True)
    attention = without_rotation(attention)
    width = config.integer("n_inner", "intermediate_size", default=4 * hidden)
    feed_forward = FeedForward(width=width, gated=False, bias=True, smooth=is_smooth(config, "gelu_new"))
    layers = read_layers(config, Layer(attention=attention, feed_forward=feed_forward), None, lambda _: False)
    positions = config.integer("n_positions", "max_position_embeddings", default=1024)
    return replace(read_decoder(config, layers, Norm(kind="layer", bias=True), tied=True), positions=positions)


OPT_POSITION_OFFSET = 2


def opt(config: Config) -> Architecture:
    """OPT: learned positions after an offset of two; the smallest but one has a narrower embedding."""
    bias = config.flag("enable_bias", default=True)
    attention = without_rotation(biased(read_attention(config), qkv=bias, out=bias))
    smooth = is_smooth(config, "relu")
    feed_forward = FeedForward(width=config.integer("ffn_dim"), gated=False, bias=bias, smooth=smooth)
    layers = read_layers(config, Layer(attention=attention, feed_forward=feed_forward), None, lambda _: False)
    affine = config.flag("layer_norm_elementwise_affine", default=True)
    final = config.flag("do_layer_norm_before", default=True) and not config.flag(
        "_remove_final_layer_norm", default=False
    )
    positions = config.integer("max_position_embeddings", default=2048) + OPT_POSITION_OFFSET
    width = config.integer("word_embed_proj_dim", default=config.integer("hidden_size"))
    norm = Norm(kind="layer", bias=True, affine=affine)
    decoder = read_decoder(config, layers, norm, tied=True, embedding_width=width)
    return replace(decoder, positions=positions, final_norm=final)


def cohere(config: Config) -> Architecture:
    """Command R: a parallel block under one LayerNorm without bias, tied embeddings, scaled logits."""
    bias = config.flag("attention_bias", default=False)
    attention = biased(read_attention(config), qkv=bias, out=bias)
    norm = Norm(kind="layer")
    if config.flag("use_qk_norm", default=False):
        attention = replace(attention, qk_norm="per-head", qk_norm_kind=norm)
    layer = Layer(attention=attention, feed_forward=read_feed_forward(config), norms=1)
    return read_decoder(config, read_layers(config, layer, None, lambda _: False), norm, tied=True)


FAMILIES: dict[str, Callable[[Config], Architecture]] = {
    "llama": llama,
    "mistral": mistral,
    "qwen2": qwen2,
    "qwen3": qwen3,
    "phi": phi,
    "phi3": phi3,
    "gemma": gemma,
    "gemma2": gemma2,
    "gemma3_text": gemma3,
    "gpt2": gpt2,
    "opt": opt,
    "cohere": cohere,
}
