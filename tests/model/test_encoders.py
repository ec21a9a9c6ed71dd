"""Encoders and encoder-decoders of the book: published counts, lengths, and where an encoder leaves memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flopmap.floor.roofline import price
from flopmap.floor.summary import cache_per_token
from flopmap.report.model import account
from flopmap.scenario import Request, make
from flopmap.step import ScenarioError

if TYPE_CHECKING:
    from flopmap.floor.roofline import Pricing
    from flopmap.records.book import Book

# counts that the hub or the authors print
PUBLISHED = {
    "bert-base": 109_482_240,
    "bge-m3": 567_754_752,
    "bge-reranker-v2-m3": 567_755_777,  # a score in the place of the pooler
    "all-minilm": 22_713_216,
    "all-mpnet-base": 109_486_464,
    "modernbert-base": 149_655_232,
    "flan-t5-xl": 2_849_757_184,
    "mt5-base": 582_401_280,
    "bart-large-cnn": 406_290_432,
    "nllb-600m": 615_073_792,
    "whisper-tiny": 37_760_640,
    "whisper-large-v3": 1_543_490_560,
    "whisper-turbo": 808_878_080,
}


@pytest.mark.parametrize("model", PUBLISHED)
def test_parameters_are_the_published_ones(model: str, book: Book) -> None:
    assert account(model, book).parameters == PUBLISHED[model]


def encoded(book: Book, tokens: int) -> Pricing:
    conventions = (("gemm-bytes", "weights"), ("clock", "rated"))
    request = Request(
        model="bge-reranker-large",
        on="h100-sxm",
        phase="encode",
        dtype="bf16",
        input_len=tokens,
        conventions=conventions,
    )
    return price(make(request, book), book)


def test_a_reranker_leaves_memory_only_from_296_tokens_on_h100(book: Book) -> None:
    # a GEMM that reads weights alone: 2 FLOP a token for every 2 bytes, against 989.4e12 / 3.35e12 = 295.3 FLOP/B
    for tokens, bound in ((295, "memory_bandwidth"), (296, "matrix_peak")):
        gemms = {line.bound_by for line in encoded(book, tokens).lines if line.line.op.op_class == "weight-gemm"}
        assert gemms == {bound}


def test_an_encoder_has_no_cache_and_is_counted_by_the_texts_that_its_positions_take(book: Book) -> None:
    bert = account("bert-base", book)
    assert bert.kv_bytes_per_token == bert.cross_bytes_per_encoded_token == 0
    assert list(bert.flop_to_encode) == [128, 512]  # 512 rows in its table
    # 85,524,480 weights without the pooler's 768 x 768, which one row passes; 12 layers of scores and outputs
    layers = 2 * 128 * (85_524_480 - 768 * 768)
    assert bert.flop_to_encode[128] == layers + 2 * 768 * 768 + 12 * 4 * 128 * 128 * 768
    assert list(account("bge-m3", book).flop_to_encode) == [128, 512, 8192]


def test_a_text_is_no_longer_than_the_positions_unless_it_is_asked_for(book: Book) -> None:
    scenario = make(Request(model="bert-base", on="h100-sxm"), book)
    assert scenario.input_len == 512
    assert "prompt 512 tokens: none is given" in scenario.assumptions


def test_cross_attention_holds_keys_and_values_of_what_was_encoded(book: Book) -> None:
    whisper = account("whisper-large-v3", book)
    # 32 layers, K and V of 1280, 2 bytes: of each token written, and of each of the 1500 that were heard
    assert whisper.kv_bytes_per_token == whisper.cross_bytes_per_encoded_token == 32 * 2 * 1280 * 2
    assert list(whisper.flop_to_encode) == [1500]
    decoded = price(make(Request(model="whisper-large-v3", on="h100-sxm", context_len=100), book), book)
    assert decoded.totals["cache"] == (100 + 1500) * 32 * 2 * 1280 * 2
    assert cache_per_token(decoded) == 32 * 2 * 1280 * 2


def test_a_window_of_sound_has_one_length(book: Book) -> None:
    with pytest.raises(ScenarioError, match="whisper always encodes 3000 of frames, 1500 of encoder"):
        make(Request(model="whisper-tiny", on="h100-sxm", input_len=100), book)


def test_an_encoder_does_not_decode(book: Book) -> None:
    with pytest.raises(ScenarioError, match=r"--phase decode: no phase of bert models \(accepted: encode\)"):
        make(Request(model="bert-base", on="h100-sxm", phase="decode"), book)


def test_what_an_encoder_encodes_is_what_it_is_fast_at(book: Book) -> None:
    # 8 windows of 1500 tokens; a text of 512
    sound = make(Request(model="whisper-tiny", on="l4", phase="encode", batch_size=8), book)
    assert (sound.input_len, sound.tokens) == (1500, 8 * 1500)
    text = make(Request(model="t5-base", on="l4", phase="encode", input_len=512), book)
    assert text.tokens == 512
    # a decode step brings a token, however much is remembered
    assert make(Request(model="t5-base", on="l4", phase="decode"), book).tokens == 1
