"""Encoders: what makes one of a family's layers, and the heads of embedding models, rerankers and masked models.

An encoder sees its whole text in one pass, keeps no cache, and gives a row a token or one a text. Decoders that embed
or rank are read here too: they keep their causal mask and lose their words. Checked against transformers 5.24.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from flopmap.model.architecture import Attention, FeedForward, Layer, Linear, Norm, Row, Table, Vector
from flopmap.model.config import Config
from flopmap.model.families.classic import LAYER_NORM, PLAIN, Names, read_heads, read_mlp
from flopmap.model.families.classic_more import read_encoder, read_layer, read_tables
from flopmap.model.families.common import is_smooth, read_attention, read_decoder, read_feed_forward
from flopmap.model.families.modern_more import modernbert as modernbert_decoder
from flopmap.quantity import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from flopmap.model.architecture import Architecture, Piece

DISTIL = Names(
    hidden=("dim", "hidden_size"),
    heads=("n_heads", "num_attention_heads"),
    layers=("n_layers", "num_hidden_layers"),
    width=("hidden_dim", "intermediate_size"),
    activation="activation",
)
OF_WORDS = (
    "head.transform",
    "head.norm",
    "head.second_bias",
    "head.dense",
    "head.activation",
)  # ends of a masked model
# What follows the layers of a plain model (a pooler or nothing), and what a classifier is made of.
POOLED = ("albert", "bert", "ernie", "megatron-bert", "rembert", "roc_bert")
LIKE_ROBERTA = (
    "camembert",
    "data2vec-text",
    "roberta",
    "roberta-prelayernorm",
    "xlm-roberta",
    "xlm-roberta-xl",
    "xmod",
)
POOLER = frozenset((*POOLED, *LIKE_ROBERTA, "jina_embeddings_v3", "mpnet"))
DENSE = frozenset(
    (
        *LIKE_ROBERTA,
        "big_bird",
        "distilbert",
        "electra",
        "eurobert",
        "gte",
        "jina_embeddings_v3",
        "mpnet",
        "nomic_bert",
        "roformer",
    )
)
PAIRS = frozenset(
    (
        "bart",
        "bigbird_pegasus",
        "blenderbot",
        "blenderbot-small",
        "marian",
        "mbart",
        "mvp",
        "pegasus",
        "plbart",
        "trocr",
    )
)
BOTH_WAYS = frozenset((*POOLER, *DENSE, "deberta-v2", "modernbert"))


def with_task(model: Architecture, config: Config, task: str) -> Architecture:
    """The model as ``plain`` (rows), for ``sequence`` classification (a score a text) or ``masked`` words."""
    family = model.family
    if model.stacks or family in PAIRS:
        raise config.error(
            "architectures", f"a plain or scoring {shown(family)} (an encoder-decoder) is not understood"
        )
    if family in BOTH_WAYS:
        model = replace(model, layers=tuple(map(both_ways, model.layers)))
    elif task == "masked":
        raise config.error("architectures", f"a masked language model of {shown(family)} is not understood")
    if task == "masked":
        return replace(model, generative=False)
    kept = tuple(piece for piece in model.after if piece.name not in OF_WORDS)
    ends = _pooler(model) if task == "plain" else _classifier(model, config)
    return replace(model, generative=False, head=False, after=(*kept, *ends))


def both_ways(layer: Layer) -> Layer:
    """The layer without a causal mask. A window of a masked layer is one of both sides."""
    if not isinstance(layer.attention, Attention):
        return layer
    return replace(layer, attention=replace(layer.attention, causal=False))


def _pooler(model: Architecture) -> tuple[Piece, ...]:
    if model.family not in POOLER:
        return ()
    return (Linear(name="pooler", d_in=model.hidden, d_out=model.hidden, bias=True, head=True),)


def _classifier(model: Architecture, config: Config) -> tuple[Piece, ...]:
    """The pieces that make a text's score; transformers counts two labels where the config names none."""
    named = config.table("id2label") or config.table("label2id")
    labels = config.integer("num_labels", default=len(named) or 2)
    hidden = model.hidden
    out = Linear(name="classifier", d_in=hidden, d_out=labels, bias=True, head=True)
    if model.family in POOLED:
        return (*_pooler(model), out)
    if model.family == "deberta-v2":
        inner = config.integer("pooler_hidden_size", default=hidden)
        return (Linear(name="pooler", d_in=inner, d_out=inner, bias=True, head=True), out)
    if model.family == "modernbert":
        bias = config.flag("classifier_bias", default=False)
        dense = Linear(name="head.dense", d_in=hidden, d_out=hidden, bias=bias, head=True)
        return (dense, Row(name="head.dense_norm", norm=Norm(kind="layer", bias=False), width=hidden), out)
    if model.family in DENSE:
        whole = model.family == "eurobert"  # scores every token, and takes their mean
        dense = Linear(name="classifier.dense", d_in=hidden, d_out=hidden, bias=True, head=not whole)
        return (dense, replace(out, head=not whole))
    if model.family == "xlm":
        return (out,)
    if model.family == "modernbert-decoder":
        kept = tuple(piece for piece in model.after if piece.name in ("head.dense", "head.activation", "head.norm"))
        return (*kept, replace(out, bias=config.flag("classifier_bias", default=False)))
    return (replace(out, name="score", bias=False),)


# -- families ---------------------------------------------------------------------------------------------------------


def distilbert(config: Config) -> Architecture:
    """DistilBERT: BERT without segments."""
    layer = Layer(attention=read_heads(config, DISTIL), feed_forward=read_mlp(config, DISTIL, "gelu", width=4 * 768))
    hidden = config.integer(*DISTIL.hidden)
    named = {
        "hidden_size": hidden,
        "num_hidden_layers": config.integer(*DISTIL.layers),
        "type_vocab_size": 0,
    }
    return read_encoder(Config({**config.fields, **named}, config.name), layer, bias_twice=False)


def albert(config: Config) -> Architecture:
    """ALBERT: narrow embeddings; the layers of a group are the same matrices."""
    if config.integer("inner_group_num", default=1) != 1:
        raise config.error("inner_group_num", "only 1 is understood in an albert config")
    groups, count = config.integer("num_hidden_groups", default=1), config.integer("num_hidden_layers")
    layer = read_layer(config, "gelu_new")
    norm = Norm(kind="layer", affine=False)  # norms are the same too
    hidden = config.integer("hidden_size")
    norms = tuple(Row(name=f"{half}.norm", norm=norm, width=hidden) for half in ("attention", "mlp"))
    again = replace(layer, shared=True, norms=0, pieces=norms)
    layers = (layer,) * groups + (again,) * (count - groups)
    width = config.integer("embedding_size", default=128)
    model = read_encoder(config, layer, width=width, bias_twice=False)
    return replace(model, layers=layers)


def mpnet(config: Config) -> Architecture:
    """MPNet: BERT without segments, with a table of relative positions for all layers."""
    buckets = config.integer("relative_attention_num_buckets", default=32)
    bias = Vector(name="relative_bias", parameters=buckets * config.integer("num_attention_heads"))
    tables = read_tables(Config({**config.fields, "type_vocab_size": 0}, config.name), config.integer("hidden_size"))
    return read_encoder(config, read_layer(config), before=(*tables, bias), bias_twice=False)


def modernbert(config: Config) -> Architecture:
    """ModernBERT: gated, rotary, two layers of three within a window that reaches as far ahead as behind."""
    model = modernbert_decoder(config)
    reach = config.integer("local_attention", "sliding_window", default=128)
    layers = []
    for layer in model.layers:
        attention = layer.attention
        if isinstance(attention, Attention) and attention.window:
            attention = replace(attention, window=2 * (reach // 2) + 1)
        layers.append(replace(layer, attention=attention))
    return replace(model, layers=tuple(layers))


def eurobert(config: Config) -> Architecture:
    """EuroBERT: Llama without a mask."""
    layer = Layer(attention=read_attention(config), feed_forward=read_feed_forward(config))
    return read_decoder(config, (layer,) * config.integer("num_hidden_layers"), Norm())


def _rotary_bert(config: Config, *, bias: bool, gated: bool, down_bias: bool, types: int) -> Architecture:
    """BERT with rotary positions, norms after each half, and a feed-forward that may be gated."""
    heads = config.integer("num_attention_heads")
    hidden = config.integer("hidden_size")
    width = config.integer("head_dim", default=hidden // heads)
    attention = replace(read_heads(config, PLAIN, bias=bias), rotary_dim=width)
    feed_forward = FeedForward(
        width=config.integer("intermediate_size"), gated=gated, bias=down_bias, smooth=is_smooth(config, "gelu")
    )
    layer = Layer(attention=attention, feed_forward=feed_forward)
    segments = config.integer("type_vocab_size", default=types, low=0)
    before: tuple[Piece, ...] = (
        *((Table(name="segment_embedding", rows=segments, width=hidden),) if segments else ()),
        Row(name="embedding.norm", norm=LAYER_NORM, width=hidden),
    )
    return read_encoder(config, layer, before=before, bias_twice=False)


def nomic_bert(config: Config) -> Architecture:
    """Nomic BERT: rotary, gated, no biases in the layers."""
    return _rotary_bert(config, bias=False, gated=True, down_bias=False, types=2)


def gte(config: Config) -> Architecture:
    """GTE (multilingual): rotary, gated; biases on attention and on the second matrix of the feed-forward."""
    model = _rotary_bert(config, bias=True, gated=True, down_bias=False, types=1)
    bias = Vector(name="mlp.down_bias", parameters=model.hidden, width=model.hidden)
    return replace(model, layers=tuple(replace(layer, pieces=(bias,)) for layer in model.layers))


def jina_embeddings_v3(config: Config) -> Architecture:
    """Jina embeddings 3: XLM-RoBERTa with rotary positions; its adapters are not counted."""
    return _rotary_bert(config, bias=True, gated=False, down_bias=True, types=1)


# -- DeBERTa ----------------------------------------------------------------------------------------------------------


def deberta_v2(config: Config) -> Architecture:
    """DeBERTa 2 and 3: scores from content to position and back, over a table of relative positions.

    The table's own projections are the same in every pass: a server makes them once, and they are not counted.
    """
    if config.integer("conv_kernel_size", default=0, low=0):
        raise config.error("conv_kernel_size", "a convolution beside the first layer is not understood")
    hidden = config.integer("hidden_size")
    relative = config.flag("relative_attention", default=False)
    span = config.fields.get("position_buckets", -1)
    if not isinstance(span, int) or span < 1:
        longest = config.fields.get("max_relative_positions", -1)
        span = (
            longest
            if isinstance(longest, int) and longest > 0
            else config.integer("max_position_embeddings", default=512)
        )
    listed = config.fields.get("pos_att_type") or []
    kinds = listed.split("|") if isinstance(listed, str) else listed
    if relative and not config.flag("share_att_key", default=False):
        raise config.error("share_att_key", "false is not understood with relative_attention")
    pieces = tuple(
        Linear(name=f"attention.{kind}", d_in=hidden, d_out=2 * span, shared=True)
        for kind in kinds
        if relative and kind in ("c2p", "p2c")
    )
    layer = replace(read_layer(config), pieces=pieces)
    before: list[Piece] = []
    if config.flag("position_biased_input", default=True):
        rows = config.integer("max_position_embeddings", default=512)
        before.append(Table(name="position_embedding", rows=rows, width=hidden))
    segments = config.integer("type_vocab_size", default=0, low=0)
    before += [Table(name="segment_embedding", rows=segments, width=hidden)] if segments else []
    before.append(Row(name="embedding.norm", norm=LAYER_NORM, width=hidden))
    if relative:
        before.append(Vector(name="relative_embedding", parameters=2 * span * hidden))
    if "layer_norm" in config.string("norm_rel_ebd", default="none"):
        before.append(Row(name="relative_embedding.norm", norm=LAYER_NORM, width=hidden))
    return read_encoder(config, layer, before=tuple(before), bias_twice=False)


FAMILIES: dict[str, Callable[[Config], Architecture]] = {
    "albert": albert,
    "deberta-v2": deberta_v2,
    "distilbert": distilbert,
    "eurobert": eurobert,
    "gte": gte,
    "jina_embeddings_v3": jina_embeddings_v3,
    "modernbert": modernbert,
    "mpnet": mpnet,
    "nomic_bert": nomic_bert,
}
