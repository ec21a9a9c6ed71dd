"""What drafts for another model: heads on its hidden states, and the layers that its own checkpoint brings for it.

Shapes are those of the reference implementations: EAGLE's ``cnets.py``, Medusa's ``medusa_model.py``, and the classes
of vLLM that load these checkpoints and layers that predict further tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from flopmap.model.architecture import Architecture, Layer, Linear, Norm, Row, Stack, Vector
from flopmap.model.config import MAX_LAYERS, Config
from flopmap.model.families.common import biased, read_attention, read_decoder, read_feed_forward

if TYPE_CHECKING:
    from collections.abc import Callable

FUSED = 3  # layers of the target whose outputs EAGLE-3 reads
# families whose checkpoints hold a predictor of the usual form, and the field that counts them
COUNTED = {
    "bailing_moe_v2": "num_nextn_predict_layers",
    "deepseek_v3": "num_nextn_predict_layers",
    "deepseek_v32": "num_nextn_predict_layers",
    "ernie4_5": "num_nextn_predict_layers",
    "ernie4_5_moe": "num_nextn_predict_layers",
    "glm4_moe": "num_nextn_predict_layers",
    "glm4_moe_lite": "num_nextn_predict_layers",
    "glm_moe_dsa": "num_nextn_predict_layers",
    "mimo": "num_nextn_predict_layers",
    "qwen3_5_moe_text": "mtp_num_hidden_layers",
    "qwen3_5_text": "mtp_num_hidden_layers",
    "qwen3_next": "num_nextn_predict_layers",
}
WITHOUT_NORM = ("ernie4_5", "ernie4_5_moe")  # they take the target's head as it is
DENSE = ("ernie4_5_moe",)  # the predictor has no experts


def eagle(config: Config) -> Architecture:
    """EAGLE 1 and 2: the token's embedding and the target's last row, projected to one, through a layer of Llama.

    The first layer has no norm before its attention; embedding and head are the target's.
    """
    hidden, first = config.integer("hidden_size"), _layer(config)
    rest = config.integer("num_hidden_layers", default=1, high=MAX_LAYERS) - 1
    model = read_decoder(config, (replace(first, norms=1), *(first,) * rest), Norm())
    bias = config.flag("bias", default=True)
    joined = Linear(name="fc", d_in=2 * hidden, d_out=hidden, bias=bias)
    return replace(model, family="eagle", embedding="target", tied=True, final_norm=False, before=(joined,))


def eagle3(config: Config) -> Architecture:
    """EAGLE-3: rows of three of the target's layers, fused to one; its layer reads that beside the embedding.

    It has a head of its own, over the words that it drafts.
    """
    hidden, target = config.integer("hidden_size"), config.integer("target_hidden_size", "hidden_size")
    count = config.integer("num_hidden_layers", default=1, high=MAX_LAYERS)
    if count != 1:
        raise config.error("num_hidden_layers", f"{count} is not understood in an EAGLE-3 config (understood: 1)")
    layer = _layer(config)
    attention = replace(read_attention(config), input_width=2 * hidden)
    bias = config.flag("attention_bias", default=False)
    pieces = (Row(name="hidden_norm", norm=Norm(), width=hidden),)
    layer = replace(layer, attention=biased(attention, qkv=bias, out=bias), pieces=pieces)
    fusion = Stack(
        name="fusion",
        hidden=FUSED * target,
        before=(Linear(name="fc", d_in=FUSED * target, d_out=hidden),),
        quantized=True,
    )
    settings = Config(config.table("eagle_config"), config.name)
    return replace(
        read_decoder(config, (layer,), Norm()),
        family="eagle3",
        head_vocab=config.optional("draft_vocab_size"),
        embedding="target" if hidden == target else "own",
        tied=False,
        stacks=(fusion,) if settings.flag("use_aux_hidden_state", default=True) else (),
    )


def medusa(config: Config) -> Architecture:
    """Medusa: heads of a residual block and a vocabulary each, all on the target's last row."""
    hidden, vocab = config.integer("hidden_size"), config.integer("vocab_size")
    heads = config.integer("num_heads", "medusa_num_heads", default=5, high=MAX_LAYERS)
    blocks = config.integer("medusa_num_layers", "num_hidden_layers", default=1, high=MAX_LAYERS)
    words = config.integer("truncated_vocab_size", default=vocab)
    bias = config.flag("medusa_fc_bias", default=config.has("medusa_num_heads"))
    block = (
        Linear(name="medusa.block", d_in=hidden, d_out=hidden, bias=bias),
        Vector(name="medusa.activation", parameters=0, width=hidden),
    )
    head = Linear(name="medusa.head", d_in=hidden, d_out=words, head=True)
    return Architecture(
        family="medusa",
        hidden=hidden,
        vocab=vocab,
        layers=(Layer(norms=0, pieces=(*block * blocks, head)),) * heads,
        norm=Norm(),
        final_norm=False,
        embedding_width=hidden,
        head=False,
        embedding="none",
    )


def _layer(config: Config) -> Layer:
    bias = config.flag("attention_bias", default=False)
    attention = biased(read_attention(config), qkv=bias, out=bias)
    return Layer(
        attention=attention, feed_forward=read_feed_forward(config, bias=config.flag("mlp_bias", default=False))
    )


def read_predictor(config: Config, model: Architecture) -> Architecture | None:
    """The layer of a checkpoint that predicts a further token (MTP); None without one, or with a form not known.

    It norms the token's embedding and the model's last row, projects both to one, and has a layer like the model's
    last that attends, a norm, and the model's head. One such layer drafts any number of tokens, pass after pass.
    """
    family = config.string("model_type")
    count = config.fields.get(COUNTED.get(family, ""), 1 if family == "qwen3_next" else 0)
    if family not in COUNTED or count != 1 or isinstance(count, bool):
        return None
    attending = [layer for layer in reversed(model.layers) if layer.attention is not None]
    if not attending:
        return None
    indexed = [layer for layer in attending if layer.attention and layer.attention.indexer]
    layer = (indexed or attending)[0]  # it is read after the others, and shares no layer's choice of tokens
    if family in DENSE:
        bias = config.flag("use_bias", default=False)
        layer = replace(layer, feed_forward=read_feed_forward(config, bias=bias))
    hidden = model.hidden
    before = (
        Row(name="embedding_norm", norm=model.norm, width=hidden),
        Row(name="hidden_norm", norm=model.norm, width=hidden),
        Linear(name="eh_proj", d_in=2 * hidden, d_out=hidden),
    )
    return replace(
        model,
        family=f"{family}_mtp",
        layers=(layer,),
        embedding="target",
        tied=True,
        final_norm=family not in WITHOUT_NORM,
        before=before,
        after=(),
        stacks=(),
    )


FAMILIES: dict[str, Callable[[Config], Architecture]] = {"eagle": eagle, "eagle3": eagle3, "medusa": medusa}
