"""Dense decoders of the last years that are no plain Llama: other norms, biases, positions or residual scales.

A class's defaults stand in ``absent`` at the head of each function: they hold where a field is left out, while a null
means what it means to the class (as many key heads as query heads, heads of hidden / heads, no window). Multiplications
by one number (residual, embedding and logit scales) fold into their neighbours and cost nothing of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from flopmap.model.architecture import Architecture, Attention, FeedForward, Layer, Norm, Row, Vector
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

LAYER_NORM = Norm(kind="layer", bias=True)


def absent(config: Config, **defaults: Any) -> Config:
    """The config with its class's defaults for the fields that it leaves out."""
    return Config({**defaults, **config.fields}, config.name)


def renamed(config: Config, **names: str) -> Config:
    """The config with other spellings of its fields, ``old="new"``, where the new one is not there."""
    found = {new: config.fields[old] for old, new in names.items() if old in config.fields}
    return Config({**found, **config.fields}, config.name)


def attention_of(config: Config, *, qkv: str = "", out: str = "", rotary: float = 1.0) -> Attention:
    """Grouped attention; ``qkv`` and ``out`` name the flags of its biases, ``rotary`` is the share that is rotated."""
    attention = read_attention(config)
    attention = replace(attention, rotary_dim=int(attention.head_dim * rotary_share(config, rotary)))
    return biased(attention, qkv=flag_of(config, qkv), out=flag_of(config, out))


def flag_of(config: Config, name: str) -> bool:
    """Whether a flag is set; no name is no."""
    return bool(name) and config.flag(name, default=False)


def stack(
    config: Config,
    layer: Layer,
    norm: Norm = Norm(),  # noqa: B008 - frozen
    *,
    is_windowed: Callable[[int], bool] = lambda _: True,
) -> Architecture:
    """The decoder of like layers, windowed where the config's layer_types or the family's rule say so."""
    return read_decoder(config, read_layers(config, layer, config.optional("sliding_window"), is_windowed), norm)


def unwindowed(config: Config, layer: Layer, norm: Norm = Norm()) -> Architecture:  # noqa: B008 - frozen
    """The decoder of a class that has no windows."""
    return read_decoder(config, (layer,) * len(read_layers(config, layer, None, lambda _: False)), norm)


def rotated_where(decoder: Architecture, rotates: Callable[[int, Attention], bool]) -> Architecture:
    """The decoder without rotation on the layers that have none."""
    layers = (
        layer
        if not isinstance(layer.attention, Attention) or rotates(index, layer.attention)
        else replace(layer, attention=without_rotation(layer.attention))
        for index, layer in enumerate(decoder.layers)
    )
    return replace(decoder, layers=tuple(layers))


def llama_like(config: Config) -> Architecture:
    """Llama's shape under Llama's names."""
    attention = attention_of(config, qkv="attention_bias", out="attention_bias")
    return unwindowed(config, Layer(attention=attention, feed_forward=gated(config, "mlp_bias")))


def gated(config: Config, bias: str = "") -> FeedForward:
    """The usual gated feed-forward; ``bias`` names the flag of its biases."""
    return read_feed_forward(config, bias=flag_of(config, bias))


def ungated(config: Config, bias: str = "", *, activation: str = "relu2") -> FeedForward:
    """A feed-forward of two matrices; ``bias`` names the flag of its biases."""
    return read_feed_forward(config, activation, gated=False, bias=flag_of(config, bias))


def olmo(config: Config) -> Architecture:
    """OLMo 1: LayerNorms without weights; some clip queries, keys and values."""
    attention = attention_of(config, qkv="attention_bias", out="attention_bias")
    width = attention.query_width + attention.key_width + attention.value_width
    clip = (Vector(name="attention.clip", parameters=0, width=width),) if config.has("clip_qkv") else ()
    layer = Layer(attention=attention, feed_forward=gated(config), pieces=clip)
    return unwindowed(config, layer, Norm(kind="layer", affine=False))


def olmo2(config: Config) -> Architecture:
    """OLMo 2: norms after each half, and over all query and all key heads at once."""
    return unwindowed(config, _olmo2_layer(config))


def olmo3(config: Config) -> Architecture:
    """OLMo 3: as OLMo 2, with three windowed layers to a full one."""
    config = absent(config, sliding_window=4096)
    return stack(config, _olmo2_layer(config), is_windowed=lambda index: (index + 1) % 4 != 0)


def _olmo2_layer(config: Config) -> Layer:
    attention = attention_of(config, qkv="attention_bias", out="attention_bias")
    return Layer(attention=replace(attention, qk_norm="whole"), feed_forward=gated(config))


def granite(config: Config) -> Architecture:
    """Granite 3: Llama's shape with scaled embeddings, residuals, scores and logits."""
    return replace(llama_like(config), embedding_scaled=True)


def granite_swa(config: Config) -> Architecture:
    """Granite with windows: a learned sink a head, and layers without rotation where layer_rope_theta has a 0."""
    config = absent(config, num_key_value_heads=4, tie_word_embeddings=True, sliding_window=128)
    attention = attention_of(config, qkv="attention_bias", out="attention_bias")
    sinks = Vector(name="attention.sinks", parameters=attention.heads, width=attention.output_width)
    layer = Layer(attention=attention, feed_forward=gated(config, "mlp_bias"), pieces=(sinks,))
    decoder = stack(config, layer, is_windowed=lambda index: index % 4 != 0)
    thetas = config.fields.get("layer_rope_theta") or [1] * len(decoder.layers)
    if not isinstance(thetas, list) or len(thetas) != len(decoder.layers):
        raise config.error("layer_rope_theta", f"is not a list of {len(decoder.layers)} numbers, one a layer")
    return replace(rotated_where(decoder, lambda index, _: bool(thetas[index])), embedding_scaled=True)


def hyperclovax(config: Config) -> Architecture:
    """HyperCLOVA X: Granite's scales, and norms before and after each half."""
    decoder = granite(config)
    norms = 4 if config.flag("use_post_norm", default=True) else 2
    return replace(decoder, layers=tuple(replace(layer, norms=norms) for layer in decoder.layers))


def nemotron(config: Config) -> Architecture:
    """Nemotron 3 and 4, Minitron: LayerNorms, half of a head rotated, a feed-forward without gate."""
    attention = attention_of(config, qkv="attention_bias", out="attention_bias", rotary=0.5)
    return unwindowed(config, Layer(attention=attention, feed_forward=ungated(config, "mlp_bias")), LAYER_NORM)


def exaone(config: Config) -> Architecture:
    """EXAONE 3: Llama under other names."""
    config = renamed(config, num_layers="num_hidden_layers", activation_function="hidden_act")
    return llama_like(absent(config, num_key_value_heads=8))


def exaone4(config: Config) -> Architecture:
    """EXAONE 4: norms after each half and on heads; with windows, only the windowed layers are rotated."""
    config = absent(config, num_key_value_heads=32, sliding_window=4096)
    attention = replace(attention_of(config), qk_norm="shared")
    pattern = 4 if config.strings("layer_types") else config.integer("sliding_window_pattern", default=4)
    layer = Layer(attention=attention, feed_forward=gated(config))
    decoder = stack(config, layer, is_windowed=lambda index: (index + 1) % pattern != 0)
    if not config.has("sliding_window"):
        return decoder
    return rotated_where(decoder, lambda _, attention: attention.window is not None)


def glm(config: Config) -> Architecture:
    """GLM 4 (2024): half of a head rotated, biases on queries, keys and values."""
    return unwindowed(config, _glm_layer(config))


def glm4(config: Config) -> Architecture:
    """GLM 4 (2025): as GLM, with norms before and after each half."""
    return unwindowed(config, replace(_glm_layer(config), norms=4))


def _glm_layer(config: Config) -> Layer:
    config = absent(config, num_key_value_heads=2, head_dim=128, attention_bias=True)
    return Layer(attention=attention_of(config, qkv="attention_bias", rotary=0.5), feed_forward=gated(config))


def helium(config: Config) -> Architecture:
    """Helium 1: Llama whose output projection never has a bias and is square."""
    config = absent(config, num_key_value_heads=20, head_dim=128)
    attention = _square(config, attention_of(config, qkv="attention_bias"))
    return unwindowed(config, Layer(attention=attention, feed_forward=gated(config, "mlp_bias")))


def _square(config: Config, attention: Attention) -> Attention:
    """Attention of a class that takes its heads together to be as wide as the hidden state."""
    hidden = config.integer("hidden_size")
    if attention.output_width != hidden:
        raise config.error("head_dim", f"{attention.heads} heads of {attention.head_dim} are not hidden_size {hidden}")
    return attention


def arcee(config: Config) -> Architecture:
    """Arcee AFM: Llama with a feed-forward without gate."""
    attention = attention_of(config, qkv="attention_bias", out="attention_bias")
    return unwindowed(config, Layer(attention=attention, feed_forward=ungated(config, "mlp_bias")))


def seed_oss(config: Config) -> Architecture:
    """Seed-OSS: biases on queries, keys and values, and an option for the output's."""
    config = absent(config, num_key_value_heads=8, head_dim=128, attention_bias=True)
    attention = attention_of(config, qkv="attention_bias", out="attention_out_bias")
    return unwindowed(config, Layer(attention=attention, feed_forward=gated(config, "mlp_bias")))


def smollm3(config: Config) -> Architecture:
    """SmolLM3: every fourth layer is not rotated; with use_sliding_window those have the window."""
    config = absent(config, num_key_value_heads=4, tie_word_embeddings=True)
    attention = attention_of(config, qkv="attention_bias", out="attention_bias")
    layer = Layer(attention=attention, feed_forward=gated(config, "mlp_bias"))
    every = config.integer("no_rope_layer_interval", default=4)
    rotated = config.fields.get("no_rope_layers") or [
        int((index + 1) % every != 0) for index in range(len(unwindowed(config, layer).layers))
    ]
    if not isinstance(rotated, list) or len(rotated) != len(unwindowed(config, layer).layers):
        raise config.error("no_rope_layers", "is not a list of 0 and 1, one a layer")
    if not config.flag("use_sliding_window", default=False):
        config = Config({**config.fields, "sliding_window": None}, config.name)
    return rotated_where(
        stack(config, layer, is_windowed=lambda index: not rotated[index]), lambda index, _: bool(rotated[index])
    )


def cohere2(config: Config) -> Architecture:
    """Command R7B and A: a parallel block under one LayerNorm; only windowed layers are rotated, full ones are not."""
    config = absent(config, sliding_window=4096)
    pattern = config.integer("sliding_window_pattern", default=4)
    decoder = _cohere(config, lambda index: (index + 1) % pattern != 0)
    return rotated_where(decoder, lambda _, attention: attention.window is not None)


def cohere_compass(config: Config) -> Architecture:
    """Command with vision (text): as Command A, but full layers by default, and rotation by kind of layer."""
    config = absent(config, sliding_window=4096)
    decoder = _cohere(config, lambda _: False)
    rope = config.table("rope_parameters")
    still = {kind for kind in ("full_attention", "sliding_attention") if kind in rope and rope[kind] is None}
    return rotated_where(
        decoder, lambda _, attention: ("sliding_attention" if attention.window else "full_attention") not in still
    )


def _cohere(config: Config, is_windowed: Callable[[int], bool]) -> Architecture:
    config = absent(config, tie_word_embeddings=True)
    attention = attention_of(config, qkv="attention_bias", out="attention_bias")
    layer = Layer(attention=attention, feed_forward=gated(config), norms=1)
    return stack(config, layer, Norm(kind="layer"), is_windowed=is_windowed)


def ernie(config: Config) -> Architecture:
    """ERNIE 4.5 (dense): one flag for all biases, tied embeddings, heads of 128."""
    config = absent(config, num_key_value_heads=2, head_dim=128, tie_word_embeddings=True)
    attention = attention_of(config, qkv="use_bias", out="use_bias")
    return unwindowed(config, Layer(attention=attention, feed_forward=gated(config, "use_bias")))


def hunyuan(config: Config) -> Architecture:
    """Hunyuan (dense): norms on query and key heads, after the rotation."""
    attention = attention_of(config, qkv="attention_bias", out="attention_bias")
    return unwindowed(config, Layer(attention=replace(attention, qk_norm="shared"), feed_forward=gated(config)))


def apertus(config: Config) -> Architecture:
    """Apertus: norms on heads, no gate, and an activation (xIELU) with two learned numbers a layer."""
    if config.has("output_vocab_size") and config.integer("output_vocab_size") != config.integer("vocab_size"):
        raise config.error("output_vocab_size", "an LM head over a part of the vocabulary is not understood")
    attention = replace(attention_of(config, qkv="attention_bias", out="attention_bias"), qk_norm="shared")
    learned = config.string("hidden_act", default="xielu") == "xielu"
    feed_forward = FeedForward(
        width=config.integer("intermediate_size"), gated=False, smooth=learned or is_smooth(config, "silu")
    )
    pieces = (Vector(name="mlp.xielu", parameters=2),) if learned else ()
    return unwindowed(config, Layer(attention=attention, feed_forward=feed_forward, pieces=pieces))


def bitnet(config: Config) -> Architecture:
    """BitNet b1.58: gated squared ReLU, and a norm more in each half, before its output projection."""
    config = absent(config, num_key_value_heads=5)
    attention = _square(config, attention_of(config, qkv="attention_bias", out="attention_bias"))
    feed_forward = read_feed_forward(config, "relu2")
    pieces = (
        Row(name="attention.sub_norm", norm=Norm(), width=attention.output_width),
        Row(name="mlp.sub_norm", norm=Norm(), width=feed_forward.width),
    )
    return unwindowed(config, Layer(attention=attention, feed_forward=feed_forward, pieces=pieces))


def ministral(config: Config) -> Architecture:
    """Ministral (2024): Mistral's shape with a window where layer_types or else every layer has one."""
    config = absent(config, num_key_value_heads=8, sliding_window=4096)
    return stack(config, Layer(attention=attention_of(config), feed_forward=gated(config)))


def ministral3(config: Config) -> Architecture:
    """Ministral 3: Mistral's shape with heads of 128 and no window unless one is given."""
    config = absent(config, num_key_value_heads=8, head_dim=128)
    return stack(config, Layer(attention=attention_of(config), feed_forward=gated(config)))


def stablelm(config: Config) -> Architecture:
    """StableLM 2: LayerNorms, a quarter of a head rotated, options for a parallel block and a norm on each head."""
    config = absent(without(config, "head_dim"), num_key_value_heads=32)
    attention = attention_of(config, qkv="use_qkv_bias", rotary=0.25)
    if config.flag("qk_layernorm", default=False):
        attention = replace(attention, qk_norm="per-head", qk_norm_kind=Norm(kind="layer"))
    norms = 1 if config.flag("use_parallel_residual", default=False) else 2
    return unwindowed(config, Layer(attention=attention, feed_forward=gated(config), norms=norms), LAYER_NORM)


def without(config: Config, *names: str) -> Config:
    """The config without fields that its class does not read."""
    return Config({name: value for name, value in config.fields.items() if name not in names}, config.name)


def starcoder2(config: Config) -> Architecture:
    """StarCoder 2: LayerNorms, one flag for all biases, no gate, a window on every layer where one is given."""
    config = absent(config, num_key_value_heads=2, use_bias=True, tie_word_embeddings=True)
    attention = attention_of(config, qkv="use_bias", out="use_bias")
    layer = Layer(attention=attention, feed_forward=ungated(config, "use_bias", activation="gelu_pytorch_tanh"))
    return stack(config, layer, LAYER_NORM)


def is_capped(config: Config, name: str) -> bool:
    """Whether a soft cap is there: unless its field is null."""
    return name not in config.fields or config.has(name)


def cwm(config: Config) -> Architecture:
    """CWM: Llama's shape with heads of 128, and three windowed layers to a full one, which comes first."""
    config = absent(config, num_key_value_heads=8, head_dim=128, sliding_window=8192)
    layer = Layer(attention=attention_of(config), feed_forward=gated(config, "mlp_bias"))
    return stack(config, layer, is_windowed=lambda index: index % 4 != 0)


def jais2(config: Config) -> Architecture:
    """Jais 2: LayerNorms, biases everywhere but in the head, no gate."""
    config = absent(config, attention_bias=True, mlp_bias=True)
    attention = attention_of(config, qkv="attention_bias", out="attention_bias")
    return unwindowed(config, Layer(attention=attention, feed_forward=ungated(config, "mlp_bias")), LAYER_NORM)


FAMILIES: dict[str, Callable[[Config], Architecture]] = {
    "apertus": apertus,
    "apertus1p5_text": apertus,
    "arcee": arcee,
    "bitnet": bitnet,
    "cohere2": cohere2,
    "cohere_compass_text": cohere_compass,
    "cwm": cwm,
    "ernie4_5": ernie,
    "exaone": exaone,
    "exaone4": exaone4,
    "glm": glm,
    "glm4": glm4,
    "granite": granite,
    "granite_swa": granite_swa,
    "helium": helium,
    "hunyuan_v1_dense": hunyuan,
    "hyperclovax": hyperclovax,
    "jais2": jais2,
    "ministral": ministral,
    "ministral3": ministral3,
    "nemotron": nemotron,
    "olmo": olmo,
    "olmo2": olmo2,
    "olmo3": olmo3,
    "seed_oss": seed_oss,
    "smollm3": smollm3,
    "stablelm": stablelm,
    "starcoder2": starcoder2,
    "paddleocr_vl_text": ernie,
}
