"""The efficiency records: each fit is whole, no kernel is faster than its floor, and time grows with work."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flopmap.audit.calibration import FREE
from flopmap.audit.kernels import kernel_floor
from flopmap.audit.samples import LAWS, timed
from flopmap.estimate.kernels import COLD, NoFigureError, fits, kernel_rates, link_rates
from flopmap.records.book import Book, load
from flopmap.records.kernels import Efficiency, Fit
from flopmap.records.types import Figure, Part

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

PARTS = ("a100-sxm-80gb", "b200-sxm", "h100-sxm", "h200-sxm", "l40s")
ROWS = 64
# The columns of each kernel, and values of them that rows have.
COUNTS = {
    "batch": (1, 2, 3, 8, 31, 64, 200), "heads": (8, 24, 64, 128), "kv_heads": (1, 2, 4, 8), "head_dim": (64, 128, 256),
    "value_dim": (64, 128), "hidden": (1024, 4096, 7168), "inter": (512, 2048, 14336), "experts": (8, 128, 256),
    "top_k": (1, 2, 8), "expert_tp": (1, 2), "expert_parallel": (1, 4), "ranks": (2, 4, 8),
}  # fmt: skip
# Columns in which a kernel's work grows.
GROWING = {
    "gemm": ("m", "n", "k"),
    "decode attention": ("batch", "past"),
    "MLA decode": ("batch", "past"),
    "prefill attention": ("batch", "new"),
    "MLA prefill": ("batch", "new"),
    "experts": ("tokens",),
} | {name: ("message",) for name, law in LAWS.items() if law in ("collective-time", "all-reduce-time")}


@functools.cache
def bundled() -> Book:
    return load()


@functools.cache
def all_fits() -> list[tuple[Part, Fit]]:
    book = bundled()
    parts = [book.record(Part, name) for name in book.ids("efficiency")]
    return [(part, fit) for part in parts for fit in fits(part, book)]


def columns(names: list[str], seed: int) -> dict[str, Array]:
    """Shapes that kernels are run at, of any size."""
    random = np.random.default_rng(seed)
    found = {name: random.choice(COUNTS[name], ROWS).astype(float) for name in names if name in COUNTS}
    for name in set(names) - set(found):
        found[name] = np.ceil(2.0 ** random.uniform(1, 15, ROWS))
    if "message" in found:
        found["message"] = 2.0 ** random.uniform(8, 30, ROWS)
    if "window" in found:
        found["window"] = np.full(ROWS, 2.0**40)
    if "gated" in found:
        found["gated"] = np.ones(ROWS)
    if "kv_heads" in found:
        found["heads"] = found["kv_heads"] * random.choice((1, 4, 8), ROWS)
    return found


def law_of(part: Part, fit: Fit) -> Any:
    return timed(part.id, fit.family, fit.dtype, fit.kv_dtype or fit.dtype, bundled())


def test_the_parts_that_the_tables_are_known_best_for_have_records(book: Book) -> None:
    assert set(PARTS) <= set(book.ids("efficiency"))
    assert fits(book.record(Part, "mi300x"), book) == ()  # no timings, no figures: never guessed


def test_every_family_of_kernels_has_a_law_and_every_part_has_its_families(book: Book) -> None:
    for name in PARTS:
        record = book.record(Efficiency, name)
        assert record.part == name
        assert {fit.family for fit in record.fits} == set(LAWS)
        assert {fit.law for fit in record.fits} == set(LAWS.values())


def test_no_kind_of_kernel_has_two_fits(book: Book) -> None:
    for name in PARTS:
        kinds = [
            (fit.family, fit.dtype, fit.kv_dtype, fit.variant, fit.engine) for fit in book.record(Efficiency, name).fits
        ]
        assert len(kinds) == len(set(kinds))


def test_the_figures_of_a_fit_are_those_of_its_law_in_their_ranges() -> None:
    for part, fit in all_fits():
        law = law_of(part, fit)
        assert sorted(fit.figures) == law.figures, (part.id, fit.family)
        for name, one in FREE[fit.law].items():
            high = 2 * one.high if name == "peak_fraction" else one.high  # of the rated clock
            assert one.low * 0.9999 <= fit.figures[name] <= high * 1.0001, (part.id, fit.family, name)


def test_errors_are_those_of_kept_out_rows() -> None:
    for part, fit in all_fits():
        where = (part.id, fit.family, fit.dtype, fit.variant, fit.engine)
        assert 0 < fit.kept_out.median < fit.kept_out.nine_in_ten, where
        # a quarter of the shapes, with their rows; few shapes can be far from a quarter
        assert 0.05 < fit.kept_out.rows / (fit.rows + fit.kept_out.rows) < 0.5, where


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), place=st.integers(0, 10**6))
def test_no_kernel_is_faster_than_its_floor(seed: int, place: int) -> None:
    part, fit = all_fits()[place % len(all_fits())]
    if fit.family in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all"):
        return
    floor = kernel_floor(fit.family, part, fit.dtype, fit.kv_dtype or fit.dtype, bundled())
    assert floor is not None
    law = law_of(part, fit)
    at = columns(sorted({*law.columns, *floor.columns}), seed)
    at["groups"] = np.ones(ROWS)
    if "decode" in fit.family:
        at["new"] = np.ones(ROWS)
    if fit.family == "MLA prefill":  # the law does not expand cached latents, which no table has
        at["past"] = np.zeros(ROWS)
    least, _, _ = floor(at)
    assert np.all(law(at, fit.figures) >= least * (1 - 1e-9)), (part.id, fit.family, fit.dtype, fit.engine)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), place=st.integers(0, 10**6), more=st.floats(1.0, 8.0))
def test_more_work_never_takes_less_time(seed: int, place: int, more: float) -> None:
    part, fit = all_fits()[place % len(all_fits())]
    law = law_of(part, fit)
    at = columns(law.columns, seed)
    before = law(at, fit.figures)
    for name in GROWING[fit.family]:
        grown = {**at, name: np.ceil(at[name] * more)}
        assert np.all(law(grown, fit.figures) >= before * (1 - 1e-9)), (part.id, fit.family, name)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), place=st.integers(0, 10**6), more=st.floats(1.0, 8.0))
def test_a_part_with_faster_rates_never_takes_longer(seed: int, place: int, more: float) -> None:
    part, fit = all_fits()[place % len(all_fits())]
    law = law_of(part, fit)
    at = columns(law.columns, seed)
    before = law(at, fit.figures)
    # a share of a rate is as good as the rate: the laws have them as products
    for name in ("memory_fraction", "peak_fraction", "hot_speed", "feed", "link_fraction", "once_speed"):
        if name in fit.figures:
            faster = {**fit.figures, name: fit.figures[name] * more}
            assert np.all(law(at, faster) <= before * (1 + 1e-9)), (part.id, fit.family, name)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), place=st.integers(0, 10**6))
def test_a_step_whose_chip_is_cold_takes_no_less_than_a_benchmark(seed: int, place: int) -> None:
    part, fit = all_fits()[place % len(all_fits())]
    if "hot_bytes" not in fit.figures:
        return
    law = law_of(part, fit)
    at = columns(law.columns, seed)
    cold = law(at, {**fit.figures, "hot_bytes": COLD})
    assert np.all(cold >= law(at, fit.figures) * (1 - 1e-9)), (part.id, fit.family, fit.dtype, fit.engine)


# -- rates ------------------------------------------------------------------------------------------------------------


def test_the_rates_of_a_kernel_are_those_of_its_part(book: Book) -> None:
    h100 = book.record(Part, "h100-sxm")
    assert kernel_rates(h100, ("bf16",)) == {"bandwidth": 3.35e12, "compute_units": 132, "matrix_peak": 989.5e12}
    # attention over a narrow cache may multiply it as it is stored: the fastest of its types
    assert kernel_rates(h100, ("bf16", "fp8"))["matrix_peak"] == 1979e12
    assert link_rates(h100) == {"link_bandwidth": 450e9}
    assert link_rates(book.record(Part, "l40s")) == {"link_bandwidth": 32e9}  # PCIe, as it has no other


def test_what_a_part_lacks_is_named(book: Book) -> None:
    with pytest.raises(NoFigureError, match=r"^parts/a100-sxm-80gb has no peak of fp8$"):
        kernel_rates(book.record(Part, "a100-sxm-80gb"), ("fp8",))
    with pytest.raises(NoFigureError, match=r"^parts/arc-pro-b60 has no compute_units$"):
        kernel_rates(book.record(Part, "arc-pro-b60"), ("bf16",))
    one = Figure(value=1, source="arithmetic")
    bare = Part(
        title="bare",
        id="bare",
        vendor="none",
        architecture="none",
        kind="gpu",
        peaks=(),
        capacity_bytes=one,
        bandwidth_bytes_per_second=one,
    )
    with pytest.raises(NoFigureError, match=r"^parts/bare has neither links nor host_link_bytes_per_second$"):
        link_rates(bare)
