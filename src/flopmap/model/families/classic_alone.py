"""Decoders of encoder-decoders used alone.

They hold the parameters of their cross attention all the same, and do not run them. A config of the whole
encoder-decoder is refused: its encoder and cross attention are not counted. Checked against transformers 5.24.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from flopmap.model.architecture import Layer, Row, Vector
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
    refuse_encoder(config)
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


def _positions(config: Config, default: int = 1024, offset: int = 0) -> int:
    return config.integer("max_position_embeddings", default=default) + offset


def bart(config: Config) -> Architecture:
    """BART, MVP: learned positions after an offset of two, a norm over the embeddings, norms after each half."""
    refuse_true(config, "use_prompt", "layers of prompts are not understood")
    return read_decoder_alone(config, positions=_positions(config, offset=2), embedding_norm=True)


def plbart(config: Config) -> Architecture:
    """PLBART: BART with scaled embeddings."""
    return read_decoder_alone(config, positions=_positions(config, offset=2), embedding_norm=True, scaled=True)


def mbart(config: Config) -> Architecture:
    """mBART: BART with norms before each half, and one at the end."""
    return read_decoder_alone(config, positions=_positions(config, offset=2), embedding_norm=True, final_norm=True)


def pegasus(config: Config) -> Architecture:
    """Pegasus: sinusoidal positions, which are held like learned ones, and norms before each half."""
    return read_decoder_alone(config, positions=_positions(config), final_norm=True)


def blenderbot(config: Config) -> Architecture:
    """Blenderbot: learned positions, norms before each half."""
    return read_decoder_alone(config, positions=_positions(config, 128), final_norm=True)


def blenderbot_small(config: Config) -> Architecture:
    """Blenderbot (small): learned positions, a norm over the embeddings, norms after each half."""
    return read_decoder_alone(config, positions=_positions(config, 512), embedding_norm=True)


def marian(config: Config) -> Architecture:
    """Marian: sinusoidal positions, which are held like learned ones, norms after each half, its own vocabulary."""
    vocab = config.integer("decoder_vocab_size", "vocab_size")
    if vocab != config.integer("vocab_size") and not config.flag("tie_word_embeddings", default=True):
        raise config.error("decoder_vocab_size", f"{vocab} beside an untied head of vocab_size is not understood")
    return read_decoder_alone(config, positions=_positions(config), vocab=vocab)


def bigbird_pegasus(config: Config) -> Architecture:
    """BigBird-Pegasus: no biases in attention by default; the head is never tied, whatever the config says."""
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
    """Whisper (its text decoder): no bias on keys, norms before each half."""
    return read_decoder_alone(
        config,
        positions=config.integer("max_target_positions", default=448),
        final_norm=True,
        attention={"key_bias": False},
        cross=lambda hidden: 4 * hidden * hidden + 3 * hidden,
    )


FAMILIES: dict[str, Callable[[Config], Architecture]] = {
    "bart": bart,
    "bigbird_pegasus": bigbird_pegasus,
    "blenderbot": blenderbot,
    "blenderbot-small": blenderbot_small,
    "marian": marian,
    "mbart": mbart,
    "mvp": bart,
    "pegasus": pegasus,
    "plbart": plbart,
    "trocr": trocr,
    "whisper": whisper,
}
