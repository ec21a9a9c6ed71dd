"""Every figure of seed document 002 (FLOPs and bytes of a 70B on an H100), by naming its conventions.

The document takes 70e9 parameters for the model's size (`parameters=nominal`), the whole square of attention
(`mask=full`), no activations (`gemm-bytes=weights`) and the printed peak (`clock=rated`). Our own figure, which counts
what the config says, stands beside each, with the reason for the difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from flopmap.floor.roofline import Pricing, price
from flopmap.floor.summary import memory
from flopmap.scenario import Request, make

if TYPE_CHECKING:
    from flopmap.records.book import Book

CONVENTIONS = (("parameters", "nominal"), ("mask", "full"), ("gemm-bytes", "weights"), ("clock", "rated"))
NORMS = 161 * 8192 * 2  # 2.6 MB of norm weights, which the nominal size leaves out
ON_CHIP = 50 * 2**20 + 132 * 256 * 2**10  # what the device floor lets stay on an H100


def priced(book: Book, conventions: tuple[tuple[str, str], ...], **flags: Any) -> Pricing:
    request = Request(model="meta-llama/Llama-2-70b-hf", on="h100-sxm", conventions=conventions, **flags)
    return price(make(request, book), book)


def as_written(book: Book, **flags: Any) -> Pricing:
    return priced(book, CONVENTIONS, **flags)


def as_counted(book: Book, **flags: Any) -> Pricing:
    return priced(book, (), **flags)


def spent(pricing: Pricing, resource: str, *op_classes: str) -> float:
    return sum(line.costs[resource] for line in pricing.lines if line.line.op.op_class in op_classes)


# -- decode, batch 1 --------------------------------------------------------------------------------------------------


def test_140_gb_of_weights(book: Book) -> None:
    theirs = as_written(book, context_len=1)
    assert spent(theirs, "weights", "weight-gemm") == 140e9
    assert theirs.totals["weights"] == 140e9 + NORMS
    # ours: 68,976,648,192 parameters are held, and all but the embedding table are read (its one row is)
    ours = as_counted(book, context_len=1)
    assert memory(ours, book).weight_bytes == 137_953_296_384
    assert ours.totals["weights"] == 137_429_024_768


def test_it_does_not_fit_on_the_card_and_has_a_floor_all_the_same(book: Book) -> None:
    for pricing in (as_written(book, context_len=1), as_counted(book, context_len=1)):
        fit = memory(pricing, book)
        assert fit.weight_bytes > fit.capacity_bytes == 80e9
        assert not fit.fits
        # nor by any other reading of the card's capacity
        assert not fit.borderline
        assert fit.max_sequences == 0
        assert pricing.operation_seconds > 0


def test_41_8_ms_and_23_9_tokens_a_second(book: Book) -> None:
    # 140e9 / 3.35e12 = 41.791 ms, before any cache
    theirs = as_written(book, context_len=1)
    assert spent(theirs, "weights", "weight-gemm") / 3.35e12 == pytest.approx(0.041791, rel=1e-5)
    for floor in (theirs.device_seconds, theirs.operation_seconds):
        assert round(floor * 1e3, 1) == 41.8
        assert round(1 / floor, 1) == 23.9
    # the operation floor adds the norms and one token's keys and values; the device floor takes off what fits on chip
    assert theirs.device_seconds == pytest.approx((140e9 + NORMS + 327_680 - ON_CHIP) / 3.35e12, rel=1e-12)
    # ours: 2 GB less to read, 41.0 ms and 24.4 tokens a second
    ours = as_counted(book, context_len=1)
    assert round(ours.operation_seconds * 1e3, 1) == 41.0
    assert round(1 / ours.operation_seconds, 1) == 24.4


def test_140_gflop_and_an_intensity_of_one(book: Book) -> None:
    theirs = as_written(book, context_len=1)
    assert spent(theirs, "matrix", "weight-gemm") == 140e9
    assert spent(theirs, "matrix", "weight-gemm") / spent(theirs, "weights", "weight-gemm") == 1
    # "the compute floor is 0.000142 s": 140e9 / 989e12; the book's peak is 989.5, which rounds to 0.000141
    assert round(140e9 / 989e12, 6) == 0.000142
    assert sum(line.terms["matrix_seconds"] for line in theirs.lines) == pytest.approx(140e9 / 989.5e12, rel=1e-4)
    # ours: 2 FLOP for each of 68,713,185,280 weights, attention to one token besides
    assert as_counted(book, context_len=1).totals["matrix"] == 2 * 68_713_185_280 + 80 * 64 * 4 * 128


# -- decode, with a cache ---------------------------------------------------------------------------------------------


def test_a_cached_token_is_327_680_bytes(book: Book) -> None:
    # exact in both: 80 layers * 2 * 8 heads * 128 * 2 bytes = 320 KiB
    for pricing in (as_written(book, context_len=8192), as_counted(book, context_len=8192)):
        assert memory(pricing, book).kv_bytes_per_token == 327_680 == 320 * 1024


def test_2_684_gb_and_42_6_ms_at_8192(book: Book) -> None:
    theirs = as_written(book, context_len=8192)
    assert theirs.totals["kv_traffic"] == 8192 * 327_680 == 2_684_354_560
    # 142.684 / 3.35 = 42.592 ms, on either floor
    assert round(theirs.operation_seconds * 1e3, 1) == 42.6
    assert round(theirs.device_seconds * 1e3, 1) == 42.6
    # ours: the same cache beside fewer weights, 41.8 ms
    ours = as_counted(book, context_len=8192)
    assert ours.totals["kv_traffic"] == 2_684_354_560
    assert round(ours.operation_seconds * 1e3, 1) == 41.8


def test_41_94_gb_at_128_000(book: Book) -> None:
    theirs, ours = (priced_as(book, context_len=128_000) for priced_as in (as_written, as_counted))
    assert theirs.totals["kv_traffic"] == ours.totals["kv_traffic"] == 128_000 * 327_680 == 41_943_040_000
    # "a 30% addition to weight traffic": 29.96% of theirs, 30.52% of ours
    assert theirs.totals["kv_traffic"] / theirs.totals["weights"] == pytest.approx(0.2996, abs=5e-5)
    assert ours.totals["kv_traffic"] / ours.totals["weights"] == pytest.approx(0.3052, abs=5e-5)


def test_1_34_tb_at_batch_32(book: Book) -> None:
    theirs, ours = (priced_as(book, context_len=128_000, batch_size=32) for priced_as in (as_written, as_counted))
    assert theirs.totals["kv_traffic"] == ours.totals["kv_traffic"] == 32 * 41_943_040_000  # 1.342 TB
    # "weight traffic is still 140 GB"
    assert spent(theirs, "weights", "weight-gemm") == 140e9
    # "making attention bandwidth the floor": 400.7 of 442.5 ms
    attention = sum(line.seconds for line in theirs.lines if line.line.op.op_class == "decode-attention")
    assert attention == pytest.approx(32 * 127_999 * 327_680 / 3.35e12, rel=1e-4)
    assert attention / theirs.operation_seconds > 0.9


# -- prefill ----------------------------------------------------------------------------------------------------------


def test_573_and_44_tflop_for_a_prompt_of_4096(book: Book) -> None:
    theirs = as_written(book, phase="prefill", input_len=4096)
    assert spent(theirs, "matrix", "weight-gemm") == 2 * 70e9 * 4096 == 573.44e12
    # 4 L S^2 d = 4 * 80 * 4096^2 * 8192
    assert spent(theirs, "matrix", "prefill-attention") == 4 * 80 * 4096**2 * 8192 == 43_980_465_111_040
    assert round(theirs.totals["matrix"] / 1e12) == 617
    # ours: 582.7 TFLOP. The layers have 68.45e9 weights, the head runs for one position, half of the square is masked
    ours = as_counted(book, phase="prefill", input_len=4096)
    layers = 2 * 4096 * (68_713_185_280 - 32_000 * 8192)
    head = 2 * 32_000 * 8192
    assert spent(ours, "matrix", "weight-gemm") == layers == 560_750_930_165_760
    assert spent(ours, "matrix", "prefill-attention") == 4 * 80 * (4096 * 4097 // 2) * 8192 == 21_995_601_264_640
    assert ours.totals["matrix"] == layers + head + 21_995_601_264_640 == 582_747_055_718_400


def test_0_624_s_is_the_device_floor_at_the_rated_clock(book: Book) -> None:
    # 617.42e12 / 989.5e12 = 0.62397 s: the whole pass at peak, everything else behind it, is the device floor
    theirs = as_written(book, phase="prefill", input_len=4096)
    assert theirs.device_seconds == pytest.approx(617_420_465_111_040 / 989.5e12, rel=1e-12)
    assert round(theirs.device_seconds, 3) == 0.624
    # the operation floor puts norms, rotations and activations between the GEMMs, and their vector FLOP take 3.4 ms
    assert round(theirs.operation_seconds, 3) == 0.627
    # ours: fewer FLOP, and a floor that nobody beats has the highest clock of the part, 1.98 GHz and not 1.83
    ours = as_counted(book, phase="prefill", input_len=4096)
    assert ours.device_seconds == pytest.approx(582_747_055_718_400 / (989.5e12 * 1.98 / 1.83), rel=1e-12)
    assert round(ours.device_seconds, 3) == 0.544
    # at the rated clock 0.589; op by op 0.626, since activations are written and read again between the ops
    assert round(ours.totals["matrix"] / 989.5e12, 3) == 0.589
    assert round(ours.operation_seconds, 3) == 0.626


def test_the_one_weight_read_of_a_prompt_takes_41_8_ms(book: Book) -> None:
    # "the one-time weight read floor is still only 41.8 ms, so optimized prefill is compute-shaped"
    theirs = as_written(book, phase="prefill", input_len=4096)
    assert round(theirs.totals["weights"] / 3.35e12 * 1e3, 1) == 41.8
    assert theirs.device_seconds > 10 * theirs.totals["weights"] / 3.35e12
