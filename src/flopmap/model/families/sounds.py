"""Models that hear: a tower of Whisper's kind over windows of mel frames, and what leads from it to a language model.

Checked against transformers 5.24.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from flopmap.model.architecture import Attention, DenseConvolution, FeedForward, Layer, Linear, Piece, Row, Stack, Table
from flopmap.model.config import MAX_LAYERS, Config
from flopmap.model.families.common import is_smooth, rotary_share
from flopmap.model.families.vision import LAYER, mlp, with_defaults
from flopmap.model.media_sound import STRIDE, Windows

if TYPE_CHECKING:
    from collections.abc import Callable

    from flopmap.model.architecture import Architecture

LARGE: dict[str, Any] = {  # Whisper's large encoder, which these classes assume where a config does not say
    "hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "num_attention_heads": 20,
    "num_mel_bins": 128, "max_source_positions": 1500,
}  # fmt: skip
MEDIUM: dict[str, Any] = {
    **LARGE, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
    "num_mel_bins": 80,
}  # fmt: skip
POOLED = 2  # positions whose mean is a token
POSITIONS = 1500  # of a window of 30 s


def _audio(config: Config, sizes: dict[str, Any] = LARGE) -> Config:
    """The nested config of the tower, in one spelling."""
    nested = Config(config.table("audio_config"), f"{config.name}: audio_config")
    spelled = {
        "hidden_size": "d_model",
        "intermediate_size": "encoder_ffn_dim",
        "num_hidden_layers": "encoder_layers",
        "num_attention_heads": "encoder_attention_heads",
    }
    given = {name: nested.integer(own) for name, own in spelled.items() if nested.has(own)}
    return with_defaults(Config({**nested.fields, **given}, nested.name), **sizes)


def _hidden(audio: Config) -> int:
    return audio.integer("hidden_size")


def _tower(audio: Config, *, table: bool = True, norm: bool = True, rotary: float = 0) -> tuple[Stack, ...]:
    """A convolution over frames; one that halves them, and layers that see the whole window, without bias on keys.

    ``table``: positions are learned. ``norm``: one ends it. ``rotary`` is the share of a head that is rotated.
    """
    hidden, heads = _hidden(audio), audio.integer("num_attention_heads")
    if hidden % heads:
        raise audio.error("num_attention_heads", f"{heads} does not divide hidden_size {hidden}")
    width = audio.integer("head_dim", default=hidden // heads)
    attention = Attention(
        heads=heads,
        kv_heads=audio.integer("num_key_value_heads", default=heads),
        head_dim=width,
        value_dim=width,
        rotary_dim=int(width * rotary),
        qkv_bias=True,
        key_bias=False,
        out_bias=True,
        causal=False,
    )
    half = FeedForward(
        width=audio.integer("intermediate_size"), gated=False, bias=True, smooth=is_smooth(audio, "gelu")
    )
    layers = (Layer(attention=attention, feed_forward=half),) * audio.integer("num_hidden_layers", high=MAX_LAYERS)
    first, second = (
        DenseConvolution(name="convolution", d_in=d_in, d_out=hidden, kernel=3, stride=stride)
        for d_in, stride in ((audio.integer("num_mel_bins"), 1), (hidden, STRIDE))
    )
    places = (Table(name="positions", rows=audio.integer("max_source_positions"), width=hidden),) if table else ()
    return (
        Stack(name="frames", reads="audio", hidden=hidden, norm=LAYER, before=(first,)),
        Stack(
            name="audio",
            reads="audio",
            hidden=hidden,
            norm=LAYER,
            layers=layers,
            before=(second, *places),
            after=(_norm(hidden),) if norm else (),
        ),
    )


def _norm(width: int) -> Row:
    return Row(name="norm", norm=LAYER, width=width)


def _hearing(text: Architecture, rule: Windows, tower: tuple[Stack, ...], *pieces: Piece) -> Architecture:
    """A language model with a tower before it, and the pieces of the connector."""
    connector = Stack(name="connector", reads="audio", hidden=text.hidden, before=pieces)
    return replace(text, stacks=(*text.stacks, *tower, connector), sounds=rule)


def _frames(audio: Config) -> int:
    """Frames of a window: as many as the table of positions takes."""
    return STRIDE * audio.integer("max_source_positions")


def _beside(audio: Config) -> int:
    """Positions that lie side by side in a row as wide as the tower's feed-forward."""
    hidden, width = _hidden(audio), audio.integer("intermediate_size")
    if width % hidden:
        raise audio.error("intermediate_size", f"{width} is no multiple of hidden_size {hidden}")
    return width // hidden


def qwen2_audio(config: Config, text: Architecture) -> Architecture:
    """Qwen2-Audio: means of two positions, normed, through one matrix; a sound is one window."""
    audio = _audio(config)
    rule = Windows(frames=_frames(audio), merge=POOLED, most=1)
    linear = Linear(name="down", d_in=_hidden(audio), d_out=text.hidden, bias=True)
    return _hearing(text, rule, _tower(audio, norm=False), _norm(_hidden(audio)), linear)


def voxtral(config: Config, text: Architecture) -> Architecture:
    """Voxtral: positions side by side, two matrices without biases; padded windows give all their tokens."""
    audio = _audio(config)
    rule = Windows(frames=_frames(audio), merge=_beside(audio), last="padded")
    return _hearing(
        text, rule, _tower(audio), *mlp(audio.integer("intermediate_size"), text.hidden, text.hidden, bias=False)
    )


def _flamingo(config: Config, text: Architecture, most: int, around: int = 0) -> Architecture:
    """Means of two positions, normed, through two matrices."""
    audio = _audio(config)
    hidden, bias = _hidden(audio), config.flag("projector_bias", default=True)
    rule = Windows(frames=_frames(audio), merge=POOLED, most=most, around=around)
    pieces = (_norm(hidden), *mlp(hidden, text.hidden, text.hidden, bias=bias))
    return _hearing(text, rule, _tower(audio, norm=False), *pieces)


def audioflamingo3(config: Config, text: Architecture) -> Architecture:
    """Audio Flamingo 3: up to ten minutes."""
    return _flamingo(config, text, most=20)


def musicflamingo(config: Config, text: Architecture) -> Architecture:
    """Music Flamingo: up to twenty minutes between two tokens; it rotates what the connector gives, by its time."""
    return _flamingo(config, text, most=40, around=2)


def glmasr(config: Config, text: Architecture) -> Architecture:
    """GLM-ASR: rotary positions; positions side by side, two matrices around twice the width; up to 630 seconds."""
    audio = _audio(config)
    rule = Windows(frames=STRIDE * POSITIONS, merge=_beside(audio), most=21)
    tower = _tower(audio, table=False, rotary=rotary_share(audio, 0.5))
    width = audio.integer("intermediate_size")
    return _hearing(text, rule, tower, *mlp(width, 2 * text.hidden, text.hidden))


def moss_transcribe_diarize(config: Config, text: Architecture) -> Architecture:
    """MOSS-Transcribe-Diarize: positions side by side, two matrices, a norm; every other second stands in the text."""
    audio = _audio(config, MEDIUM)
    merge = config.integer("audio_merge_size", default=4)
    rule = Windows(frames=_frames(audio), merge=merge, last="up", mark=2)
    bias = config.flag("projector_bias", default=True)
    pieces = mlp(merge * _hidden(audio), text.hidden, text.hidden, bias=bias)
    return _hearing(text, rule, _tower(audio), *pieces, _norm(text.hidden))


AROUND: dict[str, Callable[[Config, Architecture], Architecture]] = {
    "audioflamingo3": audioflamingo3,
    "glmasr": glmasr,
    "moss_transcribe_diarize": moss_transcribe_diarize,
    "musicflamingo": musicflamingo,
    "qwen2_audio": qwen2_audio,
    "voxtral": voxtral,
}
