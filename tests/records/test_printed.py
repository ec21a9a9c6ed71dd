"""A printed figure says how exact it is by its digits."""

from __future__ import annotations

import math

import pytest

from flopmap.records.printed import exactly, read_printed


@pytest.mark.parametrize(
    ("text", "low", "high", "unit"),
    [
        # any value that rounds to it
        ("13.3", 13.25, 13.35, "1"),
        ("13.30", 13.295, 13.305, "1"),
        ("591 tokens", 590.5, 591.5, "1"),
        ("9,440 tokens", 9439.5, 9440.5, "1"),
        # the last digit of 1.5e3 is worth 100, that of 53e3 a thousand
        ("1.5e3", 1450, 1550, "1"),
        ("53e3 tokens", 52500, 53500, "1"),
        ("41.94 GB", 41.935e9, 41.945e9, "byte"),
        ("320 KiB", 319.5 * 1024, 320.5 * 1024, "byte"),
        ("42.6 ms", 42.55e-3, 42.65e-3, "s"),
        ("30 %", 0.295, 0.305, "1"),
        ("989 TFLOP/s", 988.5e12, 989.5e12, "FLOP/s"),
        ("295.4 FLOP/B", 295.35, 295.45, "FLOP/byte"),
        ("3.9 Top/s", 3.85e12, 3.95e12, "op/s"),
        ("23.9 token/s", 23.85, 23.95, "1/s"),
        # a rough figure: within one of its last digit that is not 0
        ("about 500 x", 400, 600, "1"),
        ("about 36,400 tokens", 36_300, 36_500, "1"),
        ("about 1.83e6 elements", 1.82e6, 1.84e6, "1"),
        # ranges hold both ends; one side is open
        ("25 to 50 MAC", 25, 50, "FLOP"),
        ("above 295 FLOP/B", 295, math.inf, "FLOP/byte"),
        ("at least 1000 ms", 1, math.inf, "s"),
        ("below 1 x", -math.inf, 1, "1"),
        ("at most 80 GB", -math.inf, 80e9, "byte"),
        ("-2.5", -2.55, -2.45, "1"),
    ],
)
def test_the_digits_say_what_a_figure_agrees_with(text: str, low: float, high: float, unit: str) -> None:
    printed = read_printed(text)
    assert printed.low * printed.scale == pytest.approx(low)
    assert printed.high * printed.scale == pytest.approx(high)
    assert printed.unit == unit


def test_a_figure_holds_from_half_a_digit_below_to_half_a_digit_above() -> None:
    printed = read_printed("13.3 ms")
    assert printed.holds(13.25e-3)
    assert printed.holds(13.35e-3)
    assert not printed.holds(13.2499e-3)
    assert not printed.holds(13.3501e-3)


def test_a_figure_keeps_its_value_and_its_unit_as_written() -> None:
    assert (read_printed("16,384 FLOP/B").value, read_printed("16,384 FLOP/B").label) == (16384, "FLOP/B")
    assert read_printed("25 to 50 MAC").value is None


def test_what_a_formula_comes_to_has_to_be_met_but_for_rounding() -> None:
    assert exactly(3e12).holds(3e12 * (1 + 1e-12))
    assert not exactly(3e12).holds(3e12 * (1 + 1e-8))
    assert exactly(-2).holds(-2)


@pytest.mark.parametrize("text", ["", "GB", "a few", "41.94GB", "about", "1 to", "12 !"])
def test_what_is_no_figure_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a printed figure"):
        read_printed(text)


@pytest.mark.parametrize("text", ["1..2 GB", ",", "."])
def test_a_number_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a printed figure"):
        read_printed(text)
