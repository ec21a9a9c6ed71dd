"""A model by itself: its layers drawn as text, and its account."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flopmap.model.architecture import Attention, Experts, FeedForward, Layer
from flopmap.report.model import account, describe, differences, lines, pattern

if TYPE_CHECKING:
    from flopmap.records.book import Book

FULL = Layer(
    attention=Attention(heads=8, kv_heads=2, head_dim=64, value_dim=64),
    feed_forward=FeedForward(width=1024, gated=True),
)
WINDOWED = Layer(
    attention=Attention(heads=8, kv_heads=2, head_dim=64, value_dim=64, window=512),
    feed_forward=FeedForward(width=1024, gated=False),
)
MIXTURE = Layer(attention=None, feed_forward=Experts(experts=64, top_k=6, width=1408, shared_width=2816))


@pytest.mark.parametrize(
    ("layers", "drawn"),
    [
        ((FULL,) * 32, "32 A"),
        ((FULL,), "A"),
        ((WINDOWED, FULL) * 21, "21 x (A, B)"),
        (((WINDOWED,) * 5 + (FULL,)) * 10 + (WINDOWED,) * 2, "10 x (5 A, B), 2 A"),
        ((FULL,) * 3 + (MIXTURE,) * 58, "3 A, 58 B"),
        ((FULL, MIXTURE, FULL), "A, B, A"),
    ],
)
def test_layers_are_drawn_as_runs_and_repeats(layers: tuple[Layer, ...], drawn: str) -> None:
    text, legend = pattern(layers)
    assert text == drawn
    assert len(legend) == len(set(layers))


def test_a_layer_is_described_in_a_few_words() -> None:
    assert describe(FULL) == "attention 8 x 64 over 2 key heads; feed-forward 1,024"
    assert describe(WINDOWED) == "attention 8 x 64 over 2 key heads, window 512; feed-forward 1,024 ungated"
    assert describe(MIXTURE) == "6 of 64 experts of 1,408, shared 2,816"
    assert describe(Layer()) == "nothing that costs"


def test_an_account_adds_up(book: Book) -> None:
    found = account("gpt2", book)
    assert found.parameters == sum(found.parameters_by_place.values()) == 124_439_808
    assert lines(found)[0] == "124,439,808 parameters, 123,532,032 of them multiply a token (gpt2)"
    # its table of positions ends before any of the usual contexts
    assert found.flop_per_token.keys() == {1024}
    found = account("meta-llama/Llama-3.1-8B", book)
    # each further key costs 4 FLOP for each of 4096 elements in 32 layers
    assert found.flop_per_token[32768] - found.flop_per_token[2048] == 32 * 4 * 4096 * (32768 - 2048)


def test_an_account_says_formats_and_what_is_left_out(book: Book) -> None:
    deepseek, llama = account("deepseek-ai/DeepSeek-V3", book), account("meta-llama/Llama-3.1-8B", book)
    assert (deepseek.weight_format, llama.weight_format) == ("fp8-block", "bf16")
    (note,) = deepseek.not_counted
    assert note.startswith("the layer that predicts a further token: 11,610,067,968 parameters")
    assert any(f"not counted: {note}" in line for line in lines(deepseek))
    # experts alone are MXFP4
    mixed = account("openai/gpt-oss-20b", book).weight_format
    assert mixed.startswith("mxfp4; in formats of their own: attention.out, attention.qkv")


def test_a_model_does_not_differ_from_itself(book: Book) -> None:
    one = account("gpt2", book)
    assert differences(one, one) == []
    other = account("openai-community/gpt2-medium", book)
    assert ("hidden", "768", "1,024") in differences(one, other)
