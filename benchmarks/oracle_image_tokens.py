"""Writes the tokens that transformers' processors make of images and videos of many sizes: tests/oracle/images.json.

The processors are asked for their own count (``_get_num_multimodal_tokens``) or, where they have none, for the text
that they put in an image's place. A processor is made without a tokenizer, which the counts do not need. The settings
are those in ``tests/oracle/image_text/types.yaml``, so that the configs beside it fit. Nothing of flopmap is imported.

    pip install torch==2.13.0 torchvision==0.28.0 transformers==5.24.0 ruamel.yaml pillow
    python benchmarks/oracle_image_tokens.py
"""

from __future__ import annotations

import importlib
import json
import logging
from types import SimpleNamespace
from typing import Any

import oracle_images
import oracle_types
import torch
import transformers

SIDES = (28, 97, 224, 336, 500, 640, 777, 1024, 1280, 1920, 3000)
SHAPES = [(width, height) for width in SIDES for height in SIDES if max(width, height) <= 20 * min(width, height)]
FRAMES = ((4, 640, 360), (16, 1280, 720), (33, 224, 224), (64, 1920, 1080))
# what a processor holds beside its image processor
HELD: dict[str, dict[str, Any]] = {
    "aria": {"size_conversion": {490: 128, 980: 256}},
    "aya_vision": {"img_size": 364, "patch_size": 28},
    "cohere2_vision": {"patch_size": 16},
    "gemma3": {"image_seq_length": 256},
    "idefics3": {"image_seq_len": 169},
    "internvl": {"image_seq_length": 256},
    "kimi_k25": {},
    "lighton_ocr": {"patch_size": 14, "spatial_merge_size": 2},
    "llama4": {"patch_size": 14, "downsample_ratio": 4},
    "llava_next": {"patch_size": 14, "num_additional_image_tokens": 1, "vision_feature_select_strategy": "default"},
    "llava_onevision": {
        "num_image_tokens": 729, "vision_feature_select_strategy": "full", "vision_aspect_ratio": "anyres_max_9",
    },
    "mistral3": {"patch_size": 14, "spatial_merge_size": 2},
    "ovis2": {"image_seq_length": 256},
    "qianfan_ocr": {"image_seq_length": 256},
}  # fmt: skip
CLASSES = {"mistral3": "PixtralProcessor", "kimi_k25": "Kimi_K25Processor"}
ASKED = (
    *("aria", "aya_vision", "cohere2_vision", "gemma3", "gemma4", "glm4v", "idefics3", "internvl", "kimi_k25"),
    *("lfm2_vl", "llama4", "llava_next", "llava_onevision", "minimax_m3_vl", "mistral3", "ovis2"),
    *("qwen2_5_vl", "qwen2_vl", "qwen3_vl"),
)
VIDEOS = {
    "glm4v": "Glm4vVideoProcessor",
    "qwen2_5_vl": "Qwen2VLVideoProcessor",
    "llava_onevision": "LlavaOnevisionVideoProcessor",
    "qwen2_vl": "Qwen2VLVideoProcessor",
    "qwen3_vl": "Qwen3VLVideoProcessor",
}


def made(kind: str) -> Any:
    """Return a processor without its tokenizer."""
    special = oracle_images.specials().get(kind) or {}
    name = CLASSES.get(kind) or transformers.models.auto.processing_auto.PROCESSOR_MAPPING_NAMES[kind]
    made = object.__new__(getattr(transformers, name))
    made.image_processor = oracle_images.processor(kind, dict(special.get("processor", {})))
    if kind in VIDEOS:
        made.video_processor = getattr(transformers, VIDEOS[kind])(**video_settings(special))
    settings = {"images_kwargs": {}, "videos_kwargs": {}}
    made._merge_kwargs = lambda *_, **__: settings
    made.tokenizer = lambda *_, **__: {"input_ids": [0]}  # two newlines are one token in the published tokenizers
    for field, value in HELD.get(kind, {}).items():
        setattr(made, field, value)
    return made


def video_settings(special: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that the video processor shares with that of images."""
    return {key: value for key, value in special.get("processor", {}).items() if key in ("patch_size", "merge_size")}


def tokens_of(kind: str, made: Any, width: int, height: int) -> int:
    """Return the tokens of one image."""
    if kind == "llama4":
        return llama4(made, width, height)
    if kind == "ovis2":
        module = importlib.import_module("transformers.models.ovis2.image_processing_ovis2")
        own = made.image_processor
        grid = module.get_min_tile_covering_grid((height, width), own.size.height, own.max_patches)
        grid = grid if own.crop_to_patches else (1, 1)
        setattr(made, *("image_token", "<IMG_ATOM>"))
        text = made.replace_image_token({"grids": [torch.tensor(grid)]}, 0)
        return text.count("<")
    if kind == "lfm2_vl":
        return lfm2(made, width, height)
    return int(made._get_num_multimodal_tokens(image_sizes=[[height, width]])["num_image_tokens"][0])  # noqa: SLF001


def llama4(made: Any, width: int, height: int) -> int:
    """Return the tokens that Llama 4's processor writes."""
    module = importlib.import_module("transformers.models.llama4.image_processing_llama4")
    own = made.image_processor
    module.find_supported_resolutions.cache_clear()
    possible = torch.tensor(module.find_supported_resolutions(own.max_patches, own.size))
    best = module.get_best_fit((height, width), possible, resize_to_max_canvas=own.resize_to_max_canvas)
    ratio = torch.tensor([best[0] // own.size.height, best[1] // own.size.width])
    pixels = SimpleNamespace(shape=(1, 3, own.size.height, own.size.width))
    text = made.replace_image_token({"pixel_values": [pixels], "aspect_ratios": [ratio]}, 0)
    return text.count("<|")


def lfm2(made: Any, width: int, height: int) -> int:
    """Return the tokens that LFM2-VL's processor writes."""
    own = made.image_processor
    marks = ("image_token", "image_start_token", "image_end_token", "image_thumbnail_token")
    made.__dict__.update(dict.fromkeys(marks, "<i>"))
    limits = {"downsample_factor": own.downsample_factor, "encoder_patch_size": own.encoder_patch_size}
    most = {**limits, "max_image_tokens": own.max_image_tokens}
    wide, high = own.smart_resize(height, width, min_image_tokens=own.min_image_tokens, **most)
    tile, whole = made._get_image_num_tokens([high, wide])  # noqa: SLF001
    rows = columns = 1
    if own._is_image_too_large(height, width, max_pixels_tolerance=own.max_pixels_tolerance, **most):  # noqa: SLF001
        columns, rows = own._get_grid_layout(height, width, own.min_tiles, own.max_tiles, own.tile_size)[:2]  # noqa: SLF001
    return made._build_image_tokens(rows, columns, tile, whole, True, True).count("<")  # noqa: FBT003, SLF001


def main() -> None:
    """Ask every processor for every size."""
    logging.disable(logging.WARNING)
    found = {}
    for kind in ASKED:
        made_ = made(kind)
        own = made_.image_processor.to_dict()
        settings = {key: value for key, value in own.items() if key not in oracle_images.COLOURS and value is not None}
        entry: dict[str, Any] = {"processor": settings, "tokens": []}
        for width, height in SHAPES:
            try:
                entry["tokens"].append([width, height, tokens_of(kind, made_, width, height)])
            except ValueError as refusal:
                entry["tokens"].append([width, height, str(refusal)[:60]])
        if kind in VIDEOS:
            entry["videos"] = [
                [frames, width, height,
                 int(made_._get_num_multimodal_tokens(video_sizes=[[frames, height, width]])["num_video_tokens"][0])]  # noqa: SLF001
                for frames, width, height in FRAMES
            ]  # fmt: skip
            size = made_.video_processor.to_dict().get("size")
            entry["video_processor"] = {"size": dict(size)} if size else {}
        found[kind] = entry
        oracle_types.progress(f"{kind}: {entry['tokens'][:3]} {entry.get('videos', '')}")
    lines = [
        f"{json.dumps(kind)}:{json.dumps(entry, sort_keys=True, separators=(',', ':'))}"
        for kind, entry in found.items()
    ]
    (oracle_types.ROOT / "tests/oracle/images.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


if __name__ == "__main__":
    main()
