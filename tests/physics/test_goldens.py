"""Two models to the integer, by the way that every command goes: request, scenario, price.

The reference is hand computation, which torch's own counter confirms to the integer for decode and for the square.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopmap.floor.summary import memory
from tests.physics.support import LLAMA_8B, LLAMA_70B, REFERENCE_CODE, priced

if TYPE_CHECKING:
    from flopmap.records.book import Book

# Matrices of a layer: q and o are d x d, k and v are d x (kv_heads * 128), the feed-forward has three of d x f.
LAYER_8B = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336  # 218,103,808
LAYER_70B = 2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672  # 855,638,016
HEAD_8B = 128256 * 4096  # 525,336,576
HEAD_70B = 32000 * 8192  # 262,144,000


def test_an_8b_has_8_030_261_248_parameters(book: Book) -> None:
    step = priced(book, LLAMA_8B, context_len=2048)
    # 32 layers, an untied embedding and head, and two norms a layer and one at the end
    assert 32 * LAYER_8B + 2 * HEAD_8B + 65 * 4096 == 8_030_261_248
    assert step.totals["parameters"] == 8_030_261_248
    # a token multiplies by every matrix but the embedding, which it looks up
    assert 32 * LAYER_8B + HEAD_8B == 7_504_658_432
    assert step.totals["active"] == 7_504_658_432


def test_a_70b_has_68_976_648_192_parameters(book: Book) -> None:
    step = priced(book, LLAMA_70B, context_len=2048)
    assert 80 * LAYER_70B + 2 * HEAD_70B + 161 * 8192 == 68_976_648_192
    assert step.totals["parameters"] == 68_976_648_192
    assert 80 * LAYER_70B + HEAD_70B == 68_713_185_280
    assert step.totals["active"] == 68_713_185_280


def test_a_decoded_token_of_an_8b_is_16_083_058_688_flop_at_context_2048(book: Book) -> None:
    # 2 FLOP a weight: 15,009,316,864. Attention, for each layer, head and key: 2 FLOP an element of the head for the
    # score and as many for the output, 32 * 32 * 2048 * 4 * 128 = 1,073,741,824.
    assert 2 * 7_504_658_432 + 32 * 32 * 2048 * 4 * 128 == 16_083_058_688
    assert priced(book, LLAMA_8B, context_len=2048).totals["matrix"] == 16_083_058_688


def test_a_decoded_token_of_a_70b_is_142_795_079_680_flop_at_context_2048(book: Book) -> None:
    # 2 * 68,713,185,280 = 137,426,370,560 and 80 * 64 * 2048 * 4 * 128 = 5,368,709,120
    assert 2 * 68_713_185_280 + 80 * 64 * 2048 * 4 * 128 == 142_795_079_680
    assert priced(book, LLAMA_70B, context_len=2048).totals["matrix"] == 142_795_079_680


def test_a_prompt_of_2048_is_29_688_401_494_016_flop_of_an_8b(book: Book) -> None:
    # 2048 tokens through the layers, one position through the head, and 2048 * 2049 / 2 causal pairs a head and layer
    layers = 2 * 2048 * 32 * LAYER_8B  # 28,587,302,322,176
    attention = 32 * 32 * (2048 * 2049 // 2) * 4 * 128  # 1,100,048,498,688
    assert layers + attention + 2 * HEAD_8B == 29_688_401_494_016
    assert priced(book, LLAMA_8B, phase="prefill", input_len=2048).totals["matrix"] == 29_688_401_494_016


def test_a_prompt_of_2048_is_285_876_231_864_320_flop_of_a_70b(book: Book) -> None:
    layers = 2 * 2048 * 80 * LAYER_70B  # 280,375,465,082,880
    attention = 80 * 64 * (2048 * 2049 // 2) * 4 * 128  # 5,500,242,493,440
    assert layers + attention + 2 * HEAD_70B == 285_876_231_864_320
    assert priced(book, LLAMA_70B, phase="prefill", input_len=2048).totals["matrix"] == 285_876_231_864_320


def test_the_reference_code_computes_the_square_and_every_position_of_an_8b(book: Book) -> None:
    # 2048 * 2 * 7,504,658,432 + 32 * 32 * 2048^2 * 4 * 128
    assert 2048 * 2 * 7_504_658_432 + 32 * 32 * 2048**2 * 4 * 128 == 32_938_104_193_024
    step = priced(book, LLAMA_8B, phase="prefill", input_len=2048, conventions=REFERENCE_CODE)
    assert step.totals["matrix"] == 32_938_104_193_024


def test_the_reference_code_computes_the_square_and_every_position_of_a_70b(book: Book) -> None:
    assert 2048 * 2 * 68_713_185_280 + 80 * 64 * 2048**2 * 4 * 128 == 292_444_323_184_640
    step = priced(book, LLAMA_70B, phase="prefill", input_len=2048, conventions=REFERENCE_CODE)
    assert step.totals["matrix"] == 292_444_323_184_640


def test_the_square_with_the_last_position_alone_is_30_787_376_250_880_flop_of_an_8b(book: Book) -> None:
    # torch with `logits_to_keep=1`: the head runs once instead of 2048 times
    assert 32_938_104_193_024 - 2047 * 2 * HEAD_8B == 30_787_376_250_880
    step = priced(book, LLAMA_8B, phase="prefill", input_len=2048, conventions=(("mask", "full"),))
    assert step.totals["matrix"] == 30_787_376_250_880


def test_half_of_the_square_is_the_field_s_shorthand(book: Book) -> None:
    # 2 L^2 d for each layer: half of 2048^2 pairs
    expected = 2 * 2048 * 32 * LAYER_8B + 32 * 32 * 2048**2 // 2 * 4 * 128 + 2 * HEAD_8B
    step = priced(book, LLAMA_8B, phase="prefill", input_len=2048, conventions=(("mask", "half"),))
    assert step.totals["matrix"] == expected


def test_weights_are_held_whole_and_streamed_without_the_rest_of_the_embedding(book: Book) -> None:
    # 2 bytes a parameter are held; a decode step of one sequence reads one row of the embedding table
    step = priced(book, LLAMA_8B, context_len=2048)
    assert step.totals["resident"] == memory(step, book).weight_bytes == 2 * 8_030_261_248  # 16,060,522,496
    assert step.totals["weights"] == 2 * (8_030_261_248 - HEAD_8B + 4096)  # 15,009,857,536
    step = priced(book, LLAMA_70B, context_len=2048)
    assert step.totals["resident"] == memory(step, book).weight_bytes == 2 * 68_976_648_192  # 137,953,296,384
    assert step.totals["weights"] == 2 * (68_976_648_192 - HEAD_70B + 8192)  # 137,429,024,768


def test_a_cached_token_takes_131_072_bytes_of_an_8b_and_327_680_of_a_70b(book: Book) -> None:
    # key and value, 8 heads of 128, 2 bytes: 4096 a layer
    for model, layers, expected in ((LLAMA_8B, 32, 131_072), (LLAMA_70B, 80, 327_680)):
        fit = memory(priced(book, model, context_len=2048, batch_size=3), book)
        assert layers * 2 * 8 * 128 * 2 == expected
        assert fit.kv_bytes_per_token == expected
        assert fit.cache_bytes == 3 * 2048 * expected


def test_an_8b_launches_twelve_kernels_a_layer(book: Book) -> None:
    # norm, qkv, rope, kv write, attention, out, add, norm, gate and up, activation, down, add;
    # before them the embedding, after them norm, head and sampling
    assert priced(book, LLAMA_8B, context_len=2048).totals["launches"] == 12 * 32 + 4


def test_memory_says_what_fits(book: Book) -> None:
    # (80e9 - 16,060,522,496) // (2048 * 131,072): 63,939,477,504 / 268,435,456 = 238.2
    fit = memory(priced(book, LLAMA_8B, context_len=2048), book)
    assert fit.capacity_bytes == 80e9
    assert fit.fits
    assert fit.max_sequences == 238
    full = memory(priced(book, LLAMA_8B, context_len=2048, batch_size=238), book)
    assert full.fits
    # one more does not fit into 80 GB; it would into the 80 GiB that a driver counts
    over = memory(priced(book, LLAMA_8B, context_len=2048, batch_size=239), book)
    assert not over.fits
    assert over.borderline
