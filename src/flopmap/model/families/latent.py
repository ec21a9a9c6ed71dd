"""Families with latent attention (MLA)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopmap.model.architecture import Architecture, Experts, FeedForward, LatentAttention, Layer, Norm
from flopmap.model.config import MAX_LAYERS, Config
from flopmap.model.families.common import is_smooth, read_decoder, read_feed_forward

if TYPE_CHECKING:
    from collections.abc import Callable


def latent_attention(config: Config) -> LatentAttention:
    """MLA under the names that DeepSeek gave its parts."""
    return LatentAttention(
        heads=config.integer("num_attention_heads"),
        query_rank=config.optional("q_lora_rank"),
        latent=config.integer("kv_lora_rank"),
        nope_dim=config.integer("qk_nope_head_dim"),
        rope_dim=config.integer("qk_rope_head_dim"),
        value_dim=config.integer("v_head_dim"),
        bias=config.flag("attention_bias", default=False),
    )


def routed_experts(config: Config) -> Experts:
    """Routed and shared experts under DeepSeek's names."""
    width = config.integer("moe_intermediate_size")
    return Experts(
        experts=config.integer("n_routed_experts"),
        top_k=config.integer("num_experts_per_tok"),
        width=width,
        shared_width=width * config.integer("n_shared_experts", default=0, low=0),
        smooth=is_smooth(config, "silu"),
    )


def deepseek(config: Config) -> Architecture:
    """DeepSeek V2 and V3: the first layers are dense, the others mixtures with shared experts."""
    count = config.integer("num_hidden_layers", high=MAX_LAYERS)
    dense = config.integer("first_k_dense_replace", default=0, low=0, high=count)
    every = config.integer("moe_layer_freq", default=1)
    attention = latent_attention(config)
    halves: tuple[FeedForward, Experts] = (read_feed_forward(config), routed_experts(config))
    mixture = [index >= dense and index % every == 0 for index in range(count)]
    layers = tuple(Layer(attention=attention, feed_forward=halves[is_mixture]) for is_mixture in mixture)
    return read_decoder(config, layers, Norm())


FAMILIES: dict[str, Callable[[Config], Architecture]] = {"deepseek_v2": deepseek, "deepseek_v3": deepseek}
