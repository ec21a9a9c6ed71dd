"""Images: what the towers cost, what a prompt with pictures holds, and what the rules of processors must obey."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flopmap.floor.roofline import Pricing, price
from flopmap.floor.summary import memory
from flopmap.media import tower_groups
from flopmap.model.media import Medium, MediumError, Pass, Tower
from flopmap.model.media_tiles import covering_grid, fitting_grid, nearest_grid
from flopmap.model.media_whole import Native
from flopmap.scenario import Request, make
from flopmap.step import ScenarioError

if TYPE_CHECKING:
    from pathlib import Path

    from flopmap.records.book import Book

VIT_L = {
    "model_type": "vit", "architectures": ["ViTForImageClassification"], "hidden_size": 1024, "num_hidden_layers": 24,
    "num_attention_heads": 16, "intermediate_size": 4096, "image_size": 224, "patch_size": 16, "num_labels": 1000,
}  # fmt: skip
QWEN = Native(tower=Tower(patch=14, merge=2), least=3136, most=12_845_056, temporal=2, window=4)
SIDES = st.integers(1, 4000)


def priced(config: dict[str, Any] | str, book: Book, tmp_path: Path, **scenario: Any) -> Pricing:
    if isinstance(config, dict):
        (tmp_path / "config.json").write_text(json.dumps(config))
        config = str(tmp_path / "config.json")
    return price(make(Request(model=config, on="h100-sxm", **scenario), book), book)


def test_vit_l_16_at_224_is_197_tokens_and_123_gflop(book: Book, tmp_path: Path) -> None:
    # 196 patches and a class token; 24 (24 L d^2 + 4 L^2 d) and the patches' 2 x 196 x 768 d, L = 197, d = 1024: 123.1
    # GFLOP. A published 190.7 is another picture and another unit: 384 pixels (577 tokens), and multiply-adds.
    pricing = priced(VIT_L, book, tmp_path)
    tower = 24 * (24 * 197 * 1024**2 + 4 * 197**2 * 1024) + 2 * 196 * 768 * 1024
    assert tower == 123_107_377_152
    assert pricing.totals["matrix"] == tower + 2 * 1024 * 1000  # the classifier, of one token
    assert pricing.scenario.phase == "encode"
    assert pricing.totals["parameters"] == 304_326_632  # as its publisher counts
    half_of_384 = (24 * (24 * 577 * 1024**2 + 4 * 577**2 * 1024)) / 2
    assert half_of_384 == pytest.approx(190.7e9, rel=0.001)


def test_a_tower_costs_an_image_each_and_nothing_while_decoding(book: Book, tmp_path: Path) -> None:
    model = "Qwen/Qwen3-VL-8B-Instruct"
    one = priced(model, book, tmp_path, phase="encode", images=1, image_size=(1280, 720))
    five = priced(model, book, tmp_path, phase="encode", images=5, image_size=(1280, 720))
    assert five.totals["matrix"] == 5 * one.totals["matrix"]
    text = priced(model, book, tmp_path, context_len=1000)
    seen = priced(model, book, tmp_path, context_len=1000, images=3)
    assert seen.totals == text.totals
    # held all the same: 2 bytes of every parameter
    assert memory(text, book).weight_bytes == 2 * text.totals["parameters"]


def test_the_prefill_of_a_prompt_with_images_is_towers_and_a_longer_prompt(book: Book, tmp_path: Path) -> None:
    model = "Qwen/Qwen3-VL-8B-Instruct"
    both = priced(model, book, tmp_path, phase="prefill", input_len=100, images=2, image_size=(1280, 720))
    # 40 x 22 tokens of 32 pixels (720 is 22.5 of them: 22, as Python rounds halves to even)
    assert both.scenario.media_tokens == 2 * 40 * 22
    text = priced(model, book, tmp_path, phase="prefill", input_len=100 + 2 * 880)
    towers = priced(model, book, tmp_path, phase="encode", images=2, image_size=(1280, 720))
    for resource in ("matrix", "vector", "exp", "launches"):
        assert both.totals[resource] == pytest.approx(text.totals[resource] + towers.totals[resource], rel=1e-12)


def test_windows_cover_every_patch_once() -> None:
    # 1280 x 720 in Qwen2.5-VL: 46 x 26 tokens; windows of 4 x 4, smaller at the right (2) and at the bottom (2)
    medium = QWEN.of(1280, 720)
    windows = {part.tokens: part.count for part in medium.passes if part.stack == "vision.window"}
    assert windows == {64: 11 * 6, 32: 11 + 6, 16: 1}
    assert sum(tokens * count for tokens, count in windows.items()) == 4 * medium.tokens == 4 * 46 * 26


@given(SIDES, SIDES, st.one_of(st.none(), st.integers(1, 64)))
def test_a_native_processor_keeps_its_limits_and_its_windows_the_patches(
    width: int, height: int, frames: int | None
) -> None:
    try:
        medium = QWEN.of(width, height, frames)
    except MediumError:
        assert max(width, height) > 200 * min(width, height)
        return
    depth = -(-(frames or 1) // 2)
    vision, lead = medium.passes[:2]
    assert lead.tokens * lead.count == medium.tokens
    assert vision.tokens == 4 * lead.tokens
    assert vision.count == depth
    if max(width, height) <= 50 * min(width, height):  # where no side is held at one token
        assert vision.tokens * 14 * 14 <= 12_845_056
    windows = sum(part.tokens * part.count for part in medium.passes if part.stack == "vision.window")
    assert windows == vision.tokens * vision.count


@given(SIDES, SIDES, st.integers(1, 12))
def test_grids_of_tiles_never_have_too_many(width: int, height: int, most: int) -> None:
    for grid in (nearest_grid(width, height, 448, 1, most), fitting_grid(width, height, 448, most),
                 covering_grid(width, height, 448, most)):  # fmt: skip
        assert 1 <= grid[0] * grid[1] <= most


def test_equal_passes_are_one_group() -> None:
    medium = Medium(passes=(Pass("vision", 64, 3), Pass("vision", 16)), tokens=5)
    groups = tower_groups((medium, medium), batch=2)
    assert [(group.stack, group.new, group.count) for group in groups] == [("vision", 64, 12), ("vision", 16, 4)]


def test_layers_that_only_cross_attend_are_skipped_without_an_image(book: Book, tmp_path: Path) -> None:
    text = {
        "model_type": "mllama_text_model", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
        "num_key_value_heads": 2, "num_hidden_layers": 3, "vocab_size": 100, "cross_attention_layers": [1],
    }  # fmt: skip
    tower = {
        "hidden_size": 32, "num_hidden_layers": 1, "num_global_layers": 1, "attention_heads": 2, "image_size": 28,
        "intermediate_size": 64, "vision_output_dim": 64, "patch_size": 14, "max_num_tiles": 2,
    }  # fmt: skip
    config = {"model_type": "mllama", "text_config": text, "vision_config": tower}
    without = priced(config, book, tmp_path, context_len=10)
    seen = priced(config, book, tmp_path, context_len=10, images=1)
    # the layer's feed-forward (3 matrices), queries, output, and scores and values of 2 tiles of 4 patches and a class
    assert seen.totals["matrix"] - without.totals["matrix"] == 2 * (3 * 64 * 128 + 2 * 64 * 64) + 4 * 10 * 64
    # keys and values of these 10 tokens, 2 heads of 16, 2 bytes
    assert seen.totals["cache"] - without.totals["cache"] == 10 * 2 * 2 * 16 * 2
    assert seen.totals["parameters"] == without.totals["parameters"]


@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        ({"model": "gpt2", "images": 2}, "--images 2: gpt2 models read no images"),
        ({"model": "google/gemma-3-4b-it", "images": 10**7}, "--images 10000000: out of range"),
        ({"model": "Qwen/Qwen3-VL-8B-Instruct", "image_size": (900, 4)}, "--image-size 900x4: one side is more than"),
        ({"model": "moonshotai/Kimi-K2.5", "video_frames": 8}, "--video-frames 8: videos of this processor"),
        ({"model": "google/gemma-3-4b-it", "video_frames": 0}, "--video-frames 0: out of range"),
    ],
)  # fmt: skip
def test_what_no_processor_makes_is_refused_by_flag(scenario: dict[str, Any], message: str, book: Book) -> None:
    with pytest.raises(ScenarioError, match=message.replace("(", r"\(")):
        make(Request(on="h100-sxm", **scenario), book)
