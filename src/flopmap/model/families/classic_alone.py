"""Encoder-decoders of BART's kind, and their decoders used alone.

A decoder alone (a class ``...ForCausalLM``) holds the parameters of its cross attention all the same, and does not run
them. Checked against transformers 5.24.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from flopmap.model.architecture import Attention, CrossAttention, DenseConvolution, Layer, Row, Stack, Table, Vector
from flopmap.model.config import Config
from flopmap.model.families.classic import (
    LAYER_NORM,
    Names,
    read_heads,
    read_mlp,
    read_model,
    refuse_encoder,
    refuse_true,
    repeated,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from flopmap.model.architecture import Architecture

BART = Names(
    hidden=("d_model", "hidden_size"),
    heads=("decoder_attention_heads",),
    layers=("decoder_layers",),
    width=("decoder_ffn_dim",),
    activation="activation_function",
)
TROCR = BART._replace(
    heads=("decoder_attention_heads", "num_attention_heads"), layers=("decoder_layers", "num_hidden_layers")
)


ENCODER = Names(
    hidden=("d_model", "hidden_size"),
    heads=("encoder_attention_heads",),
    layers=("encoder_layers",),
    width=("encoder_ffn_dim",),
    activation="activation_function",
)
ALONE = ("ForCausalLM",)


def is_alone(config: Config) -> bool:
    """Whether a config is that of the decoder by itself."""
    return any(name.endswith(ALONE) for name in config.strings("architectures"))


def read_decoder_alone(
    config: Config,
    *,
    names: Names = BART,
    positions: int,
    embedding_norm: bool = False,
    final_norm: bool = False,
    scaled: bool = False,
    cross: Callable[[int], int] = lambda hidden: 4 * hidden * (hidden + 1),
    activation: str = "gelu",
    attention: dict[str, Any] | None = None,
    **own: Any,
) -> Architecture:
    """A decoder without its encoder; ``cross`` are the parameters of the cross attention that a layer holds."""
    hidden = config.integer(*names.hidden)
    layer = Layer(
        attention=read_heads(config, names, **(attention or {})),
        feed_forward=read_mlp(config, names, activation),
        pieces=(Vector(name="cross_attention", parameters=cross(hidden) + 2 * hidden),),
    )
    norm = Row(name="embedding.norm", norm=LAYER_NORM, width=hidden)
    alone = Config({**config.fields, "add_cross_attention": False}, config.name)
    model = read_model(
        alone,
        names,
        repeated(config, names, layer),
        positions=positions,
        embedding_scaled=config.flag("scale_embedding", default=scaled),
        before=(norm,) if embedding_norm else (),
        final_norm=final_norm,
    )
    return replace(model, **own)


def read_pair(
    config: Config,
    *,
    positions: int,
    embedding_norm: bool = False,
    final_norm: bool = False,
    activation: str = "gelu",
    **own: Any,
) -> Architecture:
    """A decoder with the encoder of the same kind around it, or alone where the config names such a class."""
    decoder = read_decoder_alone(
        config,
        positions=positions,
        embedding_norm=embedding_norm,
        final_norm=final_norm,
        activation=activation,
        **own,
    )
    if is_alone(config):
        return decoder
    hidden = decoder.hidden
    norms = {name: (Row(name=name, norm=LAYER_NORM, width=hidden),) for name in ("embedding.norm", "norm")}
    places = (Table(name="position_embedding", rows=positions, width=hidden),) if positions else ()
    encoder = Stack(
        name="encoder",
        hidden=hidden,
        norm=LAYER_NORM,
        layers=encoder_layers(config, activation),
        # the table of words is the decoder's
        before=(
            Vector(name="embedding", parameters=0, width=hidden),
            *places,
            *(norms["embedding.norm"] if embedding_norm else ()),
        ),
        after=norms["norm"] if final_norm else (),
        quantized=True,
    )
    return with_encoder(decoder, encoder)


def encoder_layers(config: Config, activation: str, **own: Any) -> tuple[Layer, ...]:
    """The layers of an encoder under the usual names; ``own`` is what its attention has of its own."""
    attention = replace(read_heads(config, ENCODER, **own), causal=False)
    return repeated(config, ENCODER, Layer(attention=attention, feed_forward=read_mlp(config, ENCODER, activation)))


def with_encoder(model: Architecture, encoder: Stack) -> Architecture:
    """The decoder attending to an encoder, with heads like its own, in the place of the parameters that it held."""
    layers: dict[Layer, Layer] = {}
    for layer in set(model.layers):
        if isinstance(layer.attention, Attention):
            heads = replace(layer.attention, rotary_dim=0)
            cross = CrossAttention(source=encoder.name, source_width=encoder.hidden, attention=heads, norm=model.norm)
            kept = tuple(piece for piece in layer.pieces if getattr(piece, "name", "") != "cross_attention")
            layers[layer] = replace(layer, pieces=(*kept, cross))
    return replace(model, layers=tuple(layers[layer] for layer in model.layers), stacks=(*model.stacks, encoder))


def _positions(config: Config, default: int = 1024, offset: int = 0) -> int:
    return config.integer("max_position_embeddings", default=default) + offset


def bart(config: Config) -> Architecture:
    """BART, MVP: learned positions after an offset of two, a norm over the embeddings, norms after each half."""
    refuse_true(config, "use_prompt", "layers of prompts are not understood")
    return read_pair(config, positions=_positions(config, offset=2), embedding_norm=True)


def plbart(config: Config) -> Architecture:
    """PLBART: BART with scaled embeddings."""
    return read_pair(config, positions=_positions(config, offset=2), embedding_norm=True, scaled=True)


def mbart(config: Config) -> Architecture:
    """mBART: BART with norms before each half, and one at the end."""
    return read_pair(config, positions=_positions(config, offset=2), embedding_norm=True, final_norm=True)


def pegasus(config: Config) -> Architecture:
    """Pegasus: sinusoidal positions, which are held like learned ones, and norms before each half."""
    return read_pair(config, positions=_positions(config), final_norm=True)


def blenderbot(config: Config) -> Architecture:
    """Blenderbot: learned positions, norms before each half."""
    return read_pair(config, positions=_positions(config, 128), final_norm=True)


def blenderbot_small(config: Config) -> Architecture:
    """Blenderbot (small): learned positions, a norm over the embeddings, norms after each half."""
    return read_pair(config, positions=_positions(config, 512), embedding_norm=True)


def marian(config: Config) -> Architecture:
    """Marian: sinusoidal positions, which are held like learned ones, norms after each half, its own vocabulary."""
    vocab = config.integer("decoder_vocab_size", "vocab_size")
    if vocab != config.integer("vocab_size") and not config.flag("tie_word_embeddings", default=True):
        raise config.error("decoder_vocab_size", f"{vocab} beside an untied head of vocab_size is not understood")
    return read_pair(config, positions=_positions(config), vocab=vocab)


def m2m_100(config: Config) -> Architecture:
    """M2M-100 and NLLB: sinusoidal positions that are not held, norms before each half, scaled embeddings."""
    if is_alone(config):
        raise config.error("architectures", "an m2m_100 decoder by itself is not understood")
    return read_pair(config, positions=0, final_norm=True, scaled=True, activation="relu")


def bigbird_pegasus(config: Config) -> Architecture:
    """BigBird-Pegasus (its decoder): no biases in attention by default; the head is never tied, whatever is said."""
    refuse_encoder(config)
    bias = config.flag("use_bias", default=False)
    return read_decoder_alone(
        config,
        positions=_positions(config, 4096),
        embedding_norm=True,
        scaled=True,
        activation="gelu_new",
        attention={"bias": bias},
        cross=lambda hidden: 4 * hidden * (hidden + bias),
        tied=False,
    )


def trocr(config: Config) -> Architecture:
    """TrOCR (its text decoder): as BART, with keys and values of the width of its image encoder."""
    refuse_encoder(config)
    width = config.integer("cross_attention_hidden_size", default=config.integer(*TROCR.hidden))
    learned = config.flag("use_learned_position_embeddings", default=True)
    return read_decoder_alone(
        config,
        names=TROCR,
        positions=_positions(config, 512, 2) if learned else 0,
        embedding_norm=config.flag("layernorm_embedding", default=True),
        cross=lambda hidden: 2 * hidden * (hidden + width) + 4 * hidden,
    )


def whisper(config: Config) -> Architecture:
    """Whisper: no bias on keys, norms before each half; two convolutions over the frames of a window of sound."""
    decoder = read_decoder_alone(
        config,
        positions=config.integer("max_target_positions", default=448),
        final_norm=True,
        attention={"key_bias": False},
        cross=lambda hidden: 4 * hidden * hidden + 3 * hidden,
    )
    if is_alone(config):
        return decoder
    hidden, rows = decoder.hidden, config.integer("max_source_positions", default=1500)
    bins = config.integer("num_mel_bins", default=80)
    first, second = (
        DenseConvolution(name="convolution", d_in=width, d_out=hidden, kernel=3, stride=stride)
        for width, stride in ((bins, 1), (hidden, 2))
    )
    frames = Stack(name="frames", reads="audio", tokens=2 * rows, hidden=hidden, norm=LAYER_NORM, before=(first,))
    encoder = Stack(
        name="encoder",
        reads="audio",
        tokens=rows,
        hidden=hidden,
        norm=LAYER_NORM,
        layers=encoder_layers(config, "gelu", key_bias=False),
        before=(second, Table(name="position_embedding", rows=rows, width=hidden)),
        after=(Row(name="norm", norm=LAYER_NORM, width=hidden),),
        quantized=True,
    )
    return with_encoder(replace(decoder, stacks=(frames,)), encoder)


FAMILIES: dict[str, Callable[[Config], Architecture]] = {
    "bart": bart,
    "bigbird_pegasus": bigbird_pegasus,
    "blenderbot": blenderbot,
    "blenderbot-small": blenderbot_small,
    "m2m_100": m2m_100,
    "marian": marian,
    "mbart": mbart,
    "mvp": bart,
    "pegasus": pegasus,
    "plbart": plbart,
    "trocr": trocr,
    "whisper": whisper,
}
