"""Models that take pictures at their own size: Qwen-VL, GLM-V, MoonViT and their like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from flopmap.model.architecture import Linear
from flopmap.model.config import MAX_LAYERS, Config
from flopmap.model.families.vision import (
    LAYER,
    RMS,
    Vit,
    connector,
    hidden_of,
    mlp,
    norm_row,
    pixel_limits,
    processor,
    seeing,
    vision_config,
    vit,
    vit_layer,
    windowed,
    with_defaults,
)
from flopmap.model.media import Tower
from flopmap.model.media_whole import Fitted, Native

if TYPE_CHECKING:
    from flopmap.model.architecture import Architecture, Layer, Stack

QWEN_LIMITS = (3136, 12_845_056)  # pixels, of the processors published with Qwen2-VL and Qwen2.5-VL
QWEN_VIDEO = (128 * 28 * 28, 768 * 28 * 28)  # a frame
QWEN3_VIDEO = (4096, 25_165_824)  # all frames, of those published with Qwen3-VL
GLM_LIMITS, GLM_VIDEO = (12_544, 9_633_792), (12_544, 47_040_000)  # all frames
QWEN3_LIMITS = (65_536, 16_777_216)  # of those published with Qwen3-VL
QWEN_SIZES: dict[str, Any] = {"patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2}


def _native(config: Config, vision: Config, limits: tuple[int, int], **rule: Any) -> Native:
    """The rule of a processor that rounds sides to tokens."""
    least, most = pixel_limits(processor(config), *limits)
    settings = Config(config.table("video_preprocessor_config"), f"{config.name}: video_preprocessor_config")
    if "video" in rule:
        rule = {**rule, "video": pixel_limits(settings, *rule["video"])}
    tower = Tower(patch=vision.integer("patch_size"), merge=vision.integer("spatial_merge_size"))
    rule = {"temporal": vision.integer("temporal_patch_size", default=1), **rule}
    return Native(tower=tower, least=least, most=most, **rule)


def qwen2_vl(config: Config, text: Architecture) -> Architecture:
    """Qwen2-VL: its config calls the tower's width embed_dim, and what the merger gives hidden_size."""
    given = with_defaults(
        vision_config(config), depth=32, embed_dim=1280, hidden_size=3584, mlp_ratio=4, num_heads=16, **QWEN_SIZES
    )
    out = given.integer("hidden_size")
    vision = Config({**given.fields, "hidden_size": given.integer("embed_dim")}, given.name)
    tower = vit(vision, Vit(patch_bias=False, rotary=True, last=None, temporal=2))
    return seeing(text, _native(config, vision, QWEN_LIMITS, video=QWEN_VIDEO), *tower, _merger(vision, out, LAYER))


def _merger(vision: Config, out: int, norm: Any, *, after: bool = False, name: str = "") -> Stack:
    """Squares of patches through two matrices; the norm is over patches, or over squares (``after``)."""
    hidden, merged = hidden_of(vision), hidden_of(vision) * vision.integer("spatial_merge_size") ** 2
    norms = norm_row(merged, norm) if after else norm_row(hidden, norm, over=merged)
    return connector(out, norms, *mlp(merged, merged, out), name=name or "connector")


def qwen2_5_vl(config: Config, text: Architecture) -> Architecture:
    """Qwen2.5-VL: RMS norms, gated feed-forward, and windows in all but a few layers."""
    vision = with_defaults(
        vision_config(config), depth=32, hidden_size=3584, intermediate_size=3420, num_heads=16, window_size=112,
        out_hidden_size=3584, fullatt_block_indexes=[7, 15, 23, 31], **QWEN_SIZES,
    )  # fmt: skip
    kind = Vit(norm=RMS, gated=True, patch_bias=False, rotary=True, last=None, temporal=2)
    window = vision.integer("window_size") // vision.integer("spatial_merge_size") // vision.integer("patch_size")
    stacks = vit(vision, kind, layers=_with_windows(vision, vit_layer(vision, kind)))
    rule = _native(config, vision, QWEN_LIMITS, window=window, video=QWEN_VIDEO)
    return seeing(text, rule, *stacks, _merger(vision, vision.integer("out_hidden_size"), RMS))


def _with_windows(vision: Config, layer: Layer) -> tuple[Layer, ...]:
    """Layers of which those that the config lists see the whole picture."""
    whole = vision.fields.get("fullatt_block_indexes")
    if not isinstance(whole, list | tuple):
        raise vision.error("fullatt_block_indexes", "is not a list of layers")
    narrow = windowed(layer)
    return tuple(layer if index in whole else narrow for index in range(vision.integer("depth", high=MAX_LAYERS)))


def exaone4_5(config: Config, text: Architecture) -> Architecture:
    """EXAONE 4.5: Qwen2.5-VL's tower with fewer key heads."""
    vision = with_defaults(vision_config(config), num_key_value_heads=8)
    return qwen2_5_vl(Config({**config.fields, "vision_config": vision.fields}, config.name), text)


def qwen3_vl(config: Config, text: Architecture) -> Architecture:
    """Qwen3-VL: learned positions beside rotary ones, and mergers after some layers whose tokens join early layers."""
    return _qwen3(config, text, deep=True)


def qwen3_5(config: Config, text: Architecture) -> Architecture:
    """Qwen3.5: Qwen3-VL's tower with one merger."""
    return _qwen3(config, text, deep=False)


def _qwen3(config: Config, text: Architecture, *, deep: bool) -> Architecture:
    vision = with_defaults(
        vision_config(config), depth=27, hidden_size=1152, intermediate_size=4304, num_heads=16, patch_size=16,
        spatial_merge_size=2, temporal_patch_size=2, out_hidden_size=3584, num_position_embeddings=2304,
        deepstack_visual_indexes=[8, 16, 24],
    )  # fmt: skip
    stacks = vit(vision, Vit(table=vision.integer("num_position_embeddings"), rotary=True, last=None, temporal=2))
    out = vision.integer("out_hidden_size")
    merger = _merger(vision, out, LAYER)
    if deep:
        after = vision.fields["deepstack_visual_indexes"]
        if not isinstance(after, list | tuple):
            raise vision.error("deepstack_visual_indexes", "is not a list of layers")
        further = _merger(vision, out, LAYER, after=True).before
        pieces = tuple(
            replace(piece, name=f"deepstack.{index}.{piece.name}") for index in range(len(after)) for piece in further
        )
        merger = replace(merger, before=(*merger.before, *pieces))
    return seeing(text, _native(config, vision, QWEN3_LIMITS, deep="video", video=QWEN3_VIDEO), *stacks, merger)


def glm4v(config: Config, text: Architecture) -> Architecture:
    """GLM-4.1V and 4.5V: the tower's feed-forward is as wide as what it gives; a convolution merges patches."""
    given = with_defaults(
        vision_config(config), depth=24, hidden_size=1536, num_heads=12, image_size=336, out_hidden_size=4096,
        intermediate_size=13696, attention_bias=False, **QWEN_SIZES,
    )  # fmt: skip
    out, width = given.integer("out_hidden_size"), given.integer("intermediate_size")
    vision = Config({**given.fields, "intermediate_size": out}, given.name)
    kind = Vit(
        norm=RMS, gated=True, qkv_bias=vision.flag("attention_bias", default=False), out_bias=False, mlp_bias=False,
        table=(vision.integer("image_size") // vision.integer("patch_size")) ** 2, rotary=True, first=RMS, last=RMS,
        temporal=2,
    )  # fmt: skip
    rule = _native(config, vision, GLM_LIMITS, deep="always", video=GLM_VIDEO)
    return seeing(text, rule, *vit(vision, kind), _glm_connector(vision, out, width))


def _glm_connector(vision: Config, out: int, width: int) -> Stack:
    merged = hidden_of(vision) * vision.integer("spatial_merge_size") ** 2
    return connector(
        out,
        Linear(name="downsample", d_in=merged, d_out=out, bias=True),
        Linear(name="proj", d_in=out, d_out=out),
        norm_row(out),
        *mlp(out, width, out, bias=False, gated=True),
    )


def glm_ocr(config: Config, text: Architecture) -> Architecture:
    """GLM-OCR: norms on heads, biases, and a connector three times as wide as what it gives."""
    vision = with_defaults(
        vision_config(config), depth=24, hidden_size=1024, num_heads=16, out_hidden_size=1536,
        intermediate_size=4096, attention_bias=True, **QWEN_SIZES,
    )  # fmt: skip
    bias, out = vision.flag("attention_bias", default=True), vision.integer("out_hidden_size")
    kind = Vit(
        norm=RMS, gated=True, qkv_bias=bias, out_bias=bias, mlp_bias=bias, qk_norm="shared", rotary=True, last=RMS,
        temporal=2,
    )  # fmt: skip
    width = out * vision.integer("in_channels", default=3)
    rule = _native(config, vision, GLM_LIMITS, deep="always", video=GLM_VIDEO)
    return seeing(text, rule, *vit(vision, kind), _glm_connector(vision, out, width))


def kimi_k25(config: Config, text: Architecture) -> Architecture:
    """Kimi K2.5: MoonViT, whose patches of all frames see each other."""
    given = with_defaults(
        vision_config(config), patch_size=14, hidden_size=1152, intermediate_size=4304, num_hidden_layers=27,
        num_attention_heads=16, pos_emb_height=64, pos_emb_width=64, merge_kernel_size=[2, 2],
    )  # fmt: skip
    vision = _moon_names(given)
    merge = vision.fields["merge_kernel_size"]
    if not isinstance(merge, list | tuple) or len(set(merge)) != 1 or not isinstance(merge[0], int):
        raise vision.error("merge_kernel_size", f"{merge} is not understood (understood: two equal whole numbers)")
    hidden, merged = hidden_of(vision), hidden_of(vision) * merge[0] ** 2
    table = vision.integer("pos_emb_height", "init_pos_emb_height") * vision.integer("pos_emb_width")
    stacks = vit(vision, Vit(table=table, rotary=True))
    lead = connector(text.hidden, norm_row(hidden, over=merged), *mlp(merged, merged, text.hidden))
    settings = processor(config)
    rule = Fitted(
        tower=Tower(patch=vision.integer("patch_size"), merge=merge[0]),
        patches=settings.integer("max_patches", "in_patch_limit", default=16_384),
        side=Config(settings.table("size"), settings.name).integer("max_height", default=512),
    )
    return seeing(text, rule, *stacks, lead)


MOON_NAMES = {
    "vt_hidden_size": "hidden_size",
    "vt_intermediate_size": "intermediate_size",
    "vt_num_attention_heads": "num_attention_heads",
    "vt_num_hidden_layers": "num_hidden_layers",
    "init_pos_emb_height": "pos_emb_height",
    "init_pos_emb_width": "pos_emb_width",
}


def _moon_names(given: Config) -> Config:
    """The config under transformers' names; the model's own repository has others."""
    return Config(
        {**given.fields, **{MOON_NAMES[k]: v for k, v in given.fields.items() if k in MOON_NAMES}}, given.name
    )


def minimax_m3_vl(config: Config, text: Architecture) -> Architecture:
    """MiniMax M3: patches are projected to the text's width before they are merged."""
    vision = with_defaults(
        vision_config(config), hidden_size=1280, intermediate_size=5120, num_hidden_layers=32, num_attention_heads=16,
        **QWEN_SIZES,
    )  # fmt: skip
    wide = text.hidden * vision.integer("spatial_merge_size") ** 2
    width = config.integer("projector_hidden_size", default=6144)
    stacks = vit(vision, Vit(patch_bias=False, rotary=True, first=LAYER, last=None, temporal=2))
    tower = replace(stacks[-1], after=mlp(hidden_of(vision), width, text.hidden, name="projector."))
    lead = connector(text.hidden, *mlp(wide, width, text.hidden))
    rule = _native(config, vision, (3136, 1_003_520), together=True)
    return seeing(text, rule, tower, lead)


def video_llama_3(config: Config, text: Architecture) -> Architecture:
    """VideoLLaMA 3: merges by averaging before the projection."""
    vision = with_defaults(
        vision_config(config), hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12,
        patch_size=16, spatial_merge_size=1,
    )  # fmt: skip
    stacks = vit(vision, Vit(rotary=True))
    lead = connector(text.hidden, *mlp(hidden_of(vision), text.hidden, text.hidden))
    merge = processor(config).integer("merge_size", default=1)
    rule = _native(
        config, with_defaults(Config({**vision.fields, "spatial_merge_size": merge}, vision.name)), QWEN_LIMITS
    )
    return seeing(text, rule, *stacks, lead)


def paddleocr_vl(config: Config, text: Architecture) -> Architecture:
    """PaddleOCR-VL: SigLIP's layers with rotary positions beside learned ones."""
    vision = with_defaults(
        vision_config(config), hidden_size=1152, intermediate_size=4304, num_hidden_layers=27, num_attention_heads=16,
        image_size=384, patch_size=14, spatial_merge_size=2,
    )  # fmt: skip
    table = (vision.integer("image_size") // vision.integer("patch_size")) ** 2
    merged = hidden_of(vision) * vision.integer("spatial_merge_size") ** 2
    lead = connector(text.hidden, norm_row(hidden_of(vision), over=merged), *mlp(merged, merged, text.hidden))
    rule = _native(config, vision, (147_456, 2_359_296), raised=True)
    return seeing(text, rule, *vit(vision, Vit(table=table, rotary=True)), lead)


AROUND = {
    "cosmos3_omni": qwen3_vl,
    "exaone4_5": exaone4_5,
    "glm46v": glm4v,
    "glm4v": glm4v,
    "glm4v_moe": glm4v,
    "glm_ocr": glm_ocr,
    "glmga": glm4v,
    "kimi_k25": kimi_k25,
    "minimax_m3_vl": minimax_m3_vl,
    "paddleocr_vl": paddleocr_vl,
    "qwen2_5_vl": qwen2_5_vl,
    "qwen2_vl": qwen2_vl,
    "qwen3_5": qwen3_5,
    "qwen3_5_moe": qwen3_5,
    "qwen3_vl": qwen3_vl,
    "qwen3_vl_moe": qwen3_vl,
    "video_llama_3": video_llama_3,
}
