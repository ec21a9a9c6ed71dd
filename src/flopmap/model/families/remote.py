"""Families whose classes come with their checkpoints and not with transformers: held against published counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from flopmap.model.architecture import Attention, FeedForward, Layer, Linear, Norm, Vector
from flopmap.model.config import MAX_LAYERS, Config
from flopmap.model.families.common import (
    biased,
    is_smooth,
    read_attention,
    read_decoder,
    read_feed_forward,
    with_window,
)
from flopmap.model.families.dense import qwen2
from flopmap.model.families.experts import (
    FULL,
    SLIDING,
    assumed,
    attention_biased,
    grouped,
    layer_count,
    mixture,
    read_experts,
    stack,
)
from flopmap.quantity import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from flopmap.model.architecture import Architecture, Experts


def _plain(config: Config, attention: Attention, feed_forward: FeedForward) -> Architecture:
    """A decoder of equal layers."""
    layer = Layer(attention=attention, feed_forward=feed_forward)
    return read_decoder(config, (layer,) * layer_count(config), Norm())


def internlm2(config: Config) -> Architecture:
    """InternLM 2 and 2.5: Llama with one matrix for queries, keys and values; ``bias`` is on all projections."""
    bias = config.flag("bias", default=False)
    return _plain(config, biased(read_attention(config), qkv=bias, out=bias), read_feed_forward(config, bias=bias))


def baichuan(config: Config) -> Architecture:
    """Baichuan 1 and 2: Llama with a key head a query head; the 13B has ALiBi in place of rotation."""
    attention = read_attention(config)
    if config.has("model_max_length") and not config.has("max_position_embeddings"):  # how the 13B says it
        attention = replace(attention, rotary_dim=0)
    return _plain(config, attention, read_feed_forward(config))


def minicpm(config: Config) -> Architecture:
    """MiniCPM 1 and 2: Llama with scaled rows, an embedding that is also the head."""
    return replace(
        _plain(config, read_attention(config), read_feed_forward(config)),
        tied=config.flag("tie_word_embeddings", default=True),
        embedding_scaled=True,
    )


def qwen(config: Config) -> Architecture:
    """Qwen 1: the feed-forward is half as wide as ``intermediate_size``; biases on queries, keys and values."""
    no_bias = config.flag("no_bias", default=True)
    heads, width = config.integer("num_attention_heads"), config.integer("kv_channels", default=128)
    attention = Attention(heads=heads, kv_heads=heads, head_dim=width, value_dim=width, rotary_dim=width, qkv_bias=True)
    half = config.integer("intermediate_size") // 2
    feed_forward = FeedForward(width=half, gated=True, bias=not no_bias)
    return _plain(config, replace(attention, out_bias=not no_bias), feed_forward)


def chatglm(config: Config) -> Architecture:
    """ChatGLM 2 and 3, GLM-4: few key heads, half of a head rotated, the two norms of the family's own switches."""
    if not config.flag("rmsnorm", default=True) or not config.flag("post_layer_norm", default=True):
        raise config.error("rmsnorm", "only RMSNorm, with one at the end, is understood in a chatglm config")
    if config.flag("apply_residual_connection_post_layernorm", default=False):
        raise config.error("apply_residual_connection_post_layernorm", "true is not understood")
    heads, width = config.integer("num_attention_heads"), config.integer("kv_channels", default=128)
    grouped_heads = config.flag("multi_query_attention", default=False)
    bias = config.flag("add_bias_linear", default=False)
    attention = Attention(
        heads=heads,
        kv_heads=config.integer("multi_query_group_num", default=1) if grouped_heads else heads,
        head_dim=width,
        value_dim=width,
        rotary_dim=width // 2,
        qkv_bias=bias or config.flag("add_qkv_bias", default=False),
        out_bias=bias,
    )
    feed_forward = FeedForward(width=config.integer("ffn_hidden_size"), gated=True, bias=bias)
    named = {
        "num_hidden_layers": config.integer("num_layers", "num_hidden_layers", high=MAX_LAYERS),
        "vocab_size": config.integer("padded_vocab_size", "vocab_size"),
    }
    return _plain(Config({**config.fields, **named}, config.name), attention, feed_forward)


def mimo(config: Config) -> Architecture:
    """MiMo 7B: Qwen 2; its layers that predict further tokens are read elsewhere."""
    if not config.flag("attention_bias", default=True):
        raise config.error("attention_bias", "false is not understood in a mimo config")
    return qwen2(config)


def deepseek(config: Config) -> Architecture:
    """DeepSeek 1 (LLM and MoE): Llama's attention; mixtures with shared experts after the first layers."""
    config = assumed(config, moe_intermediate_size=1407, num_experts_per_tok=6)
    attention = attention_biased(config, grouped(config))
    if not config.has("n_routed_experts"):
        return _plain(config, attention, read_feed_forward(config))
    first, every = (
        config.integer("first_k_dense_replace", default=0, low=0),
        config.integer("moe_layer_freq", default=1),
    )
    shared = config.integer("moe_intermediate_size") * (config.optional("n_shared_experts") or 0)
    experts = read_experts(config, shared=shared)
    halves = mixture(config, experts, lambda index: index >= first and index % every == 0)
    return read_decoder(config, stack(halves, [attention] * len(halves)), Norm())


def bailing_moe(config: Config) -> Architecture:
    """Ling and Ring 1 and 2: mixtures with shared experts; version 2 norms heads and rotates half of them."""
    attention = biased(
        read_attention(config),
        qkv=config.flag("use_qkv_bias", default=False),
        out=config.flag("use_bias", default=False),
    )
    if config.flag("use_qk_norm", default=False):
        attention = replace(attention, qk_norm="shared")
    first = config.integer("first_k_dense_replace", default=0, low=0)
    width = config.integer("moe_shared_expert_intermediate_size", "moe_intermediate_size")
    experts = read_experts(config, shared=width * config.integer("num_shared_experts", default=0, low=0))
    halves = mixture(config, experts, lambda index: index >= first)
    model = read_decoder(config, stack(halves, [attention] * len(halves)), Norm())
    return replace(model, tied=config.flag("tie_word_embeddings", default=False))


# -- Nemotron NAS -----------------------------------------------------------------------------------------------------


def nemotron_nas(config: Config) -> Architecture:
    """Nemotron of a neural architecture search: every layer says which halves it has, and how wide they are."""
    blocks = config.fields.get("block_configs")
    if not isinstance(blocks, list) or len(blocks) != layer_count(config):
        raise config.error("block_configs", f"a list of {layer_count(config)} layers is needed")
    layers = tuple(_nas_layer(config, index, block) for index, block in enumerate(blocks))
    return read_decoder(config, layers, Norm())


def _nas_layer(config: Config, index: int, block: Any) -> Layer:
    if not isinstance(block, dict):
        raise config.error("block_configs", f"{shown(block)} is no layer")
    name = f"{config.name}: block_configs[{index}]"
    attends, widens = (Config(Config(block, name).table(half), name) for half in ("attention", "ffn"))
    for half, fields in ((attends, ("num_sink_tokens", "sparsify", "unshifted_sink")), (widens, ("sparsify", "moe"))):
        for field in fields:
            if half.fields.get(field):
                raise half.error(field, f"{shown(half.fields[field])} is not understood")
    hidden = config.integer("hidden_size")
    attention: Attention | None = None
    pieces: tuple[Linear, ...] = ()
    if attends.flag("replace_with_linear", default=False):
        pieces = (Linear(name="attention.linear", d_in=hidden, d_out=hidden),)
    elif not attends.flag("no_op", default=False):
        shared = attends.integer("n_heads_in_group")
        heads = config.integer("num_attention_heads")
        if heads % shared:
            raise attends.error("n_heads_in_group", f"{shared} does not divide num_attention_heads {heads}")
        attention = replace(attention_biased(config, read_attention(_with_heads(config, heads // shared))))
    mlp = None
    if widens.flag("replace_with_linear", default=False):
        raise widens.error("replace_with_linear", "true is not understood")
    if not widens.flag("no_op", default=False):
        mlp = FeedForward(width=_nas_width(config, widens), gated=True, smooth=is_smooth(config, "silu"))
    halves = (attention is not None or bool(pieces)) + (mlp is not None)
    layer = Layer(attention=attention, feed_forward=mlp, norms=halves, pieces=pieces)
    window = attends.optional("window_length")
    return with_window(layer, window) if window else layer


def _with_heads(config: Config, kv_heads: int) -> Config:
    return Config({**config.fields, "num_key_value_heads": kv_heads}, config.name)


def _nas_width(config: Config, widens: Config) -> int:
    """The width: given, or two thirds of a multiple of the hidden width, rounded up to 256."""
    if widens.has("intermediate_size"):
        return widens.integer("intermediate_size")
    exact = int(2 * widens.number("ffn_mult", default=0) * config.integer("hidden_size") / 3)
    if not exact:
        raise widens.error("ffn_mult", "is missing (a positive number is needed)")
    return -(-exact // 256) * 256


# -- Step 3.5 ---------------------------------------------------------------------------------------------------------


def step3p5(config: Config) -> Architecture:
    """Step 3.5 and 3.7 Flash: windowed layers with heads of their own, a gate a head, norms on query and key heads."""
    other = Config(config.table("attention_other_setting"), f"{config.name}: attention_other_setting")
    count, types = layer_count(config), config.strings("layer_types")
    if len(types) < count or set(types) - {FULL, SLIDING}:
        raise config.error("layer_types", f"at least {count} entries of {FULL} or {SLIDING} are needed")
    if SLIDING in types and not other.fields:
        raise config.error("attention_other_setting", "is missing: windowed layers have a number of heads of their own")
    groups = config.integer("num_attention_groups", "num_key_value_heads")
    whole = replace(read_attention(_with_heads(config, groups)), qk_norm="shared")
    narrow = replace(
        whole,
        heads=other.integer("num_attention_heads", default=whole.heads),
        kv_heads=other.integer("num_attention_groups", default=groups),
        window=config.integer("sliding_window"),
    )
    halves = _step_halves(config, count)
    gated = config.flag("use_head_wise_attn_gate", default=False)
    layers = []
    for kind, half in zip(types, halves, strict=False):  # layers that predict further tokens are listed too
        attention = narrow if kind == SLIDING else whole
        layers.append(
            Layer(attention=attention, feed_forward=half, pieces=_head_gate(config, attention) if gated else ())
        )
    return read_decoder(config, tuple(layers), Norm())


def _head_gate(config: Config, attention: Attention) -> tuple[Linear, Vector]:
    return (
        Linear(name="attention.gate", d_in=config.integer("hidden_size"), d_out=attention.heads),
        Vector(name="attention.gate_product", parameters=0, width=attention.output_width),
    )


def _step_halves(config: Config, count: int) -> list[FeedForward | Experts]:
    """The feed-forwards: mixtures where ``moe_layers_enum`` lists them."""
    listed = config.fields.get("moe_layers_enum")
    indices = [part.strip() for part in listed.split(",")] if isinstance(listed, str) else listed
    if not isinstance(indices, list) or not all(str(index).isdigit() for index in indices):
        raise config.error("moe_layers_enum", f"{shown(listed)} is no list of layers")
    sparse = {int(index) for index in indices}
    named = {
        "num_experts": config.integer("moe_num_experts"),
        "num_experts_per_tok": config.integer("moe_top_k"),
    }
    experts = read_experts(
        Config({**config.fields, **named}, config.name), shared=config.optional("share_expert_dim") or 0
    )
    dense = read_feed_forward(config)
    return [experts if index in sparse else dense for index in range(count)]


FAMILIES: dict[str, Callable[[Config], Architecture]] = {
    "bailing_moe": bailing_moe,
    "bailing_moe_v2": bailing_moe,
    "baichuan": baichuan,
    "chatglm": chatglm,
    "deepseek": deepseek,
    "internlm2": internlm2,
    "mimo": mimo,
    "minicpm": minicpm,
    "nemotron-nas": nemotron_nas,
    "qwen": qwen,
    "step3p5": step3p5,
    "step3p7": step3p5,
}
