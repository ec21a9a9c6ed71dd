"""Sounds: what a tower costs, and what a prompt that is heard holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flopmap.floor.roofline import Pricing, price
from flopmap.floor.summary import memory
from flopmap.model.media import MediumError
from flopmap.model.media_sound import Windows
from flopmap.scenario import Request, make
from flopmap.step import ScenarioError

if TYPE_CHECKING:
    from flopmap.records.book import Book

QWEN, VOXTRAL = "Qwen/Qwen2-Audio-7B-Instruct", "mistralai/Voxtral-Mini-3B-2507"
RULES = {
    "down": Windows(frames=3000, merge=2),
    "up": Windows(frames=3000, merge=4, last="up"),
    "padded": Windows(frames=3000, merge=4, last="padded"),
}


def priced(model: str, book: Book, **scenario: Any) -> Pricing:
    return price(make(Request(model=model, on="h100-sxm", **scenario), book), book)


def test_thirty_seconds_of_qwen2_audio_are_2_28_tflop(book: Book) -> None:
    # 3000 frames of 128 bins, three taps, to 1280; 1500 positions of three times 1280; 32 layers of four projections,
    # two matrices of 5120 and the square of 1500; 750 means of two to 4096
    d = 1280
    convolutions = 2 * 3000 * 3 * 128 * d + 2 * 1500 * 3 * d * d
    layers = 32 * (2 * 1500 * (4 * d * d + 2 * d * 5120) + 4 * 1500**2 * d)
    pricing = priced(QWEN, book, phase="encode")
    assert pricing.totals["matrix"] == convolutions + layers + 2 * 750 * d * 4096 == 2_281_635_840_000
    assert pricing.totals["parameters"] == 8_397_094_912  # as published
    assert any("30 s a sequence: no length is given" in note for note in pricing.scenario.assumptions)


def test_voxtral_mini_has_its_published_parameters(book: Book) -> None:
    # 662,134,784 of them hear: tower and connector
    assert priced(VOXTRAL, book, phase="encode").totals["parameters"] == 4_676_271_104


@pytest.mark.parametrize(("seconds", "windows"), [(1, 1), (30, 1), (30.01, 2), (60, 2), (61, 3), (600, 20)])
def test_windows_are_padded_so_the_tower_costs_a_window_each(seconds: float, windows: int, book: Book) -> None:
    one = priced(VOXTRAL, book, phase="encode", audio_seconds=30)
    more = priced(VOXTRAL, book, phase="encode", audio_seconds=seconds)
    assert more.totals["matrix"] == windows * one.totals["matrix"]
    assert more.scenario.media_tokens == 375 * windows
    assert more.scenario.audio_seconds == seconds
    assert more.scenario.images == 0


def test_the_prefill_of_a_sound_is_the_tower_and_a_longer_prompt(book: Book) -> None:
    # 12 s are 1200 frames, 600 positions, 300 means of two
    both = priced(QWEN, book, phase="prefill", input_len=100, audio_seconds=12, batch_size=3)
    text = priced(QWEN, book, phase="prefill", input_len=400, batch_size=3)
    tower = priced(QWEN, book, phase="encode", audio_seconds=12, batch_size=3)
    assert both.scenario.input_len == 400
    for resource in ("matrix", "vector", "exp", "launches"):
        assert both.totals[resource] == pytest.approx(text.totals[resource] + tower.totals[resource], rel=1e-12)
    assert "prompt 400 tokens: 300 of them of sound" in both.scenario.assumptions


def test_a_tower_is_held_and_idle_while_decoding(book: Book) -> None:
    text = priced(QWEN, book, context_len=1000)
    heard = priced(QWEN, book, context_len=1000, audio_seconds=30)
    assert heard.totals == text.totals
    assert memory(text, book).weight_bytes == 2 * 8_397_094_912


def test_without_a_context_the_sound_is_in_it(book: Book) -> None:
    text, heard = (
        priced(QWEN, book, input_len=100, output_len=20),
        priced(QWEN, book, input_len=100, output_len=20, audio_seconds=12),
    )
    assert heard.scenario.context_len is not None
    assert text.scenario.context_len is not None
    assert heard.scenario.context_len - text.scenario.context_len == 300


@pytest.mark.parametrize("last", RULES)
@given(seconds=st.floats(0.1, 600))
def test_tokens_are_those_of_the_windows_or_fewer_and_grow_with_the_sound(last: str, seconds: float) -> None:
    rule = RULES[last]
    medium, longer = rule.of(seconds), rule.of(seconds + 1)
    passes = {part.stack: part for part in medium.passes}
    assert medium.tokens <= longer.tokens
    assert medium.tokens <= passes["audio"].count * 1500 // rule.merge
    # a window is never cut: the tower reads all of its frames
    assert passes["frames"].tokens == 2 * passes["audio"].tokens == 3000
    assert (passes["frames"].count - 1) * 30 < seconds + 0.01 <= passes["frames"].count * 30 + 0.02


def test_seconds_are_written_between_the_tokens_a_digit_a_token() -> None:
    # 30 s: 375 tokens; 2, 4, 6, 8 and eleven numbers of two digits
    rule = Windows(frames=3000, merge=4, last="up", mark=2)
    assert rule.of(30).tokens == 375 + 4 + 11 * 2


def test_a_sound_without_a_token_is_refused() -> None:
    with pytest.raises(MediumError, match=r"0\.01: too short"):
        RULES["down"].of(0.01)


@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        ({"model": "gpt2", "audio_seconds": 5}, "--audio-seconds 5: gpt2 models take no sound beside their text"),
        ({"model": "google/gemma-3-4b-it", "audio_seconds": 5}, "--audio-seconds 5: gemma3 models take no sound"),
        ({"model": QWEN, "audio_seconds": 31}, r"--audio-seconds 31: the processor cuts sounds off .*up to 30 s"),
        ({"model": VOXTRAL, "audio_seconds": 0}, "--audio-seconds 0: out of range"),
        ({"model": VOXTRAL, "audio_seconds": 2e6}, r"--audio-seconds 2e\+06: out of range"),
        ({"model": VOXTRAL, "images": 1}, "--images 1: voxtral models read no images"),
    ],
)  # fmt: skip
def test_what_no_processor_makes_is_refused_by_flag(scenario: dict[str, Any], message: str, book: Book) -> None:
    with pytest.raises(ScenarioError, match=message):
        make(Request(on="h100-sxm", **scenario), book)
