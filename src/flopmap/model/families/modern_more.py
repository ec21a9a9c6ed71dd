"""Dense decoders with more than attention and a feed-forward: loops, two passes over a cache, a head of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from flopmap.model.architecture import Architecture, Layer, Linear, Norm, Piece, Row, Vector
from flopmap.model.config import MAX_LAYERS, Config
from flopmap.model.families.common import biased, read_decoder, read_feed_forward, read_layers
from flopmap.model.families.dense import qwen2, qwen3
from flopmap.model.families.modern import (
    absent,
    attention_of,
    flag_of,
    gated,
    is_capped,
    llama_like,
    renamed,
    stack,
    ungated,
    unwindowed,
    without,
)

if TYPE_CHECKING:
    from collections.abc import Callable

PLAIN = Norm(affine=False)


def modernbert(config: Config) -> Architecture:
    """ModernBERT decoder: a norm after the embedding instead of the first layer's, a dense layer before the head."""
    config = absent(without(config, "num_key_value_heads", "head_dim"), tie_word_embeddings=True)
    norm = Norm(kind="layer", bias=flag_of(config, "norm_bias"))
    attention = attention_of(config, qkv="attention_bias", out="attention_bias")
    layer = Layer(attention=attention, feed_forward=read_feed_forward(config, "gelu", bias=flag_of(config, "mlp_bias")))
    every = config.integer("global_attn_every_n_layers", default=3)
    window = config.integer("sliding_window", default=config.integer("local_attention", default=128, low=2) // 2)
    first, *others = read_layers(config, layer, window, lambda index: index % every != 0)
    decoder = read_decoder(config, (replace(first, norms=1), *others), norm)
    hidden = decoder.hidden
    after = (
        Linear(name="head.dense", d_in=hidden, d_out=hidden, bias=flag_of(config, "classifier_bias")),
        Vector(name="head.activation", parameters=0, width=hidden),
        Row(name="head.norm", norm=norm, width=hidden),
    )
    before = (Row(name="embedding.norm", norm=norm, width=hidden),)
    return replace(decoder, before=before, after=after, head_bias=config.flag("decoder_bias", default=True))


def diffllama(config: Config) -> Architecture:
    """DiffLlama: attends once to each half of the value heads, and subtracts a learned part of one half's heads."""
    attention = attention_of(config, qkv="attention_bias", out="attention_bias")
    if attention.kv_heads % 2:
        raise config.error("num_key_value_heads", f"{attention.kv_heads} is not even, which the class needs")
    pieces = (
        Vector(name="attention.lambda", parameters=4 * attention.head_dim, width=attention.output_width),
        Row(name="attention.group_norm", norm=PLAIN, width=attention.output_width),
    )
    return unwindowed(config, Layer(attention=replace(attention, passes=2), feed_forward=gated(config), pieces=pieces))


def doge(config: Config) -> Architecture:
    """Doge (dense): learned residual scales, and a bias on the scores of each key from its value."""
    if flag_of(config, "is_moe"):
        raise config.error("is_moe", "experts that are rows of a table are not understood")
    attention = replace(attention_of(config, qkv="attention_bias", out="attention_bias"), qk_norm="shared")
    keys, hidden = attention.kv_heads, config.integer("hidden_size")
    pieces: tuple[Piece, ...] = (
        Linear(name="attention.dt", d_in=attention.value_width, d_out=keys, bias=attention.qkv_bias),
        Vector(name="attention.A", parameters=keys, width=keys),
        Vector(name="attention.residual_scale", parameters=hidden, width=hidden),
        Vector(name="mlp.residual_scale", parameters=hidden, width=hidden),
    )
    layer = Layer(attention=attention, feed_forward=gated(config, "mlp_bias"), pieces=pieces)
    layers = read_layers(config, layer, config.optional("sliding_window"), lambda _: True)
    return read_decoder(config, layers, Norm())


def hrm(config: Config) -> Architecture:
    """HRM-Text: two stacks of layers run in cycles, H_cycles times (L_cycles low and one high), each run with a cache.

    Norms have no weights, attention has a gate, and every run after a stack's first reads the same matrices again.
    """
    config = absent(without(config, "num_key_value_heads"), head_dim=128)
    high, low = config.integer("H_cycles", default=2), config.integer("L_cycles", default=3)
    count = config.integer("num_layers_per_stack", "num_hidden_layers", high=MAX_LAYERS)
    if high * (low + 1) * count > MAX_LAYERS:
        raise config.error("H_cycles", f"{high} x ({low} + 1) runs of {count} layers are more than {MAX_LAYERS}")
    attention = attention_of(config, qkv="attention_bias", out="attention_bias")
    hidden = config.integer("hidden_size")
    layers: list[Layer] = []
    for run in range(high * (low + 1)):
        is_high = run % (low + 1) == low
        shared = run > (low if is_high else 0)
        gate = Linear(
            name="attention.gate", d_in=hidden, d_out=attention.output_width, bias=attention.qkv_bias, shared=shared
        )
        product = Vector(name="attention.gate_product", parameters=0, width=attention.output_width)
        layer = Layer(
            attention=attention, feed_forward=gated(config, "mlp_bias"), pieces=(gate, product), shared=shared
        )
        join = (Row(name="stack.norm", norm=PLAIN, width=hidden), Vector(name="stack.sum", parameters=0, width=hidden))
        layers += [layer] * (count - 1) + [replace(layer, pieces=(*layer.pieces, *join))]
    start = (Vector(name="low_start", parameters=hidden, width=hidden),)
    return replace(read_decoder(config, tuple(layers), PLAIN), embedding_scaled=True, before=start)


def text_of(config: Config) -> Config:
    """The fields of the text decoder, where they are nested in those of the model around it."""
    text = config.table("text_config")
    return Config({**text, "model_type": config.string("model_type")}, config.name) if text else config


def qwen2_vl(config: Config) -> Architecture:
    """Qwen 2 and 2.5 VL (text decoder): Qwen 2 with eight key heads by default."""
    return qwen2(absent(without(config, "head_dim"), num_key_value_heads=8, max_window_layers=80))


def qwen3_vl(config: Config) -> Architecture:
    """Qwen 3 VL (text decoder): Qwen 3 without windows."""
    return qwen3(without(config, "use_sliding_window", "layer_types"))


def glm_vision(config: Config) -> Architecture:
    """GLM 4V and GLM OCR (text decoders): GLM 4's norms, whole heads or what is given rotated, biases only in 4V."""
    is_reader = config.string("model_type") == "glm_ocr_text"
    config = absent(config if is_reader else without(config, "head_dim"), num_key_value_heads=8 if is_reader else 2)
    attention = biased(attention_of(config), qkv=not is_reader, out=False)
    return unwindowed(config, Layer(attention=attention, feed_forward=gated(config), norms=4))


def emu3(config: Config) -> Architecture:
    """Emu3 (text and image tokens in one vocabulary): Llama's shape; the tokenizer of images is another model."""
    return llama_like(
        absent(
            text_of(config),
            vocab_size=184_622,
            hidden_size=4096,
            intermediate_size=14_336,
            num_hidden_layers=32,
            num_attention_heads=32,
            num_key_value_heads=8,
        )
    )


def nanochat(config: Config) -> Architecture:
    """nanochat: norms without weights, one after the embedding and on heads too, capped logits."""
    norm = PLAIN
    attention = attention_of(config, qkv="attention_bias", out="attention_bias")
    attention = replace(attention, qk_norm="shared", qk_norm_kind=norm)
    decoder = unwindowed(config, Layer(attention=attention, feed_forward=ungated(config)), norm)
    before = (Row(name="embedding.norm", norm=norm, width=decoder.hidden),)
    return replace(decoder, before=before, logits_capped=is_capped(config, "final_logit_softcapping"))


def internlm3(config: Config) -> Architecture:
    """InternLM 3: Llama with heads of 128 and two key heads; its two flags of biases must agree."""
    config = absent(renamed(config, qkv_bias="attention_bias", bias="mlp_bias"), num_key_value_heads=2, head_dim=128)
    if flag_of(config, "attention_bias") != flag_of(config, "mlp_bias"):
        raise config.error("qkv_bias", "differs from bias, which the class does not support")
    return llama_like(config)


def iquestcoder(config: Config) -> Architecture:
    """IQuest-Coder: Llama with heads of 128 and eight key heads."""
    if config.has("clip_qkv") or flag_of(config, "use_sliding_window"):
        raise config.error("clip_qkv", "clipping and windows are not understood, nor does the class support them")
    return llama_like(absent(config, num_key_value_heads=8, head_dim=128))


def dory(config: Config) -> Architecture:
    """Nemotron-Labs Dory: normalised weights and residuals (nGPT); middle layers run in loops, each with a cache.

    A config may list a layer as two entries, attention and mlp; then all its counts of layers are doubled.
    """
    if config.string("recurrent_kv_cache_mode", default="per_loop") != "per_loop":
        raise config.error("recurrent_kv_cache_mode", "is not understood (understood: per_loop)")
    config = absent(config, num_key_value_heads=4, head_dim=256, sliding_window=1024)
    kinds = config.strings("layer_types")
    by = 2 if "mlp" in kinds else 1
    total = config.integer("num_hidden_layers", high=MAX_LAYERS) // by
    config = Config({**config.fields, "num_hidden_layers": total, "layer_types": kinds[::by] or None}, config.name)
    start, end = (config.integer(f"n_{side}_layers", default=8 * by, low=0) // by for side in ("input", "output"))
    middle = config.integer("n_recurrent_layers", default=(total - start - end) * by, low=0) // by
    loops = config.integer("n_recurrent_loops", default=2)
    if start + middle + end != total:
        raise config.error("n_recurrent_layers", f"{start} + {middle} + {end} layers are not {total}")
    if middle * loops > MAX_LAYERS:
        raise config.error("n_recurrent_loops", f"{loops} runs of {middle} layers are more than {MAX_LAYERS}")
    attention = attention_of(config, qkv="attention_bias", out="attention_bias")
    attention = replace(attention, qk_norm="shared", qk_norm_kind=PLAIN)
    layer = Layer(attention=attention, feed_forward=gated(config, "mlp_bias"), norms=4)
    layers = read_layers(config, layer, config.integer("sliding_window"), lambda index: (index + 1) % 4 != 0)
    first, again = (
        tuple(replace(layer, pieces=_dory_pieces(config, shared=shared), shared=shared) for layer in layers)
        for shared in (False, True)
    )
    decoder = read_decoder(config, first[: start + middle] + again[start : start + middle] * (loops - 1), PLAIN)
    scale = Vector(name="head.scale", parameters=decoder.vocab, width=decoder.vocab)
    return replace(decoder, layers=decoder.layers + first[start + middle :], after=(scale,))


def _dory_pieces(config: Config, *, shared: bool) -> tuple[Piece, ...]:
    """The gate, the norms before output projections, and the scales, which a repeated run has already counted."""
    hidden, width = config.integer("hidden_size"), config.integer("intermediate_size")
    heads = attention_of(config).output_width
    scales = {"attention.scale": heads, "attention.gate_scale": heads, "attention.rate": hidden, "mlp.rate": hidden}
    scales |= {"mlp.gate_scale": width, "mlp.up_scale": width}
    return (
        Linear(name="attention.gate", d_in=hidden, d_out=heads, shared=shared),
        Row(name="attention.sub_norm", norm=PLAIN, width=heads),
        Row(name="mlp.sub_norm", norm=PLAIN, width=width),
        *(Vector(name=name, parameters=0 if shared else size, width=size) for name, size in scales.items()),
    )


def phi4_multimodal(config: Config) -> Architecture:
    """Phi 4 multimodal: Phi 3's shape; the vision and audio towers are held, and a text never reaches them."""
    config = absent(config, num_key_value_heads=8)
    decoder = stack(config, Layer(attention=attention_of(config), feed_forward=gated(config)))
    towers = (
        Vector(name="vision_tower", parameters=_phi4_vision(config, decoder.hidden)),
        Vector(name="audio_tower", parameters=_phi4_audio(config, decoder.hidden)),
    )
    return replace(decoder, before=towers)


def _dense(d_in: int, d_out: int) -> int:
    """Parameters of a projection with a bias."""
    return (d_in + 1) * d_out


def _phi4_vision(config: Config, hidden: int) -> int:
    """Parameters of the vision encoder (SigLIP), its pooling head, which goes unused, and the projection of images."""
    vision = Config(config.table("vision_config"), config.name)
    width, inner = vision.integer("hidden_size", default=1152), vision.integer("intermediate_size", default=4304)
    patch, size = vision.integer("patch_size", default=14), vision.integer("image_size", default=448)
    block = 4 * _dense(width, width) + _dense(width, inner) + _dense(inner, width)
    layers = vision.integer("num_hidden_layers", default=27) * (block + 4 * width)
    embedding = _dense(vision.integer("num_channels", default=3) * patch**2, width) + (size // patch) ** 2 * width
    head = block + 3 * width
    return embedding + layers + 2 * width + head + 2 * width + _dense(width, hidden) + _dense(hidden, hidden)


def _phi4_audio(config: Config, hidden: int) -> int:
    """Parameters of the audio encoder (a Conformer) and of its projections, for speech alone and with images."""
    audio = Config(config.table("audio_config"), config.name)
    width, inner = audio.integer("hidden_size", default=1024), audio.integer("intermediate_size", default=1536)
    kernel, out = audio.integer("kernel_size", default=3), audio.integer("ext_pw_out_channel", default=1024)
    deep = width * audio.integer("depthwise_multiplier", default=1)
    feed_forward = 2 * width + _dense(width, 2 * inner) + _dense(inner, width)
    convolution = 2 * width + _dense(width, 2 * out) + 2 * out + _dense(kernel, deep) + _dense(width, out)
    convolution += _dense(deep, audio.integer("depthwise_separable_out_channel", default=1024))
    block = 2 * feed_forward + 4 * _dense(width, width) + convolution + 4 * width
    channels, bins = audio.integer("nemo_conv_channels", default=1024), audio.integer("input_size", default=80)
    halvings = audio.integer("time_reduction", default=8).bit_length() - 1
    for _ in range(halvings):
        bins = (bins + 1) // 2
    subsampling = _dense(9, channels) * halvings + _dense(channels, channels) * (halvings - 1)
    subsampling += _dense(channels * bins, width)
    sides = 1 if audio.flag("bias_symmetric", default=False) else 2
    distances = (
        sides * audio.integer("bias_max_distance", default=1000) * audio.integer("num_attention_heads", default=16)
    )
    speech = _dense(width * audio.integer("downsample_rate", default=1), hidden) + _dense(hidden, hidden)
    return audio.integer("num_blocks", default=24) * block + subsampling + distances + 2 * speech


FAMILIES: dict[str, Callable[[Config], Architecture]] = {
    "diffllama": diffllama,
    "doge": doge,
    "dory": dory,
    "emu3": emu3,
    "emu3_text_model": emu3,
    "glm4v_text": glm_vision,
    "glm_ocr_text": glm_vision,
    "hrm_text": hrm,
    "internlm3": internlm3,
    "iquestcoder": iquestcoder,
    "nanochat": nanochat,
    "phi4_multimodal": phi4_multimodal,
    "qwen2_5_vl_text": qwen2_vl,
    "qwen2_vl_text": qwen2_vl,
    "qwen3_vl_text": qwen3_vl,
    "modernbert-decoder": modernbert,
}
