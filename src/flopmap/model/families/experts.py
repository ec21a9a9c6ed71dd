"""Mixtures of experts over softmax attention: the common ones. The others are in ``experts_more``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from flopmap.model.architecture import Architecture, Attention, Experts, FeedForward, Layer, Norm, Piece, Vector
from flopmap.model.config import MAX_LAYERS, Config
from flopmap.model.families.common import (
    biased,
    is_smooth,
    read_attention,
    read_decoder,
    read_feed_forward,
    read_layers,
    rotary_share,
)
from flopmap.quantity import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flopmap.model.architecture import LatentAttention

FULL, SLIDING, DENSE, SPARSE = "full_attention", "sliding_attention", "dense", "sparse"


def assumed(config: Config, **defaults: Any) -> Config:
    """The config with what the family's class assumes of fields that are absent (a null field stays null)."""
    return Config({**defaults, **config.fields}, config.name)


def layer_count(config: Config) -> int:
    """How many layers the config has."""
    return config.integer("num_hidden_layers", high=MAX_LAYERS)


def kinds(config: Config, field: str, known: Sequence[str], rule: Callable[[int], bool]) -> list[str]:
    """The kind of every layer: as ``field`` lists them, or else the second of ``known`` where the rule holds."""
    count, given = layer_count(config), config.strings(field)
    if given and len(given) != count:
        raise config.error(field, f"has {len(given)} entries for {count} layers")
    unknown = set(given) - set(known)
    if unknown:
        raise config.error(field, f"{shown(min(unknown))} is not understood (understood: {', '.join(known)})")
    return given or [known[rule(index)] for index in range(count)]


def whole_numbers(config: Config, field: str) -> list[int] | None:
    """A list of whole numbers, or None when it is absent."""
    value = config.fields.get(field)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(item, int) for item in value):
        raise config.error(field, f"{shown(value)} is not a list of whole numbers")
    return value


def refuse(config: Config, field: str, accepted: tuple[object, ...]) -> None:
    """Refuse a field that has another value than those that are understood, if it is there."""
    if config.has(field) and config.fields[field] not in accepted:
        values = ", ".join(str(value).lower() for value in accepted)
        raise config.error(field, f"{shown(config.fields[field])} is not understood here (understood: {values})")


def read_experts(config: Config, *, shared: int = 0, width: str = "moe_intermediate_size") -> Experts:
    """Routed experts under the common names; ``shared`` is the width of all shared experts together."""
    experts = config.integer("num_experts", "num_local_experts", "n_routed_experts")
    chosen = config.integer("num_experts_per_tok")
    if chosen > experts:
        raise config.error("num_experts_per_tok", f"{chosen} is more than the {experts} experts there are")
    return Experts(
        experts=experts,
        top_k=chosen,
        width=config.integer(width),
        shared_width=shared,
        smooth=is_smooth(config, "silu"),
    )


def grouped(config: Config, *, kv_heads: int | None = None, head_dim: int | None = None) -> Attention:
    """Grouped attention with the class's own numbers; a field that is there and null is not absent."""
    return read_attention(
        config,
        kv_heads=None if "num_key_value_heads" in config.fields else kv_heads,
        head_dim=None if "head_dim" in config.fields else head_dim,
    )


def attention_biased(config: Config, attention: Attention, *, out: bool = True) -> Attention:
    """Attention with the biases that ``attention_bias`` asks for; ``out`` where it means the output's too."""
    bias = config.flag("attention_bias", default=False)
    return biased(attention, qkv=bias, out=bias and out)


def stack(
    feed_forwards: Sequence[FeedForward | Experts],
    attentions: Sequence[Attention | LatentAttention],
    *,
    norms: int = 2,
    pieces: Callable[[int], tuple[Piece, ...]] = lambda _: (),
) -> tuple[Layer, ...]:
    """All layers, from the two halves of each."""
    halves = zip(attentions, feed_forwards, strict=True)
    return tuple(
        Layer(attention=attention, feed_forward=half, norms=norms, pieces=pieces(index))
        for index, (attention, half) in enumerate(halves)
    )


def mixture(
    config: Config, experts: Experts, is_sparse: Callable[[int], bool], *, bias: bool = False
) -> list[FeedForward | Experts]:
    """The second half of every layer: experts or a dense one, as ``mlp_layer_types`` or the family's rule has it."""
    listed = kinds(config, "mlp_layer_types", (DENSE, SPARSE), is_sparse)
    dense = read_feed_forward(config, bias=bias) if DENSE in listed else None
    return [experts if kind == SPARSE or dense is None else dense for kind in listed]


def windows(config: Config, attention: Attention, window: int | None, slides: Callable[[int], bool]) -> list[Attention]:
    """The attention of every layer, with the window where ``layer_types`` or the family's rule puts it."""
    layers = read_layers(config, Layer(attention=attention), window, slides)
    return [layer.attention for layer in layers if isinstance(layer.attention, Attention)]


def sinks(attention: Attention | LatentAttention) -> tuple[Piece, ...]:
    """A learned score a head that takes part in the softmax as one more key without a value."""
    return (Vector(name="attention.sinks", parameters=attention.heads),)


def mixtral(config: Config) -> Architecture:
    """Mixtral: every layer is a mixture; a null or absent window is none."""
    experts = read_experts(assumed(config, num_local_experts=8, num_experts_per_tok=2), width="intermediate_size")
    layer = Layer(attention=grouped(config, kv_heads=8), feed_forward=experts)
    return read_decoder(config, read_layers(config, layer, config.optional("sliding_window"), lambda _: True), Norm())


def _qwen_is_sparse(config: Config) -> Callable[[int], bool]:
    dense, step = whole_numbers(config, "mlp_only_layers") or [], config.integer("decoder_sparse_step", default=1)
    return lambda index: index not in dense and (index + 1) % step == 0


def qwen2_moe(config: Config) -> Architecture:
    """Qwen 1.5 and 2 MoE: a shared expert behind a gate; biases on queries, keys and values."""
    config = assumed(config, num_experts=60, num_experts_per_tok=4, moe_intermediate_size=1408, intermediate_size=5632)
    attention = biased(grouped(config, kv_heads=16), qkv=config.flag("qkv_bias", default=True), out=False)
    experts = read_experts(config, shared=config.integer("shared_expert_intermediate_size", default=5632))
    slides = config.flag("use_sliding_window", default=False)
    window = config.integer("sliding_window", default=4096) if slides else None
    first = config.integer("max_window_layers", default=28, low=0)
    attentions = windows(config, attention, window, lambda index: index % 2 == 0 and index < first)
    halves = mixture(config, replace(experts, shared_gate=True), _qwen_is_sparse(config))
    return read_decoder(config, stack(halves, attentions), Norm())


def qwen3_moe(config: Config) -> Architecture:
    """Qwen 3 MoE: norms on query and key heads; a window, where it is used, on every layer."""
    assumptions = {"num_experts_per_tok": 8, "moe_intermediate_size": 768, "intermediate_size": 6144}
    count = config.integer("num_experts", "num_local_experts", default=128)
    config = assumed(config, **assumptions, num_experts=count)
    attention = replace(attention_biased(config, grouped(config, kv_heads=4)), qk_norm="shared")
    slides = config.flag("use_sliding_window", default=False)
    window = config.integer("sliding_window", default=4096) if slides else None
    halves = mixture(config, read_experts(config), _qwen_is_sparse(config))
    return read_decoder(config, stack(halves, windows(config, attention, window, lambda _: True)), Norm())


def qwen3_vl_moe(config: Config) -> Architecture:
    """The text model of Qwen 3 VL MoE: Qwen 3's with other numbers where they are absent."""
    count = config.integer("num_experts", "num_local_experts", default=60)
    sizes = {"num_experts_per_tok": 4, "moe_intermediate_size": 1408, "intermediate_size": 5632}
    config = assumed(config, num_experts=count, num_key_value_heads=16, **sizes)
    return qwen3_moe(config)


def gpt_oss(config: Config) -> Architecture:
    """gpt-oss: attention sinks, a window on every other layer, biases on projections, router and experts."""
    config = assumed(config, num_experts_per_tok=4, sliding_window=128)
    count = config.integer("num_local_experts", "num_experts", default=128)
    config = assumed(config, num_local_experts=count)
    bias = config.flag("attention_bias", default=True)
    attention = biased(grouped(config, kv_heads=8, head_dim=64), qkv=bias, out=bias)
    experts = replace(read_experts(config, width="intermediate_size"), bias=True, router_bias=True)
    attentions = windows(config, attention, config.optional("sliding_window"), lambda index: index % 2 == 0)
    layers = stack([experts] * len(attentions), attentions, pieces=lambda _: sinks(attention))
    return read_decoder(config, layers, Norm())


def olmoe(config: Config) -> Architecture:
    """OLMoE and FlexOlmo: a norm over all query heads and one over all key heads; FlexOlmo norms after each half."""
    flexible = config.string("model_type") == "flex_olmo"
    config = assumed(config, num_experts=7 if flexible else 64, num_experts_per_tok=5 if flexible else 8)
    attention = replace(attention_biased(config, grouped(config)), qk_norm="whole")
    layer = Layer(attention=attention, feed_forward=read_experts(config, width="intermediate_size"))
    return read_decoder(config, read_layers(config, layer, None, lambda _: False), Norm())


def phimoe(config: Config) -> Architecture:
    """Phi-3.5 MoE: LayerNorms with biases; the router picks two experts whatever ``num_experts_per_tok`` says."""
    config = assumed(config, num_local_experts=16)
    config = Config({**config.fields, "num_experts_per_tok": 2}, config.name)
    attention = attention_biased(config, grouped(config, kv_heads=8))
    layer = Layer(attention=attention, feed_forward=read_experts(config, width="intermediate_size"))
    layers = read_layers(config, layer, config.optional("sliding_window"), lambda _: True)
    decoder = read_decoder(config, layers, Norm(kind="layer", bias=True))
    return replace(decoder, head_bias=config.flag("lm_head_bias", default=False))


def granitemoe(config: Config) -> Architecture:
    """Granite 3 MoE, with or without a shared expert: embeddings, residuals and logits are scaled."""
    config = assumed(config, num_local_experts=8, num_experts_per_tok=2)
    shared = config.integer("shared_intermediate_size", default=0, low=0)
    shared = 0 if config.string("model_type") == "granitemoe" else shared
    experts = read_experts(config, shared=shared, width="intermediate_size")
    attention = attention_biased(config, grouped(config))
    pieces: tuple[Piece, ...] = ()
    attentions = [attention] * layer_count(config)
    if config.string("model_type") == "granitemoe_swa":
        window, pieces = config.integer("sliding_window", default=128), sinks(attention)
        attentions = windows(config, attention, window, lambda index: index % 4 != 0)
    layers = stack([experts] * len(attentions), attentions, pieces=lambda _: pieces)
    return replace(read_decoder(config, layers, Norm()), embedding_scaled=True)


def llama4(config: Config) -> Architecture:
    """Llama 4 (text): mixtures on some layers, a chunk of context on layers that are rotated, norms without weights."""
    config = assumed(config, num_local_experts=16, num_experts_per_tok=1, intermediate_size=8192)
    wide = config.integer("intermediate_size_mlp", default=16384)
    count, every = layer_count(config), config.integer("interleave_moe_layer_step", default=1)
    sparse = whole_numbers(config, "moe_layers")
    sparse = list(range(every - 1, count, every)) if sparse is None else sparse
    interval = config.integer("no_rope_layer_interval", default=4)
    rotated = whole_numbers(config, "no_rope_layers") or [int((index + 1) % interval != 0) for index in range(count)]
    if len(rotated) != count:
        raise config.error("no_rope_layers", f"has {len(rotated)} entries for {count} layers")
    chunk = config.optional("attention_chunk_size") if "attention_chunk_size" in config.fields else 8192
    chunked = (FULL, "chunked_attention")
    listed = kinds(config, "layer_types", chunked, lambda index: bool(rotated[index]) and chunk is not None)
    attention = attention_biased(config, grouped(config, kv_heads=8, head_dim=128))
    normed = replace(attention, qk_norm="shared", qk_norm_kind=Norm(affine=False))
    attention_of = [
        replace(
            normed if turns and config.flag("use_qk_norm", default=True) else attention,
            rotary_dim=attention.rotary_dim if turns else 0,
            window=chunk if kind != FULL else None,
            chunked=kind != FULL,
        )
        for turns, kind in zip(rotated, listed, strict=True)
    ]
    experts = read_experts(config, shared=config.integer("intermediate_size"), width="intermediate_size")
    dense = FeedForward(width=wide, gated=True, smooth=experts.smooth)
    return read_decoder(
        config, stack([experts if index in sparse else dense for index in range(count)], attention_of), Norm()
    )


def ernie4_5_moe(config: Config) -> Architecture:
    """ERNIE 4.5 MoE: mixtures from one layer to another, a correction bias in the router, tied embeddings."""
    config = assumed(config, moe_num_experts=64, moe_k=6, moe_intermediate_size=1536, moe_num_shared_experts=2)
    config = assumed(config, num_experts=config.integer("moe_num_experts"), num_experts_per_tok=config.integer("moe_k"))
    bias, width = config.flag("use_bias", default=False), config.integer("moe_intermediate_size")
    shared = width * config.integer("moe_num_shared_experts", low=0)
    experts = replace(read_experts(config, shared=shared), router_bias=True, shared_bias=bias)
    last = config.integer("moe_layer_end_index", default=-1, low=-1)
    last = layer_count(config) - 1 if last == -1 else last
    first, every = (
        config.integer("moe_layer_start_index", default=1, low=0),
        config.integer("moe_layer_interval", default=1),
    )
    halves = mixture(config, experts, lambda index: (index + 1) % every == 0 and first <= index <= last, bias=bias)
    attention = biased(grouped(config, kv_heads=4), qkv=bias, out=bias)
    decoder = read_decoder(config, stack(halves, [attention] * len(halves)), Norm(), tied=True)
    return replace(decoder, head_bias=bias)


def _glm(config: Config, attention: Attention, *, share: float, dense: int, normed: bool = False) -> Architecture:
    """Dense layers first, then routed and shared experts; biases on queries, keys and values only."""
    shared = config.integer("moe_intermediate_size") * config.integer("n_shared_experts", low=0)
    rotated = int(attention.head_dim * rotary_share(config, share))
    attention = replace(attention_biased(config, attention, out=False), rotary_dim=rotated)
    attention = replace(attention, qk_norm="shared") if normed else attention
    halves = mixture(config, read_experts(config, shared=shared), lambda index: index >= dense)
    return read_decoder(config, stack(halves, [attention] * len(halves)), Norm())


def glm4_moe(config: Config) -> Architecture:
    """GLM 4.5 to 4.7, and the text model of 4.5V: half of each head rotated; a head's width is rounded down."""
    vision = config.string("model_type") == "glm4v_moe_text"
    config = assumed(config, n_routed_experts=128, num_experts_per_tok=8, moe_intermediate_size=1408)
    config = assumed(config, n_shared_experts=1, attention_bias=vision)
    wide = config.integer("hidden_size") // config.integer("num_attention_heads")
    normed = config.flag("use_qk_norm", default=False) and not vision
    dense = config.integer("first_k_dense_replace", default=1, low=0)
    return _glm(config, grouped(config, kv_heads=8, head_dim=wide), share=0.5, dense=dense, normed=normed)


def solar_open(config: Config) -> Architecture:
    """Solar Open: as GLM 4.5 without dense layers, whole heads rotated."""
    config = assumed(config, n_routed_experts=128, num_experts_per_tok=8, moe_intermediate_size=1280)
    config = assumed(config, n_shared_experts=1)
    return _glm(config, grouped(config, kv_heads=8, head_dim=128), share=1.0, dense=0)


def sarvam_moe(config: Config) -> Architecture:
    """Sarvam MoE: as GLM 4.5 with norms on query and key heads, under other names as well."""
    names = {"n_routed_experts": ("num_experts", 128), "n_shared_experts": ("num_shared_experts", 1)}
    renamed = {common: config.integer(own, default=usual) for common, (own, usual) in names.items()}
    bias = config.flag("use_qkv_bias", default=False)
    config = assumed(config, **renamed, num_experts_per_tok=6, moe_intermediate_size=1024, attention_bias=bias)
    normed = config.flag("use_qk_norm", default=True)
    dense = config.integer("first_k_dense_replace", default=1, low=0)
    return _glm(config, grouped(config, kv_heads=4, head_dim=64), share=1.0, dense=dense, normed=normed)


def minimax_m2(config: Config) -> Architecture:
    """MiniMax M2: norms over all query heads and all key heads, half of each head rotated."""
    refuse(config, "use_qk_norm", (True,))
    refuse(config, "shared_intermediate_size", (0,))
    count = config.integer("num_local_experts", "num_experts", default=256)
    config = assumed(config, num_local_experts=count, num_experts_per_tok=8, intermediate_size=1536)
    attention = replace(grouped(config, kv_heads=8, head_dim=128), qk_norm="whole")
    rotated = config.integer("rotary_dim", default=attention.rotary_dim)
    experts = read_experts(config, width="intermediate_size")
    layer = Layer(attention=replace(attention, rotary_dim=rotated), feed_forward=experts)
    return read_decoder(config, read_layers(config, layer, None, lambda _: False), Norm())


FAMILIES: dict[str, Callable[[Config], Architecture]] = {
    "mixtral": mixtral,
    "qwen2_moe": qwen2_moe,
    "qwen3_moe": qwen3_moe,
    "gpt_oss": gpt_oss,
    "olmoe": olmoe,
    "flex_olmo": olmoe,
    "phimoe": phimoe,
    "granitemoe": granitemoe,
    "granitemoeshared": granitemoe,
    "granitemoe_swa": granitemoe,
    "llama4_text": llama4,
    "ernie4_5_moe": ernie4_5_moe,
    "glm4_moe": glm4_moe,
    "glm4v_moe_text": glm4_moe,
    "solar_open": solar_open,
    "qwen3_vl_moe_text": qwen3_vl_moe,
    "sarvam_moe": sarvam_moe,
    "minimax_m2": minimax_m2,
}
