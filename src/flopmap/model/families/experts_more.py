"""Mixtures of experts over softmax attention: the less common ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from flopmap.model.architecture import (
    Architecture,
    Attention,
    Experts,
    FeedForward,
    Linear,
    Norm,
    Piece,
    Vector,
)
from flopmap.model.config import Config
from flopmap.model.families.common import (
    read_decoder,
    rotary_share,
    without_rotation,
)
from flopmap.model.families.experts import (
    DENSE,
    FULL,
    SLIDING,
    SPARSE,
    assumed,
    attention_biased,
    grouped,
    kinds,
    layer_count,
    mixture,
    read_experts,
    refuse,
    sinks,
    stack,
    whole_numbers,
    windows,
)
from flopmap.quantity import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def unrotated_where_full(attentions: Sequence[Attention]) -> list[Attention]:
    """Attention that is rotated only where it has a window."""
    return [attention if attention.window else without_rotation(attention) for attention in attentions]


def each(config: Config, field: str, default: int) -> list[int]:
    """A whole number for every layer: one for all, or a list of them."""
    count = layer_count(config)
    if not isinstance(config.fields.get(field), list):
        return [config.integer(field, default=default)] * count
    values = whole_numbers(config, field) or []
    if len(values) != count:
        raise config.error(field, f"has {len(values)} entries for {count} layers")
    if min(values) < 1:
        raise config.error(field, f"{min(values)} is out of range (accepted: 1 and more)")
    return values


def hunyuan(config: Config) -> Architecture:
    """Hunyuan MoE: a shared expert as wide as a routed one, norms on rotated heads, perhaps another top-k a layer."""
    for field in ("moe_intermediate_size", "num_shared_expert"):
        expected = 1 if field == "num_shared_expert" else config.integer("intermediate_size")
        if set(each(config, field, expected)) != {expected}:
            raise config.error(field, f"{shown(config.fields[field])} is not understood (understood: {expected})")
    refuse(config, "use_cla", (False,))
    chosen = each(config, "moe_topk", 1)
    config = Config({"num_experts": 1, **config.fields, "num_experts_per_tok": max(chosen)}, config.name)
    attention = replace(attention_biased(config, grouped(config)), qk_norm="shared")
    experts = read_experts(config, shared=config.integer("intermediate_size"), width="intermediate_size")
    halves = [replace(experts, top_k=top) for top in chosen]
    return read_decoder(config, stack(halves, [attention] * len(halves)), Norm())


def dots1(config: Config) -> Architecture:
    """dots.llm1: norms on query and key heads over DeepSeek's mixture."""
    attention = replace(attention_biased(config, grouped(config, kv_heads=32)), qk_norm="shared")
    window = config.optional("sliding_window") if "sliding_window" in config.fields else 4096
    first = config.integer("max_window_layers", default=62, low=0)
    attentions = windows(config, attention, window, lambda index: index >= first)
    shared = config.integer("moe_intermediate_size", default=1408) * config.integer("n_shared_experts")
    experts = read_experts(assumed(config, moe_intermediate_size=1408), shared=shared)
    dense = config.integer("first_k_dense_replace", default=0, low=0)
    return read_decoder(config, stack(mixture(config, experts, lambda index: index >= dense), attentions), Norm())


def dbrx(config: Config) -> Architecture:
    """DBRX: nested configs of its own, LayerNorms without bias."""
    refuse(config, "tie_word_embeddings", (False,))
    attention, experts = Config(config.table("attn_config"), config.name), config.table("ffn_config")
    names = {"hidden_size": "d_model", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"}
    fields = {common: config.integer(own, common) for common, own in names.items()}
    act = Config(experts, config.name).table("ffn_act_fn").get("name", "silu")
    inner = Config(
        {**config.fields, **fields, "num_key_value_heads": attention.integer("kv_n_heads", default=1)}
        | {"num_experts": experts.get("moe_num_experts", 4), "num_experts_per_tok": experts.get("moe_top_k", 1)}
        | {"moe_intermediate_size": experts.get("ffn_hidden_size", 3584), "hidden_act": act},
        config.name,
    )
    layers = stack([read_experts(inner)] * layer_count(inner), [grouped(inner)] * layer_count(inner))
    return read_decoder(inner, layers, Norm(kind="layer"))


def afmoe(config: Config) -> Architecture:
    """AFMoE (Trinity): gated attention, norms around both halves, rotation only on layers with a window."""
    config = assumed(config, num_experts=64, num_experts_per_tok=6, moe_intermediate_size=1408)
    attention = replace(attention_biased(config, grouped(config, head_dim=128)), qk_norm="shared")
    every = config.integer("global_attn_every_n_layers", default=4)
    window = config.integer("sliding_window", default=1024)
    attentions = windows(config, attention, window, lambda index: (index + 1) % every != 0)
    shared = config.integer("moe_intermediate_size") * config.integer("num_shared_experts", default=2, low=0)
    experts = replace(read_experts(config, shared=shared), router_bias=True)
    dense = config.integer("num_dense_layers", default=1, low=0)
    gate = (Linear(name="attention.gate", d_in=config.integer("hidden_size"), d_out=attention.query_width),)
    halves = mixture(config, experts, lambda index: index >= dense)
    layers = stack(halves, unrotated_where_full(attentions), norms=4, pieces=lambda _: gate)
    return replace(read_decoder(config, layers, Norm()), embedding_scaled=config.flag("mup_enabled", default=False))


def exaone_moe(config: Config) -> Architecture:
    """K-EXAONE: three windowed and rotated layers to a full one, norms on query and key heads."""
    config = assumed(config, num_experts=64, num_experts_per_tok=8, moe_intermediate_size=1024)
    attention = replace(grouped(config, kv_heads=32), qk_norm="shared")
    window = config.optional("sliding_window") if "sliding_window" in config.fields else 4096
    pattern = config.fields.get("sliding_window_pattern")
    if isinstance(pattern, str) and set(pattern) <= {"L", "G"} and pattern:
        letters = pattern  # local and global layers in turns, as released configs have it
        attentions = windows(config, attention, window, lambda index: letters[index % len(letters)] == "L")
    else:
        every = config.integer("sliding_window_pattern", default=4)
        attentions = windows(config, attention, window, lambda index: (index + 1) % every != 0)
    shared = config.integer("moe_intermediate_size") * config.integer("num_shared_experts", default=1, low=0)
    dense = config.integer("first_k_dense_replace", default=1, low=0)
    halves = mixture(config, read_experts(config, shared=shared), lambda index: index >= dense)
    return read_decoder(config, stack(halves, unrotated_where_full(attentions) if window else attentions), Norm())


def mimo_v2_flash(config: Config) -> Architecture:
    """MiMo V2 Flash: windowed layers have twice the key heads and attention sinks; values are narrower than keys."""
    config = assumed(config, num_key_value_heads=4, head_dim=192, n_routed_experts=256, num_experts_per_tok=8)
    config = assumed(config, moe_intermediate_size=2048, v_head_dim=128, attention_bias=False)
    refuse(config, "n_shared_experts", (0,))
    refuse(config, "swa_num_key_value_heads", (2 * config.integer("num_key_value_heads"),))
    refuse(config, "swa_num_attention_heads", (config.integer("num_attention_heads"),))
    refuse(config, "swa_head_dim", (config.integer("head_dim"),))
    refuse(config, "swa_v_head_dim", (config.integer("v_head_dim"),))
    whole = replace(grouped(config), value_dim=config.integer("v_head_dim"))
    share = rotary_share(_of_full_attention(config), 0.334)
    whole = replace(attention_biased(config, whole, out=False), rotary_dim=int(whole.head_dim * share))
    before = config.optional("sliding_window_size")
    window = before + 1 if before else config.integer("sliding_window", default=129)
    narrow = replace(whole, kv_heads=2 * whole.kv_heads, window=window)
    pattern, mixed = whole_numbers(config, "hybrid_layer_pattern"), whole_numbers(config, "moe_layer_freq")
    for field, values in (("hybrid_layer_pattern", pattern), ("moe_layer_freq", mixed)):
        if values is not None and len(values) != layer_count(config):
            raise config.error(field, f"has {len(values)} entries for {layer_count(config)} layers")
    listed = kinds(
        config,
        "layer_types",
        (FULL, SLIDING),
        lambda index: bool(pattern[index]) if pattern else index != 0 and (index + 1) % 6 != 0,
    )
    halves = mixture(config, read_experts(config), lambda index: bool(mixed[index]) if mixed else index > 0)
    attentions = [narrow if kind == SLIDING else whole for kind in listed]
    layers = stack(halves, attentions, pieces=lambda index: sinks(narrow) if attentions[index].window else ())
    return read_decoder(config, layers, Norm())


def _of_full_attention(config: Config) -> Config:
    """The config with the rotation of full layers, where every kind of layer has its own."""
    rope = config.table("rope_parameters")
    own = rope.get(FULL)
    return Config({**config.fields, "rope_parameters": own}, config.name) if isinstance(own, dict) else config


def mellum(config: Config) -> Architecture:
    """Mellum: Qwen 3's mixture with a window on the layers that are listed."""
    count = config.integer("num_experts", "num_local_experts", default=64)
    config = assumed(config, num_experts=count, num_experts_per_tok=8, moe_intermediate_size=896)
    attention = grouped(config, kv_heads=4, head_dim=128)
    attention = replace(attention_biased(config, attention), qk_norm="shared")
    window = config.integer("sliding_window", default=1024)
    halves = mixture(config, read_experts(config), lambda _: True)
    return read_decoder(config, stack(halves, windows(config, attention, window, lambda _: False)), Norm())


def laguna(config: Config) -> Architecture:
    """Laguna: a gate on every head's output, perhaps another number of heads a layer, a shared expert."""
    config = assumed(config, num_experts=256, num_experts_per_tok=8, moe_intermediate_size=512)
    refuse(config, "gating", (True, "per-head", "per-element"))
    heads = each(config, "num_attention_heads_per_layer", config.integer("num_attention_heads"))
    attention = attention_biased(config, grouped(config, kv_heads=8, head_dim=128))
    attention = replace(attention, qk_norm="shared", rotary_dim=int(attention.head_dim * _share_of(config, FULL, 0.5)))
    window = config.integer("sliding_window", default=512)
    narrow = int(attention.head_dim * _share_of(config, SLIDING, 1.0))
    attentions = [
        replace(kind, heads=count, rotary_dim=narrow if kind.window else kind.rotary_dim)
        for kind, count in zip(windows(config, attention, window, lambda _: False), heads, strict=True)
    ]
    for one in attentions:
        if one.heads % one.kv_heads:
            raise config.error("num_key_value_heads", f"{one.kv_heads} does not divide {one.heads} query heads")
    shared = config.integer("shared_expert_intermediate_size", default=512)
    experts = replace(read_experts(config, shared=shared), router_bias=True)
    halves = mixture(config, experts, lambda index: index > 0)
    hidden, whole = config.integer("hidden_size"), config.fields.get("gating") == "per-element"

    def gate(index: int) -> tuple[Piece, ...]:
        width = attentions[index].query_width if whole else attentions[index].heads
        return (Linear(name="attention.gate", d_in=hidden, d_out=width),)

    return read_decoder(config, stack(halves, attentions, pieces=gate), Norm())


def _share_of(config: Config, kind: str, default: float) -> float:
    """The rotated share of a head in layers of a kind."""
    own = config.table("rope_parameters").get(kind)
    return rotary_share(Config(own if isinstance(own, dict) else {}, config.name), default)


def kolibri1(config: Config) -> Architecture:
    """Kolibri 1: four windowed and rotated layers to a full one, norms around both halves, a shared expert."""
    count = config.integer("num_experts", "num_local_experts", default=384)
    config = assumed(config, num_experts=count, num_experts_per_tok=6, moe_intermediate_size=512)
    attention = replace(grouped(config, kv_heads=4, head_dim=128), qk_norm="shared")
    window = config.integer("sliding_window", default=513)
    attentions = windows(config, attention, window, lambda index: (index + 1) % 5 != 0)
    experts = read_experts(config, shared=config.integer("shared_expert_intermediate_size", default=512))
    layers = stack([experts] * len(attentions), unrotated_where_full(attentions), norms=4)
    return read_decoder(config, layers, Norm())


def hy_v3(config: Config) -> Architecture:
    """Hunyuan 3: one dense layer, then routed experts and a shared one; norms on query and key heads."""
    config = assumed(config, num_experts=192, num_experts_per_tok=8, moe_intermediate_size=1536)
    attention = grouped(config, kv_heads=8, head_dim=128)
    attention = replace(attention_biased(config, attention), qk_norm="shared")
    shared = config.integer("moe_intermediate_size") * config.integer("num_shared_experts", default=1)
    bias = config.flag("mlp_bias", default=False)
    experts = replace(read_experts(config, shared=shared), shared_bias=bias)
    halves = mixture(config, experts, lambda index: index > 0, bias=bias)
    return read_decoder(config, stack(halves, [attention] * len(halves)), Norm())


def aria(config: Config) -> Architecture:
    """Aria (text): every layer routed and shared experts of one width."""
    bias = config.flag("mlp_bias", default=False)
    width, together = (
        config.integer("intermediate_size"),
        config.integer("moe_num_shared_experts", default=2, low=int(bias)),
    )
    chosen = {"num_experts": config.integer("moe_num_experts", default=8)}
    config = assumed(config, **chosen, num_experts_per_tok=config.integer("moe_topk", default=2))
    experts = read_experts(config, shared=width * together, width="intermediate_size")
    experts = replace(experts, shared_bias=bias)
    attention = attention_biased(config, grouped(config))
    return read_decoder(config, stack([experts] * layer_count(config), [attention] * layer_count(config)), Norm())


def cohere2_moe(config: Config) -> Architecture:
    """Command A MoE: parallel blocks under one norm, three windowed layers to a full one without rotation."""
    config = assumed(config, num_experts=8, num_experts_per_tok=2, head_dim=128)
    attention = attention_biased(config, grouped(config))
    dense = config.integer("first_k_dense_replace", default=0, low=0)
    early = config.integer("prefix_dense_sliding_window_pattern", default=1)
    later = config.integer("sliding_window_pattern", default=4)

    def slides(index: int) -> bool:
        return (index + 1) % early != 0 if index < dense else (index - dense + 1) % later != 0

    attentions = windows(config, attention, config.integer("sliding_window", default=4096), slides)
    width = config.integer("intermediate_size")
    shared = width * config.integer("num_shared_experts", default=0, low=0)
    experts = read_experts(config, shared=shared, width="intermediate_size")
    listed = kinds(config, "mlp_layer_types", (DENSE, SPARSE), lambda index: index >= dense)
    first: FeedForward | Experts = experts
    if DENSE in listed:
        first = FeedForward(width=config.integer("prefix_dense_intermediate_size"), gated=True, smooth=experts.smooth)
    rotated = [
        one if one.window or (kind == DENSE and early == 1) else without_rotation(one)
        for one, kind in zip(attentions, listed, strict=True)
    ]
    layers = stack([experts if kind == SPARSE else first for kind in listed], rotated, norms=1)
    norm = Norm() if config.has("rms_norm_eps") else Norm(kind="layer")
    return read_decoder(config, layers, norm, tied=True)


def flint(config: Config) -> Architecture:
    """Flint: sinks in every layer, two dense layers, a shared expert, a full layer in four."""
    config = assumed(config, num_experts=256, num_experts_per_tok=6, moe_intermediate_size=512)
    attention = grouped(config, kv_heads=4, head_dim=128)
    attention = replace(attention_biased(config, attention), qk_norm="shared")
    last, every = layer_count(config) - 1, config.integer("decoder_sparse_step", default=1)
    window = config.integer("sliding_window", default=513)
    attentions = windows(config, attention, window, lambda index: not (index <= 1 or index % 4 == 1 or index == last))
    listed = whole_numbers(config, "mlp_only_layers")
    dense = [0, 1] if listed is None else listed
    experts = read_experts(config, shared=config.integer("shared_expert_intermediate_size", default=1024))
    halves = mixture(config, experts, lambda index: index not in dense and (index + 1) % every == 0)
    return read_decoder(config, stack(halves, attentions, pieces=lambda _: sinks(attention)), Norm())


BEAM_DENSE = 3  # layers before the first mixture


def beam(config: Config) -> Architecture:
    """Beam: gated attention with a bias a head, norms around both halves, three dense layers, capped logits."""
    config = assumed(config, num_experts=256, num_experts_per_tok=8, moe_intermediate_size=2560)
    attention = grouped(config, kv_heads=8, head_dim=128)
    attention = replace(attention_biased(config, attention), qk_norm="shared")
    count, window = layer_count(config), config.integer("sliding_window", default=512)
    attentions = windows(config, attention, window, lambda index: (index + 1) % 6 != 0 and index != count - 1)
    gate: tuple[Piece, ...] = (
        Linear(name="attention.gate", d_in=config.integer("hidden_size"), d_out=attention.query_width),
        Vector(name="attention.gate_bias", parameters=attention.heads, width=attention.query_width),
    )
    halves = mixture(config, read_experts(config), lambda index: index >= BEAM_DENSE)
    layers = stack(halves, unrotated_where_full(attentions), norms=4, pieces=lambda _: gate)
    capped = "final_logit_softcapping" not in config.fields or config.has("final_logit_softcapping")
    return replace(read_decoder(config, layers, Norm()), logits_capped=capped)


FAMILIES: dict[str, Callable[[Config], Architecture]] = {
    "afmoe": afmoe,
    "aria_text": aria,
    "beam": beam,
    "cohere2_moe": cohere2_moe,
    "dbrx": dbrx,
    "dots1": dots1,
    "exaone_moe": exaone_moe,
    "flint": flint,
    "hunyuan_v1_moe": hunyuan,
    "hy_v3": hy_v3,
    "kolibri1": kolibri1,
    "laguna": laguna,
    "mellum": mellum,
    "mimo_v2_flash": mimo_v2_flash,
}
