"""The fit finds the figures that made the rows, and the same ones however the rows come."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from flopmap.audit.fitting import Free, Problem, errors, fit, ordered, thinned

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

TRUE = {"start": 4e-6, "rate": 2e12, "tile": 64.0}
FREE = {"start": Free((1e-6, 1e-4), 1e-8, 1e-2), "rate": Free((1e12,), 1e10, 1e14)}
TILES = ((("tile",), ((16.0,), (32.0,), (64.0,), (128.0,))),)


def law(columns: dict[str, Array], figures: dict[str, float]) -> Array:
    """A fixed time, and tiles of rows at a rate."""
    tiles = np.ceil(columns["rows"] / figures["tile"]) * figures["tile"]
    return figures["start"] + tiles * columns["bytes"] / figures["rate"]


def rows() -> tuple[dict[str, Array], Array]:
    counts, sizes = (grid.ravel() for grid in np.meshgrid(np.arange(1.0, 400.0, 3.0), 2.0 ** np.arange(10, 26)))
    columns = {"rows": counts, "bytes": sizes}
    return columns, law(columns, TRUE)


PROBLEM = Problem(law, FREE, TILES)


def test_the_figures_that_made_the_rows_are_found() -> None:
    found = fit(PROBLEM, *rows())
    assert found.figures == pytest.approx(TRUE, rel=1e-4)
    assert found.loss < 1e-8


def test_wild_rows_do_not_move_the_figures() -> None:
    # one row in twenty takes 30 times as long: a mean of squares would move every figure by half
    columns, seconds = rows()
    wild = np.where(np.arange(len(seconds)) % 20 == 7, 30 * seconds, seconds)
    assert fit(PROBLEM, columns, wild).figures == pytest.approx(TRUE, rel=2e-3)


def test_the_same_rows_give_the_same_figures_in_any_order() -> None:
    columns, seconds = rows()
    noisy = seconds * (1 + 0.05 * np.sin(np.arange(len(seconds)) * 1.7))
    mixed = np.argsort(np.sin(np.arange(len(seconds)) * 12.9898))
    first = fit(PROBLEM, columns, noisy, few=300, many=900)
    again = fit(PROBLEM, {name: column[mixed] for name, column in columns.items()}, noisy[mixed], few=300, many=900)
    assert first.figures == again.figures  # to the last digit, not only to 1e-9


def test_figures_stay_in_their_range() -> None:
    near = {**FREE, "rate": Free((1e12,), 1e10, 1.5e12)}
    assert fit(Problem(law, near, TILES), *rows()).figures["rate"] == 1.5e12


def test_each_start_is_tried() -> None:
    # two valleys: the rows were made at 2, a start at 0.1 ends at the near end of the range
    def valleys(columns: dict[str, Array], figures: dict[str, float]) -> Array:
        x = figures["x"]
        return columns["one"] * (1 + (x - 2) ** 2 if x > 0.6 else 1 + 2 * (x + 0.05))

    columns = {"one": np.ones(50)}
    for starts, reached in (((0.1,), 0.01), ((0.1, 1.5), 2.0)):
        found = fit(Problem(valleys, {"x": Free(starts, 0.01, 10.0)}), columns, np.ones(50))
        assert found.figures["x"] == pytest.approx(reached, rel=0.02)


def test_thinning_spreads_over_all_rows() -> None:
    columns, seconds = ordered(*rows())
    few, times = thinned(columns, seconds, 500)
    assert len(times) == 500
    # 50 rows of each tenth of the range, more or less
    counts = np.histogram(few["rows"], bins=10, range=(0, 400))[0]
    assert counts.min() > 35
    whole, _ = thinned(columns, seconds, 10**6)
    assert whole is columns


def test_an_error_is_a_share_of_the_measured_time() -> None:
    found = errors(np.array([1.0, 2.0, 3.0]), np.array([2.0, 2.0, 2.0]))
    assert found.tolist() == [0.5, 0.0, 0.5]
