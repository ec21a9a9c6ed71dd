"""Rates of parts, as the parts' own figures give them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from flopmap.machine.machine import (
    MachineError,
    clock_ratio,
    matrix_peak,
    on_chip_bytes,
    read_machine,
    vector_peak,
)
from flopmap.records.book import UnknownRecordError
from flopmap.records.types import Part
from tests.physics.support import by_law, priced

if TYPE_CHECKING:
    from flopmap.records.book import Book


@pytest.mark.parametrize(
    ("part_id", "teraflops", "gigabytes", "ridge"),
    [
        ("h100-sxm", 989.5, 3350, 295.4),
        ("mi300x", 1307.4, 5300, 246.7),
        ("rtx-4090", 165.2, 1008, 163.9),  # with fp32 accumulate: half of the rate with fp16
        ("a100-sxm-80gb", 312, 2039, 153.0),
        ("tpu-v5e", 197, 819, 240.5),
    ],
)
def test_ridges_of_the_field(part_id: str, teraflops: float, gigabytes: float, ridge: float, book: Book) -> None:
    part = book.record(Part, part_id)
    peak = matrix_peak(part, "bf16")
    assert peak is not None
    assert peak.value == teraflops * 1e12
    # a GB is 1e9 bytes: with 2**30 a peer's floors came out 7.4% too low
    assert part.bandwidth_bytes_per_second.value == gigabytes * 1e9
    ours = by_law(book, "ridge", "ridge", matrix_peak=peak.value, bandwidth=part.bandwidth_bytes_per_second.value)
    assert ours == pytest.approx(1000 * teraflops / gigabytes, rel=1e-15)
    assert round(ours, 1) == ridge


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp8", "int8"])
def test_the_dense_peak_is_half_of_the_sparse_one_on_the_sheet(dtype: str, book: Book) -> None:
    part = book.record(Part, "h100-sxm")
    dense, sheet = matrix_peak(part, dtype), matrix_peak(part, dtype, sheet=True)
    assert dense is not None
    assert sheet is not None
    assert (dense.sparsity, sheet.sparsity) == ("dense", "2:4")
    # 989.5 and 1978.9, 1979 and 3957.8: rounded by different hands
    assert sheet.value == pytest.approx(2 * dense.value, rel=1e-3)


def test_no_part_computes_at_a_sparse_or_a_narrow_accumulating_peak_unless_asked(book: Book) -> None:
    for part_id in book.ids("parts"):
        part = book.record(Part, part_id)
        for peak in part.peaks:
            chosen = matrix_peak(part, peak.dtype)
            # a part whose sheet has nothing else has none
            assert chosen is None or (chosen.sparsity == "dense" and chosen.accumulate != "fp16")


def test_a_prompt_on_the_sheet_s_peak_takes_half_the_matrix_time(book: Book) -> None:
    dense = priced(book, phase="prefill", input_len=8192)
    sheet = priced(book, phase="prefill", input_len=8192, conventions=(("peak", "sheet"),))
    for slow, fast in zip(dense.lines, sheet.lines, strict=True):
        assert slow.costs == fast.costs
        assert slow.terms["matrix_seconds"] == pytest.approx(fast.terms["matrix_seconds"] * 1978.9 / 989.5, rel=1e-12)
    # at 8192 tokens the matrix units bind the device floor
    assert dense.device_seconds == pytest.approx(sheet.device_seconds * 1978.9 / 989.5, rel=1e-12)


def test_vector_peaks_are_in_fp32(book: Book) -> None:
    peak = vector_peak(book.record(Part, "h100-sxm"))
    assert peak is not None
    assert peak.value == 66.9e12  # 132 SM x 256 FLOP/clk x 1.98 GHz
    assert vector_peak(book.record(Part, "tpu-v5e")) is None


def test_a_cpu_multiplies_on_its_vector_units(book: Book) -> None:
    peak = matrix_peak(book.record(Part, "epyc-genoa-9654"), "bf16")
    assert peak is not None
    assert peak.unit == "vector"


def test_on_chip_memory_is_the_sum_of_its_levels(book: Book) -> None:
    # 50 MiB of L2 and 132 times 256 KiB
    assert on_chip_bytes(book.record(Part, "h100-sxm")) == 50 * 2**20 + 132 * 256 * 2**10
    assert on_chip_bytes(replace(book.record(Part, "h100-sxm"), on_chip=())) == 0


def test_a_clock_that_is_not_known_raises_nothing(book: Book) -> None:
    part = book.record(Part, "h100-sxm")
    assert clock_ratio(part) == pytest.approx(1.98 / 1.83, rel=1e-15)
    assert clock_ratio(replace(part, clock_hz=None)) == 1


def test_an_unknown_part_is_refused_with_the_nearest(book: Book) -> None:
    with pytest.raises(UnknownRecordError) as refusal:
        read_machine("h100-smx", book)
    assert "h100-sxm" in refusal.value.nearest
    with pytest.raises(UnknownRecordError):
        priced(book, on="h900")


@pytest.mark.parametrize("text", ["h100-sxm:0", "h100-sxm:many", "h100-sxm:"])
def test_a_count_of_parts_is_a_number(text: str, book: Book) -> None:
    with pytest.raises(MachineError):
        read_machine(text, book)
    for parts in (1, 8):
        machine = read_machine(f"h100-sxm:{parts}", book)
        assert (machine.part.id, machine.count) == ("h100-sxm", parts)
