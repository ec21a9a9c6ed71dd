"""Encoders of pictures as models of their own: ViT, CLIP's and SigLIP's towers, DINO and their like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from flopmap.model.architecture import Architecture, Linear, Stack
from flopmap.model.families.vision import (
    LAYER,
    RMS,
    Vit,
    feed_forward_width,
    hidden_of,
    norm_row,
    side_of,
    tower,
    vit,
    with_defaults,
)
from flopmap.model.media import Tower
from flopmap.model.media_whole import Square

if TYPE_CHECKING:
    from flopmap.model.config import Config

BASE: dict[str, Any] = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "image_size": 224, "patch_size": 16,
}  # fmt: skip
DINO: dict[str, Any] = {
    "hidden_size": 768, "mlp_ratio": 4, "num_hidden_layers": 12, "num_attention_heads": 12, "image_size": 224,
    "patch_size": 14,
}  # fmt: skip
SWIGLU_STEP = 8  # DINOv2 rounds the width of a gated feed-forward up to a multiple


def _alone(config: Config, kind: Vit, *further: Stack, pooler: bool = False, default: int = 224) -> Architecture:
    """A tower and no text."""
    stacks = (*vit(config, kind), *further)
    return _model(config, stacks, kind.extra, pooler=pooler or bool(further), default=default)


def _model(config: Config, stacks: tuple[Stack, ...], extra: int, *, pooler: bool, default: int = 224) -> Architecture:
    side, patch = side_of(config, "image_size", default), side_of(config, "patch_size", 16)
    tokens = (side // patch) ** 2 + extra
    return Architecture(
        family=config.string("model_type"),
        hidden=hidden_of(config),
        vocab=0,
        layers=(),
        norm=LAYER,
        final_norm=False,
        embedding_width=hidden_of(config),
        generative=False,
        head=False,
        stacks=stacks,
        images=Square(tower=Tower(patch=patch, extra=extra, pooler=pooler), side=side, tokens=tokens),
    )


def _head(config: Config, *, pooled: bool) -> tuple[Stack, ...]:
    """What follows on the first token: a classifier where the config says so, else the class's pooler if it has one."""
    hidden = hidden_of(config)
    if any(name.endswith("ForImageClassification") for name in config.strings("architectures")):
        labels = len(config.table("id2label")) or config.integer("num_labels", default=2)
        return (_one_token(hidden, Linear(name="classifier", d_in=hidden, d_out=labels, bias=True)),)
    if not pooled:
        return ()
    width = config.integer("pooler_output_size", default=hidden)
    return (_one_token(hidden, Linear(name="dense", d_in=hidden, d_out=width, bias=True)),)


def _one_token(hidden: int, *pieces: Linear) -> Stack:
    return Stack(name="pooler", reads="image", hidden=hidden, before=pieces)


def plain(config: Config) -> Architecture:
    """ViT: a class token and a learned position a patch."""
    return _vit(config, extra=1, pooled=True)


def deit(config: Config) -> Architecture:
    """DeiT: a class token and a distillation token."""
    return _vit(config, extra=2, pooled=True)


def vit_msn(config: Config) -> Architecture:
    """ViT-MSN: ViT without a pooler."""
    return _vit(config, extra=1, pooled=False)


def ijepa(config: Config) -> Architecture:
    """I-JEPA: patches alone."""
    return _vit(config, extra=0, pooled=False)


def _vit(config: Config, *, extra: int, pooled: bool) -> Architecture:
    given = with_defaults(config, **BASE)
    patches = (side_of(given, "image_size", 224) // side_of(given, "patch_size", 16)) ** 2
    kind = Vit(qkv_bias=given.flag("qkv_bias", default=True), extra=extra, table=patches + extra)
    return _alone(given, kind, *_head(given, pooled=pooled))


def beit(config: Config) -> Architecture:
    """BEiT: keys without a bias, and scaled halves."""
    given = with_defaults(config, **BASE)
    for field in ("use_relative_position_bias", "use_shared_relative_position_bias"):
        if given.flag(field, default=False):
            raise given.error(field, "true is not understood (understood: false)")
    patches = (side_of(given, "image_size", 224) // side_of(given, "patch_size", 16)) ** 2
    mean = given.flag("use_mean_pooling", default=True)
    kind = Vit(
        key_bias=False, extra=1, held=int(given.flag("use_mask_token", default=False)), scaled=True,
        table=(patches + 1) * given.flag("use_absolute_position_embeddings", default=False),
        last=None if mean else LAYER,
    )  # fmt: skip
    pooled = mean and given.string("model_type") == "beit"
    pooler = Stack(name="pooler", reads="image", hidden=hidden_of(given), before=(norm_row(hidden_of(given)),))
    return _alone(given, kind, *((pooler,) if pooled else ()))


def dinov2(config: Config) -> Architecture:
    """DINOv2: scaled halves; the giant has gated feed-forwards."""
    return _dino(config, registers=0, mask=config.flag("use_mask_token", default=True))


def dinov2_with_registers(config: Config) -> Architecture:
    """DINOv2 with register tokens."""
    return _dino(config, registers=config.integer("num_register_tokens", default=4), mask=True)


def _dino(config: Config, *, registers: int, mask: bool) -> Architecture:
    given = with_defaults(config, **DINO)
    patches = (side_of(given, "image_size", 224) // side_of(given, "patch_size", 14)) ** 2
    gated = given.flag("use_swiglu_ffn", default=False)
    if gated:
        width = int(feed_forward_width(given) * 2 / 3) + SWIGLU_STEP - 1
        given = with_defaults(given, intermediate_size=width // SWIGLU_STEP * SWIGLU_STEP)
    kind = Vit(
        gated=gated, qkv_bias=given.flag("qkv_bias", default=True), extra=1 + registers, held=int(mask),
        table=patches + 1, scaled=True,
    )  # fmt: skip
    return _alone(given, kind)


def dinov3(config: Config) -> Architecture:
    """DINOv3: rotary positions, register tokens, keys without a bias."""
    given = with_defaults(
        config, hidden_size=384, intermediate_size=1536, num_hidden_layers=12, num_attention_heads=6, image_size=224,
        patch_size=16,
    )  # fmt: skip
    kind = Vit(
        gated=given.flag("use_gated_mlp", default=False), qkv_bias=given.flag("query_bias", default=True),
        key_bias=given.flag("key_bias", default=False), out_bias=given.flag("proj_bias", default=True),
        mlp_bias=given.flag("mlp_bias", default=True), extra=1 + given.integer("num_register_tokens", default=4, low=0),
        held=1, rotary=True, scaled=True,
    )  # fmt: skip
    return _alone(given, kind)


def aimv2(config: Config) -> Architecture:
    """AIMv2: RMS norms and gated feed-forwards. Its pooling of patches is not understood."""
    given = with_defaults(
        config, hidden_size=1024, intermediate_size=2816, num_hidden_layers=24, num_attention_heads=8, image_size=224,
        patch_size=14,
    )  # fmt: skip
    if given.flag("use_head", default=True):
        raise given.error("use_head", "true is not understood (understood: false)")
    bias, both = given.flag("qkv_bias", default=False), given.flag("mlp_bias", default=False)
    patches = (side_of(given, "image_size", 224) // side_of(given, "patch_size", 14)) ** 2
    kind = Vit(
        norm=RMS, gated=True, qkv_bias=bias, out_bias=bias, mlp_bias=both, first=RMS, last=RMS,
        table=patches * (not given.flag("is_native", default=False)),
    )  # fmt: skip
    return _alone(given, kind)


def clip(config: Config) -> Architecture:
    """The vision half of CLIP; with a projection where the class has one."""
    given = with_defaults(config, **{**BASE, "patch_size": 32, "projection_dim": 512})
    kind, stacks = tower(given, "clip_vision_model")
    hidden = hidden_of(given)
    last = replace(stacks[-1], after=())
    pooler = _one_token(hidden)
    pooler = replace(pooler, before=(norm_row(hidden),))
    if any(name.endswith("WithProjection") for name in config.strings("architectures")):
        projection = Linear(name="projection", d_in=hidden, d_out=given.integer("projection_dim"))
        pooler = replace(pooler, before=(*pooler.before, projection))
    return _model(given, (*stacks[:-1], last, pooler), kind.extra, pooler=True)


def siglip(config: Config) -> Architecture:
    """The vision half of SigLIP, with its pooling head."""
    given = with_defaults(config, **BASE)
    kind, stacks = tower(given, "siglip_vision_model")
    return _model(given, stacks, kind.extra, pooler=given.flag("vision_use_head", default=True))


FAMILIES = {
    "aimv2_vision_model": aimv2,
    "beit": beit,
    "clip_vision_model": clip,
    "data2vec-vision": beit,
    "deit": deit,
    "dinov2": dinov2,
    "dinov2_with_registers": dinov2_with_registers,
    "dinov3_vit": dinov3,
    "ijepa": ijepa,
    "siglip_vision_model": siglip,
    "vit": plain,
    "vit_msn": vit_msn,
}
