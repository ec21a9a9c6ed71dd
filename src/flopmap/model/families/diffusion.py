"""Diffusion language models: decoders whose tokens see each other, over the whole sequence or over a block.

Their code comes with their checkpoints; shapes are those of the published modeling files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from flopmap.model.architecture import Architecture, Attention, Denoising, Layer, Norm
from flopmap.model.config import MAX_LAYERS, Config
from flopmap.model.families.common import biased, read_attention, read_decoder, read_feed_forward
from flopmap.model.families.dense import qwen2, qwen3
from flopmap.model.families.experts import FAMILIES as EXPERTS
from flopmap.model.families.experts import read_experts
from flopmap.model.families.remote import bailing_moe

if TYPE_CHECKING:
    from collections.abc import Callable

LLADA_BLOCK = 32  # block_length of the published generation code; the model itself knows no blocks


def llada(config: Config) -> Architecture:
    """LLaDA: Llama's shape under OLMo's names, every token seeing all; with experts, OLMoE's shape."""
    if config.has("num_experts"):
        return _whole(_llada_moe(config))
    for field, accepted in (("block_type", "llama"), ("layer_norm_type", "rms")):
        if config.string(field, default=accepted) != accepted:
            raise config.error(field, f"{config.string(field)!r} is not understood in a llada config")
    heads = config.integer("n_heads")
    named = {
        "hidden_size": config.integer("d_model"),
        "num_attention_heads": heads,
        "num_key_value_heads": config.optional("n_kv_heads") or heads,
        "num_hidden_layers": config.integer("n_layers", high=MAX_LAYERS),
        "intermediate_size": config.integer("mlp_hidden_size"),
        "hidden_act": config.string("activation_type", default="silu"),
        "vocab_size": config.integer("embedding_size", "vocab_size"),
        "tie_word_embeddings": config.flag("weight_tying", default=False),
    }
    config = Config({**config.fields, **named}, config.name)
    bias = config.flag("include_bias", default=False)
    qkv = bias or config.flag("include_qkv_bias", default=False)
    attention = biased(read_attention(config), qkv=qkv, out=bias)
    layer = Layer(attention=attention, feed_forward=read_feed_forward(config, bias=bias))
    return _whole(read_decoder(config, (layer,) * config.integer("num_hidden_layers", high=MAX_LAYERS), Norm()))


def _llada_moe(config: Config) -> Architecture:
    """LLaDA-MoE: experts in every layer, a norm on heads."""
    if config.optional("shared_expert_intermediate_size"):
        raise config.error("shared_expert_intermediate_size", "shared experts are not understood in a llada config")
    width = config.integer("expert_intermediate_size")
    config = Config({**config.fields, "moe_intermediate_size": width}, config.name)
    attention = read_attention(config)
    if config.flag("qk_layernorm", default=False):
        attention = replace(attention, qk_norm="shared")
    layer = Layer(attention=attention, feed_forward=read_experts(config))
    return read_decoder(config, (layer,) * config.integer("num_hidden_layers", high=MAX_LAYERS), Norm())


def dream(config: Config) -> Architecture:
    """Dream and DiffuCoder: Qwen 2.5's shape, every token seeing all."""
    return _whole(qwen2(config))


def llada2_moe(config: Config) -> Architecture:
    """LLaDA 2: Ling 2's shape in blocks of 32."""
    return _in_blocks(bailing_moe(config), config.integer("block_size", "block_length", default=32))


def sdar(config: Config) -> Architecture:
    """SDAR: Qwen 3's shape in blocks of 4."""
    return _in_blocks(qwen3(config), config.integer("block_size", "block_length", default=4))


def sdar_moe(config: Config) -> Architecture:
    """SDAR with experts: Qwen 3 MoE's shape in blocks of 4."""
    return _in_blocks(EXPERTS["qwen3_moe"](config), config.integer("block_size", "block_length", default=4))


def fast_dllm(config: Config) -> Architecture:
    """Fast-dLLM 2: Qwen 2.5's shape in blocks of 32."""
    return _in_blocks(qwen2(config), config.integer("bd_size", "block_size", default=32))


def _whole(model: Architecture) -> Architecture:
    return replace(_seeing(model, between_blocks=False), denoising=Denoising(block=LLADA_BLOCK, cached=False))


def _in_blocks(model: Architecture, block: int) -> Architecture:
    return replace(_seeing(model, between_blocks=True), denoising=Denoising(block=block, cached=True))


def _seeing(model: Architecture, *, between_blocks: bool) -> Architecture:
    """The model without a causal mask."""
    known: dict[Layer, Layer] = {}
    for layer in set(model.layers):
        if isinstance(layer.attention, Attention):
            attention = replace(layer.attention, causal=False, between_blocks=between_blocks)
            known[layer] = replace(layer, attention=attention)
    return replace(model, layers=tuple(known[layer] for layer in model.layers))


FAMILIES: dict[str, Callable[[Config], Architecture]] = {
    "Dream": dream,
    "Fast_dLLM_Qwen": fast_dllm,
    "llada": llada,
    "llada2_moe": llada2_moe,
    "sdar": sdar,
    "sdar_moe": sdar_moe,
}
