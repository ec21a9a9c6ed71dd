"""Decoders of the first years: multi-head or multi-query attention, LayerNorm, an ungated feed-forward, mostly biases.

Each family has its own names for the sizes; the tables of names say which, a family's own spelling first. Checked
against transformers 5.24.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from flopmap.model.architecture import Architecture, Attention, FeedForward, Layer, Norm, Row, Vector
from flopmap.model.config import MAX_LAYERS, Config
from flopmap.model.families.common import RELU, SMOOTH, rotary_share
from flopmap.quantity import shown

if TYPE_CHECKING:
    from collections.abc import Callable

LAYER_NORM = Norm(kind="layer", bias=True)


class Names(NamedTuple):
    """What a config calls its sizes and its activation."""

    hidden: tuple[str, ...] = ("hidden_size",)
    heads: tuple[str, ...] = ("num_attention_heads",)
    layers: tuple[str, ...] = ("num_hidden_layers",)
    width: tuple[str, ...] = ("intermediate_size",)
    positions: tuple[str, ...] = ("max_position_embeddings",)
    activation: str = "hidden_act"


PLAIN = Names()
GPT = Names(
    hidden=("n_embd", "hidden_size"),
    heads=("n_head", "num_attention_heads"),
    layers=("n_layer", "num_hidden_layers"),
    width=("n_inner",),
    positions=("n_positions", "max_position_embeddings"),
    activation="activation_function",
)
BLOOM = GPT._replace(hidden=("n_embed", "hidden_size"))
MPT = Names(
    hidden=("d_model", "hidden_size"),
    heads=("n_heads", "num_attention_heads"),
    layers=("n_layers", "num_hidden_layers"),
)
NEO = Names(
    heads=("num_heads", "num_attention_heads"),
    layers=("num_layers", "num_hidden_layers"),
    activation="activation_function",
)
XGLM = Names(
    hidden=("d_model", "hidden_size"),
    heads=("attention_heads", "num_attention_heads"),
    layers=("num_layers", "num_hidden_layers"),
    width=("ffn_dim",),
    activation="activation_function",
)


def read_heads(config: Config, names: Names, *, bias: bool = True, **own: Any) -> Attention:
    """Attention of equal heads that share the hidden width; ``bias`` is that of all four projections."""
    hidden, heads = config.integer(*names.hidden), config.integer(*names.heads)
    if hidden % heads:
        raise config.error(names.heads[0], f"{heads} does not divide {names.hidden[0]} {hidden}")
    width = hidden // heads
    whole = Attention(heads=heads, kv_heads=heads, head_dim=width, value_dim=width, qkv_bias=bias, out_bias=bias)
    return replace(whole, **own)


def read_mlp(
    config: Config, names: Names, activation: str, *, width: int | None = None, bias: bool = True, gated: bool = False
) -> FeedForward:
    """A feed-forward; ``width`` and ``activation`` are the family's own where the config has none."""
    smooth = reads_smooth(config, names.activation, activation)
    return FeedForward(width=config.integer(*names.width, default=width), gated=gated, bias=bias, smooth=smooth)


def reads_smooth(config: Config, field: str, default: str) -> bool:
    """Whether the activation that a field names has an exponential."""
    name = config.string(field, default=default)
    if name not in (*RELU, *SMOOTH):
        raise config.error(field, f"{shown(name)} is not understood (understood: {', '.join((*RELU, *SMOOTH))})")
    return name in SMOOTH


def repeated(config: Config, names: Names, layer: Layer) -> tuple[Layer, ...]:
    """The layer as often as the config says."""
    return (layer,) * config.integer(*names.layers, high=MAX_LAYERS)


def read_model(
    config: Config,
    names: Names,
    layers: tuple[Layer, ...],
    *,
    tied: bool = True,
    norm: Norm = LAYER_NORM,
    vocab: tuple[str, ...] = ("vocab_size",),
    **own: Any,
) -> Architecture:
    """A decoder; ``own`` is what differs from the usual. Cross attention would need an encoder that is not there."""
    refuse_true(config, "add_cross_attention", "cross attention is not understood")
    hidden = config.integer(*names.hidden)
    whole = Architecture(
        family=config.string("model_type"),
        hidden=hidden,
        vocab=config.integer(*vocab),
        layers=layers,
        norm=norm,
        embedding_width=hidden,
        tied=config.flag("tie_word_embeddings", default=tied),
    )
    return replace(whole, **own)


def refuse_true(config: Config, field: str, why: str) -> None:
    """Refuse a config that switches on what is not counted."""
    if config.flag(field, default=False):
        raise config.error(field, why)


def read_positions(config: Config, names: Names, default: int, offset: int = 0) -> int:
    """The rows of a learned position table."""
    return config.integer(*names.positions, default=default) + offset


def gpt_neo(config: Config) -> Architecture:
    """GPT-Neo: layers in a pattern of global and local (windowed) ones; a bias on the output, none on the inputs."""
    attention = read_heads(config, NEO, qkv_bias=False)
    mlp = read_mlp(config, NEO, "gelu_new", width=4 * config.integer("hidden_size"))
    layer = Layer(attention=attention, feed_forward=mlp)
    window = config.integer("window_size", default=256)
    local = replace(layer, attention=replace(attention, window=window))
    kinds = {"global": layer, "local": local}
    return read_model(
        config,
        NEO,
        tuple(kinds[kind] for kind in _neo_pattern(config)),
        positions=read_positions(config, NEO, 2048),
    )


def _neo_pattern(config: Config) -> list[str]:
    """The kind of every layer: a list, or else pairs of kinds and how often they repeat."""
    count = config.integer(*NEO.layers, high=MAX_LAYERS)
    pairs = config.fields.get("attention_types") or [[["global", "local"], 12]]
    try:
        spread = [str(kind) for kinds, times in pairs for kind in list(kinds) * min(int(times), MAX_LAYERS)]
    except (TypeError, ValueError):
        raise config.error("attention_types", f"{shown(pairs)} is no list of kinds and repetitions") from None
    listed = config.strings("attention_layers")
    field, pattern = ("attention_layers", listed) if listed else ("attention_types", spread)
    unknown = set(pattern) - {"global", "local"}
    if unknown:
        raise config.error(field, f"{shown(min(unknown))} is not understood (understood: global, local)")
    if len(pattern) != count:
        raise config.error(field, f"gives {len(pattern)} layers, but {NEO.layers[0]} is {count}")
    return pattern


def gpt_neox(config: Config) -> Architecture:
    """GPT-NeoX, Pythia: two norms also where both halves run in parallel, a quarter of each head rotated."""
    attention = read_heads(config, PLAIN, bias=config.flag("attention_bias", default=True))
    layer = Layer(attention=_partly_rotated(config, attention, 0.25), feed_forward=read_mlp(config, PLAIN, "gelu"))
    return read_model(config, PLAIN, repeated(config, PLAIN, layer), tied=False)


def _partly_rotated(config: Config, attention: Attention, default: float) -> Attention:
    """Attention with a share of each head rotated, under the new names or the old one."""
    share = rotary_share(config, config.number("rotary_pct", default=default))
    return replace(attention, rotary_dim=int(attention.head_dim * share))


def gpt_neox_japanese(config: Config) -> Architecture:
    """GPT-NeoX Japanese: as GPT-NeoX without biases, but for the attention output of the last layer."""
    hidden = config.integer("hidden_size")
    width = int(hidden * config.number("intermediate_multiple_size", default=4))
    attention = _partly_rotated(config, read_heads(config, PLAIN, bias=False), 1.0)
    smooth = reads_smooth(config, "hidden_act", "gelu")
    layer = Layer(attention=attention, feed_forward=FeedForward(width=width, gated=False, smooth=smooth))
    last = replace(layer, attention=replace(attention, out_bias=True))
    return read_model(config, PLAIN, (*repeated(config, PLAIN, layer)[1:], last))


def gptj(config: Config) -> Architecture:
    """GPT-J, CodeGen: a parallel block under one norm; biases in feed-forward and head, none in attention."""
    attention = read_heads(config, GPT, bias=False)
    rotary = config.optional("rotary_dim") if "rotary_dim" in config.fields else 64
    attention = replace(attention, rotary_dim=min(rotary or attention.head_dim, attention.head_dim))
    mlp = read_mlp(config, GPT, "gelu_new", width=4 * config.integer(*GPT.hidden))
    layer = Layer(attention=attention, feed_forward=mlp, norms=1)
    return read_model(config, GPT, repeated(config, GPT, layer), tied=False, head_bias=True)


def gpt_bigcode(config: Config) -> Architecture:
    """GPT-BigCode, StarCoder: GPT-2 with one key and value head for all queries."""
    attention = read_heads(config, GPT)
    if config.flag("multi_query", default=True):
        attention = replace(attention, kv_heads=1)
    mlp = read_mlp(config, GPT, "gelu_pytorch_tanh", width=4 * config.integer(*GPT.hidden))
    layers = repeated(config, GPT, Layer(attention=attention, feed_forward=mlp))
    return read_model(config, GPT, layers, positions=read_positions(config, GPT, 1024))


def bloom(config: Config) -> Architecture:
    """BLOOM: positions as a slope on the scores (ALiBi), a norm on the embeddings, a feed-forward of four widths."""
    hidden = config.integer(*BLOOM.hidden)
    mlp = FeedForward(width=4 * hidden, gated=False, bias=True)
    layers = repeated(config, BLOOM, Layer(attention=read_heads(config, BLOOM), feed_forward=mlp))
    return read_model(config, BLOOM, layers, before=(Row(name="embedding.norm", norm=LAYER_NORM, width=hidden),))


def mpt(config: Config) -> Architecture:
    """MPT: no biases, in the norms neither, and ALiBi. What the class ignores in a config is refused."""
    attention = Config(config.table("attn_config"), config.name)
    kind = attention.string("attn_type", default="multihead_attention")
    if kind != "multihead_attention":
        raise config.error(
            "attn_config.attn_type", f"{shown(kind)} is not understood (understood: multihead_attention)"
        )
    refuse_true(attention, "qk_ln", "norms on queries and keys are not understood")
    refuse_true(attention, "prefix_lm", "a prefix that sees itself whole is not understood")
    if not attention.flag("alibi", default=True):
        raise config.error("attn_config.alibi", "learned positions are not understood (understood: true)")
    if not config.flag("no_bias", default=True):
        raise config.error("no_bias", "biases are not understood (understood: true)")
    if config.integer("expansion_ratio", default=4) != 4:  # noqa: PLR2004 - the class has no other
        raise config.error("expansion_ratio", f"{config.fields['expansion_ratio']} is not understood (understood: 4)")
    mlp = FeedForward(width=4 * config.integer(*MPT.hidden), gated=False)
    layer = Layer(attention=read_heads(config, MPT, bias=False), feed_forward=mlp)
    return read_model(config, MPT, repeated(config, MPT, layer), norm=Norm(kind="layer"))


def falcon(config: Config) -> Architecture:
    """Falcon: a parallel block under one norm (7B, multi-query) or two (40B, 180B, grouped); rotation or ALiBi.

    The reference code repeats grouped keys and values for all heads in its cache; here they are held once.
    """
    bias, parallel = config.flag("bias", default=False), config.flag("parallel_attn", default=True)
    grouped = config.flag("new_decoder_architecture", default=False)
    attention = read_heads(config, PLAIN, bias=bias)
    if grouped:
        groups = config.integer("num_kv_heads", default=attention.heads)
        if attention.heads % groups:
            raise config.error("num_kv_heads", f"{groups} does not divide num_attention_heads {attention.heads}")
        attention = replace(attention, kv_heads=groups)
    elif config.flag("multi_query", default=True):
        attention = replace(attention, kv_heads=1)
    if not config.flag("alibi", default=False):
        attention = replace(attention, rotary_dim=attention.head_dim)
    norms = config.integer("num_ln_in_parallel_attn", default=2 if grouped else 1)
    if norms > 2 or (grouped and not parallel) or (norms == 2 and parallel and not grouped):  # noqa: PLR2004 - of two
        raise config.error("num_ln_in_parallel_attn", f"{norms} norms in this kind of block are not understood")
    smooth = reads_smooth(config, "activation", "gelu")
    width = config.integer("ffn_hidden_size", default=4 * config.integer("hidden_size"))
    mlp = FeedForward(width=width, gated=False, bias=bias, smooth=smooth)
    layer = Layer(attention=attention, feed_forward=mlp, norms=norms if parallel else 2)
    return read_model(config, PLAIN, repeated(config, PLAIN, layer))


def xglm(config: Config) -> Architecture:
    """XGLM: sinusoidal positions, which are no parameters, and scaled embeddings."""
    layer = Layer(attention=read_heads(config, XGLM), feed_forward=read_mlp(config, XGLM, "gelu"))
    scaled = config.flag("scale_embedding", default=True)
    return read_model(config, XGLM, repeated(config, XGLM, layer), embedding_scaled=scaled)


def biogpt(config: Config) -> Architecture:
    """BioGPT: learned positions after an offset of two, scaled embeddings."""
    layer = Layer(attention=read_heads(config, PLAIN), feed_forward=read_mlp(config, PLAIN, "gelu"))
    return read_model(
        config,
        PLAIN,
        repeated(config, PLAIN, layer),
        embedding_scaled=config.flag("scale_embedding", default=True),
        positions=read_positions(config, PLAIN, 1024, 2),
    )


def ctrl(config: Config) -> Architecture:
    """CTRL: sinusoidal positions, scaled embeddings, ReLU, a bias on the head."""
    mlp = FeedForward(width=config.integer("dff", default=8192), gated=False, bias=True, smooth=False)
    layers = repeated(config, GPT, Layer(attention=read_heads(config, GPT), feed_forward=mlp))
    return read_model(config, GPT, layers, embedding_scaled=True, head_bias=True)


def openai_gpt(config: Config) -> Architecture:
    """GPT-1: norms after each half and none at the end, learned positions."""
    smooth = reads_smooth(config, "afn", "gelu")
    mlp = FeedForward(width=4 * config.integer(*GPT.hidden), gated=False, bias=True, smooth=smooth)
    layers = repeated(config, GPT, Layer(attention=read_heads(config, GPT), feed_forward=mlp))
    return read_model(config, GPT, layers, positions=read_positions(config, GPT, 512), final_norm=False)


def persimmon(config: Config) -> Architecture:
    """Persimmon: norms on query and key heads, half of each head rotated, squared ReLU."""
    attention = read_heads(config, PLAIN)
    attention = replace(attention, rotary_dim=int(attention.head_dim * rotary_share(config, 0.5)))
    if config.flag("qk_layernorm", default=True):
        attention = replace(attention, qk_norm="shared", qk_norm_kind=LAYER_NORM)
    layers = repeated(config, PLAIN, Layer(attention=attention, feed_forward=read_mlp(config, PLAIN, "relu2")))
    return read_model(config, PLAIN, layers, tied=False)


def moshi(config: Config) -> Architecture:
    """Moshi (its text decoder): RMSNorm, a gated feed-forward of half of ``ffn_dim``, a window, one more embedding."""
    refuse_encoder(config)
    heads = config.integer("num_attention_heads")
    width = config.integer("head_dim", default=config.integer("hidden_size") // heads)
    keys = config.integer("num_key_value_heads", default=heads)
    if heads % keys:
        raise config.error("num_key_value_heads", f"{keys} does not divide num_attention_heads {heads}")
    window = config.integer("sliding_window", default=3000)
    attention = Attention(heads=heads, kv_heads=keys, head_dim=width, value_dim=width, rotary_dim=width, window=window)
    smooth = reads_smooth(config, "hidden_act", "silu")
    mlp = FeedForward(width=config.integer("ffn_dim", default=22_528) // 2, gated=True, smooth=smooth)
    layers = repeated(config, PLAIN, Layer(attention=attention, feed_forward=mlp))
    extra = Vector(name="embedding.start", parameters=config.integer("hidden_size"))
    return replace(read_model(config, PLAIN, layers, norm=Norm(), before=(extra,)), tied=False)


def refuse_encoder(config: Config) -> None:
    """Refuse a whole encoder-decoder (or speech model), of which only the decoder alone would be counted."""
    for name in config.strings("architectures"):
        if name.endswith("ForConditionalGeneration"):
            raise config.error("architectures", f"{shown(name)} has more than the decoder, which alone is understood")


FAMILIES: dict[str, Callable[[Config], Architecture]] = {
    "gpt_neo": gpt_neo,
    "gpt_neox": gpt_neox,
    "gpt_neox_japanese": gpt_neox_japanese,
    "gptj": gptj,
    "codegen": gptj,
    "gpt_bigcode": gpt_bigcode,
    "bloom": bloom,
    "mpt": mpt,
    "falcon": falcon,
    "xglm": xglm,
    "biogpt": biogpt,
    "ctrl": ctrl,
    "openai-gpt": openai_gpt,
    "persimmon": persimmon,
    "moshi": moshi,
}
