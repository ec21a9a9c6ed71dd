"""The laws of kernel times: tiles in waves over the compute units, bytes at a share of the bandwidth, fixed times."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.physics.support import by_law

if TYPE_CHECKING:
    from flopmap.records.book import Book

UNITS = 100
TILE = 128
DEPTH = 1000  # inner loop
# a tile of 128 x 128 over 1000 steps takes a unit one second
PEAK = 2 * TILE * TILE * DEPTH * UNITS
SQUARES = {f"tile{shape}_{side}": TILE for shape in (1, 2, 3) for side in ("rows", "columns")}
REACHED = {"peak_fraction": 1, "memory_fraction": 1, "hot_bytes": 1, "hot_speed": 1, "overlap": 16}
FREE_BYTES = {"bandwidth": 1e30, "feed": 1}
NO_MORE = {
    "fixed_seconds": 0, "row_seconds": 0, "head_seconds": 0, "expert_seconds": 0, "combine_seconds": 0, "lead": 0,
    "conversion_bytes": 0,
}  # fmt: skip
GEMM = {
    "d_in": DEPTH, "weight_bytes": 2, "act_bytes": 2, "compute_units": UNITS, "matrix_peak": PEAK,
    "quantisation": 1, "split_length": DEPTH, **SQUARES, **REACHED, **FREE_BYTES, **NO_MORE,
}  # fmt: skip


def gemm(book: Book, wanted: str = "tile_seconds", **changed: float) -> float:
    return by_law(book, "gemm-time", wanted, **{**GEMM, "t": 10 * TILE, "d_out": 10 * TILE, **changed})


# -- waves ------------------------------------------------------------------------------------------------------------


def test_a_gemm_that_fills_exactly_one_wave_takes_one_tile_of_time(book: Book) -> None:
    # 10 x 10 tiles on 100 units
    assert gemm(book) == 1


def test_one_more_tile_costs_a_second_wave(book: Book) -> None:
    # one more row of tokens: 11 x 10 tiles, 10 of them in a second wave
    assert gemm(book, t=10 * TILE + 1) == 2
    # so does one more output
    assert gemm(book, d_out=10 * TILE + 1) == 2
    # where tiles of the last wave are shared out, it costs its share: 110 tiles on 100 units
    assert gemm(book, t=10 * TILE + 1, quantisation=0) == pytest.approx(1.1, rel=1e-12)
    assert gemm(book, t=10 * TILE + 1, quantisation=0.5) == pytest.approx(1.55, rel=1e-12)


def test_tokens_within_a_tile_are_free(book: Book) -> None:
    assert gemm(book, t=9 * TILE + 1) == gemm(book, t=10 * TILE)


def test_few_tiles_share_their_inner_loop_among_idle_units(book: Book) -> None:
    # one tile: on a unit alone, then split in 10 parts of 100 steps
    assert gemm(book, t=1, d_out=1) == 1
    assert gemm(book, t=1, d_out=1, split_length=100) == pytest.approx(0.1, rel=1e-12)
    # 50 tiles leave two units for each, whatever the shortest part
    assert gemm(book, t=5 * TILE, split_length=1) == pytest.approx(0.5, rel=1e-12)
    # a full wave has nobody to share with
    assert gemm(book, split_length=1) == 1


def test_the_fastest_shape_of_tile_counts(book: Book) -> None:
    # one token: a tile of 16 rows has an eighth of the work of 128
    assert gemm(book, t=1, tile2_rows=16) == pytest.approx(1 / 8, rel=1e-12)
    # a full batch is better off with large tiles: 80 x 10 tiles of 16 rows take 8 waves of an eighth
    assert gemm(book, tile1_rows=16, tile2_rows=16, tile3_rows=16) == 1


def test_a_unit_is_no_faster_than_it_is_fed(book: Book) -> None:
    # each step brings 128 + 128 elements of 2 bytes; 100 units are fed 100 * 512 bytes * 1000 steps in 4 seconds
    assert gemm(book, bandwidth=UNITS * 512 * DEPTH / 4) == pytest.approx(4, rel=1e-12)
    assert gemm(book, bandwidth=UNITS * 512 * DEPTH / 4, feed=2) == pytest.approx(2, rel=1e-12)


def test_start_and_end_of_a_tile_count_as_steps_of_its_loop(book: Book) -> None:
    assert gemm(book, lead=DEPTH) == 2


# -- bytes and tiles --------------------------------------------------------------------------------------------------


def test_a_gemm_moves_its_weights_inputs_and_outputs_once(book: Book) -> None:
    # 1000 x 1280 weights of 1 byte, 1280 rows of 1000 in and 1280 out of 2 bytes
    assert gemm(book, "moved", weight_bytes=1) == 1000 * 1280 + 1280 * (1000 + 1280) * 2


def test_bytes_take_their_share_of_the_bandwidth(book: Book) -> None:
    moved = gemm(book, "moved")
    assert gemm(book, "memory_seconds", bandwidth=moved, memory_fraction=0.5) == pytest.approx(2, rel=1e-12)


def test_a_benchmark_finds_a_small_working_set_on_chip_and_a_step_does_not(book: Book) -> None:
    moved = gemm(book, "moved")
    slow = {"bandwidth": moved, "hot_speed": 4.0}
    assert gemm(book, "memory_seconds", **slow, hot_bytes=100 * moved) == pytest.approx(1 / 4, rel=1e-12)
    assert gemm(book, "memory_seconds", **slow, hot_bytes=moved / 100) == pytest.approx(1, rel=1e-12)
    assert gemm(book, "memory_seconds", **slow, hot_bytes=moved) == pytest.approx((1 + 1 / 4) / 2, rel=1e-12)


def test_bytes_and_tiles_add_up_or_overlap(book: Book) -> None:
    both = {"bandwidth": gemm(book, "moved"), "feed": 1e30}  # a second each
    assert gemm(book, "both_seconds", **both, overlap=1) == pytest.approx(2, rel=1e-12)
    assert gemm(book, "both_seconds", **both, overlap=2) == pytest.approx(2**0.5, rel=1e-12)
    # where one is far longer, it is all that counts
    assert gemm(book, "both_seconds", **both, overlap=16, peak_fraction=0.1) == pytest.approx(10, rel=1e-9)


def test_fixed_times_rows_and_conversion_come_on_top(book: Book) -> None:
    none = gemm(book, "seconds")
    assert gemm(book, "seconds", fixed_seconds=3) - none == pytest.approx(3, rel=1e-12)
    assert gemm(book, "seconds", row_seconds=0.5) - none == pytest.approx(0.5 * 1280, rel=1e-12)
    # 1280 rows of 1000 activations, 3 bytes to convert each
    slow = {"bandwidth": 1e6}
    more = gemm(book, "seconds", **slow, conversion_bytes=3) - gemm(book, "seconds", **slow)
    assert more == pytest.approx(1280 * 1000 * 3 / 1e6, rel=1e-9)


# -- attention --------------------------------------------------------------------------------------------------------

DECODE = {
    "cached": 800, "seqs": 1, "heads": 32, "kv_heads": 8, "head_dim": 64, "value_dim": 64, "kv_bytes": 2,
    "act_bytes": 2, "tile_heads": 4, "residents": 1, "compute_units": 8, "matrix_peak": 1e30, "quantisation": 1,
    "split_length": 800, **REACHED, **NO_MORE, "feed": 1,
}  # fmt: skip
ROW = (64 + 64) * 2  # bytes of a key and its value


def decode(book: Book, wanted: str = "tile_seconds", law: str = "decode-attention-time", /, **changed: float) -> float:
    # 8 units are fed 8 rows in a second
    return by_law(book, law, wanted, **{**DECODE, "bandwidth": 8 * ROW, **changed})


def test_a_tile_of_decode_attention_walks_over_the_keys_of_its_sequence(book: Book) -> None:
    # 8 key heads on 8 units, 800 keys each
    assert decode(book) == 800
    # a second sequence is a second wave
    assert decode(book, seqs=2, cached=1600) == 1600


def test_more_query_heads_than_a_tile_holds_read_the_keys_again(book: Book) -> None:
    assert decode(book, heads=64, tile_heads=8) == decode(book)
    assert decode(book, heads=64, tile_heads=4) == 2 * decode(book)


def test_keys_are_split_where_units_are_idle_and_combining_costs_time(book: Book) -> None:
    # two key heads on 8 units: four parts of 200 keys
    few = {"heads": 8, "kv_heads": 2, "split_length": 100}
    assert decode(book, "splits", **few) == 4
    assert decode(book, **few) == 200
    assert decode(book, "seconds", **few, combine_seconds=7) - decode(book, "seconds", **few) == pytest.approx(7)
    # keys no longer than the shortest part are not split
    assert decode(book, "seconds", combine_seconds=7) == decode(book, "seconds")


def test_one_row_of_a_latent_serves_all_heads(book: Book) -> None:
    def latent(wanted: str, tile_heads: int = 128) -> float:
        law = "decode-latent-attention-time"
        return decode(book, wanted, law, latent=512, rope_dim=64, heads=128, tile_heads=tile_heads)

    # one sequence: 800 rows of 576 elements of 2 bytes, 128 queries of 576 in and outputs of 512
    assert latent("moved") == 800 * 576 * 2 + 128 * (576 + 512) * 2
    assert latent("tiles") == 1
    assert latent("tiles", tile_heads=32) == 4


PREFILL = {
    "t": 512, "kv": 0, "seqs": 1, "cached": 512, "pairs": 512 * 513 / 2, "heads": 8, "kv_heads": 2, "head_dim": 64,
    "value_dim": 64, "kv_bytes": 2, "act_bytes": 2, "tile_rows": 128, "residents": 1, "compute_units": 8,
    "quantisation": 0, "kv_passes": 1, "softmax_flop": 0, "alone": 1, "bandwidth": 1e30, **REACHED, **NO_MORE,
}  # fmt: skip
STEP = 128 * 2 * (64 + 64)  # FLOP of a tile of 128 tokens with one key


def prefill(book: Book, wanted: str = "tile_seconds", **changed: float) -> float:
    # a unit multiplies a tile with one key in a second
    return by_law(book, "prefill-attention-time", wanted, **{**PREFILL, "matrix_peak": 8 * STEP, **changed})


def test_tiles_of_a_prompt_see_half_of_it_on_average(book: Book) -> None:
    # 8 heads of 4 tiles are 4 waves on 8 units; a token sees 256.5 keys on average
    assert prefill(book) == 4 * 256.5


def test_the_last_tile_of_a_short_wave_decides(book: Book) -> None:
    # 32 units run all tiles at once, as long as the one that sees all 512 keys
    assert prefill(book, compute_units=32, matrix_peak=32 * STEP) == 512
    assert prefill(book, compute_units=32, matrix_peak=32 * STEP, alone=1.5) == 768


def test_exponentials_count_as_flop_of_a_pair(book: Book) -> None:
    # a pair is 2 * 128 FLOP; as many more for its exponential double the time
    assert prefill(book, softmax_flop=256) == 2 * prefill(book)


def test_a_prefill_reads_queries_and_outputs_once_and_keys_as_often_as_they_pass(book: Book) -> None:
    # 512 tokens of 128 elements (64 of keys or queries, 64 of values or outputs), 8 heads and 2 key heads, 2 bytes
    assert prefill(book, "moved") == 512 * 128 * (8 + 2) * 2
    assert prefill(book, "moved", kv_passes=3) == 512 * 128 * (8 + 3 * 2) * 2
    # 100 cached tokens before them have keys and values of 2 heads
    assert prefill(book, "moved", kv=100) == 512 * 128 * (8 + 2) * 2 + 100 * 128 * 2 * 2


# -- experts ----------------------------------------------------------------------------------------------------------

EXPERTS = {
    "t": 64, "top_k": 2, "experts": 8, "d_in": 256, "width": 512, "gated": 1, "weight_bytes": 2, "act_bytes": 2,
    "evenness": 50, "crowding": 0, "ranks": 1, "compute_units": UNITS, "matrix_peak": 1e30, "quantisation": 1,
    "bandwidth": 1e30, "feed": 1, **{name: value for name, value in SQUARES.items() if "3" not in name}, **REACHED,
    **NO_MORE,
}  # fmt: skip


def experts(book: Book, wanted: str, **changed: float) -> float:
    return by_law(book, "experts-time", wanted, **{**EXPERTS, **changed})


def test_tokens_touch_experts_and_share_their_weights(book: Book) -> None:
    assert experts(book, "pairs") == 128
    assert experts(book, "touched") == pytest.approx(8, rel=1e-6)
    assert experts(book, "expert_rows") == pytest.approx(16, rel=1e-6)
    # one token touches no more than it goes through
    assert experts(book, "touched", t=1) == 2
    # by chance, 64 tokens of 2 of 8 miss each expert with (3/4)^64
    assert experts(book, "touched", evenness=1) == pytest.approx(8 * (1 - 0.75**64), rel=1e-12)
    # three matrices of 256 x 512 for each; inputs and outputs of 256 twice, gate, up and product of 512
    assert experts(book, "moved") == pytest.approx(8 * 3 * 256 * 512 * 2 + 128 * (2 * 256 + 3 * 512) * 2, rel=1e-6)


def test_an_expert_with_one_token_fills_its_tiles_all_the_same(book: Book) -> None:
    # 8 experts: gate and up have 8 tiles of 128 outputs each, down 2
    assert experts(book, "up1_waves") == pytest.approx(8 * 8 / UNITS, rel=1e-6)
    assert experts(book, "down1_waves") == pytest.approx(8 * 2 / UNITS, rel=1e-6)
    assert experts(book, "up1_waves", t=4) == pytest.approx(8 * 8 / UNITS, rel=1e-6)
    assert experts(book, "up1_waves", gated=0) == pytest.approx(8 * 4 / UNITS, rel=1e-6)


def test_the_fullest_rank_has_more_than_the_mean(book: Book) -> None:
    assert experts(book, "pairs", ranks=16, crowding=0.5) == 128 * 4


# -- collectives ------------------------------------------------------------------------------------------------------

SEND = {
    "message": 800.0, "ranks": 8, "link_bandwidth": 100, "link_fraction": 0.5, "crowding": 0, "once_speed": 0.25,
    "fixed_seconds": 1, "around_fixed_seconds": 5, "rank_seconds": 0.5,
}  # fmt: skip


def collective(book: Book, law: str, wanted: str = "seconds", **changed: float) -> float:
    return by_law(book, law, wanted, **{**SEND, **changed})


def test_an_all_reduce_sends_twice_what_an_all_gather_sends(book: Book) -> None:
    assert collective(book, "collective-time", "sent") == 700
    assert collective(book, "all-reduce-time", "sent") == 1400
    # at half of 100 byte/s, after 5 s and 7 further ranks of half a second
    assert collective(book, "all-reduce-time", "around_seconds") == 5 + 3.5 + 28


def test_a_small_message_goes_to_all_at_once(book: Book) -> None:
    # 4 bytes to 7 others at an eighth of the link's rate, against 7 bytes at half of it after a longer start
    assert collective(book, "all-reduce-time", message=4) == 1 + 3.5 + 4 * 7 / 12.5
    assert collective(book, "all-reduce-time", message=4, around_fixed_seconds=1) == 1 + 3.5 + 7 / 50


def test_ranks_that_share_links_are_slower(book: Book) -> None:
    assert collective(book, "collective-time", "share", crowding=1) == 0.5 / 4
    assert collective(book, "collective-time", "share", crowding=1, ranks=2) == 0.5
