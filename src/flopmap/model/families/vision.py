"""Towers: encoders of images as stacks, and the connectors that lead from them to a language model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from flopmap.model.architecture import (
    Architecture,
    Attention,
    CrossAttention,
    FeedForward,
    Layer,
    Linear,
    Norm,
    Piece,
    Row,
    Stack,
    Table,
    Vector,
)
from flopmap.model.config import MAX_LAYERS, Config
from flopmap.model.families.common import RELU
from flopmap.quantity import shown

if TYPE_CHECKING:
    from flopmap.model.media import Images

LAYER = Norm(kind="layer", bias=True)
RMS = Norm()


class Vit(msgspec.Struct, frozen=True, kw_only=True):
    """What tells one vision transformer from another; sizes are the config's.

    ``extra`` tokens (class, registers) join the patches; ``held`` are further vectors that a pass does not use.
    ``table`` are rows of learned positions. ``scaled``: a vector scales what each half adds.
    """

    norm: Norm = LAYER
    gated: bool = False
    patch_bias: bool = True
    qkv_bias: bool = True
    key_bias: bool | None = None
    out_bias: bool = True
    mlp_bias: bool = True
    qk_norm: Literal["none", "shared", "per-head", "whole"] = "none"
    qk_norm_kind: Norm = RMS
    extra: int = 0
    held: int = 0
    table: int = 0
    rotary: bool = False
    scaled: bool = False
    sandwich: bool = False
    first: Norm | None = None
    last: Norm | None = LAYER
    temporal: int = 1


def vision_config(config: Config) -> Config:
    """The nested config of the tower."""
    return Config(config.table("vision_config"), f"{config.name}: vision_config")


def hidden_of(config: Config) -> int:
    """Width of a tower."""
    return config.integer("hidden_size", "embed_dim")


def side_of(config: Config, field: str, default: int) -> int:
    """A side in pixels, which some configs give as height and width. Only squares are understood."""
    value: Any = config.fields.get(field)
    if isinstance(value, list | tuple):
        if len(set(value)) != 1 or not all(isinstance(item, int) and item > 0 for item in value):
            raise config.error(
                field, f"{shown(value)} is not understood (understood: a whole number, or two equal ones)"
            )
        return int(value[0])
    return config.integer(field, default=default)


def vit(
    config: Config, kind: Vit, *, name: str = "vision", layers: tuple[Layer, ...] | None = None
) -> tuple[Stack, ...]:
    """The stacks of a tower: its patches apart where further tokens join them."""
    hidden = hidden_of(config)
    patch, channels = side_of(config, "patch_size", 14), config.integer("num_channels", "in_channels", default=3)
    patches = Linear(name="patch", d_in=channels * kind.temporal * patch**2, d_out=hidden, bias=kind.patch_bias)
    before: list[Piece] = []
    if kind.extra:
        before.append(Vector(name="class", parameters=kind.extra * hidden))
    if kind.held:
        before.append(Vector(name="mask", parameters=kind.held * hidden))
    if kind.table:
        before.append(Table(name="positions", rows=kind.table, width=hidden))
    if kind.first:
        before.append(Row(name="first_norm", norm=kind.first, width=hidden))
    after = (Row(name="last_norm", norm=kind.last, width=hidden),) if kind.last else ()
    if layers is None:
        count = config.integer("num_hidden_layers", "depth", "layers", high=MAX_LAYERS)
        layers = (vit_layer(config, kind),) * count
    if not kind.extra:
        before.insert(0, patches)
    tower = Stack(
        name=name, reads="image", hidden=hidden, norm=kind.norm, layers=layers, before=tuple(before), after=after
    )
    if not kind.extra:
        return (tower,)
    return Stack(name="patches", reads="image", hidden=hidden, norm=kind.norm, before=(patches,)), tower


def vit_layer(config: Config, kind: Vit) -> Layer:
    """One layer of a tower."""
    hidden = hidden_of(config)
    heads = config.integer("num_attention_heads", "num_heads", "attention_heads")
    if not config.has("head_dim") and hidden % heads:
        raise config.error("num_attention_heads", f"{heads} does not divide hidden_size {hidden}")
    width = config.integer("head_dim", default=hidden // heads)
    attention = Attention(
        heads=heads,
        kv_heads=config.integer("num_key_value_heads", default=heads),
        head_dim=width,
        value_dim=width,
        rotary_dim=width if kind.rotary else 0,
        qkv_bias=kind.qkv_bias,
        key_bias=kind.key_bias,
        out_bias=kind.out_bias,
        qk_norm=kind.qk_norm,
        qk_norm_kind=kind.qk_norm_kind,
        causal=False,
    )
    pieces = (Vector(name="scale", parameters=2 * hidden, width=2 * hidden),) if kind.scaled else ()
    half = FeedForward(width=feed_forward_width(config), gated=kind.gated, bias=kind.mlp_bias, smooth=is_smooth(config))
    return Layer(attention=attention, feed_forward=half, pieces=pieces, norms=4 if kind.sandwich else 2)


def feed_forward_width(config: Config) -> int:
    """Width of a tower's feed-forward, which some configs give as a multiple."""
    if config.has("intermediate_size", "mlp_dim"):
        return config.integer("intermediate_size", "mlp_dim")
    return int(hidden_of(config) * config.number("mlp_ratio", default=4))


def is_smooth(config: Config) -> bool:
    """Whether the tower's activation has an exponential."""
    return config.string("hidden_act", "hidden_activation", default="gelu") not in RELU


def windowed(layer: Layer, windows: str = "vision.window") -> Layer:
    """The layer with attention inside of the windows of that name."""
    if not isinstance(layer.attention, Attention):
        return layer
    return replace(layer, attention=replace(layer.attention, within=windows))


def connector(text_hidden: int, *pieces: Piece, name: str = "connector", layers: tuple[Layer, ...] = ()) -> Stack:
    """A stack of pieces over the tokens that the language model gets."""
    return Stack(name=name, reads="image", hidden=text_hidden, before=pieces, layers=layers)


def mlp(
    d_in: int, width: int, d_out: int, *, bias: bool = True, name: str = "", gated: bool = False
) -> tuple[Piece, ...]:
    """Two matrices around an activation; where it is ``gated`` the first gives twice ``width``."""
    return (
        Linear(name=f"{name}up", d_in=d_in, d_out=width * (1 + gated), bias=bias),
        Vector(name=f"{name}activation", parameters=0, width=width),
        Linear(name=f"{name}down", d_in=width, d_out=d_out, bias=bias),
    )


def norm_row(width: int, norm: Norm = LAYER, name: str = "norm", over: int | None = None) -> Row:
    """A norm of a connector; over rows of ``over`` elements that share a weight vector of ``width``."""
    return Row(name=name, norm=norm, width=over or width, norm_width=width)


def attends(source: str, source_width: int, attention: Attention, norm: Norm | None = None) -> CrossAttention:
    """Cross attention of a resampler to the tower's tokens."""
    return CrossAttention(source=source, source_width=source_width, attention=attention, norm=norm)


def seeing(text: Architecture, images: Images, *stacks: Stack) -> Architecture:
    """A language model with towers before it."""
    return replace(text, stacks=(*text.stacks, *stacks), images=images)


# -- towers by their own model_type -----------------------------------------------------------------------------------


def clip(config: Config) -> Vit:
    """CLIP: a class token, a norm before the layers, and one on the class token that is held."""
    patches = (side_of(config, "image_size", 224) // side_of(config, "patch_size", 32)) ** 2
    return Vit(patch_bias=False, extra=1, table=patches + 1, first=LAYER)


def siglip(config: Config) -> Vit:
    """SigLIP: patches only."""
    return Vit(table=(side_of(config, "image_size", 224) // side_of(config, "patch_size", 16)) ** 2)


def siglip2(config: Config) -> Vit:
    """SigLIP 2 with patches of any grid; positions are interpolated."""
    return Vit(table=config.integer("num_patches", default=256))


def pixtral(_config: Config) -> Vit:
    """Pixtral: RMS norms, gated feed-forward, no biases, rotary positions in two dimensions."""
    return Vit(
        norm=RMS, gated=True, patch_bias=False, qkv_bias=False, out_bias=False, mlp_bias=False, rotary=True,
        first=RMS, last=None,
    )  # fmt: skip


def intern(config: Config) -> Vit:
    """InternViT: scaled halves, biases and norms by the config."""
    patches = (side_of(config, "image_size", 448) // side_of(config, "patch_size", 14)) ** 2
    return Vit(
        norm=RMS if config.string("norm_type", default="layer_norm") == "rms_norm" else LAYER,
        qkv_bias=config.flag("attention_bias", default=False),
        qk_norm="whole" if config.flag("use_qk_norm", default=False) else "none",
        extra=1,
        held=int(config.flag("use_mask_token", default=False)),
        table=(patches + 1) * config.flag("use_absolute_position_embeddings", default=True),
        scaled=True,
        last=None if config.flag("use_mean_pooling", default=True) else LAYER,
    )


TOWERS = {
    "clip_vision_model": clip,
    "internvl_vision": intern,
    "pixtral": pixtral,
    "qianfan_ocr_vision": intern,
    "siglip2_vision_model": siglip2,
    "siglip_vision_model": siglip,
}


def tower(config: Config, default: str) -> tuple[Vit, tuple[Stack, ...]]:
    """The tower of a nested vision_config, by the model_type that it names or else the family's."""
    name = config.string("model_type", default=default)
    if name not in TOWERS:
        raise config.error(
            "model_type", f"{shown(name)} is no tower that is understood (understood: {', '.join(TOWERS)})"
        )
    kind = TOWERS[name](config)
    stacks = vit(config, kind)
    if name.startswith("siglip") and config.flag("vision_use_head", default=True):
        stacks = (*stacks, siglip_head(config))
    return kind, stacks


def siglip_head(config: Config) -> Stack:
    """SigLIP's pooling: one learned query attends to all patches."""
    hidden = hidden_of(config)
    heads = config.integer("num_attention_heads")
    attention = Attention(
        heads=heads, kv_heads=heads, head_dim=hidden // heads, value_dim=hidden // heads,
        qkv_bias=True, out_bias=True, causal=False,
    )  # fmt: skip
    half = FeedForward(width=feed_forward_width(config), gated=False, bias=True)
    pieces = (attends("vision", hidden, attention), norm_row(hidden))
    return Stack(
        name="pooler",
        reads="image",
        hidden=hidden,
        before=(Vector(name="probe", parameters=hidden),),
        layers=(Layer(feed_forward=half, norms=0, pieces=pieces),),
    )


# -- processors -------------------------------------------------------------------------------------------------------


def processor(config: Config) -> Config:
    """The settings of the processor that lie beside a config; empty where there are none."""
    return Config(config.table("preprocessor_config"), f"{config.name}: preprocessor_config")


def pixel_limits(settings: Config, least: int, most: int) -> tuple[int, int]:
    """The fewest and the most pixels that a processor makes, in either spelling; ``least``, ``most``: the family's."""
    size = Config(settings.table("size"), settings.name)
    low = settings.integer("min_pixels", default=size.integer("shortest_edge", default=least))
    return low, settings.integer("max_pixels", default=size.integer("longest_edge", default=most))


def side_limit(config: Config, *names: str, default: int) -> int:
    """A side that the processor's ``size`` names."""
    settings = processor(config)
    size = settings.fields.get("size")
    if isinstance(size, int):
        return settings.integer("size")
    return Config(settings.table("size"), settings.name).integer(*names, default=default)


def with_defaults(config: Config, **defaults: Any) -> Config:
    """A config with what its class assumes where a field is absent."""
    return Config({**defaults, **config.fields}, config.name)
