"""The estimate: a spread of public results over the floor, where the book has one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from flopmap.estimate.estimate import estimate
from flopmap.floor.roofline import price
from tests.physics.support import scenario_of, with_launches, with_record

if TYPE_CHECKING:
    from flopmap.records.book import Book


def figure(number: float) -> dict[str, Any]:
    return {"value": number, "source": "arithmetic"}


@pytest.fixture(scope="module")
def with_results() -> Book:
    """The book with a made-up set of results for decode."""
    spread = {"low": figure(1.1), "middle": figure(1.6), "high": figure(4.0)}
    return with_record("measurements", "decode", {"title": "Made up", "phase": "decode", "rows": 10, **spread})


def test_an_estimate_is_the_floor_times_what_public_results_take(with_results: Book) -> None:
    pricing = price(scenario_of(with_results, context_len=2048), with_results)
    likely = estimate(pricing, with_results)
    assert likely is not None
    floor = pricing.operation_seconds
    assert (likely.low, likely.value, likely.high) == pytest.approx((1.1 * floor, 1.6 * floor, 4 * floor), rel=1e-12)


def test_an_estimate_is_never_below_the_engine_floor(with_results: Book) -> None:
    # launches take 2 times as long as the kernels: the low and the middle are raised, the high is above them anyway
    scenario = scenario_of(with_results, context_len=2048)
    kernels = price(scenario, with_results)
    slow = with_launches(scenario, 2 * kernels.operation_seconds / kernels.totals["launches"])
    pricing = price(slow, with_results)
    likely = estimate(pricing, with_results)
    assert likely is not None
    assert pricing.engine_seconds == pytest.approx(2 * kernels.operation_seconds, rel=1e-12)
    assert likely.low == likely.value == pricing.engine_seconds
    assert likely.high == pytest.approx(4 * kernels.operation_seconds, rel=1e-12)


def test_without_results_of_its_phase_a_step_has_no_estimate(book: Book) -> None:
    for phase in ("decode", "prefill", "mixed"):
        known = book.find("measurements", phase) is not None
        assert (estimate(price(scenario_of(book, phase=phase), book), book) is not None) == known
