"""The laws that turn costs and rates into times, ratios and limits, each with round numbers."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

from flopmap.records.types import Law
from tests.physics.support import by_law

if TYPE_CHECKING:
    from flopmap.records.book import Book

# -- one op -----------------------------------------------------------------------------------------------------------

MOVED = {"weights": 100, "kv_traffic": 20, "state": 3, "activations": 0.5, "logit_traffic": 0.25}
RATES = {"matrix_peak": 1000, "vector_peak": 50, "exp_rate": 8, "bandwidth": 10, "link_bandwidth": 4, "link_latency": 2}
IDLE = {"matrix": 0, "vector": 0, "exp": 0, "link": 0, "hops": 0, **dict.fromkeys(MOVED, 0)}


def roofline(book: Book, wanted: str, **costs: float) -> float:
    return by_law(book, "roofline", wanted, **{**RATES, **IDLE, **costs})


def test_all_kinds_of_bytes_go_through_device_memory(book: Book) -> None:
    assert roofline(book, "device_bytes", **MOVED) == 123.75
    assert roofline(book, "memory_seconds", **MOVED) == 12.375


def test_each_resource_takes_its_amount_over_its_rate(book: Book) -> None:
    assert roofline(book, "matrix_seconds", matrix=3000) == 3
    assert roofline(book, "vector_seconds", vector=100) == 2
    assert roofline(book, "exp_seconds", exp=12) == 1.5


def test_an_op_takes_as_long_as_the_slowest_of_its_resources(book: Book) -> None:
    for matrix, vector, exp, memory, link, latency in permutations((8.0, 4.0, 2.0, 1.0, 0.5, 0.25)):
        costs = {"matrix": matrix * 1000, "vector": vector * 50, "exp": exp * 8, "weights": memory * 10}
        assert roofline(book, "seconds", **costs, link=link * 4, hops=latency / 2) == 8


# -- the step: device -------------------------------------------------------------------------------------------------

DEVICE = {"clock_ratio": 1.25, "on_chip": 3, **RATES}


def device(book: Book, wanted: str, conventions: dict[str, str] | None = None, /, **costs: float) -> float:
    return by_law(book, "device-floor", wanted, conventions, **{**DEVICE, **IDLE, **costs})


def test_what_fits_on_chip_need_not_cross_device_memory(book: Book) -> None:
    # weights, cache and state; activations and logits may stay on chip whatever their size
    assert device(book, "device_bytes", **MOVED) == 100 + 20 + 3 - 3
    assert device(book, "memory_seconds", **MOVED) == 12
    assert device(book, "device_bytes", weights=2) == 0


def test_compute_runs_at_the_highest_clock(book: Book) -> None:
    assert device(book, "matrix_seconds", matrix=5000) == 4
    assert device(book, "matrix_seconds", {"clock": "rated"}, matrix=5000) == 5
    assert device(book, "vector_seconds", vector=250) == 4
    assert device(book, "vector_seconds", {"clock": "rated"}, vector=250) == 5


def test_exponentials_may_run_on_the_vector_units_too(book: Book) -> None:
    # a quadratic is 4 FLOP: 8 + 50 / 4 = 20.5 a second, and 1.25 times that at the highest clock
    assert device(book, "exp_seconds", {"clock": "rated"}, exp=41) == 2
    assert device(book, "exp_seconds", exp=41) == 1.6


def test_the_device_floor_is_the_slowest_resource_alone(book: Book) -> None:
    for matrix, vector, exp, memory, link, latency in permutations((8.0, 4.0, 2.0, 1.0, 0.5, 0.25)):
        costs = {"matrix": matrix * 1250, "vector": vector * 62.5, "exp": exp * 20.5 * 1.25}
        sent = {"link": link * 4, "hops": latency / 2}
        assert device(book, "seconds", **costs, **sent, weights=memory * 10 + 3) == 8


# -- the step: engine, estimate ---------------------------------------------------------------------------------------


def test_a_step_lasts_as_long_as_its_kernels_or_its_launches_and_the_host_comes_on_top(book: Book) -> None:
    kernels = {"operation_seconds": 5, "launches": 300, "launch_seconds": 0.01, "host_seconds": 0.5}
    # 300 launches of 10 ms take 3 s, behind the kernels
    assert by_law(book, "engine-floor", "launch_seconds_total", launched=1, **kernels) == 3
    assert by_law(book, "engine-floor", "seconds", launched=1, **kernels) == 5.5
    # 300 launches of 40 ms take 12 s, and the kernels wait
    slow = {**kernels, "launch_seconds": 0.04}
    assert by_law(book, "engine-floor", "launch_seconds_total", launched=1, **slow) == 12
    assert by_law(book, "engine-floor", "seconds", launched=1, **slow) == 12.5
    # a captured graph is launched once
    assert by_law(book, "engine-floor", "launch_seconds_total", launched=0, **slow) == 0
    assert by_law(book, "engine-floor", "seconds", launched=0, **slow) == 5.5


def test_an_estimate_is_a_ratio_over_the_operation_floor_and_never_below_the_engine_floor(book: Book) -> None:
    assert by_law(book, "estimate", "seconds", floor_seconds=5, operation_seconds=4, floor_ratio=1.5) == 6
    assert by_law(book, "estimate", "seconds", floor_seconds=9, operation_seconds=4, floor_ratio=1.5) == 9


# -- ratios and limits ------------------------------------------------------------------------------------------------


def test_a_ridge_is_peak_over_bandwidth(book: Book) -> None:
    assert by_law(book, "ridge", "ridge", matrix_peak=1000, bandwidth=10) == 100


def test_a_gemm_leaves_memory_at_the_ridge_in_16_bit_weights_and_at_half_of_it_in_8(book: Book) -> None:
    # 2 t / weight_bytes = ridge
    rates = {"matrix_peak": 1000, "bandwidth": 10}
    assert by_law(book, "ridge", "ridge_batch", weight_bytes=2, **rates) == 100
    assert by_law(book, "ridge", "ridge_batch", weight_bytes=1, **rates) == 50
    assert by_law(book, "ridge", "ridge_batch", weight_bytes=0.5, **rates) == 25
    # the plain reading takes every weight for a 16-bit one
    assert by_law(book, "ridge", "ridge_batch", {"ridge-batch": "plain"}, weight_bytes=1, **rates) == 100


def test_a_prompt_leaves_memory_at_twice_the_ridge_over_the_group(book: Book) -> None:
    # causal: 2 L^2 heads d FLOP over 2 L kv_heads d kv_bytes bytes is L heads / (kv_heads kv_bytes)
    rates = {"matrix_peak": 1000, "bandwidth": 10}
    assert by_law(book, "ridge", "ridge_prompt", kv_bytes=2, heads=32, kv_heads=32, **rates) == 200
    assert by_law(book, "ridge", "ridge_prompt", kv_bytes=2, heads=32, kv_heads=8, **rates) == 50
    assert by_law(book, "ridge", "ridge_prompt", kv_bytes=1, heads=32, kv_heads=32, **rates) == 100


def test_utilisation_is_what_a_step_used_over_what_it_had(book: Book) -> None:
    used = {"device_bytes": 30, "bandwidth": 10, "matrix": 1000, "matrix_peak": 500, "tokens": 32, "seconds": 8}
    assert by_law(book, "utilisation", "mbu", **used) == 30 / 80
    assert by_law(book, "utilisation", "mfu", **used) == 1000 / 4000
    assert by_law(book, "utilisation", "tokens_per_second", **used) == 4


def test_whole_sequences_fit_beside_the_weights(book: Book) -> None:
    assert by_law(book, "capacity", "max_sequences", capacity=80, resident=16, sequence_bytes=10) == 6
    assert by_law(book, "capacity", "max_sequences", capacity=80, resident=140, sequence_bytes=10) == 0


def test_weights_need_as_many_parts_as_their_memories_hold(book: Book) -> None:
    assert by_law(book, "capacity", "least_parts", capacity=80, resident=141) == 2
    assert by_law(book, "capacity", "least_parts", capacity=80, resident=80) == 1


def test_an_element_has_its_bits_and_its_share_of_scales(book: Book) -> None:
    # bf16; fp8; MXFP4: a byte every 32; 4 bits with an fp16 scale and a 4-bit zero point every 128
    plain = {"scale_bits": 0, "zero_bits": 0, "group": 1}
    assert by_law(book, "formats", "element_bytes", bits=16, **plain) == 2
    assert by_law(book, "formats", "element_bytes", bits=8, **plain) == 1
    assert by_law(book, "formats", "element_bytes", bits=4, group=32, scale_bits=8, zero_bits=0) == 4.25 / 8
    assert by_law(book, "formats", "element_bytes", bits=4, group=128, scale_bits=16, zero_bits=4) == 4.15625 / 8


# Sentences in test_kernel_times.py
BOTH = {"moved", "hot", "memory_seconds", "tile_seconds", "longer", "both_seconds", "seconds"}
TILED = {"places", "waves", "turns", "key_seconds", *BOTH}
DECODE = {
    "keys",
    "groups",
    "group_heads",
    "row_width",
    "pair_flop",
    "output_width",
    "tiles",
    "splits",
    "combined",
    *TILED,
}
PREFILL = {"length", "keys", "most_keys", "key_heads", "width", *TILED}
COLLECTIVE = {"sent", "share", "once_seconds", "around_seconds", "seconds"}
OF_SHAPE = ("tiles{}", "splits{}", "waves{}", "turns{}", "shape{}_seconds")
OF_EXPERTS = ("up{}_waves", "up{}_seconds", "down{}_waves", "down{}_seconds")
KERNEL_LAWS = {
    "kernel-time": BOTH,
    "gemm-time": {*BOTH, *(name.format(shape) for name in OF_SHAPE for shape in (1, 2, 3))},
    "experts-time": {
        *BOTH,
        *("pairs", "touched", "expert_rows"),
        *(name.format(shape) for name in OF_EXPERTS for shape in (1, 2)),
    },
    "decode-attention-time": DECODE,
    "decode-latent-attention-time": DECODE,
    "prefill-attention-time": PREFILL,
    "prefill-latent-attention-time": PREFILL,
    "collective-time": COLLECTIVE,
    "all-reduce-time": COLLECTIVE,
}
LAWS = {
    "capacity": {"max_sequences", "least_parts"},
    "denoising": {"tokens_per_pass"},  # test_ops_of_drafts.py
    "device-floor": {
        *("device_bytes", "matrix_seconds", "vector_seconds", "exp_seconds", "memory_seconds"),
        *("link_seconds", "latency_seconds"),  # test_ops_of_plans.py
        "seconds",
    },
    "kernel-floor": {  # sentences in test_least
        "device_bytes",
        "memory_seconds",
        "matrix_seconds",
        "vector_seconds",
        "exp_seconds",
        "link_seconds",
        "latency_seconds",
        "seconds",
    },
    "engine-floor": {"launch_seconds_total", "seconds"},
    "estimate": {"seconds"},
    "formats": {"element_bytes"},
    "kv-offload": {"load_seconds", "hit_rate"},  # these three and the price: tests/choices/test_crossover.py
    "mla-absorption": {"tokens", "tokens_with_rope"},
    "price": {"usd_per_token"},
    "ridge-of-experts": {"ridge_batch", "ridge_batch_whole"},
    "ridge": {"ridge", "ridge_batch", "ridge_prompt"},
    "roofline": {
        *("matrix_seconds", "vector_seconds", "exp_seconds", "memory_seconds", "device_bytes"),
        *("link_seconds", "latency_seconds"),  # test_ops_of_plans.py
        "seconds",
    },
    **KERNEL_LAWS,
    "speculative-decoding": {"tokens_per_cycle", "seconds_per_token", "speedup"},  # test_ops_of_drafts.py
    "utilisation": {"mbu", "mfu", "tokens_per_second"},
}


def test_every_quantity_of_every_law_has_a_sentence_here(book: Book) -> None:
    assert {name: set(book.record(Law, name).quantities) for name in book.ids("laws")} == LAWS
