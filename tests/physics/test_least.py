"""The device floor takes what luck could lower at its lowest, and the fastest type that operands are stored in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from flopmap.floor.grid import decode_grid
from flopmap.floor.roofline import Pricer
from flopmap.machine.machine import measured_crossing, on_chip_bytes, together
from flopmap.records.formula import value
from flopmap.records.resolve import costs, law
from flopmap.records.types import Law, OpClass, Part
from flopmap.step import decode_step
from tests.physics.support import LLAMA_8B, priced, scenario_of, with_part

if TYPE_CHECKING:
    from flopmap.records.book import Book

MIXTRAL = "mistralai/Mixtral-8x7B-v0.1"
EXPERTS = {"d_in": 10, "width": 30, "gated": 1, "experts": 8, "top_k": 3, "bias": 0, "weight_bytes": 2, "act_bytes": 5}


def test_at_least_the_experts_of_one_token_are_read(book: Book) -> None:
    record = book.record(OpClass, "moe-experts")
    for tokens in (1, 7, 1000):
        spent = {name: value(tree, {**EXPERTS, "t": tokens}) for name, tree in costs(record, {}, least=True).items()}
        # three experts of three matrices of 300; a row of 10 in and one out, each token's once
        assert spent["weights"] == 3 * 900 * 2
        assert spent["activations"] == 2 * tokens * 10 * 5
        assert spent["matrix"] == 2 * tokens * 3 * 900
    biased = costs(record, {}, least=True)["weights"]
    assert value(biased, {**EXPERTS, "bias": 1, "t": 7}) == 3 * (900 * 2 + (2 * 30 + 10) * 5)
    # half an expert a token: a rank that sees half of the tokens
    shared = costs(record, {}, least=True)["activations"]
    assert value(shared, {**EXPERTS, "top_k": 0.5, "t": 8}) == 2 * 4 * 10 * 5


def test_the_device_floor_of_a_mixture_reads_fewest_experts_and_the_operation_floor_the_expected(book: Book) -> None:
    step = priced(book, MIXTRAL, phase="decode", batch_size=64, context_len=1024)
    active = priced(
        book, MIXTRAL, phase="decode", batch_size=64, context_len=1024, conventions=(("moe-bytes", "active"),)
    )
    everything = priced(
        book, MIXTRAL, phase="decode", batch_size=64, context_len=1024, conventions=(("moe-bytes", "all"),)
    )
    assert step.device_seconds == active.device_seconds == everything.device_seconds
    # 32 layers read 2 of 8 experts of 3 x 4096 x 14336 at least
    saved = 32 * 6 * 3 * 4096 * 14336 * 2
    assert everything.totals["weights"] - active.totals["weights"] == saved
    moved = active.totals["weights"] + active.totals["kv_traffic"] - on_chip_bytes(step.scenario.machine.part)
    assert step.device_seconds == pytest.approx(moved / 3.35e12, rel=1e-12)
    assert active.operation_seconds < step.operation_seconds <= everything.operation_seconds


def test_a_grid_takes_the_least_too(book: Book) -> None:
    scenario = scenario_of(book, MIXTRAL, phase="decode", kv_cache_dtype="fp8")
    batch, context = np.array([1.0, 64.0, 4096.0]), np.array([100.0, 2048.0, 1e5])
    grid = decode_grid(scenario, book, batch, context)["device"]
    for index in range(3):
        step = Pricer(scenario, book)(decode_step(int(batch[index]), int(context[index])))
        assert grid[index] == pytest.approx(step.device_seconds, rel=1e-12)


def test_attention_over_an_8_bit_cache_may_multiply_in_8_bits(book: Book) -> None:
    flags: dict[str, Any] = {"phase": "prefill", "input_len": 4096, "dtype": "bf16"}
    wide = priced(book, LLAMA_8B, **flags)
    narrow = priced(book, LLAMA_8B, kv_cache_dtype="fp8", **flags)
    attention = 32 * 32 * (4096 * 4097 // 2) * 4 * 128
    saved = attention * (1 / 989.5e12 - 1 / 1979e12) * 1.83 / 1.98
    assert wide.device_seconds - narrow.device_seconds == pytest.approx(saved, rel=1e-9)
    assert narrow.operation_seconds == pytest.approx(wide.operation_seconds, rel=2e-3)
    # a part without 8-bit math converts
    old = priced(book, LLAMA_8B, "a100-sxm-80gb", kv_cache_dtype="fp8", **flags)
    assert old.device_seconds == priced(book, LLAMA_8B, "a100-sxm-80gb", **flags).device_seconds


def test_parts_together_have_all_their_rates_and_memories(book: Book) -> None:
    part = book.record(Part, "h100-sxm")
    eight = together(part, 8)
    assert eight.bandwidth_bytes_per_second.value == 8 * 3.35e12
    assert on_chip_bytes(eight) == 8 * on_chip_bytes(part)
    assert together(part, 1) is part
    scenario = scenario_of(book, LLAMA_8B, phase="decode", batch_size=8, context_len=4096)
    one = Pricer(scenario, book)(scenario.step).device_seconds
    # no plan over eight parts is more than eight times as fast, but for what the chips keep
    of_eight = Pricer(with_part(scenario, eight), book)(scenario.step).device_seconds
    assert of_eight == pytest.approx(one / 8 - 7 * on_chip_bytes(part) / (8 * 3.35e12), rel=1e-12)


def test_measured_gemms_leave_memory_near_the_ridge(book: Book) -> None:
    # the ridges are 295, 206 and 153 tokens in 16 bits; kernels reach neither all of the peak nor all of the bandwidth
    for part, ridge in (("h100-sxm", 295.4), ("h200-sxm", 206.1), ("a100-sxm-80gb", 153.0)):
        found = measured_crossing(book.record(Part, part), "bf16", book)
        assert found is not None
        assert 0.85 * ridge < found.low <= found.value <= found.high < 1.15 * ridge
    assert measured_crossing(book.record(Part, "h100-sxm"), "fp4", book) is None
    assert measured_crossing(book.record(Part, "t4"), "bf16", book) is None


def test_a_kernel_alone_moves_all_its_operands_but_what_the_chip_keeps(book: Book) -> None:
    given = {"weights": 100, "kv_traffic": 20, "state": 3, "activations": 40, "logit_traffic": 5, "on_chip": 60}
    quantities = law(book.record(Law, "kernel-floor"), {})
    assert value(quantities["device_bytes"], given) == 100 + 20 + 3 + 40 + 5 - 60
    assert value(quantities["device_bytes"], {**given, "on_chip": 1000}) == 0
    assert value(quantities["memory_seconds"], {**given, "bandwidth": 4}) == 108 / 4
    # the rest is the device floor's
    device = book.record(Law, "device-floor").quantities
    own = book.record(Law, "kernel-floor").quantities
    assert {name for name in own if own[name] != device[name]} == {"device_bytes"}
