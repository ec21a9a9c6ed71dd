"""A table of kernels held against the kernel floor: each row is an op class of the book at the row's shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from flopmap.audit.kernel_names import KERNELS, NAMES, TYPES
from flopmap.audit.kernel_report import KernelAudit
from flopmap.audit.kernels import Priced, Unpriced, price
from flopmap.audit.tables import TableError, blocks
from flopmap.records.types import Format, OpClass

if TYPE_CHECKING:
    from pathlib import Path

    from flopmap.records.book import Book

ON_CHIP = 50 * 2**20 + 132 * 256 * 2**10  # H100: L2 and L1
PEAK = 989.5e12 * 1.98 / 1.83  # bf16 at the highest clock
BANDWIDTH = 3.35e12
GEMM = {"hardware": "h100-sxm", "kernel": "gemm", "dtype": "bf16", "m": 1, "n": 8192, "k": 8192, "latency_us": 1e6}
DECODE = {
    "hardware": "h100-sxm", "kernel": "gqa_decode", "dtype": "bf16", "kv_dtype": "bf16", "batch": 64, "heads": 32,
    "kv_heads": 8, "head_dim": 128, "q_len": 1, "kv_len": 8192, "latency_us": 1e6,
}  # fmt: skip
EXPERTS = {
    "hardware": "h100-sxm", "kernel": "moe", "moe_dtype": "bf16", "num_tokens": 64, "hidden_size": 4096,
    "inter_size": 14336, "num_experts": 8, "topk": 2, "latency_us": 1e6,
}  # fmt: skip
WORDS = ("hardware", "device", "kernel", "op_name", "dtype", "kv_dtype", "moe_dtype", "kernel_source", "kv_cache_dtype")


def table(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "kernels.csv"
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [",".join(names), *(",".join(str(row.get(name, "")) for name in names) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def priced(folder: Path, book: Book, row: dict[str, Any]) -> Priced:
    (block,) = blocks(table(folder, row), WORDS)
    (found,) = price(block, book)
    assert isinstance(found, Priced), found
    return found


def floor(folder: Path, book: Book, row: dict[str, Any]) -> float:
    return float(priced(folder, book, row).floor[0])


def test_a_small_batch_reads_the_weights_that_the_chip_cannot_keep(tmp_path: Path, book: Book) -> None:
    # 8192 x 8192 weights and rows of 8192 in and out, 2 bytes each, less what stays on chip from the call before
    assert floor(tmp_path, book, GEMM) == pytest.approx((2 * (8192**2 + 2 * 8192) - ON_CHIP) / BANDWIDTH, rel=1e-12)
    # the plain roofline knows of no chip
    assert priced(tmp_path, book, GEMM).naive[0] == pytest.approx(2 * (8192**2 + 2 * 8192) / BANDWIDTH, rel=1e-12)


def test_a_gemm_whose_operands_stay_on_chip_has_its_products_alone(tmp_path: Path, book: Book) -> None:
    row = {**GEMM, "m": 16, "n": 1024, "k": 1024}
    assert floor(tmp_path, book, row) == pytest.approx(2 * 16 * 1024**2 / PEAK, rel=1e-12)


def test_a_large_batch_is_bound_by_its_products_at_the_highest_clock(tmp_path: Path, book: Book) -> None:
    assert floor(tmp_path, book, {**GEMM, "m": 4096}) == pytest.approx(2 * 4096 * 8192**2 / PEAK, rel=1e-12)
    assert floor(tmp_path, book, {**GEMM, "m": 4096, "dtype": "fp8"}) == pytest.approx(
        2 * 4096 * 8192**2 / (1979e12 * 1.98 / 1.83), rel=1e-12
    )


def test_groups_of_a_gemm_count_each(tmp_path: Path, book: Book) -> None:
    one = floor(tmp_path, book, {**GEMM, "m": 4096})
    assert floor(tmp_path, book, {**GEMM, "m": 4096, "groups": 5}) == pytest.approx(5 * one, rel=1e-12)


def test_decode_attention_reads_the_cache(tmp_path: Path, book: Book) -> None:
    # 8191 cached tokens and the new one: keys and values of 8 heads of 128; queries and outputs of 32 heads
    cache = 64 * 8191 * 8 * 256 * 2
    operands = 64 * (32 + 8) * 256 * 2
    assert floor(tmp_path, book, DECODE) == pytest.approx((cache + operands - ON_CHIP) / BANDWIDTH, rel=1e-12)


def test_a_window_bounds_what_attention_reads(tmp_path: Path, book: Book) -> None:
    narrow = {**DECODE, "batch": 512, "window_size": 1024}
    cache, operands = 512 * 1023 * 8 * 256 * 2, 512 * (32 + 8) * 256 * 2
    assert floor(tmp_path, book, narrow) == pytest.approx((cache + operands - ON_CHIP) / BANDWIDTH, rel=1e-12)
    # tables write 0 for no window
    assert floor(tmp_path, book, {**DECODE, "window_size": 0}) == floor(tmp_path, book, DECODE)


def test_prefill_attention_is_causal_and_an_encoder_s_is_not(tmp_path: Path, book: Book) -> None:
    row = {**DECODE, "kernel": "gqa_prefill", "batch": 1, "q_len": 16384, "kv_len": 16384, "kv_heads": 32}
    pairs = 16384 * 16385 / 2
    assert floor(tmp_path, book, row) == pytest.approx(4 * pairs * 32 * 128 / PEAK, rel=1e-12)
    whole = {**row, "kernel": "encoder_attention"}
    assert floor(tmp_path, book, whole) == pytest.approx(4 * 16384**2 * 32 * 128 / PEAK, rel=1e-12)


def test_an_8_bit_cache_may_be_multiplied_in_8_bits(tmp_path: Path, book: Book) -> None:
    row = {**DECODE, "kernel": "gqa_prefill", "batch": 1, "q_len": 16384, "kv_len": 16384}
    wide, narrow = floor(tmp_path, book, row), floor(tmp_path, book, {**row, "kv_dtype": "fp8"})
    assert narrow == pytest.approx(wide * 989.5 / 1979, rel=1e-12)
    # the plain roofline takes the type that the row gives
    assert priced(tmp_path, book, {**row, "kv_dtype": "fp8"}).naive[0] == priced(tmp_path, book, row).naive[0]


def test_keys_of_192_have_values_of_128_unless_the_table_says_otherwise(tmp_path: Path, book: Book) -> None:
    row = {**DECODE, "head_dim": 192}
    cache, operands = 64 * 8191 * 8 * 320 * 2, 64 * 40 * 320 * 2
    assert floor(tmp_path, book, row) == pytest.approx((cache + operands - ON_CHIP) / BANDWIDTH, rel=1e-12)
    stated = floor(tmp_path, book, {**row, "value_dim": 192})
    assert stated == pytest.approx((64 * 8191 * 8 * 384 * 2 + 64 * 40 * 384 * 2 - ON_CHIP) / BANDWIDTH, rel=1e-12)


def test_latent_attention_reads_one_latent_for_all_heads(tmp_path: Path, book: Book) -> None:
    row = {**DECODE, "kernel": "mla_decode", "heads": 1, "batch": 128}
    operands = 128 * (1 * (2 * 512 + 64) + 576) * 2
    assert floor(tmp_path, book, row) == pytest.approx(
        (128 * 8191 * 576 * 2 + operands - ON_CHIP) / BANDWIDTH, rel=1e-12
    )


def test_tokens_may_all_choose_the_same_experts(tmp_path: Path, book: Book) -> None:
    # two of eight experts, three matrices each; every token is read and written once
    expected = 2 * 3 * 4096 * 14336 * 2 + 2 * 64 * 4096 * 2 - ON_CHIP
    assert floor(tmp_path, book, EXPERTS) == pytest.approx(expected / BANDWIDTH, rel=1e-12)


def test_a_rank_has_its_share_of_experts_and_of_their_width(tmp_path: Path, book: Book) -> None:
    many = {**EXPERTS, "num_tokens": 65536}
    whole = floor(tmp_path, book, many)
    assert whole == pytest.approx(2 * 65536 * 2 * 3 * 4096 * 14336 / PEAK, rel=1e-12)
    assert floor(tmp_path, book, {**many, "moe_tp_size": 4}) == pytest.approx(whole / 4, rel=1e-12)
    assert floor(tmp_path, book, {**many, "moe_ep_size": 4}) == pytest.approx(whole / 4, rel=1e-12)
    ungated = {**many, "kernel_source": "moe_nongated"}
    assert floor(tmp_path, book, ungated) == pytest.approx(whole * 2 / 3, rel=1e-12)
    nemotron = {**many, "num_experts": 512, "topk": 22}
    assert floor(tmp_path, book, nemotron) == pytest.approx(whole * 11 * 2 / 3, rel=1e-12)
    assert floor(tmp_path, book, {**nemotron, "gated": 1}) == pytest.approx(whole * 11, rel=1e-12)


def test_every_kernel_and_type_stands_for_records_of_the_book(book: Book) -> None:
    assert set(NAMES.values()) == set(KERNELS)
    for kernel in KERNELS.values():
        assert book.record(OpClass, kernel.op_class).cost
    for stored, activations, _ in TYPES.values():
        assert book.record(Format, stored).bits > 0
        assert book.record(Format, activations).bits > 0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"latency_us": 0}, "latency is no positive number"),
        ({"latency_us": "fast"}, "latency is no positive number"),
        ({"kernel": "softmax"}, "kernel 'softmax': no op class for it"),
        (
            {"kernel": "grouped_gemm_up_decode"},
            "kernel 'grouped_gemm_up_decode': m is an average over experts, and not that of a run",
        ),
        ({"m": ""}, "column 'm' is missing or empty"),
        ({"m": -4}, "a shape is missing or not positive"),
        ({"hardware": "v100-sxm2", "dtype": "sq"}, "v100-sxm2 has no peak on record for sq"),
    ],
)
def test_a_row_that_cannot_be_priced_says_why(change: dict[str, Any], why: str, tmp_path: Path, book: Book) -> None:
    (block,) = blocks(table(tmp_path, {**GEMM, **change}), WORDS)
    (found,) = [row for row in price(block, book) if len(row.rows)]
    assert isinstance(found, Unpriced)
    assert (found.why, found.rows.tolist()) == (why, [0])


def test_unknown_hardware_and_types_are_named(tmp_path: Path, book: Book) -> None:
    (block,) = blocks(table(tmp_path, {**GEMM, "hardware": "h1000-sxm"}), WORDS)
    (found,) = price(block, book)
    assert isinstance(found, Unpriced)
    assert "h1000-sxm" in found.why
    assert "h100-sxm" in found.why
    (block,) = blocks(table(tmp_path, {**GEMM, "dtype": "fp7"}), WORDS)
    (found,) = price(block, book)
    assert isinstance(found, Unpriced)
    assert found.why.startswith("dtype 'fp7': unknown")


def test_an_audit_counts_rows_violations_and_large_working_sets(tmp_path: Path, book: Book) -> None:
    exact = floor(tmp_path, book, GEMM) * 1e6
    large = {**GEMM, "n": 65536, "k": 16384, "latency_us": 1e6}
    rows = [{**GEMM, "latency_us": exact * times} for times in (0.5, 0.8, 2.0)]
    audit = KernelAudit(book)
    audit.read(table(tmp_path, *rows, large, {**GEMM, "kernel": "softmax"}))
    assert (audit.rows, audit.priced) == (5, 4)
    (group,) = audit.groups.values()
    assert (group.violations, group.ratios.rows, group.big.rows) == (2, 4, 1)
    assert group.ratios.least == pytest.approx(0.5)
    # the roofline of 134 MB is 40 us, the floor 14 us: all three beat it, and 87 MB on chip do not hold them
    assert (group.beats_roofline, group.kept) == (3, 0)
    (violation,) = audit.violations
    assert (violation.rows, violation.line) == (2, 2)  # the header is line 1
    assert violation.ratio == pytest.approx(0.5)
    assert violation.shape == "m=1 n=8192 k=8192"
    (reason,) = audit.unpriced.values()
    assert (reason.rows, reason.places) == (1, ["kernels.csv:6"])


def test_blocks_of_a_table_are_its_rows_whatever_their_size(tmp_path: Path) -> None:
    path = table(tmp_path, *[{**GEMM, "m": m} for m in range(1, 8)])
    for size in (1, 3, 7, 100):
        found = list(blocks(path, WORDS, rows=size))
        assert np.concatenate([block.numbers["m"] for block in found if block.rows]).tolist() == [1, 2, 3, 4, 5, 6, 7]
        assert np.concatenate([block.lines for block in found if block.rows]).tolist() == [2, 3, 4, 5, 6, 7, 8]


def test_a_file_that_is_no_table_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    with pytest.raises(TableError, match="empty file"):
        list(blocks(empty, WORDS))
    twice = tmp_path / "twice.csv"
    twice.write_text("m,m\n1,2\n")
    with pytest.raises(TableError, match="'m' appears more than once"):
        list(blocks(twice, WORDS))
