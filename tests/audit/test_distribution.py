"""Quantiles from counts are those of the sorted values, within the width of a bin."""

from __future__ import annotations

import math

import numpy as np
import pytest

from flopmap.audit.distribution import Distribution

BIN = 2 ** (1 / 256)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_a_quantile_is_within_a_bin_of_the_sorted_value(share: float) -> None:
    values = np.exp(np.random.default_rng(7).normal(1.0, 1.5, 10_001))
    found = Distribution()
    for part in np.array_split(values, 7):
        found.add(part)
    exact = float(np.quantile(values, share))
    assert found.rows == 10_001
    assert exact / BIN <= found.quantile(share) <= exact * BIN


def test_the_least_value_is_exact_and_none_has_no_quantile() -> None:
    found = Distribution()
    assert math.isnan(found.quantile(0.5))
    found.add(np.array([]))
    found.add(np.array([3.0, 0.999, 2.0]))
    assert found.least == 0.999
    found.add(np.array([1e-9, 1e30]))  # beyond the bins: counted at their ends
    assert (found.rows, found.least) == (5, 1e-9)
