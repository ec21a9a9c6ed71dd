"""Models that cut pictures into tiles, or resample them: InternVL, Llama 4, Llama 3.2 Vision, Aya, Ovis ..."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from flopmap.model.architecture import (
    Attention,
    CrossAttention,
    FeedForward,
    Layer,
    Linear,
    Norm,
    Piece,
    Row,
    Stack,
    Vector,
)
from flopmap.model.config import MAX_LAYERS, Config
from flopmap.model.families.common import read_attention, read_decoder, read_feed_forward
from flopmap.model.families.vision import (
    LAYER,
    RMS,
    Vit,
    attends,
    connector,
    hidden_of,
    intern,
    mlp,
    norm_row,
    processor,
    seeing,
    side_of,
    tower,
    vision_config,
    vit,
    vit_layer,
    with_defaults,
)
from flopmap.model.media import Tower
from flopmap.model.media_tiles import Canvas, Grids, Tiles
from flopmap.model.media_whole import Budget, Resampled

if TYPE_CHECKING:
    from flopmap.model.architecture import Architecture

INTERN_L: dict[str, Any] = {
    "model_type": "internvl_vision", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
    "num_attention_heads": 16, "image_size": 448, "patch_size": 14,
}  # fmt: skip


def internvl(config: Config, text: Architecture) -> Architecture:
    """InternVL: up to 12 tiles and a thumbnail, squares of patches through two matrices."""
    vision = with_defaults(vision_config(config), **INTERN_L)
    return _intern(config, vision, text)


def qianfan_ocr(config: Config, text: Architecture) -> Architecture:
    """Qianfan-OCR: InternVL with biases in its tower."""
    vision = with_defaults(vision_config(config), **{**INTERN_L, "attention_bias": True})
    return _intern(config, vision, text)


def _intern(config: Config, vision: Config, text: Architecture) -> Architecture:
    kind = intern(vision)
    side, patch = side_of(vision, "image_size", 448), side_of(vision, "patch_size", 14)
    merge = round(1 / config.number("downsample_ratio", default=0.5))
    merged = hidden_of(vision) * merge**2
    settings = processor(config)
    images = Tiles(
        tower=Tower(patch=patch, merge=merge, extra=1),
        side=side,
        tokens=(side // patch // merge) ** 2,
        least=settings.integer("min_patches", default=1),
        most=settings.integer("max_patches", default=12) if settings.flag("crop_to_patches", default=True) else 1,
        around=2,
    )
    lead = connector(text.hidden, norm_row(merged), *mlp(merged, text.hidden, text.hidden))
    return seeing(text, images, *vit(vision, kind), lead)


def aya_vision(config: Config, text: Architecture) -> Architecture:
    """Aya Vision: InternVL's tiles, SigLIP, and a gated connector."""
    width = config.integer("alignment_intermediate_size", default=text.hidden)
    return _cohere(config, text, width, norm=True, fits=False)


def cohere2_vision(config: Config, text: Architecture) -> Architecture:
    """Command A Vision: tiles that enlarge a picture least."""
    return _cohere(config, text, config.integer("alignment_intermediate_size", default=36_864), norm=False, fits=True)


def _cohere(config: Config, text: Architecture, width: int, *, norm: bool, fits: bool) -> Architecture:
    vision = with_defaults(
        vision_config(config), model_type="siglip_vision_model", hidden_size=1152, intermediate_size=4304,
        num_hidden_layers=27, num_attention_heads=16, image_size=512 if fits else 384, patch_size=16 if fits else 14,
    )  # fmt: skip
    _, stacks = tower(vision, "siglip_vision_model")
    side, patch = side_of(vision, "image_size", 384), side_of(vision, "patch_size", 14)
    merge = config.integer("downsample_factor", default=2)
    merged = hidden_of(vision) * merge**2
    settings = processor(config)
    images = Tiles(
        tower=Tower(patch=patch, merge=merge, pooler=any(stack.name == "pooler" for stack in stacks)),
        side=side,
        tokens=(side // patch // merge) ** 2,
        least=settings.integer("min_patches", default=1),
        most=settings.integer("max_patches", default=12) if settings.flag("crop_to_patches", default=True) else 1,
        around=2,
        of_tile=1,
        fits=fits,
    )
    norms = (norm_row(merged),) if norm else ()
    lead = connector(text.hidden, *norms, *mlp(merged, width // 2, text.hidden, gated=True))
    return seeing(text, images, *stacks, lead)


# -- Llama ------------------------------------------------------------------------------------------------------------


def llama4(config: Config, text: Architecture) -> Architecture:
    """Llama 4: up to 16 tiles and a thumbnail; squares of patches through two matrices, then one more."""
    vision = with_defaults(
        vision_config(config), hidden_size=768, num_hidden_layers=34, num_attention_heads=16, intermediate_size=5632,
        image_size=448, patch_size=14, vision_output_dim=7680, projector_input_dim=4096, projector_output_dim=4096,
    )  # fmt: skip
    side, patch = side_of(vision, "image_size", 448), side_of(vision, "patch_size", 14)
    merge = round(1 / vision.number("pixel_shuffle_ratio", default=0.5))
    wide, out = vision.integer("projector_input_dim"), vision.integer("projector_output_dim")
    shuffled, given = vision.integer("intermediate_size"), vision.integer("vision_output_dim")
    # the width of the feed-forward and that of shuffled patches are one field, as the reference reads it
    kind = Vit(patch_bias=False, extra=1, table=(side // patch) ** 2 + 1, rotary=True, first=LAYER)
    lead = connector(
        text.hidden,
        Linear(name="up", d_in=shuffled, d_out=wide),
        Vector(name="activation", parameters=0, width=wide + out),
        Linear(name="down", d_in=out, d_out=out),
        Linear(name="projection", d_in=given, d_out=text.hidden),
    )
    images = Tiles(
        tower=Tower(patch=patch, merge=merge, extra=1),
        side=side,
        tokens=(side // patch // merge) ** 2,
        most=processor(config).integer("max_patches", default=16),
        around=3,
        fits=True,
        single=True,
        marks=True,
    )
    return seeing(text, images, *vit(vision, kind), lead)


MLLAMA_PADDING = 8  # its tower pads a tile's tokens to a multiple


def mllama(config: Config, text: Architecture) -> Architecture:
    """Llama 3.2 Vision: tiles in one sequence, always as many as there may be; layers that cross attend to them."""
    vision = with_defaults(
        vision_config(config), hidden_size=1280, num_hidden_layers=32, num_global_layers=8, attention_heads=16,
        intermediate_size=5120, vision_output_dim=7680, image_size=448, patch_size=14, max_num_tiles=4,
    )  # fmt: skip
    hidden, tiles = hidden_of(vision), vision.integer("max_num_tiles")
    patches = (side_of(vision, "image_size", 448) // side_of(vision, "patch_size", 14)) ** 2
    kind = Vit(patch_bias=False, qkv_bias=False, out_bias=False, first=LAYER, last=None, extra=1)
    plain = vit_layer(vision, kind)
    gated = replace(plain, pieces=(Vector(name="gates", parameters=2, width=2 * hidden),))
    layers = (plain,) * vision.integer("num_hidden_layers", high=MAX_LAYERS)
    layers += (gated,) * vision.integer("num_global_layers", high=MAX_LAYERS)
    shapes = sum(1 for wide in range(1, tiles + 1) for _ in range(1, tiles // wide + 1)) + 1
    positions = (patches + 1) * hidden + shapes * tiles * (patches + 1) * hidden + 1
    around = 2 * (shapes * tiles * hidden + 1)
    first, main = vit(vision, kind, layers=layers)
    main = replace(
        main,
        before=(*main.before, Vector(name="positions", parameters=positions), Vector(name="tiles", parameters=around)),
        after=(Row(name="last_norm", norm=LAYER, width=hidden),),
    )
    given = vision.integer("vision_output_dim")
    lead = connector(text.hidden, Linear(name="projection", d_in=given, d_out=text.hidden, bias=True))
    images = Canvas(tower=Tower(patch=side_of(vision, "patch_size", 14), extra=1), tiles=tiles, patches=patches,
                    padded=MLLAMA_PADDING)  # fmt: skip
    return seeing(text, images, first, main, lead)


def mllama_text(config: Config) -> Architecture:
    """Llama 3.2 Vision's text model: layers that only attend to pictures are skipped where there are none."""
    config = with_defaults(config, num_key_value_heads=8)
    attention = read_attention(config)
    half = read_feed_forward(config)
    layer = Layer(attention=attention, feed_forward=half)
    crossing = replace(attention, rotary_dim=0, qk_norm="shared", causal=False)
    cross = CrossAttention(source="connector", source_width=config.integer("hidden_size"), attention=crossing)
    gates = Vector(name="gates", parameters=2, width=2 * config.integer("hidden_size"))
    crossed = Layer(feed_forward=half, pieces=(cross, gates))
    listed: Any = config.fields.get("cross_attention_layers", [3, 8, 13, 18, 23, 28, 33, 38])
    if not isinstance(listed, list | tuple):
        raise config.error("cross_attention_layers", "is not a list of layers")
    count = config.integer("num_hidden_layers", high=MAX_LAYERS)
    layers = tuple(crossed if index in listed else layer for index in range(count))
    text = read_decoder(config, layers, Norm())
    return replace(text, before=(Vector(name="image_rows", parameters=8 * text.hidden),))


# -- resamplers -------------------------------------------------------------------------------------------------------


def idefics2(config: Config, text: Architecture) -> Architecture:
    """Idefics 2: patches of any grid, a gated projection, and 64 learned queries that attend to them and themselves."""
    vision = with_defaults(
        vision_config(config), hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12,
        image_size=224, patch_size=32,
    )  # fmt: skip
    side, patch = side_of(vision, "image_size", 224), side_of(vision, "patch_size", 32)
    perceiver = with_defaults(
        Config(config.table("perceiver_config"), f"{config.name}: perceiver_config"), hidden_size=text.hidden,
        resampler_n_latents=64, resampler_depth=3, resampler_n_heads=16, resampler_head_dim=96, num_key_value_heads=4,
    )  # fmt: skip
    width, latents = perceiver.integer("hidden_size"), perceiver.integer("resampler_n_latents")
    dim = perceiver.integer("resampler_head_dim")
    attention = Attention(
        heads=perceiver.integer("resampler_n_heads"), kv_heads=perceiver.integer("num_key_value_heads"), head_dim=dim,
        value_dim=dim, causal=False,
    )  # fmt: skip
    cross = attends("context", width, attention)
    norms = (Row(name="latents_norm", norm=RMS, width=width), Vector(name="context_norm", parameters=width))
    half = FeedForward(width=4 * width, gated=True)
    layer = Layer(feed_forward=half, norms=0, pieces=(*norms, cross, Row(name="mlp_norm", norm=RMS, width=width)))
    depth = perceiver.integer("resampler_depth", high=MAX_LAYERS)
    lead = Stack(
        name="connector", reads="image", hidden=width, norm=RMS, layers=(layer,) * depth,
        before=(Vector(name="latents", parameters=latents * width),), after=(Row(name="norm", norm=RMS, width=width),),
    )  # fmt: skip
    projected = mlp(hidden_of(vision), _text_width(config), text.hidden, bias=False, gated=True, name="projection.")
    main = vit(vision, Vit(table=(side // patch) ** 2))[-1]
    settings = processor(config)
    size = Config(settings.table("size"), settings.name)
    images = Resampled(
        tower=Tower(patch=patch),
        shortest=size.integer("shortest_edge", default=378),
        longest=size.integer("longest_edge", default=980),
        latents=latents,
        split=settings.flag("do_image_splitting", default=False),
        selves=True,
    )
    return seeing(text, images, replace(main, after=(*main.after, *projected)), lead)


def _text_width(config: Config) -> int:
    """The width of the text model's feed-forward, which the projection shares."""
    text = Config(config.table("text_config"), f"{config.name}: text_config")
    return text.integer("intermediate_size", default=14_336)


def ovis2(config: Config, text: Architecture) -> Architecture:
    """Ovis 2: squares of patches choose from a table of visual words, whose rows are mixed by a product."""
    vision = with_defaults(
        vision_config(config), hidden_size=1024, intermediate_size=2816, num_hidden_layers=24, num_attention_heads=8,
        image_size=224, patch_size=14, hidden_stride=1, vocab_size=16_384, num_visual_indicator_tokens=5,
    )  # fmt: skip
    bias, both = vision.flag("qkv_bias", default=False), vision.flag("mlp_bias", default=False)
    side, patch = side_of(vision, "image_size", 224), side_of(vision, "patch_size", 14)
    stride, words = vision.integer("hidden_stride"), vision.integer("vocab_size")
    spoken = words - vision.integer("num_visual_indicator_tokens")
    kind = Vit(norm=RMS, gated=True, qkv_bias=bias, out_bias=bias, mlp_bias=both, table=(side // patch) ** 2, first=RMS,
               last=RMS)  # fmt: skip
    pieces: tuple[Piece, ...] = (
        Linear(name="head", d_in=hidden_of(vision) * stride**2, d_out=spoken),
        norm_row(spoken),
        Linear(name="words", d_in=words, d_out=config.integer("hidden_size", default=text.hidden)),
    )
    settings = processor(config)
    images = Grids(
        tower=Tower(patch=patch, merge=stride),
        side=side,
        tokens=(-(-(side // patch) // stride)) ** 2,
        least=settings.integer("min_patches", default=1),
        most=settings.integer("max_patches", default=12) if settings.flag("crop_to_patches", default=False) else 1,
    )
    return seeing(text, images, *vit(vision, kind), connector(text.hidden, *pieces))


def aria(config: Config, text: Architecture) -> Architecture:
    """Aria: learned queries, 128 for a picture of 490 pixels and 256 for 980, attend to its patches."""
    vision = with_defaults(
        vision_config(config), hidden_size=1152, intermediate_size=4304, num_hidden_layers=27, num_attention_heads=16,
        image_size=980, patch_size=14,
    )  # fmt: skip
    side, patch = side_of(vision, "image_size", 980), side_of(vision, "patch_size", 14)
    listed = config.table("projector_patch_to_query_dict") or {"1225": 128, "4900": 256}
    queries, hidden = {int(patches): int(many) for patches, many in listed.items()}, hidden_of(vision)
    most = config.integer("max_value_projector_patch_to_query_dict", default=max(queries.values()))
    heads = vision.integer("num_attention_heads")
    attention = Attention(
        heads=heads, kv_heads=heads, head_dim=hidden // heads, value_dim=hidden // heads, qkv_bias=True, out_bias=True,
        causal=False,
    )  # fmt: skip
    twice = tuple(Linear(name=f"{name}_first", d_in=hidden, d_out=hidden) for name in ("q",))
    pieces = (
        norm_row(hidden, name="query_norm"),
        *twice,
        attends("vision", hidden, attention),
        Linear(name="linear", d_in=hidden, d_out=hidden, bias=True),
        norm_row(hidden),
        *mlp(hidden, text.hidden, text.hidden, bias=False),
    )
    lead = Stack(
        name="connector", reads="image", hidden=hidden,
        before=(Vector(name="query", parameters=most * hidden),),
        layers=(Layer(norms=0, pieces=pieces),),
    )  # fmt: skip
    main = vit(vision, Vit(table=(side // patch) ** 2))[-1]
    read = (
        norm_row(hidden, name="key_norm"),
        Linear(name="k_first", d_in=hidden, d_out=hidden),
        Linear(name="v_first", d_in=hidden, d_out=hidden),
    )
    settings = processor(config)
    longest = settings.integer("max_image_size", default=980)
    if (longest // patch) ** 2 not in queries:
        raise settings.error("max_image_size", f"{longest} has no number of queries in the config")
    images = Resampled(tower=Tower(patch=patch), square=longest, latents=queries[(longest // patch) ** 2])
    return seeing(text, images, replace(main, after=(*main.after, *read)), lead)


def gemma4(config: Config, text: Architecture) -> Architecture:
    """Gemma 4: the largest grid of patches of the picture's shape, averaged in squares of nine, through one matrix."""
    if not config.table("vision_config"):
        return text
    vision = with_defaults(
        vision_config(config), hidden_size=768, intermediate_size=3072, num_hidden_layers=16, num_attention_heads=12,
        num_key_value_heads=12, head_dim=64, patch_size=16, position_embedding_size=10_240, pooling_kernel_size=3,
    )  # fmt: skip
    kind = Vit(
        norm=RMS, gated=True, patch_bias=False, qkv_bias=False, out_bias=False, mlp_bias=False, rotary=True,
        qk_norm="shared", sandwich=True, table=2 * vision.integer("position_embedding_size"), last=None,
    )  # fmt: skip
    hidden, plain = hidden_of(vision), Norm(affine=False)
    lead = connector(text.hidden, Row(name="norm", norm=plain, width=hidden),
                     Linear(name="projection", d_in=hidden, d_out=text.hidden))  # fmt: skip
    images = Budget(
        tower=Tower(patch=vision.integer("patch_size"), merge=vision.integer("pooling_kernel_size")),
        tokens=processor(config).integer("max_soft_tokens", default=280),
    )
    return seeing(text, images, *vit(vision, kind), lead)


AROUND = {
    "aria": aria,
    "aya_vision": aya_vision,
    "cohere2_vision": cohere2_vision,
    "gemma4": gemma4,
    "idefics2": idefics2,
    "internvl": internvl,
    "llama4": llama4,
    "mllama": mllama,
    "ovis2": ovis2,
    "qianfan_ocr": qianfan_ocr,
}
FAMILIES = {"mllama_text_model": mllama_text}
