"""Mixtures whose attention is sparse, compressed or routed itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from flopmap.model.architecture import (
    Architecture,
    Attention,
    Experts,
    FeedForward,
    Indexer,
    LatentAttention,
    Layer,
    Linear,
    Norm,
    Piece,
    Row,
    SharedKeys,
    Vector,
)
from flopmap.model.config import Config
from flopmap.model.families.common import read_decoder, rotary_share
from flopmap.model.families.experts import (
    DENSE,
    FULL,
    SPARSE,
    assumed,
    grouped,
    kinds,
    layer_count,
    mixture,
    read_experts,
    refuse,
    sinks,
    stack,
    whole_numbers,
)
from flopmap.model.families.latent import INDEXED, latent_attention, read_indexer, routed_experts

if TYPE_CHECKING:
    from collections.abc import Callable

BLOCKS = "minimax_m3_sparse"
WINDOWED, SPARSER, DENSER = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"
BY_RATIO = {0: WINDOWED, 4: SPARSER, 128: DENSER}


def jetmoe(config: Config) -> Architecture:
    """JetMoe: queries and outputs of attention are experts too; every choice attends to the same keys."""
    config = assumed(config, num_local_experts=8, num_experts_per_tok=2, kv_channels=128, num_key_value_heads=16)
    hidden, dim = config.integer("hidden_size"), config.integer("kv_channels", "head_dim")
    keys = config.integer("num_key_value_heads")
    experts = read_experts(config, width="intermediate_size")
    attention = Attention(
        heads=keys * experts.top_k, kv_heads=keys, head_dim=dim, value_dim=dim, rotary_dim=dim, projected=False
    )
    pieces = (
        replace(experts, name="attention.moe", width=keys * dim, gated=False, smooth=False),
        Linear(name="attention.kv", d_in=hidden, d_out=2 * keys * dim),
        Vector(name="attention.out_bias", parameters=hidden, width=hidden),
        Vector(name="moe.bias", parameters=hidden, width=hidden),
    )
    layer = Layer(attention=attention, feed_forward=experts, pieces=pieces)
    return read_decoder(config, (layer,) * layer_count(config), Norm(), tied=True)


def minimax_m3(config: Config) -> Architecture:
    """MiniMax M3: on most layers an indexer picks blocks of keys, for each group of heads its own."""
    sparse = Config(config.table("sparse_attention_config"), config.name)
    refuse(config, "attention_output_gate", (False,))
    refuse(config, "n_shared_experts", (1,))
    count = config.integer("num_local_experts", "num_experts", default=128)
    config = assumed(config, num_local_experts=count, num_experts_per_tok=4, intermediate_size=3072)
    if config.string("hidden_act", default="silu") == "swigluoai":
        config = Config({**config.fields, "hidden_act": "silu"}, config.name)
    attention = replace(grouped(config, kv_heads=4, head_dim=128), qk_norm="shared")
    rotated = config.integer("rotary_dim", default=int(attention.head_dim * rotary_share(config, 0.5)))
    attention = replace(attention, rotary_dim=rotated)
    freq, mixed = whole_numbers(sparse, "sparse_attention_freq"), whole_numbers(config, "moe_layer_freq")
    for field, values in (("sparse_attention_config", freq), ("moe_layer_freq", mixed)):
        if values is not None and len(values) != layer_count(config):
            raise config.error(field, f"has {len(values)} entries for {layer_count(config)} layers")
    listed = kinds(config, "layer_types", (FULL, BLOCKS), lambda index: freq is not None and freq[index] != 0)
    halves = kinds(config, "mlp_layer_types", (DENSE, SPARSE), lambda index: mixed is None or mixed[index] != 0)
    experts = read_experts(
        config, shared=config.integer("shared_intermediate_size", default=3072), width="intermediate_size"
    )
    dense = FeedForward(
        width=config.integer("dense_intermediate_size", default=12288), gated=True, smooth=experts.smooth
    )
    indexed = _with_blocks(config, sparse, attention) if BLOCKS in listed else attention
    layers = stack(
        [experts if kind == SPARSE else dense for kind in halves],
        [indexed if kind == BLOCKS else attention for kind in listed],
    )
    return read_decoder(config, layers, Norm())


def _with_blocks(config: Config, sparse: Config, attention: Attention) -> Attention:
    """Attention to the best blocks; the released spelling nests the indexer's numbers."""

    def number(flat: str, nested: str, default: int) -> int:
        return sparse.integer(nested, default=config.integer(flat, default=default))

    dim = number("index_head_dim", "sparse_index_dim", 128)
    indexer = Indexer(
        heads=number("index_n_heads", "sparse_num_index_heads", 4),
        head_dim=dim,
        query_width=config.integer("hidden_size"),
        rope_dim=min(dim, attention.rotary_dim),
        weighted=False,
        query_norm=Norm(),
        key_norm=Norm(),
    )
    chosen = number("index_topk_blocks", "sparse_topk_blocks", 16) * number(
        "index_block_size", "sparse_block_size", 128
    )
    return replace(attention, indexer=indexer, selected=chosen)


def _connections(name: str, streams: int, hidden: int, *, mixed: bool) -> tuple[Piece, ...]:
    """Hyper-connections around a half: weights, from all streams of a token, of how they lead in and out (and mix)."""
    weights = streams * (2 + (streams if mixed else 0))
    return (
        Row(name=f"{name}.norm", norm=Norm(affine=False), width=streams * hidden),
        Linear(name=f"{name}.weights", d_in=streams * hidden, d_out=weights),
        Vector(
            name=f"{name}.streams",
            parameters=weights + 2 + int(mixed),
            width=2 * streams * hidden * (2 + (streams if mixed else 0)),
        ),
    )


def _collapse(streams: int, hidden: int) -> tuple[Piece, ...]:
    """The end of hyper-connections: all streams of a token are summed with weights."""
    return (
        Row(name="collapse.norm", norm=Norm(affine=False), width=streams * hidden),
        Linear(name="collapse.weights", d_in=streams * hidden, d_out=streams),
        Vector(name="collapse.streams", parameters=streams + 1, width=2 * streams * hidden),
    )


def axk2(config: Config) -> Architecture:
    """A.X K2: sparse latent attention, its queries and gate from the latent before and after its norm; gated norms."""
    ranks = {"q_lora_rank": 384, "kv_lora_rank": 128, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64}
    config = assumed(config, **ranks, index_n_heads=16)
    kinds(config, "layer_types", (INDEXED,), lambda _: False)
    attention = latent_attention(config)
    attention = replace(attention, selected=config.integer("index_topk", default=2048), indexer=read_indexer(config))
    first, every = (
        config.integer("first_k_dense_replace", default=1, low=0),
        config.integer("moe_layer_freq", default=1),
    )
    halves = mixture(config, routed_experts(config, 128, 8, 512), lambda index: index >= first and index % every == 0)
    hidden, inner = config.integer("hidden_size"), config.integer("gated_norm_rank", default=16)
    rank, heads = config.integer("q_lora_rank"), attention.heads
    more = heads * (attention.nope_dim + attention.rope_dim + 2 * attention.value_dim)
    gate = Linear(name="attention.q_gate", d_in=rank, d_out=more)  # what the fused matrix has beside q_b

    def pieces(index: int) -> tuple[Piece, ...]:
        norms = ("attention", "mlp") if isinstance(halves[index], Experts) else ("attention",)
        gates = tuple(
            Linear(name=f"{name}.norm_{half}", d_in=d_in, d_out=d_out)
            for name in norms
            for half, d_in, d_out in (("in", hidden, inner), ("out", inner, hidden))
        )
        return (gate, *gates)

    return read_decoder(config, stack(halves, [attention] * len(halves), pieces=pieces), Norm())


def hy_v4(config: Config) -> Architecture:
    """Hunyuan 4: sparse latent attention with sinks and a gate, an indexer in one layer of four, hyper-connections."""
    ranks = {"q_lora_rank": 1536, "qk_nope_head_dim": 192, "v_head_dim": 256, "index_n_heads": 16}
    config = assumed(config, **ranks)
    kinds(config, "layer_types", (INDEXED,), lambda _: False)
    attention = replace(latent_attention(config), selected=config.integer("index_topk", default=2048))
    indexed = replace(attention, indexer=read_indexer(config))
    listed = kinds(config, "indexer_types", ("full", "shared"), lambda index: index != 0 and (index - 1) % 4 != 0)
    if listed[0] == "shared":
        raise config.error("indexer_types", "'shared' in the first layer is not understood (no layer before it)")
    halves = mixture(config, routed_experts(config, 256, 8, 768), lambda index: index > 0)
    hidden, streams = config.integer("hidden_size"), config.integer("hc_mult", default=4)
    pieces = (
        *sinks(attention),
        Linear(name="attention.gate", d_in=hidden, d_out=attention.heads * attention.value_dim),
        *_connections("attention.hc", streams, hidden, mixed=False),
        *_connections("mlp.hc", streams, hidden, mixed=False),
    )
    attentions = [indexed if kind == "full" else attention for kind in listed]
    decoder = read_decoder(config, stack(halves, attentions, pieces=lambda _: pieces), Norm())
    return replace(decoder, after=_collapse(streams, hidden))


def deepseek_v4(config: Config) -> Architecture:
    """DeepSeek V4: a window, and beyond it rows for every 4 (chosen by an indexer) or 128 tokens; hyper-connections.

    Keys are values, one for all heads. Layers that route by a table of tokens still compute the scores.
    """
    refuse(config, "architectures", (["DeepseekV4ForCausalLM"],))
    for field in ("attention_bias", "mlp_bias"):
        refuse(config, field, (False,))
    refuse(config, "n_shared_experts", (1,))
    refuse(config, "num_key_value_heads", (1,))
    assumptions = {"num_experts_per_tok": 6, "moe_intermediate_size": 2048, "head_dim": 512, "q_lora_rank": 1024}
    count = config.integer("n_routed_experts", "num_local_experts", default=256)
    config = assumed(config, n_routed_experts=count, **assumptions)
    hidden, streams = config.integer("hidden_size"), config.integer("hc_mult", default=4)
    kinds(config, "mlp_layer_types", ("hash_moe", "moe"), lambda _: True)
    experts = read_experts(config, shared=config.integer("moe_intermediate_size"))
    around = (
        *_connections("attention.hc", streams, hidden, mixed=True),
        *_connections("mlp.hc", streams, hidden, mixed=True),
    )
    by_kind = {kind: (*_shared_key_attention(config, kind), *around) for kind in set(_compressions(config))}
    layers = tuple(Layer(feed_forward=experts, pieces=by_kind[kind]) for kind in _compressions(config))
    return replace(read_decoder(config, layers, Norm()), after=_collapse(streams, hidden))


def _compressions(config: Config) -> list[str]:
    """How each layer sees beyond its window: as listed, by its ratio, or in turns after two of the denser kind."""
    count, ratios = layer_count(config), whole_numbers(config, "compress_ratios")
    fields = dict(config.fields)
    if ratios is not None and not config.has("layer_types"):
        unknown = set(ratios) - set(BY_RATIO)
        if unknown:
            raise config.error("compress_ratios", f"{min(unknown)} is not understood (understood: 0, 4, 128)")
        fields["layer_types"] = [BY_RATIO[ratio] for ratio in ratios]
    if isinstance(fields.get("layer_types"), list):
        fields["layer_types"] = fields["layer_types"][:count]  # released configs list layers of prediction heads too
    trimmed = Config(fields, config.name)
    kinds_known = (DENSER, SPARSER, WINDOWED)
    return kinds(trimmed, "layer_types", kinds_known, lambda index: index >= 2 and index % 2 == 1)  # noqa: PLR2004


def _shared_key_attention(config: Config, kind: str) -> tuple[Piece | SharedKeys, ...]:
    """The attention of one kind of layer, in pieces."""
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    dim, rank = config.integer("head_dim"), config.integer("q_lora_rank")
    rotated = config.integer("qk_rope_head_dim", default=int(dim * rotary_share(config, 0.125)))
    groups, inner = config.integer("o_groups", default=8), config.integer("o_lora_rank", default=1024)
    if heads * dim % groups:
        raise config.error("o_groups", f"{groups} does not divide {heads} heads of {dim}")
    window = config.integer("sliding_window", default=128)
    pieces: tuple[Piece | SharedKeys, ...] = (
        Vector(name="attention.sinks", parameters=heads),
        Linear(name="attention.q_a", d_in=hidden, d_out=rank),
        Row(name="attention.q_norm", norm=Norm(), width=rank),
        Linear(name="attention.q_b", d_in=rank, d_out=heads * dim),
        Row(name="attention.head_norm", norm=Norm(affine=False), width=heads * dim),
        Linear(name="attention.kv", d_in=hidden, d_out=dim),
        Row(name="attention.kv_norm", norm=Norm(), width=dim),
        Vector(name="attention.rope", parameters=0, width=3 * rotated * (2 * heads + 1)),
        SharedKeys(name="attention", heads=heads, head_dim=dim, window=window, held=window),
    )
    if kind != WINDOWED:
        pieces = (*pieces, *_compressor(config, kind))
    return (
        *pieces,
        Linear(name="attention.out_a", d_in=heads * dim // groups, d_out=groups * inner),
        Linear(name="attention.out_b", d_in=groups * inner, d_out=hidden),
    )


def _compressor(config: Config, kind: str) -> tuple[Piece | SharedKeys, ...]:
    """What makes rows of several tokens, and the attention to them; the sparser kind lets an indexer choose."""
    heads, dim, sparse = config.integer("num_attention_heads"), config.integer("head_dim"), kind == SPARSER
    rates = Config(config.table("compress_rates"), config.name)
    legacy = "compress_rate_csa" if sparse else "compress_rate_hca"
    rate = config.integer(legacy, default=rates.integer(kind, default=4 if sparse else 128))
    made = _row_maker(config, "compressor", rate, dim, overlaps=sparse)
    if not sparse:
        return (*made, _rows("compressed", heads, dim, rate, overlaps=False))
    index, scorers = config.integer("index_head_dim", default=128), config.integer("index_n_heads", default=64)
    chosen = config.integer("index_topk", default=512) * rate
    return (
        *made,
        *_row_maker(config, "indexer", rate, index, overlaps=True),
        Linear(name="indexer.q", d_in=config.integer("q_lora_rank"), d_out=scorers * index),
        Linear(name="indexer.weights", d_in=config.integer("hidden_size"), d_out=scorers),
        replace(_rows("indexer", scorers, index, rate, overlaps=True), values=False),
        replace(_rows("compressed", heads, dim, rate, overlaps=True), window=chosen),
    )


def _rows(name: str, heads: int, dim: int, rate: int, *, overlaps: bool) -> SharedKeys:
    """Rows of several tokens: values and gates of each wait; where rows overlap, of the half before them too."""
    width = 2 * dim * (1 + overlaps)
    waiting = rate * (width + (2 * dim if overlaps else 0))
    return SharedKeys(name=name, heads=heads, head_dim=dim, rate=rate, buffer=waiting, buffered=width)


def _row_maker(config: Config, name: str, rate: int, dim: int, *, overlaps: bool) -> tuple[Piece, ...]:
    """Values, gates with a bias for each place, and the norm of the row that they make."""
    hidden, width = config.integer("hidden_size"), dim * (1 + overlaps)
    return (
        Linear(name=f"{name}.values", d_in=hidden, d_out=width),
        Linear(name=f"{name}.gates", d_in=hidden, d_out=width),
        Vector(name=f"{name}.places", parameters=rate * width, width=4 * width),
        Vector(name=f"{name}.norm", parameters=dim, width=-(-4 * dim // rate)),
    )


OWN = {"num_attention_heads": 64, "q_lora_rank": 1024, "kv_lora_rank": 1024, "qk_nope_head_dim": 192, "v_head_dim": 128}


def dots3_note(config: Config) -> Architecture:
    """Dots 3 Note (text): sparse latent attention, and windowed latent attention with shapes of its own between."""
    config = assumed(config, q_lora_rank=1024, index_n_heads=64, intermediate_size=13824)
    sparse = config.flag("use_dsa", default=True)
    far = INDEXED if sparse else FULL
    slides = config.flag("use_sliding_window", default=True)
    spread = kinds(
        config,
        "layer_types",
        (FULL, WINDOWED, INDEXED),
        lambda index: slides and index > 1 and index % 4 != 1,
    )
    spread = [kind if kind == WINDOWED else far for kind in spread] if _says_which(config) else spread
    freq = whole_numbers(config, "moe_layer_freq") if isinstance(config.fields.get("moe_layer_freq"), list) else None
    every = 1 if freq is not None else config.integer("moe_layer_freq", default=1)
    first = config.integer("first_k_dense_replace", default=1, low=0)
    width = config.integer("moe_shared_expert_intermediate_size", "shared_experts_intermediate_size", default=1536)
    experts = routed_experts(config, 256, 8, 1536)
    experts = replace(experts, shared_width=width * config.integer("n_shared_experts", default=1))
    halves = mixture(
        config, experts, lambda index: index >= first and (freq[index] != 0 if freq else index % every == 0)
    )
    attentions = [_note_attention(config, kind, index) for index, kind in enumerate(spread)]
    hidden = config.integer("hidden_size")

    def pieces(index: int) -> tuple[Piece, ...]:
        attention = attentions[index]
        gate = Linear(name="attention.gate", d_in=hidden, d_out=attention.heads)
        return (gate, Row(name="attention.k_rope_norm", norm=Norm(), width=attention.rope_dim))

    return read_decoder(config, stack(halves, attentions, pieces=pieces), Norm())


def _says_which(config: Config) -> bool:
    """Whether the far layers' kind follows ``use_dsa`` and not the list: where no layer has shapes of its own."""
    return config.has("use_dsa") or not config.has("per_layer_config")


def _note_attention(config: Config, kind: str, index: int) -> LatentAttention:
    """The attention of one layer, with its own shapes where the config has them."""
    own = config.table("per_layer_config").get(str(index))
    if isinstance(own, dict):
        config = Config({**config.fields, **own}, config.name)
    elif kind == WINDOWED:
        shapes = {name: config.integer(f"swa_{name}", default=usual) for name, usual in OWN.items()}
        whole = config.integer("swa_head_dim", default=256)
        shapes["qk_rope_head_dim"] = config.integer(
            "swa_qk_rope_head_dim", default=max(1, whole - shapes["qk_nope_head_dim"])
        )
        config = Config({**config.fields, **shapes}, config.name)
    attention = latent_attention(config)
    if kind == WINDOWED:
        return replace(attention, window=config.integer("sliding_window", "sliding_window_size", default=512))
    if kind == FULL:
        return attention
    return replace(attention, selected=config.integer("index_topk", default=2048), indexer=read_indexer(config))


FAMILIES: dict[str, Callable[[Config], Architecture]] = {
    "axk2": axk2,
    "deepseek_ref": deepseek_v4,  # as SGLang's own checkpoints name it
    "deepseek_v4": deepseek_v4,
    "dots3_note_text": dots3_note,
    "hy_v4": hy_v4,
    "jetmoe": jetmoe,
    "minimax_m3": minimax_m3,
    "minimax_m3_vl_text": minimax_m3,
}
