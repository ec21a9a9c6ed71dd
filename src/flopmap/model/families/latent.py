"""Families with latent attention (MLA), dense, mixed and sparse."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from flopmap.model.architecture import (
    Architecture,
    Experts,
    Indexer,
    LatentAttention,
    Layer,
    Linear,
    Norm,
    Piece,
    Row,
    Vector,
)
from flopmap.model.config import MAX_LAYERS, Config
from flopmap.model.families.common import is_smooth, read_decoder, read_feed_forward
from flopmap.model.families.experts import assumed, kinds, layer_count, mixture, read_experts, refuse, stack

if TYPE_CHECKING:
    from collections.abc import Callable

INDEXED = "indexed_attention"


def latent_attention(config: Config) -> LatentAttention:
    """MLA under the names that DeepSeek gave its parts."""
    config = assumed(config, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128)
    return LatentAttention(
        heads=config.integer("num_attention_heads"),
        query_rank=config.optional("q_lora_rank"),
        latent=config.integer("kv_lora_rank"),
        nope_dim=config.integer("qk_nope_head_dim"),
        rope_dim=config.integer("qk_rope_head_dim"),
        value_dim=config.integer("v_head_dim"),
        bias=config.flag("attention_bias", default=False),
    )


def routed_experts(config: Config, experts: int, chosen: int, width: int, shared: int = 1) -> Experts:
    """Routed and shared experts under DeepSeek's names, with the class's own numbers where they are absent."""
    count = config.integer("num_experts", "num_local_experts", "n_routed_experts", default=experts)
    config = assumed(config, moe_intermediate_size=width, num_experts_per_tok=chosen, num_experts=count)
    together = config.integer("n_shared_experts", "num_shared_experts", default=shared, low=0)
    return read_experts(config, shared=config.integer("moe_intermediate_size") * together)


def after_dense(
    config: Config, experts: Experts, dense: int, attention: LatentAttention, *, bias: bool = False
) -> tuple[Layer, ...]:
    """All layers: the first ones dense, the others mixtures; ``bias`` on dense and shared ones."""
    first = config.integer("first_k_dense_replace", default=dense, low=0)
    halves = mixture(config, replace(experts, shared_bias=bias), lambda index: index >= first, bias=bias)
    return stack(halves, [attention] * len(halves))


def deepseek_v2(config: Config) -> Architecture:
    """DeepSeek V2: the lite form projects queries directly. The class chooses no top-k; both released models have 6."""
    refuse(config, "moe_layer_freq", (1,))
    chosen = config.integer("num_experts_per_tok", default=6)
    config = Config({"q_lora_rank": 1536, **config.fields, "num_experts_per_tok": chosen}, config.name)
    experts = routed_experts(config, 64, chosen, 1407, shared=2)
    bias = config.flag("mlp_bias", default=False)
    return read_decoder(config, after_dense(config, experts, 0, latent_attention(config), bias=bias), Norm())


def deepseek_v3(config: Config) -> Architecture:
    """DeepSeek V3, R1 and Kimi K2: three dense layers, then one shared and eight of many routed experts."""
    refuse(config, "moe_layer_freq", (1,))
    config = assumed(config, q_lora_rank=1536)
    layers = after_dense(config, routed_experts(config, 256, 8, 2048), 3, latent_attention(config))
    return read_decoder(config, layers, Norm())


def glm4_moe_lite(config: Config) -> Architecture:
    """GLM 4.7 Flash: one dense layer, then mixtures."""
    config = assumed(config, q_lora_rank=768, qk_nope_head_dim=192, v_head_dim=256, first_k_dense_replace=1)
    layers = after_dense(config, routed_experts(config, 64, 4, 1536), 1, latent_attention(config))
    return read_decoder(config, layers, Norm())


def mistral4(config: Config) -> Architecture:
    """Mistral 4: a latent of 256, mixtures from the first layer on."""
    config = assumed(config, q_lora_rank=1024, kv_lora_rank=256, qk_nope_head_dim=64)
    layers = after_dense(config, routed_experts(config, 128, 4, 2048), 0, latent_attention(config))
    return read_decoder(config, layers, Norm())


def sarvam_mla(config: Config) -> Architecture:
    """Sarvam (MLA): as DeepSeek V3 with queries that are projected directly and one dense layer."""
    layers = after_dense(config, routed_experts(config, 128, 8, 2048), 1, latent_attention(config))
    return read_decoder(config, layers, Norm())


def axk1(config: Config) -> Architecture:
    """A.X K1: as DeepSeek V3 with one dense layer and a norm after each mixture."""
    config = assumed(config, q_lora_rank=1536)
    first, every = (
        config.integer("first_k_dense_replace", default=1, low=0),
        config.integer("moe_layer_freq", default=1),
    )
    experts = routed_experts(config, 192, 8, 2048)
    halves = mixture(config, experts, lambda index: index >= first and index % every == 0)
    norm = (Row(name="moe.post_norm", norm=Norm(), width=config.integer("hidden_size")),)
    attentions = [latent_attention(config)] * len(halves)
    layers = stack(halves, attentions, pieces=lambda index: norm if isinstance(halves[index], Experts) else ())
    return read_decoder(config, layers, Norm())


def dense_latent(config: Config) -> Architecture:
    """Youtu and MiniCPM 3: latent attention over dense feed-forwards, tied embeddings, which MiniCPM scales."""
    scaled = config.string("model_type") == "minicpm3"
    if scaled:
        value = config.integer("hidden_size") // config.integer("num_attention_heads")
        value = config.integer("v_head_dim", default=value)
        config = assumed(config, q_lora_rank=768, kv_lora_rank=256, qk_nope_head_dim=64, qk_rope_head_dim=32)
        attention = latent_attention(assumed(config, v_head_dim=value))
    else:
        attention = latent_attention(assumed(config, q_lora_rank=1536))
    bias = scaled and config.flag("mlp_bias", default=False)
    layer = Layer(attention=attention, feed_forward=read_feed_forward(config, bias=bias))
    decoder = read_decoder(config, (layer,) * layer_count(config), Norm(), tied=True)
    return replace(decoder, embedding_scaled=scaled)


def sparse_latent(config: Config) -> Architecture:
    """DeepSeek V3.2 and GLM 5: an indexer picks the tokens that a query attends to; GLM's may serve several layers."""
    refuse(config, "moe_layer_freq", (1,))
    glm = config.string("model_type") == "glm_moe_dsa"
    wide = {"q_lora_rank": 2048, "qk_nope_head_dim": 192, "v_head_dim": 256, "index_n_heads": 32}
    config = assumed(config, **(wide if glm else {"q_lora_rank": 1536, "index_n_heads": 64}))
    kinds(config, "layer_types", (INDEXED, "deepseek_sparse_attention"), lambda _: False)  # one kind, two names
    attention = replace(latent_attention(config), selected=config.integer("index_topk", default=2048))
    first = config.integer("first_k_dense_replace", default=3, low=0)
    halves = mixture(config, routed_experts(config, 256, 8, 2048), lambda index: index >= first)
    indexed = replace(attention, indexer=read_indexer(config))
    shared = _shared_indexers(config) if glm else [False] * len(halves)
    return read_decoder(config, stack(halves, [attention if reuses else indexed for reuses in shared]), Norm())


def read_indexer(config: Config) -> Indexer:
    """The indexer of sparse attention; its queries come from the latent of the queries."""
    return Indexer(
        heads=config.integer("index_n_heads"),
        head_dim=config.integer("index_head_dim", default=128),
        query_width=config.integer("q_lora_rank"),
        rope_dim=config.integer("qk_rope_head_dim", default=64),
    )


def _shared_indexers(config: Config) -> list[bool]:
    """Which layers use the choice of a layer before: as listed, as a pattern of F and S, or by a frequency."""
    pattern = config.fields.get("index_topk_pattern")
    if isinstance(pattern, str):
        pattern = [{"F": "full", "S": "shared"}.get(letter, letter) for letter in pattern]
    config = assumed(config, indexer_types=pattern) if pattern is not None else config
    every = config.integer("index_topk_freq", default=1)
    offset = config.integer("index_skip_topk_offset", default=2, low=0)
    listed = kinds(config, "indexer_types", ("full", "shared"), lambda i: max(i - offset + 1, 0) % every != 0)
    if listed[0] == "shared":
        raise config.error("indexer_types", "'shared' in the first layer is not understood (no layer before it)")
    return [kind == "shared" for kind in listed]


def longcat_flash(config: Config) -> Architecture:
    """LongCat Flash: two attentions and two dense feed-forwards a layer, beside a mixture with experts that do nothing.

    A token's ``moe_topk`` choices may fall on these: counted is the share of choices that falls on the others when all
    are equally likely (8 of 12 as released). The reference holds two thirds of the idle matrices too.
    """
    ranks = {"q_lora_rank": 1536, "intermediate_size": config.integer("ffn_hidden_size", default=12288)}
    config = assumed(config, **ranks)
    count = config.integer("num_layers", default=28, high=MAX_LAYERS // 2)
    hidden = config.integer("hidden_size")
    width = config.integer("expert_ffn_hidden_size", default=2048)
    real, idle = (
        config.integer("n_routed_experts", default=512),
        config.integer("zero_expert_num", default=256, low=0),
    )
    chosen = config.integer("moe_topk", "num_experts_per_tok", default=12)
    if chosen > real + idle:
        raise config.error("moe_topk", f"{chosen} is more than the {real + idle} experts there are")
    mixed = Experts(
        experts=real,
        top_k=max(1, round(chosen * real / (real + idle))),
        width=width,
        smooth=is_smooth(config, "silu"),
    )
    refuse(config, "router_bias", (False,))
    refuse(config, "zero_expert_type", ("identity",))
    attention, dense = latent_attention(config), read_feed_forward(config)
    held: tuple[Piece, ...] = (Vector(name="moe.idle_experts", parameters=idle * hidden * 2 * width),)
    if idle:
        held = (*held, Linear(name="moe.idle_router", d_in=hidden, d_out=idle))
    pair = (
        Layer(attention=attention, feed_forward=mixed, pieces=held),
        Layer(feed_forward=dense, norms=0),
        Layer(attention=attention, feed_forward=dense),
    )
    return read_decoder(config, pair * count, Norm())


FAMILIES: dict[str, Callable[[Config], Architecture]] = {
    "axk1": axk1,
    "deepseek_v2": deepseek_v2,
    "deepseek_v3": deepseek_v3,
    "deepseek_v32": sparse_latent,
    "glm4_moe_lite": glm4_moe_lite,
    "glm_moe_dsa": sparse_latent,
    "kimi_k2": deepseek_v3,
    "longcat_flash": longcat_flash,
    "minicpm3": dense_latent,
    "mistral4": mistral4,
    "sarvam_mla": sarvam_mla,
    "youtu": dense_latent,
}
