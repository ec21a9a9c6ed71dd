"""Every total of a step, and its time, against a simulator that was written without the book."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from flopmap.step import Group
from tests.physics.reference import Pass, Rates, Sequence, Shape, forward
from tests.physics.support import priced_groups, scaled, scenario_of, with_config

if TYPE_CHECKING:
    from flopmap.floor.roofline import Pricing
    from flopmap.records.book import Book

H100 = Rates(matrix=989.5e12, vector=66.9e12, exp=3.865e12, bandwidth=3.35e12)
KINDS = ("weights", "kv_traffic", "activations", "logit_traffic")


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    kv_heads = draw(st.integers(1, 3))
    window = draw(st.none() | st.integers(1, 30))
    return Shape(
        hidden=draw(st.integers(1, 40)),
        feed_forward=draw(st.integers(1, 60)),
        layers=draw(st.integers(1, 3)),
        heads=kv_heads * draw(st.integers(1, 4)),
        kv_heads=kv_heads,
        head_dim=2 * draw(st.integers(1, 12)),
        vocab=draw(st.integers(1, 90)),
        tied=draw(st.booleans()),
        window=window,
        biased=window is None and draw(st.booleans()),
    )


SEQUENCES = st.one_of(
    st.builds(
        Sequence, new=st.integers(1, 15), past=st.integers(0, 25), wants_logits=st.booleans(), is_prompt=st.just(True)
    ),
    st.builds(Sequence, new=st.just(1), past=st.integers(0, 40), wants_logits=st.just(True), is_prompt=st.just(False)),
)


def agree(priced: Pricing, walked: Pass) -> None:
    totals = priced.totals
    assert (totals["matrix"], totals["vector"], totals["exp"]) == (walked.matrix, walked.vector, walked.exp)
    assert totals["launches"] == walked.launches
    assert totals["cache"] == pytest.approx(walked.cache, rel=1e-12)
    for kind in KINDS:
        assert totals[kind] == pytest.approx(walked.moved.get(kind, 0), rel=1e-12), kind
    assert priced.operation_seconds == pytest.approx(walked.seconds, rel=1e-12)


def both(shape: Shape, sequences: list[Sequence], book: Book, kv_cache: str = "auto") -> tuple[Pricing, Pass]:
    scenario = with_config(scenario_of(book, dtype="bf16", kv_cache_dtype=kv_cache), shape.config())
    groups = [
        Group(
            count=1,
            new=sequence.new,
            past=sequence.past,
            positions=int(sequence.wants_logits),
            phase="prefill" if sequence.is_prompt else "decode",
        )
        for sequence in sequences
    ]
    priced = priced_groups(scenario, groups, book)
    return priced, forward(shape, sequences, H100, {"auto": 2, "fp8": 1}[kv_cache])


@given(shape=shapes(), sequences=st.lists(SEQUENCES, min_size=1, max_size=4), kv_cache=st.sampled_from(["auto", "fp8"]))
def test_a_walk_through_the_model_comes_to_the_same(
    shape: Shape, sequences: list[Sequence], kv_cache: str, book: Book
) -> None:
    agree(*both(shape, sequences, book, kv_cache))


def test_a_walk_with_biases_comes_to_the_same(book: Book) -> None:
    shape = Shape(
        hidden=20,
        feed_forward=50,
        layers=2,
        heads=6,
        kv_heads=2,
        head_dim=8,
        vocab=70,
        tied=False,
        window=None,
        biased=True,
    )
    sequences = [
        Sequence(new=7, past=5, wants_logits=True, is_prompt=True),
        Sequence(new=1, past=30, wants_logits=True, is_prompt=False),
    ]
    agree(*both(shape, sequences, book))


def test_a_walk_that_is_bound_by_every_resource_in_turn_comes_to_the_same(book: Book) -> None:
    # a part that is a thousand times slower in one rate: that one binds every op that uses it
    shape = Shape(
        hidden=64,
        feed_forward=160,
        layers=2,
        heads=8,
        kv_heads=2,
        head_dim=8,
        vocab=300,
        tied=True,
        window=12,
        biased=False,
    )
    sequences = [
        Sequence(new=20, past=6, wants_logits=False, is_prompt=True),
        Sequence(new=1, past=40, wants_logits=True, is_prompt=False),
    ]
    scenario = with_config(scenario_of(book, dtype="bf16"), shape.config())
    part = scenario.machine.part
    groups = [
        Group(count=1, new=20, past=6, positions=0, phase="prefill"),
        Group(count=1, new=1, past=40, phase="decode"),
    ]
    for slow in ("matrix", "vector", "exp", "bandwidth"):
        factors = {name: 1e-3 if name == slow else 1 for name in ("matrix", "vector", "exp", "bandwidth")}
        machine = replace(scenario.machine, part=scaled(part, **factors))
        rates = Rates(**{name: getattr(H100, name) * factor for name, factor in factors.items()})
        agree(
            priced_groups(replace(scenario, machine=machine), groups, book),
            forward(shape, sequences, rates, kv_bytes=2),
        )
