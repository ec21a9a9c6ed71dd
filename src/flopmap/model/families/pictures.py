"""Models whose tower is a plain encoder of square pictures: LLaVA and its kin, PaliGemma, Gemma 3, Pixtral, Idefics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from flopmap.model.architecture import Linear, Piece, Stack, Vector
from flopmap.model.config import Config
from flopmap.model.families.vision import (
    RMS,
    Vit,
    connector,
    hidden_of,
    mlp,
    norm_row,
    processor,
    seeing,
    side_limit,
    side_of,
    tower,
    vision_config,
    vit,
    with_defaults,
)
from flopmap.model.media import Tower
from flopmap.model.media_tiles import Anyres, Shrunk, Splits
from flopmap.model.media_whole import Fitted, Square
from flopmap.quantity import shown

if TYPE_CHECKING:
    from flopmap.model.architecture import Architecture

CLIP_L: dict[str, Any] = {
    "model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
    "num_attention_heads": 16, "image_size": 336, "patch_size": 14,
}  # fmt: skip
SIGLIP_SO: dict[str, Any] = {
    "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
    "num_attention_heads": 16, "image_size": 384, "patch_size": 14, "vision_use_head": False,
}  # fmt: skip
SIGLIP_B: dict[str, Any] = {
    "model_type": "siglip_vision_model", "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
    "num_attention_heads": 12, "image_size": 224, "patch_size": 16,
}  # fmt: skip
PIXTRAL: dict[str, Any] = {
    "model_type": "pixtral", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
    "num_attention_heads": 16, "image_size": 1024, "patch_size": 16,
}  # fmt: skip
LLAVA_GRIDS = ((336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008))  # height, width: LLaVA-NeXT's


def _sides(vision: Config) -> tuple[int, int]:
    """Side of the picture and of a patch."""
    return side_of(vision, "image_size", 224), side_of(vision, "patch_size", 14)


def _features(config: Config) -> tuple[int, bool]:
    """How many layers' outputs the connector reads, and whether the class token stays."""
    layers: Any = config.fields.get("vision_feature_layer")
    strategy = config.string("vision_feature_select_strategy", default="default")
    if strategy not in ("default", "full"):
        raise config.error("vision_feature_select_strategy", f"{shown(strategy)} is not understood (default, full)")
    return len(layers) if isinstance(layers, list | tuple) else 1, strategy == "full"


def _named(vision: Config, default: str) -> tuple[Vit, tuple[Stack, ...], Tower]:
    """The tower of a vision_config, and its rule."""
    kind, stacks = tower(vision, default)
    pooler = any(stack.name == "pooler" for stack in stacks)
    return kind, stacks, Tower(patch=_sides(vision)[1], extra=kind.extra, pooler=pooler)


def llava(config: Config, text: Architecture) -> Architecture:
    """LLaVA 1.5: a square picture, two matrices."""
    vision = with_defaults(vision_config(config), **_of_type(vision_config(config), CLIP_L))
    if vision.string("model_type") == "pixtral":
        return _pixtral(config, vision, text, merge=1)
    kind, stacks, rule = _named(vision, "clip_vision_model")
    side, patch = _sides(vision)
    tokens = (side // patch) ** 2 + kind.extra * _features(config)[1]
    return seeing(text, Square(tower=rule, side=side, tokens=tokens), *stacks, _projector(config, vision, text))


def _of_type(vision: Config, default: dict[str, Any]) -> dict[str, Any]:
    """The sizes that a tower of the config's type has where it does not say."""
    name = vision.string("model_type", default=default["model_type"])
    by_name = {entry["model_type"]: entry for entry in (CLIP_L, SIGLIP_B, PIXTRAL)}
    return default if name == default["model_type"] else by_name.get(name, {})


def _projector(config: Config, vision: Config, text: Architecture, *further: Piece) -> Stack:
    layers, _ = _features(config)
    bias = config.flag("multimodal_projector_bias", default=True)
    return connector(text.hidden, *further, *mlp(hidden_of(vision) * layers, text.hidden, text.hidden, bias=bias))


def vipllava(config: Config, text: Architecture) -> Architecture:
    """ViP-LLaVA: the connector reads five layers, normed."""
    vision = with_defaults(vision_config(config), **CLIP_L)
    _, stacks, rule = _named(vision, "clip_vision_model")
    side, patch = _sides(vision)
    given = with_defaults(config, vision_feature_layer=[-2, -5, -8, -11, 6])
    width = hidden_of(vision) * _features(given)[0]
    lead = connector(text.hidden, norm_row(width), *mlp(width, text.hidden, text.hidden))
    return seeing(text, Square(tower=rule, side=side, tokens=(side // patch) ** 2), *stacks, lead)


def llava_next(config: Config, text: Architecture) -> Architecture:
    """LLaVA-NeXT: the whole picture and tiles of it, with a learned newline."""
    vision = with_defaults(vision_config(config), **_of_type(vision_config(config), CLIP_L))
    return _anyres(config, vision, text, most=0)


def llava_onevision(config: Config, text: Architecture) -> Architecture:
    """LLaVA-OneVision: as LLaVA-NeXT with many more grids, and a limit of tokens."""
    vision = with_defaults(vision_config(config), **_of_type(vision_config(config), SIGLIP_SO))
    limit = config.string("vision_aspect_ratio", default="anyres_max_9")
    if not limit.removeprefix("anyres_max_").isdecimal():
        raise config.error("vision_aspect_ratio", f"{shown(limit)} is not understood (understood: anyres_max_N)")
    return _anyres(config, vision, text, most=int(limit.removeprefix("anyres_max_")))


def _anyres(config: Config, vision: Config, text: Architecture, most: int) -> Architecture:
    _, stacks, rule = _named(vision, "clip_vision_model")
    side, _ = _sides(vision)
    grids = tuple((384 * row, 384 * column) for row in range(1, 7) for column in range(1, 7)) if most else LLAVA_GRIDS
    listed: Any = processor(config).fields.get("image_grid_pinpoints") or config.fields.get("image_grid_pinpoints")
    if listed:
        grids = tuple((grid[0], grid[1]) for grid in listed)
    lead = _projector(config, vision, text, Vector(name="newline", parameters=text.hidden))
    images = Anyres(tower=rule, side=side, grids=grids, most=most, pooled=bool(most), newline=bool(most))
    return seeing(text, images, *stacks, lead)


def video_llava(config: Config, text: Architecture) -> Architecture:
    """Video-LLaVA: a tower for pictures, and its like for videos, which is held."""
    vision = with_defaults(vision_config(config), **CLIP_L)
    kind, stacks, rule = _named(vision, "clip_vision_model")
    side, patch = _sides(vision)
    videos = tuple(replace(stack, name=f"video.{stack.name}") for stack in stacks)
    tokens = (side // patch) ** 2 + kind.extra * _features(config)[1]
    images = Square(tower=rule, side=side, tokens=tokens)
    return seeing(text, images, *stacks, *videos, _projector(config, vision, text))


def paligemma(config: Config, text: Architecture) -> Architecture:
    """PaliGemma: SigLIP and one matrix."""
    vision = with_defaults(vision_config(config), **{**SIGLIP_SO, "image_size": 224})
    _, stacks, rule = _named(vision, "siglip_vision_model")
    side, patch = _sides(vision)
    width = vision.integer("projection_dim", default=text.hidden)
    lead = connector(text.hidden, Linear(name="linear", d_in=hidden_of(vision), d_out=width, bias=True))
    return seeing(text, Square(tower=rule, side=side, tokens=(side // patch) ** 2), *stacks, lead)


def gemma3(config: Config, text: Architecture) -> Architecture:
    """Gemma 3: patches are averaged to 256 tokens, between a begin, an end and two blank lines."""
    vision = with_defaults(vision_config(config), **_of_type(vision_config(config), SIGLIP_B))
    _, stacks, rule = _named(vision, "siglip_vision_model")
    side, _ = _sides(vision)
    tokens, hidden = config.integer("mm_tokens_per_image", default=256), hidden_of(vision)
    lead = connector(text.hidden, norm_row(hidden, RMS), Linear(name="projection", d_in=hidden, d_out=text.hidden))
    return seeing(text, Square(tower=rule, side=side, tokens=tokens, around=4), *stacks, lead)


def mistral3(config: Config, text: Architecture) -> Architecture:
    """Mistral Small 3.1: Pixtral's tower, squares of patches merged by one matrix."""
    vision = with_defaults(vision_config(config), **PIXTRAL)
    return _pixtral(config, vision, text, merge=config.integer("spatial_merge_size", default=2))


def _pixtral(config: Config, vision: Config, text: Architecture, merge: int) -> Architecture:
    _, stacks, rule = _named(vision, "pixtral")
    hidden = hidden_of(vision)
    given = with_defaults(config, vision_feature_layer=-1, multimodal_projector_bias=merge == 1)
    first = (norm_row(hidden, RMS, over=hidden * merge**2), Linear(name="merge", d_in=hidden * merge**2, d_out=hidden))
    lead = _projector(given, vision, text, *(first if merge > 1 else ()))
    most = side_limit(config, "longest_edge", default=side_of(vision, "image_size", 1024))
    images = Fitted(tower=replace(rule, merge=merge), most=most, rows_end=True)
    return seeing(text, images, *stacks, lead)


def lighton_ocr(config: Config, text: Architecture) -> Architecture:
    """LightOnOCR: Mistral's connector without biases."""
    return mistral3(with_defaults(config, multimodal_projector_bias=False), text)


def janus(config: Config, text: Architecture) -> Architecture:
    """DeepSeek-VL: SigLIP and two matrices."""
    vision = with_defaults(vision_config(config), **_of_type(vision_config(config), SIGLIP_B))
    _, stacks, rule = _named(vision, "siglip_vision_model")
    side, patch = _sides(vision)
    lead = connector(text.hidden, *mlp(hidden_of(vision), text.hidden, text.hidden))
    return seeing(text, Square(tower=rule, side=side, tokens=(side // patch) ** 2), *stacks, lead)


def lfm2_vl(config: Config, text: Architecture) -> Architecture:
    """LFM2-VL: SigLIP 2 at any grid, squares of patches through two matrices."""
    vision = with_defaults(
        vision_config(config), model_type="siglip2_vision_model", hidden_size=768, intermediate_size=3072,
        num_hidden_layers=12, num_attention_heads=12, patch_size=16, num_patches=256,
    )  # fmt: skip
    _, stacks, rule = _named(vision, "siglip2_vision_model")
    merge, width = config.integer("downsample_factor", default=2), config.integer("projector_hidden_size", default=2560)
    merged, bias = hidden_of(vision) * merge**2, config.flag("projector_bias", default=True)
    norms = (norm_row(merged),) if config.flag("projector_use_layernorm", default=True) else ()
    lead = connector(text.hidden, *norms, *mlp(merged, width, text.hidden, bias=bias))
    settings = processor(config)
    cut = settings.flag("do_image_splitting", default=True)
    images = Shrunk(
        tower=replace(rule, merge=merge),
        least=settings.integer("min_image_tokens", default=64),
        most=settings.integer("max_image_tokens", default=256),
        side=settings.integer("tile_size", default=512),
        tiles=(settings.integer("min_tiles", default=2), settings.integer("max_tiles", default=10)) if cut else (1, 1),
        tolerance=settings.number("max_pixels_tolerance", default=2.0),
    )
    return seeing(text, images, *stacks, lead)


# -- Idefics ----------------------------------------------------------------------------------------------------------


def idefics3(config: Config, text: Architecture) -> Architecture:
    """Idefics 3 and SmolVLM: the picture and tiles of it, squares of patches through one matrix."""
    vision = with_defaults(
        vision_config(config), hidden_size=1152, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=16,
        image_size=224, patch_size=32,
    )  # fmt: skip
    side, patch = _sides(vision)
    merge = config.integer("scale_factor", default=2)
    merged = hidden_of(vision) * merge**2
    stacks = vit(vision, Vit(table=(side // patch) ** 2))
    settings = processor(config)
    images = Splits(
        tower=Tower(patch=patch, merge=merge),
        side=Config(settings.table("max_image_size"), settings.name).integer("longest_edge", default=side),
        longest=side_limit(config, "longest_edge", default=4 * side),
        tokens=(side // patch // merge) ** 2,
        split=settings.flag("do_image_splitting", default=True),
    )
    lead = connector(text.hidden, Linear(name="projection", d_in=merged, d_out=text.hidden))
    return seeing(text, images, *stacks, lead)


AROUND = {
    "deepseek_vl": janus,
    "gemma3": gemma3,
    "idefics3": idefics3,
    "lfm2_vl": lfm2_vl,
    "lighton_ocr": lighton_ocr,
    "llava": llava,
    "llava_next": llava_next,
    "llava_next_video": llava_next,
    "llava_onevision": llava_onevision,
    "mistral3": mistral3,
    "paligemma": paligemma,
    "shieldgemma2": gemma3,
    "smolvlm": idefics3,
    "video_llava": video_llava,
    "vipllava": vipllava,
}
