"""Language-model heads of encoders, and what else is old.

An encoder's layers normalise after each half, so there is no norm at the end; its head is a projection and a norm
before the vocabulary. Checked against transformers 5.24.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from flopmap.model.architecture import Attention, FeedForward, Layer, Linear, Norm, Row, Table, Vector
from flopmap.model.config import Config
from flopmap.model.families.classic import (
    LAYER_NORM,
    PLAIN,
    Names,
    read_heads,
    read_mlp,
    read_model,
    refuse_encoder,
    refuse_true,
    repeated,
)
from flopmap.model.families.dense import gpt2
from flopmap.quantity import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from flopmap.model.architecture import Architecture, Piece

XLM = Names(
    hidden=("emb_dim", "hidden_size"),
    heads=("n_heads", "num_attention_heads"),
    layers=("n_layers", "num_hidden_layers"),
)


def read_encoder(
    config: Config,
    layer: Layer,
    *,
    width: int | None = None,
    pre_norm: bool = False,
    head_width: int | None = None,
    bias_twice: bool = True,
    before: tuple[Piece, ...] | None = None,
    **own: Any,
) -> Architecture:
    """An encoder with a head. ``width`` is that of its embeddings, ``before`` what stands in for their usual tables.

    The reference code ties the head's bias to another one with the switch of the embeddings: untied, both are held.
    """
    position = config.string("position_embedding_type", default="absolute")
    if position != "absolute":
        raise config.error("position_embedding_type", f"{shown(position)} is not understood (understood: absolute)")
    hidden, vocab = config.integer("hidden_size"), config.integer("vocab_size")
    width = width or hidden
    lead_in = () if width == hidden else (Vector(name="project_in.bias", parameters=hidden, width=hidden),)
    head = read_head(hidden, head_width or width)
    model = read_model(
        config,
        PLAIN,
        repeated(config, PLAIN, layer),
        embedding_width=width,
        before=(*(read_tables(config, width) if before is None else before), *lead_in),
        after=head,
        head_width=head_width or width,
        head_bias=True,
        final_norm=pre_norm,
    )
    second = () if model.tied or not bias_twice else (Vector(name="head.second_bias", parameters=vocab),)
    return replace(model, after=(*head, *second), **own)


def read_tables(config: Config, width: int, *, norm: bool = True, types: int = 2) -> tuple[Piece, ...]:
    """Positions and segments, looked up for every token, and the norm over their sum."""
    segments = config.integer("type_vocab_size", default=types, low=0)
    tables = (
        Table(name="position_embedding", rows=config.integer("max_position_embeddings", default=512), width=width),
        *((Table(name="segment_embedding", rows=segments, width=width),) if segments else ()),
    )
    return (*tables, Row(name="embedding.norm", norm=LAYER_NORM, width=width)) if norm else tables


def read_head(hidden: int, width: int) -> tuple[Piece, ...]:
    """What stands between the layers and the vocabulary."""
    return (
        Linear(name="head.transform", d_in=hidden, d_out=width, bias=True, head=True),
        Row(name="head.norm", norm=LAYER_NORM, width=width),
    )


def read_layer(config: Config, activation: str = "gelu", **own: Any) -> Layer:
    """A layer of an encoder."""
    return Layer(attention=read_heads(config, PLAIN, **own), feed_forward=read_mlp(config, PLAIN, activation))


def bert(config: Config) -> Architecture:
    """BERT, RoBERTa and what kept their shape."""
    return read_encoder(config, read_layer(config))


def pre_norm(config: Config) -> Architecture:
    """RoBERTa-PreLayerNorm: norms before each half, and one more at the end."""
    return read_encoder(config, read_layer(config), pre_norm=True)


def megatron_bert(config: Config) -> Architecture:
    """Megatron-BERT: norms before each half and at the end, none over the embeddings."""
    tables = read_tables(config, config.integer("hidden_size"), norm=False)
    return read_encoder(config, read_layer(config), pre_norm=True, before=tables)


def xlm_roberta_xl(config: Config) -> Architecture:
    """XLM-RoBERTa-XL: Megatron-BERT's shape with one segment."""
    defaults = {"max_position_embeddings": 514, "type_vocab_size": 1}
    return megatron_bert(Config({**defaults, **config.fields}, config.name))


def bert_generation(config: Config) -> Architecture:
    """BertGeneration: no segments, and a head that is one projection."""
    hidden = config.integer("hidden_size")
    tables = read_tables(Config({**config.fields, "type_vocab_size": 0}, config.name), hidden)
    model = read_encoder(config, read_layer(config), before=tables)
    return replace(model, after=model.after[2:])


def ernie(config: Config) -> Architecture:
    """ERNIE: BERT with a table of tasks beside that of segments."""
    model = bert(config)
    if not config.flag("use_task_id", default=False):
        return model
    rows = config.integer("task_type_vocab_size", default=3)
    return replace(model, before=(Table(name="task_embedding", rows=rows, width=model.hidden), *model.before))


def electra(config: Config) -> Architecture:
    """ELECTRA (its generator): embeddings and head narrower than the layers."""
    return read_encoder(
        config, read_layer(config), width=config.integer("embedding_size", default=128), bias_twice=False
    )


def rembert(config: Config) -> Architecture:
    """RemBERT: narrow embeddings, a wide head, so that neither can be the other's."""
    refuse_true(config, "tie_word_embeddings", "an embedding and a head of different widths cannot be tied")
    narrow = config.integer("input_embedding_size", default=256)
    wide = config.integer("output_embedding_size", default=1664)
    untied = Config({**config.fields, "tie_word_embeddings": False}, config.name)
    model = read_encoder(untied, read_layer(config), width=narrow, head_width=wide, bias_twice=False)
    if narrow != model.hidden:
        return model
    square = Linear(name="project_in", d_in=narrow, d_out=model.hidden, bias=True)
    return replace(model, before=(*model.before, square))


def roformer(config: Config) -> Architecture:
    """RoFormer: rotary positions from a held table of sines, embeddings that may be narrower than the layers."""
    head_dim = config.integer("hidden_size") // config.integer("num_attention_heads")
    width = config.integer("embedding_size", default=config.integer("hidden_size"))
    rows = config.integer("max_position_embeddings", default=1536)
    before = (
        Table(name="segment_embedding", rows=config.integer("type_vocab_size", default=2), width=width),
        Row(name="embedding.norm", norm=LAYER_NORM, width=width),
        Table(name="sines", rows=rows, width=head_dim),
    )
    return read_encoder(config, read_layer(config, rotary_dim=head_dim), width=width, before=before)


def big_bird(config: Config) -> Architecture:
    """BigBird: as a decoder it attends to everything, so block sparsity plays no part; it holds a pooler."""
    bias = config.flag("use_bias", default=True)
    model = read_encoder(
        Config({"max_position_embeddings": 4096, **config.fields}, config.name),
        read_layer(config, "gelu_new", qkv_bias=bias),
        embedding_scaled=config.flag("rescale_embeddings", default=False),
    )
    pooler = Vector(name="pooler", parameters=model.hidden * (model.hidden + 1))
    return replace(model, after=(*model.after, pooler))


def roc_bert(config: Config) -> Architecture:
    """RoCBert: tables of pronunciations and shapes, concatenated with the embedding and projected back."""
    model = bert(config)
    sound = config.integer("pronunciation_embed_dim", default=768)
    shape = config.integer("shape_embed_dim", default=512)
    tables = (
        Table(name="sound_embedding", rows=config.integer("pronunciation_vocab_size", default=910), width=sound),
        Table(name="shape_embedding", rows=config.integer("shape_vocab_size", default=24_858), width=shape),
    )
    if not config.flag("concat_input", default=True):
        return replace(model, before=(*tables, *model.before))
    joined = (
        model.hidden
        + sound * config.flag("enable_pronunciation", default=True)
        + shape * config.flag("enable_shape", default=True)
    )
    mapping = Linear(name="embedding.mapping", d_in=joined, d_out=model.hidden, bias=True)
    return replace(model, before=(*tables, mapping, *model.before))


def xmod(config: Config) -> Architecture:
    """X-MOD: an adapter a language after each feed-forward; a token goes through that of its own language."""
    hidden = config.integer("hidden_size")
    inner = hidden // config.integer("adapter_reduction_factor", default=2)
    languages = len(config.strings("languages")) or 1
    one = inner * hidden * 2 + inner + hidden
    norm = Row(name="adapter.norm", norm=LAYER_NORM, width=hidden)
    pieces = (
        Linear(name="adapter.down", d_in=hidden, d_out=inner, bias=True),
        Linear(name="adapter.up", d_in=inner, d_out=hidden, bias=True),
        Vector(name="adapter.other_languages", parameters=(languages - 1) * one),
        *((norm,) if config.flag("adapter_layer_norm", default=False) else ()),
    )
    layer = replace(read_layer(config), pieces=pieces)
    return read_encoder(config, layer, pre_norm=config.flag("pre_norm", default=False))


def xlm(config: Config) -> Architecture:
    """XLM: BERT with a feed-forward of four widths, a table of languages, and a head that is one projection."""
    refuse_true(config, "asm", "an adaptive softmax is not understood")
    hidden = config.integer(*XLM.hidden)
    languages = config.integer("n_langs", default=1)
    spoken = languages > 1 and config.flag("use_lang_emb", default=True)
    smooth = config.flag("gelu_activation", default=True)
    layer = Layer(
        attention=read_heads(config, XLM),
        feed_forward=FeedForward(width=4 * hidden, gated=False, bias=True, smooth=smooth),
    )
    before = (
        *((Table(name="language_embedding", rows=languages, width=hidden),) if spoken else ()),
        Row(name="embedding.norm", norm=LAYER_NORM, width=hidden),
    )
    return read_model(
        config,
        XLM,
        repeated(config, XLM, layer),
        vocab=("vocab_size", "n_words"),
        positions=config.integer("max_position_embeddings", default=512),
        before=before,
        head_bias=True,
        final_norm=False,
    )


def cpmant(config: Config) -> Architecture:
    """CPM-Ant: heads of their own width, RMS norms, a gated feed-forward, rows of prompts in the embedding."""
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    width, segments = config.integer("dim_head", default=128), config.integer("segment_types", default=32)
    layer = Layer(
        attention=Attention(heads=heads, kv_heads=heads, head_dim=width, value_dim=width),
        feed_forward=FeedForward(width=config.integer("dim_ff", default=10_240), gated=True),
    )
    prompts = config.integer("prompt_types", default=32) * config.integer("prompt_length", default=32)
    buckets = segments**2 + config.integer("position_bias_num_buckets", default=512)
    before = (
        Vector(name="prompt_embedding", parameters=prompts * hidden),
        Table(name="segment_embedding", rows=segments, width=hidden),
        Vector(name="position_bias", parameters=buckets * heads),
    )
    model = read_model(config, PLAIN, repeated(config, PLAIN, layer), norm=Norm(), before=before)
    return replace(model, tied=False)


def git(config: Config) -> Architecture:
    """GIT (its text decoder): BERT's layers and a plain head; the image encoder is held and not run."""
    refuse_encoder(config)
    hidden = config.integer("hidden_size")
    vision = Config(config.table("vision_config"), f"{config.name}: vision_config")
    wide = vision.integer("hidden_size", default=768)
    tables = read_tables(
        Config({"max_position_embeddings": 1024, **config.fields, "type_vocab_size": 0}, config.name), hidden
    )
    bridge = wide * hidden + 3 * hidden + wide * config.integer("num_image_with_embedding", default=0, low=0)
    held = Vector(name="image_encoder", parameters=_image_encoder(vision, wide) + bridge)
    layers = repeated(config, PLAIN, read_layer(config))
    return read_model(config, PLAIN, layers, tied=False, before=(*tables, held), head_bias=True, final_norm=False)


def _image_encoder(vision: Config, wide: int) -> int:
    """The parameters of a vision transformer with CLIP's shape."""
    patch, inner = vision.integer("patch_size", default=16), vision.integer("intermediate_size", default=3072)
    places = (vision.integer("image_size", default=224) // patch) ** 2 + 1
    layer = 4 * wide * (wide + 1) + 2 * wide * inner + inner + wide + 4 * wide
    channels = vision.integer("num_channels", default=3)
    count = vision.integer("num_hidden_layers", default=12)
    return channels * patch**2 * wide + wide * (places + 1) + 4 * wide + count * layer


FAMILIES: dict[str, Callable[[Config], Architecture]] = {
    "bert": bert,
    "bert-generation": bert_generation,
    "big_bird": big_bird,
    "camembert": bert,
    "cpmant": cpmant,
    "data2vec-text": bert,
    "electra": electra,
    "ernie": ernie,
    "git": git,
    "gpt-sw3": gpt2,
    "megatron-bert": megatron_bert,
    "rembert": rembert,
    "roberta": bert,
    "roberta-prelayernorm": pre_norm,
    "roc_bert": roc_bert,
    "roformer": roformer,
    "xlm": xlm,
    "xlm-roberta": bert,
    "xlm-roberta-xl": xlm_roberta_xl,
    "xmod": xmod,
}
