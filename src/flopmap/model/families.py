"""How each family's config maps onto the parts of an architecture. Most families are a few lines.

What a class assumes when a field is absent is part of the family: Mistral has 8 key heads and a window of 4096 by
default, Qwen3 heads of 128 whatever the hidden size, Gemma heads of 256. Checked against transformers 5.24.0.
"""

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


def read_family(config: Config) -> Architecture:
    """The architecture of a config. Raises :class:`ConfigError` for a family that is not understood."""
    family = config.string("model_type")
    if not family:
        raise config.error("model_type", "is missing, so this is no model config that is understood")
    if family not in FAMILIES:
        raise config.error(
            "model_type", f"{shown(family)} is not understood (understood: {', '.join(sorted(FAMILIES))})"
        )
    for field in ("num_local_experts", "num_experts", "n_routed_experts", "moe_intermediate_size", "kv_lora_rank"):
        if config.fields.get(field):
            raise config.error(field, f"experts or latent attention in a {shown(family)} config are not understood")
    heads = {"ForCausalLM", "LMHeadModel", "ForConditionalGeneration"}
    for name in config.strings("architectures"):
        if not any(name.endswith(head) for head in heads):
            raise config.error(
                "architectures",
                f"{shown(name)} is not understood (understood: names that end in {', '.join(sorted(heads))})",
            )
    return FAMILIES[family](config)


# -- pieces that families share ---------------------------------------------------------------------------------------


def _attention(config: Config, *, kv_heads: int | None = None, head_dim: int | None = None) -> Attention:
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
    rotated = min(width, int(width * _rotary_share(config, 1.0)))
    return Attention(heads=heads, kv_heads=keys, head_dim=width, value_dim=width, rotary_dim=rotated)


def _rotary_share(config: Config, default: float) -> float:
    """The share of a head that is rotated, in either spelling. ``default`` is the family's."""
    nested = Config(config.table("rope_parameters"), config.name).number("partial_rotary_factor", default=default)
    return min(1.0, config.number("partial_rotary_factor", default=nested))


def _feed_forward(config: Config, activation: str = "silu", *, gated: bool = True, bias: bool = False) -> FeedForward:
    return FeedForward(
        width=config.integer("intermediate_size"), gated=gated, bias=bias, smooth=_smooth(config, activation)
    )


def _smooth(config: Config, default: str) -> bool:
    field, name = config.named_string("hidden_activation", "hidden_act", "activation_function", default=default)
    if name not in (*RELU, *SMOOTH):
        raise config.error(field, f"{shown(name)} is not understood (understood: {', '.join((*RELU, *SMOOTH))})")
    return name in SMOOTH


def _layers(config: Config, layer: Layer, window: int | None, is_windowed: Callable[[int], bool]) -> tuple[Layer, ...]:
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
    narrow = _with_window(layer, window)
    return tuple(narrow if slides else layer for slides in windowed)


def _with_window(layer: Layer, window: int) -> Layer:
    return replace(layer, attention=replace(layer.attention, window=window))


def _decoder(
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


def _biased(attention: Attention, *, qkv: bool, out: bool) -> Attention:
    return replace(attention, qkv_bias=qkv, out_bias=out)


# -- the families -----------------------------------------------------------------------------------------------------


def llama(config: Config) -> Architecture:
    """Llama 1 to 3, and the many that kept its shape."""
    bias = config.flag("attention_bias", default=False)
    attention = _biased(_attention(config), qkv=bias, out=bias)
    layer = Layer(attention=attention, feed_forward=_feed_forward(config, bias=config.flag("mlp_bias", default=False)))
    return _decoder(config, _layers(config, layer, None, lambda _: False), Norm())


def mistral(config: Config) -> Architecture:
    """Mistral: an absent window is 4096, a null one is none."""
    window = config.optional("sliding_window") if "sliding_window" in config.fields else 4096
    layer = Layer(attention=_attention(config, kv_heads=8), feed_forward=_feed_forward(config))
    return _decoder(config, _layers(config, layer, window, lambda _: True), Norm())


def qwen2(config: Config) -> Architecture:
    """Qwen 1.5 to 2.5: biases on queries, keys and values only."""
    attention = _biased(_attention(config, kv_heads=32), qkv=True, out=False)
    return _decoder(
        config, _qwen_layers(config, Layer(attention=attention, feed_forward=_feed_forward(config))), Norm()
    )


def qwen3(config: Config) -> Architecture:
    """Qwen 3: heads of 128 by default, a norm shared by all query heads and one by all key heads."""
    bias = config.flag("attention_bias", default=False)
    attention = _biased(_attention(config, kv_heads=32, head_dim=128), qkv=bias, out=bias)
    attention = replace(attention, qk_norm="shared")
    return _decoder(
        config, _qwen_layers(config, Layer(attention=attention, feed_forward=_feed_forward(config))), Norm()
    )


def _qwen_layers(config: Config, layer: Layer) -> tuple[Layer, ...]:
    window = (
        config.integer("sliding_window", default=4096) if config.flag("use_sliding_window", default=False) else None
    )
    first = config.integer("max_window_layers", default=28, low=0)
    return _layers(config, layer, window, lambda index: index >= first)


def phi(config: Config) -> Architecture:
    """Phi 1 to 2: a parallel block under one LayerNorm, biases everywhere, the LM head included."""
    attention = _biased(_attention(config), qkv=True, out=True)
    attention = replace(attention, rotary_dim=int(attention.head_dim * _rotary_share(config, 0.5)))
    norm = Norm(kind="layer", bias=True)
    if config.flag("qk_layernorm", default=False):
        attention = replace(attention, qk_norm="shared", qk_norm_kind=norm)
    feed_forward = _feed_forward(config, "gelu_new", gated=False, bias=True)
    layer = Layer(attention=attention, feed_forward=feed_forward, norms=1)
    return replace(_decoder(config, _layers(config, layer, None, lambda _: False), norm), head_bias=True)


def phi3(config: Config) -> Architecture:
    """Phi 3 and 4 (dense): Llama's shape with a window on every layer where one is given."""
    layer = Layer(attention=_attention(config), feed_forward=_feed_forward(config))
    return _decoder(config, _layers(config, layer, config.optional("sliding_window"), lambda _: True), Norm())


def gemma(config: Config) -> Architecture:
    """Gemma 1."""
    bias = config.flag("attention_bias", default=False)
    attention = _biased(_attention(config, kv_heads=16, head_dim=256), qkv=bias, out=bias)
    layer = Layer(attention=attention, feed_forward=_feed_forward(config, "gelu"))
    decoder = _decoder(config, _layers(config, layer, None, lambda _: False), Norm(), tied=True)
    return replace(decoder, embedding_scaled=True)


def gemma2(config: Config) -> Architecture:
    """Gemma 2: norms before and after each half, a window on every other layer, soft caps on scores and logits."""
    bias = config.flag("attention_bias", default=False)
    attention = _biased(_attention(config, kv_heads=4, head_dim=256), qkv=bias, out=bias)
    capped = "attn_logit_softcapping" not in config.fields or config.has("attn_logit_softcapping")
    attention = replace(attention, capped=capped)
    layer = Layer(attention=attention, feed_forward=_feed_forward(config, "gelu"), norms=4)
    window = config.integer("sliding_window", default=4096)
    layers = _layers(config, layer, window, lambda index: index % 2 == 0)
    logits = "final_logit_softcapping" not in config.fields or config.has("final_logit_softcapping")
    return replace(_decoder(config, layers, Norm(), tied=True), embedding_scaled=True, logits_capped=logits)


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
    attention = _biased(_attention(config, kv_heads=4, head_dim=256), qkv=bias, out=bias)
    attention = replace(attention, qk_norm="shared")
    layer = Layer(attention=attention, feed_forward=_feed_forward(config, "gelu"), norms=4)
    pattern = config.integer("sliding_window_pattern", default=6)
    window = config.integer("sliding_window", default=4096)
    layers = _layers(config, layer, window, lambda index: (index + 1) % pattern != 0)
    return replace(_decoder(config, layers, Norm(), tied=True), embedding_scaled=True)


def gpt2(config: Config) -> Architecture:
    """GPT-2: learned positions, LayerNorm, biases, an ungated feed-forward of four times the width."""
    hidden = config.integer("n_embd", "hidden_size")
    attention = _biased(_attention(config), qkv=True, out=True)
    attention = _without_rotation(attention)
    width = config.integer("n_inner", "intermediate_size", default=4 * hidden)
    feed_forward = FeedForward(width=width, gated=False, bias=True, smooth=_smooth(config, "gelu_new"))
    layers = _layers(config, Layer(attention=attention, feed_forward=feed_forward), None, lambda _: False)
    positions = config.integer("n_positions", "max_position_embeddings", default=1024)
    return replace(_decoder(config, layers, Norm(kind="layer", bias=True), tied=True), positions=positions)


OPT_POSITION_OFFSET = 2


def opt(config: Config) -> Architecture:
    """OPT: learned positions after an offset of two; the smallest but one has a narrower embedding."""
    bias = config.flag("enable_bias", default=True)
    attention = _without_rotation(_biased(_attention(config), qkv=bias, out=bias))
    smooth = _smooth(config, "relu")
    feed_forward = FeedForward(width=config.integer("ffn_dim"), gated=False, bias=bias, smooth=smooth)
    layers = _layers(config, Layer(attention=attention, feed_forward=feed_forward), None, lambda _: False)
    affine = config.flag("layer_norm_elementwise_affine", default=True)
    final = config.flag("do_layer_norm_before", default=True) and not config.flag(
        "_remove_final_layer_norm", default=False
    )
    positions = config.integer("max_position_embeddings", default=2048) + OPT_POSITION_OFFSET
    width = config.integer("word_embed_proj_dim", default=config.integer("hidden_size"))
    norm = Norm(kind="layer", bias=True, affine=affine)
    decoder = _decoder(config, layers, norm, tied=True, embedding_width=width)
    return replace(decoder, positions=positions, final_norm=final)


def cohere(config: Config) -> Architecture:
    """Command R: a parallel block under one LayerNorm without bias, tied embeddings, scaled logits."""
    bias = config.flag("attention_bias", default=False)
    attention = _biased(_attention(config), qkv=bias, out=bias)
    norm = Norm(kind="layer")
    if config.flag("use_qk_norm", default=False):
        attention = replace(attention, qk_norm="per-head", qk_norm_kind=norm)
    layer = Layer(attention=attention, feed_forward=_feed_forward(config), norms=1)
    return _decoder(config, _layers(config, layer, None, lambda _: False), norm, tied=True)


def _without_rotation(attention: Attention) -> Attention:
    return replace(attention, rotary_dim=0)


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
