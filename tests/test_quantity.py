"""Sizes, times and rates as people type and read them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flopmap.quantity import (
    QuantityError,
    amount,
    parse_count,
    parse_seconds,
    parse_tokens_per_second,
    percent,
    seconds,
    significant,
)

PREFIX = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
UNIT = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
readable = st.floats(min_value=1e-9, max_value=1e17, allow_nan=False)


def number_of(text: str) -> float:
    return float(text.replace(",", ""))


def seconds_of(text: str) -> float:
    number, unit = text.split(" ")
    return number_of(number) * UNIT[unit]


def amount_of(text: str, unit: str) -> float:
    number, prefixed = text.split(" ")
    return number_of(number) * PREFIX[prefixed.removesuffix(unit)]


# -- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1", 1),
        ("0", 0),
        ("2048", 2048),
        ("8000", 8000),
        ("8k", 8192),  # as context lengths are named
        ("8K", 8192),
        ("8 k", 8192),
        (" 8k ", 8192),
        ("128k", 131072),
        ("0.5k", 512),
        ("1.5k", 1536),
        (".5k", 512),
        ("1m", 1048576),
        ("1M", 1048576),
        ("1e3", 1000),
        ("1e9", 1_000_000_000),
        ("2.0", 2),
    ],
)
def test_counts(text: str, count: int) -> None:
    assert parse_count(text) == count
    assert isinstance(parse_count(text), int)


@pytest.mark.parametrize(
    "text", ["", " ", "k", "abc", "-1", "+1", "nan", "inf", "0x10", "1_000", "1,000", "8kb", "8 k k", "1e", "1g"]
)
def test_what_is_no_count(text: str) -> None:
    with pytest.raises(QuantityError) as error:
        parse_count(text)
    assert str(error.value) == f"{text!r} is not a count (accepted: 2048, 8k, 1m)"


@pytest.mark.parametrize("text", ["1.5", "0.3k", "1e-3", "1e18", "1e300", "1e999"])
def test_what_is_no_whole_count(text: str) -> None:
    with pytest.raises(QuantityError) as error:
        parse_count(text)
    assert str(error.value) == f"{text!r} is not a whole count (accepted: 2048, 8k, 1m)"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("28ms", 0.028),
        ("28 ms", 0.028),
        ("1.2s", 1.2),
        (".5s", 0.5),
        ("350us", 350e-6),
        ("350µs", 350e-6),
        ("90ns", 90e-9),
        ("2min", 120.0),
        ("1e3ms", 1.0),
    ],
)
def test_times(text: str, value: float) -> None:
    assert parse_seconds(text) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    "text", ["", "28", "ms", "-5ms", "28parsecs", "28 m s", "nan", "nans", "infs", "1h", "28MS", "28ms28ms"]
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(QuantityError) as error:
        parse_seconds(text)
    assert str(error.value) == f"{text!r} is not a time (accepted: 28ms, 1.2s, 350us)"


@pytest.mark.parametrize(
    ("text", "speed"), [("227.8", 227.8), ("227.8tok/s", 227.8), ("9 tokens/s", 9.0), ("9token/s", 9.0), ("9t/s", 9.0)]
)
def test_throughputs(text: str, speed: float) -> None:
    assert parse_tokens_per_second(text) == speed


@pytest.mark.parametrize("text", ["", "-1", "10parsecs", "1/s", "tok/s", "nan"])
def test_what_is_no_throughput(text: str) -> None:
    with pytest.raises(QuantityError) as error:
        parse_tokens_per_second(text)
    assert str(error.value) == f"{text!r} is not a throughput in tokens per second (accepted: 227.8, 227.8tok/s)"


@pytest.mark.parametrize("text", ["0ms", "0.0s", "1e999s", "1e-400s"])
def test_a_time_is_positive_and_finite(text: str) -> None:
    with pytest.raises(QuantityError) as error:
        parse_seconds(text)
    assert str(error.value) == f"{text!r} is not a positive number"


@pytest.mark.parametrize("text", ["0", "1e999"])
def test_a_throughput_is_positive_and_finite(text: str) -> None:
    with pytest.raises(QuantityError) as error:
        parse_tokens_per_second(text)
    assert str(error.value) == f"{text!r} is not a positive number"


@given(st.integers(0, 10**15))
def test_a_count_written_out_is_read_as_it_is(count: int) -> None:
    assert parse_count(str(count)) == count


@given(st.integers(0, 10**6))
def test_k_is_1024_and_m_is_1024_k(count: int) -> None:
    assert parse_count(f"{count}k") == 1024 * count
    assert parse_count(f"{count}m") == 1024 * 1024 * count


@given(st.text(max_size=40) | st.from_regex(r"-?[0-9.]{0,400}(e[0-9]{1,4})?[a-z]{0,3}", fullmatch=True))
def test_any_text_is_a_quantity_or_one_line_of_error(text: str) -> None:
    for parse in (parse_count, parse_seconds, parse_tokens_per_second):
        refusal = ""
        try:
            number = parse(text)
        except QuantityError as error:
            refusal = str(error)
        assert refusal or number >= 0
        assert "\n" not in refusal
        assert len(refusal) < 200


# -- writing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 s"),
        (0.0418, "41.80 ms"),
        (1.0, "1.000 s"),
        (0.624, "624.0 ms"),
        (2.282e-3, "2.282 ms"),
        (350e-6, "350.0 µs"),
        (4.9e-9, "4.900 ns"),
        (125.0, "125 s"),
        (4000.0, "4,000 s"),
        (0.00099996, "1.000 ms"),
    ],
)
def test_seconds_in_the_unit_that_reads_best(value: float, text: str) -> None:
    assert seconds_of(seconds(value)) == pytest.approx(value, rel=5e-4)
    assert seconds(value).split()[1] == text.split()[1]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (140e9, "B", "140.0 GB"),  # GB is 1e9
        (2.684354560e9, "B", "2.684 GB"),
        (573e12, "FLOP", "573.0 TFLOP"),
        (1.34e12, "B", "1.340 TB"),
        (131072, "B", "131.1 kB"),
        (327680, "B", "327.7 kB"),
        (2e15, "FLOP", "2.000 PFLOP"),
        (0, "B", "0 B"),
    ],
)
def test_amounts_have_decimal_prefixes(value: float, unit: str, text: str) -> None:
    assert amount(value, unit) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1, "1.000"),
        (0.02556, "0.02556"),
        (999.96, "1,000"),
        (9.9996, "10.00"),
        (23.926, "23.93"),
        (100, "100.0"),
        (227.8, "227.8"),
        (10281.4, "10,280"),
        (2.7388, "2.739"),
    ],
)
def test_significant_figures(value: float, text: str) -> None:
    assert significant(value) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0.97, "97%"), (1.0, "100%"), (0.004, "0.4%"), (0.0, "0.0%"), (0.1, "10%"), (-0.5, "-50%")]
)
def test_percent(share: float, text: str) -> None:
    assert percent(share) == text


@given(readable)
def test_a_number_reads_back_within_half_a_percent(value: float) -> None:
    assert number_of(significant(value)) == pytest.approx(value, rel=0.005)
    assert seconds_of(seconds(value)) == pytest.approx(value, rel=0.005)
    assert amount_of(amount(value, "B"), "B") == pytest.approx(value, rel=0.005)


@given(readable)
def test_no_number_shows_more_than_it_knows(value: float) -> None:
    text = significant(value)
    if 1e-3 <= value < 999:
        assert len(re.sub(r"^0\.0*|\.", "", text)) <= 4
    assert ("e" in text) <= (value < 1e-3)


@given(readable, readable)
def test_a_longer_time_never_reads_as_a_shorter_one(one: float, other: float) -> None:
    short, long = sorted((one, other))
    assert seconds_of(seconds(short)) <= seconds_of(seconds(long)) * (1 + 1e-12)
    assert amount_of(amount(short, "B"), "B") <= amount_of(amount(long, "B"), "B") * (1 + 1e-12)


@given(st.floats(min_value=1e-8, max_value=99.0))
def test_a_time_written_is_a_time_read(value: float) -> None:
    assert parse_seconds(seconds(value)) == pytest.approx(value, rel=0.005)
