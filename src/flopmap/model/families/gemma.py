"""The Gemmas after the third: layers that reuse a cache, an embedding for each layer, streams beside the residual."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from flopmap.model.architecture import (
    Architecture,
    Attention,
    Experts,
    FeedForward,
    Layer,
    Linear,
    Norm,
    Piece,
    Row,
    Table,
    Vector,
)
from flopmap.model.config import Config
from flopmap.model.families.common import read_decoder, read_feed_forward, read_layers
from flopmap.model.families.modern import absent, attention_of, flag_of, is_capped, stack
from flopmap.quantity import shown

if TYPE_CHECKING:
    from collections.abc import Callable

PLAIN = Norm(affine=False)
TANH = "gelu_pytorch_tanh"
SPARSE_LAYERS = 10


def vaultgemma(config: Config) -> Architecture:
    """VaultGemma: as Gemma 2 without the norms after each half."""
    config = absent(config, num_key_value_heads=4, head_dim=256, tie_word_embeddings=True, sliding_window=4096)
    attention = attention_of(config, qkv="attention_bias", out="attention_bias")
    attention = replace(attention, capped=is_capped(config, "attn_logit_softcapping"))
    layer = Layer(attention=attention, feed_forward=read_feed_forward(config, TANH))
    decoder = stack(config, layer, is_windowed=lambda index: index % 2 == 0)
    return replace(decoder, embedding_scaled=True, logits_capped=is_capped(config, "final_logit_softcapping"))


def gemma4(config: Config) -> Architecture:
    """Gemma 4: wider heads on full layers, late layers that reuse a cache, an embedding a layer, experts by the MLP.

    Full layers have heads of global_head_dim (or what per_layer_config says) and, with attention_k_eq_v, values that
    are the keys. The unified model has neither the embeddings nor the experts.
    """
    unified = config.string("model_type") == "gemma4_unified_text"
    config = absent(
        config,
        hidden_size=2304,
        intermediate_size=9216,
        num_hidden_layers=30,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=256,
        vocab_size=262_144,
        tie_word_embeddings=True,
        sliding_window=1024 if unified else 512,
        vocab_size_per_layer_input=262_144,
        hidden_size_per_layer_input=256,
        rope_parameters={"full_attention": {"partial_rotary_factor": 0.25}},
    )
    if config.string("use_bidirectional_attention") == "all":
        raise config.error("use_bidirectional_attention", "'all' makes no causal model and is not understood")
    inputs = 0 if unified else config.integer("hidden_size_per_layer_input", default=0, low=0)
    mixture = not unified and flag_of(config, "enable_moe_block")
    layers = []
    for attention in _gemma4_attentions(config):
        double = 2 if attention.reuses_cache and flag_of(config, "use_double_wide_mlp") else 1
        half = read_feed_forward(config, TANH)
        half = replace(half, width=half.width * double)
        pieces = (*_value_norm(attention), *_layer_input(config, inputs))
        layer = Layer(attention=attention, feed_forward=half, norms=4, pieces=pieces)
        layers.append(_with_experts(config, layer, half) if mixture else layer)
    decoder = read_decoder(config, tuple(layers), Norm())
    before = _layer_inputs(config, inputs, len(layers))
    return replace(decoder, embedding_scaled=True, before=before, logits_capped=config.has("final_logit_softcapping"))


def _gemma4_attentions(config: Config) -> list[Attention]:
    """The attention of each layer; the last one is always a full one."""
    base = replace(attention_of(config, qkv="attention_bias", out="attention_bias"), qk_norm="shared")
    window = config.integer("sliding_window")
    found = _attentions(config, base, lambda index: (index + 1) % 6 != 0)
    full = [attention.window is None or index == len(found) - 1 for index, attention in enumerate(found)]
    reuses = _reuses(config, full, config.integer("num_kv_shared_layers", default=0, low=0, high=len(found)))
    same = flag_of(config, "attention_k_eq_v")
    attentions = []
    for index, is_full in enumerate(full):
        dim, keys = _gemma4_heads(config, index, is_full=is_full)
        if base.heads % keys:
            raise config.error("num_key_value_heads", f"{keys} does not divide num_attention_heads {base.heads}")
        share = _share(config, "full_attention" if is_full else "sliding_attention")
        attentions.append(
            replace(
                base,
                kv_heads=keys,
                head_dim=dim,
                value_dim=dim,
                rotary_dim=2 * int(share * dim // 2),
                window=None if is_full else window,
                reuses_cache=reuses[index],
                values_are_keys=same and is_full,
            )
        )
    return attentions


def _gemma4_heads(config: Config, index: int, *, is_full: bool) -> tuple[int, int]:
    """The width and number of a layer's key heads."""
    dim, keys = config.integer("head_dim"), config.integer("num_key_value_heads")
    if "per_layer_config" not in config.fields:
        if not is_full:
            return dim, keys
        same = flag_of(config, "attention_k_eq_v")
        return (
            config.integer("global_head_dim", default=512),
            config.integer("num_global_key_value_heads", default=keys) if same else keys,
        )
    given = {str(key).lstrip("0") or "0": value for key, value in config.table("per_layer_config").items()}
    own = Config(Config(given, config.name).table(str(index)), config.name)
    unknown = [key for key in given if not key.isdigit()]
    unknown += [key for key in own.fields if key not in ("head_dim", "num_key_value_heads")]
    if unknown:
        understood = "understood: head_dim and num_key_value_heads by the number of a layer"
        raise config.error("per_layer_config", f"{shown(unknown[0])} is not understood ({understood})")
    return own.integer("head_dim", default=dim), own.integer("num_key_value_heads", default=keys)


def _share(config: Config, kind: str) -> float:
    """The share of a head that is rotated in layers of a kind."""
    rope = Config(config.table("rope_parameters"), config.name).table(kind)
    return min(1.0, Config(rope, config.name).number("partial_rotary_factor", default=1.0))


def _attentions(config: Config, attention: Attention, is_windowed: Callable[[int], bool]) -> list[Attention]:
    """The attention of each layer, with the window where layer_types or the family's rule put it."""
    plain = Layer(attention=attention)
    layers = read_layers(config, plain, config.integer("sliding_window"), is_windowed)
    return [layer.attention for layer in layers if isinstance(layer.attention, Attention)]


def _reuses(config: Config, full: list[bool], shared: int) -> list[bool]:
    """Which layers attend to what the last layer of their kind before the shared ones has cached."""
    first = len(full) - shared
    if first and set(full[:first]) != set(full):
        raise config.error("num_kv_shared_layers", f"{shared} leaves a kind of layer without one that caches")
    return [index >= first for index in range(len(full))]


def _value_norm(attention: Attention) -> tuple[Piece, ...]:
    """The norm without weights over the heads of values."""
    return () if attention.reuses_cache else (Row(name="attention.v_norm", norm=PLAIN, width=attention.value_width),)


def _layer_inputs(config: Config, width: int, count: int) -> tuple[Piece, ...]:
    """The table that gives each token a row for every layer, and a projection of the embedding that is added to it."""
    if not width:
        return ()
    every = width * count
    return (
        Table(name="per_layer_embedding", rows=config.integer("vocab_size_per_layer_input"), width=every),
        Linear(name="per_layer_projection", d_in=config.integer("hidden_size"), d_out=every),
        Row(name="per_layer_norm", norm=Norm(), width=every, norm_width=width),
        Vector(name="per_layer_sum", parameters=0, width=every),
    )


def _layer_input(config: Config, width: int) -> tuple[Piece, ...]:
    """A layer's use of its row: a gate, a projection back, a norm."""
    if not width:
        return ()
    hidden = config.integer("hidden_size")
    return (
        Linear(name="per_layer_gate", d_in=hidden, d_out=width),
        Vector(name="per_layer_product", parameters=0, width=width),
        Linear(name="per_layer_out", d_in=width, d_out=hidden),
        Row(name="per_layer_out_norm", norm=Norm(), width=hidden),
    )


def _with_experts(config: Config, layer: Layer, half: FeedForward) -> Layer:
    """The layer with routed experts beside its feed-forward, their shared expert; a norm for each, and more."""
    hidden = config.integer("hidden_size")
    experts = Experts(
        experts=config.integer("num_experts"),
        top_k=config.integer("top_k_experts"),
        width=config.integer("moe_intermediate_size"),
        smooth=half.smooth,
        shared_width=half.width,
    )
    pieces = (
        Row(name="moe.router_norm", norm=PLAIN, width=hidden),
        Vector(name="moe.router_scale", parameters=hidden, width=hidden),
        Vector(name="moe.expert_scale", parameters=experts.experts, width=experts.top_k),
        *(Row(name=f"moe.norm_{index}", norm=Norm(), width=hidden) for index in range(3)),
    )
    return replace(layer, feed_forward=experts, pieces=(*layer.pieces, *pieces))


def gemma4_around(config: Config) -> Architecture:
    """Gemma 4 with its text model nested; towers of vision and audio are optional and another model each."""
    text = config.table("text_config")
    kind = {"model_type": f"{config.string('model_type')}_text"} if "model_type" not in text else {}
    tied = {"tie_word_embeddings": config.flag("tie_word_embeddings", default=True)}
    return gemma4(Config({**kind, **text, **tied}, config.name))


def gemma3n(config: Config) -> Architecture:
    """Gemma 3n: four streams that a small router mixes (AltUp), a low-rank path beside attention, shared caches."""
    config = absent(
        config,
        hidden_size=2048,
        num_hidden_layers=35,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=256,
        vocab_size=262_400,
        tie_word_embeddings=True,
        sliding_window=512,
        num_kv_shared_layers=15,
        vocab_size_per_layer_input=262_144,
        hidden_size_per_layer_input=256,
    )
    base = replace(attention_of(config, qkv="attention_bias", out="attention_bias"), qk_norm="shared")
    attentions = _attentions(config, base, lambda index: (index + 1) % 5 != 0)
    count, full = len(attentions), [attention.window is None for attention in attentions]
    reuses = _reuses(config, full, config.integer("num_kv_shared_layers", low=0, high=count - 1))
    widths = _each(config, "intermediate_size", 16_384, count)
    sparse = _each(config, "activation_sparsity_pattern", _sparse(count), count)
    inputs, hidden = config.integer("hidden_size_per_layer_input"), config.integer("hidden_size")
    layers = []
    for attention, reuse, width, share in zip(attentions, reuses, widths, sparse, strict=True):
        own = Config({**config.fields, "intermediate_size": width}, config.name)
        half = read_feed_forward(own, TANH)
        cut = (Vector(name="mlp.cut", parameters=0, width=half.width),) if share else ()
        cached = replace(attention, reuses_cache=reuse)
        pieces = (*_value_norm(cached), *_streams(config), *cut, *_layer_input(config, inputs))
        layers.append(Layer(attention=cached, feed_forward=half, norms=4, pieces=pieces))
    others = config.integer("altup_num_inputs", default=4) - 1
    decoder = read_decoder(config, tuple(layers), Norm())
    return replace(
        decoder,
        embedding_scaled=True,
        before=(*_layer_inputs(config, inputs, count), *_square("altup.in", hidden, others)),
        after=_square("altup.out", hidden, others),
        logits_capped=is_capped(config, "final_logit_softcapping"),
    )


def _sparse(count: int) -> list[float]:
    """How sparse each layer's activation is made where the config does not say."""
    return [0.95 if index < SPARSE_LAYERS < count else 0.0 for index in range(count)]


def _each(config: Config, field: str, default: Any, count: int) -> list[Any]:
    """A field with one value for all layers, or one for each."""
    value = config.fields[field] if config.has(field) else default
    values = value if isinstance(value, list) else [value] * count
    if len(values) != count:
        raise config.error(field, f"has {len(values)} entries for {count} layers")
    return values


def _square(name: str, width: int, count: int) -> tuple[Piece, ...]:
    """A projection for each stream but the first, into the layers or out of them."""
    return tuple(Linear(name=f"{name}_{index}", d_in=width, d_out=width) for index in range(count))


def _streams(config: Config) -> tuple[Piece, ...]:
    """Gemma 3n's additions to a layer: AltUp's router (it runs twice), its mixing, and the low-rank path (LAuReL)."""
    hidden, streams = config.integer("hidden_size"), config.integer("altup_num_inputs", default=4)
    rank = config.integer("laurel_rank", default=64)
    scaled = config.flag("altup_correct_scale", default=True)
    return (
        Row(name="altup.router_norm", norm=Norm(), width=hidden),
        Row(name="altup.router_norm_again", norm=PLAIN, width=hidden),
        Linear(name="altup.router", d_in=hidden, d_out=streams),
        Linear(name="altup.router_again", d_in=hidden, d_out=streams, shared=True),
        Linear(name="altup.prediction", d_in=streams, d_out=streams * streams),
        Linear(name="altup.correction", d_in=streams, d_out=streams),
        Vector(name="altup.predict", parameters=0, width=streams * hidden),
        Vector(name="altup.correct", parameters=0, width=streams * hidden),
        Vector(name="altup.scale", parameters=hidden, width=hidden if scaled else 0),
        Linear(name="laurel.left", d_in=hidden, d_out=rank),
        Linear(name="laurel.right", d_in=rank, d_out=hidden),
        Row(name="laurel.norm", norm=Norm(), width=hidden),
    )


FAMILIES: dict[str, Callable[[Config], Architecture]] = {
    "gemma3n_text": gemma3n,
    "gemma4": gemma4_around,
    "gemma4_text": gemma4,
    "gemma4_unified": gemma4_around,
    "gemma4_unified_text": gemma4,
    "vaultgemma": vaultgemma,
}
