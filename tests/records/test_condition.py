"""Conditions: what they say of known facts, what they leave open of unknown ones, and what they refuse."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flopmap.records.condition import ALLOWED, ConditionError, facts_of, holds, parse

if TYPE_CHECKING:
    from flopmap.records.condition import Fact

HOPPER: dict[str, Fact] = {
    "vendor": "nvidia",
    "compute_capability": 90,
    "eager": True,
    "batch_size": 8,
    "weights": "fp8",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('vendor == "nvidia"', True),
        ("compute_capability >= 90 and compute_capability < 100", True),
        ('vendor == "amd" or eager', True),
        ("not eager", False),
        ("eager == false", False),
        ('weights in ["fp8", "fp8-block"]', True),
        ('weights not in ["fp8"]', False),
        ("batch_size != 8", False),
    ],
)
def test_a_condition_is_what_it_says(text: str, *, expected: bool) -> None:
    assert holds(parse(text), HOPPER) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("experts", None),
        ("not experts", None),
        ("experts and eager", None),
        ("experts and not eager", False),  # fails whatever the experts are
        ("experts or eager", True),  # holds whatever they are
        ("head_dim > 128", None),
    ],
)
def test_an_unknown_fact_decides_nothing(text: str, *, expected: bool | None) -> None:
    assert holds(parse(text), HOPPER) is expected


@given(st.lists(st.sampled_from([True, False, None]), min_size=3, max_size=3))
def test_unknown_means_that_both_ways_are_open(values: list[bool | None]) -> None:
    condition = parse("(a and b) or not c")
    facts = dict(zip("abc", values, strict=True))
    ways = [[value] if value is not None else [True, False] for value in values]
    found = {holds(condition, dict(zip("abc", way, strict=True))) for way in itertools.product(*ways)}
    answer = holds(condition, facts)
    assert found == {answer} if answer is not None else len(found) == 2


def test_a_condition_names_its_facts() -> None:
    assert facts_of(parse('vendor == "amd" and (eager or batch_size > 3)')) == {"vendor", "eager", "batch_size"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "vendor ==",
        "vendor.lower() == 'amd'",
        "__import__('os')",
        "1 < 2",
        "1 < batch_size < 4",
        "batch_size + 1 > 3",
        "weights in 'fp8'",
        "weights == ['fp8']",
        "[vendor]",
        "true",
        "vendor == None",
        "lambda: eager",
    ],
)
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(ConditionError):
        parse(text)


def test_the_refusal_says_what_is_allowed() -> None:
    with pytest.raises(ConditionError, match="'batch_size \\+ 1 > 3' is not allowed in a condition"):
        parse("batch_size + 1 > 3")
    with pytest.raises(ConditionError, match="at most 1000 characters"):
        parse("eager or " * 200 + "eager")
    with pytest.raises(ConditionError, match="parts deep"):
        parse("not " * 40 + "eager")
    assert "and, or, not" in ALLOWED
