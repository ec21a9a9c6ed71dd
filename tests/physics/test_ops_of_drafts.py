"""What adapters cost, and what drafts and denoising yield, as sentences with round numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flopmap.records.book import load
from tests.physics.support import by_law, cost

if TYPE_CHECKING:
    from flopmap.records.book import Book

LORA = {"d_in": 100, "d_out": 40, "rank": 8, "loras": 3, "t": 7, "seqs": 2, "act_bytes": 2}


def test_an_adapter_is_a_narrow_pair_beside_a_matrix(book: Book) -> None:
    spent = cost(book, "lora", **LORA)
    # 100 x 8 and 8 x 40, for each of 3 adapters
    assert spent["parameters"] == 3 * (100 * 8 + 8 * 40)
    assert spent["resident"] == 3 * (100 * 8 + 8 * 40) * 2
    # a token goes through one of them, whatever how many there are
    assert spent["matrix"] == 7 * 2 * (100 * 8 + 8 * 40)
    assert spent["vector"] == 7 * 40
    # row in, shrunk row out and in, output in and out
    assert spent["activations"] == 7 * (100 + 2 * 8 + 2 * 40) * 2
    assert spent["launches"] == 2
    assert cost(book, "lora", {"gemm-bytes": "weights"}, **LORA)["activations"] == 0


def test_the_adapters_that_are_read_are_those_that_the_sequences_use(book: Book) -> None:
    one = (100 * 8 + 8 * 40) * 2
    # each of 2 sequences picks one of 3: 3 (1 - (2/3)^2) = 5/3 different ones
    assert cost(book, "lora", **LORA)["weights"] == pytest.approx(5 / 3 * one, rel=1e-12)
    assert cost(book, "lora", **LORA | {"loras": 1, "seqs": 50})["weights"] == one
    assert cost(book, "lora", **LORA | {"seqs": 1})["weights"] == pytest.approx(one, rel=1e-12)


def tokens(book: Book, acceptance: float, drafted: int) -> float:
    return by_law(book, "speculative-decoding", "tokens_per_cycle", acceptance=acceptance, drafted=drafted)


def test_a_cycle_yields_a_token_and_the_drafts_before_the_first_that_is_rejected(book: Book) -> None:
    # 1 + 1/2 + 1/4 + 1/8
    assert tokens(book, 0.5, 3) == 1.875
    assert tokens(book, 0, 3) == 1
    assert tokens(book, 1, 3) == 4
    assert tokens(book, 0.5, 0) == 1


def test_a_token_takes_its_share_of_a_cycle(book: Book) -> None:
    cycle = {"acceptance": 0.5, "drafted": 3, "cycle_seconds": 3.0, "plain_seconds": 2.0}
    assert by_law(book, "speculative-decoding", "seconds_per_token", **cycle) == 3 / 1.875
    assert by_law(book, "speculative-decoding", "speedup", **cycle) == 2 * 1.875 / 3


@given(st.floats(0, 1), st.floats(0, 1), st.integers(0, 20))
def test_tokens_of_a_cycle_grow_with_acceptance_and_with_drafts(one: float, other: float, drafted: int) -> None:
    book, (low, high) = load(), sorted((one, other))
    assert 1 <= tokens(book, low, drafted) <= tokens(book, high, drafted) * (1 + 1e-12)
    assert tokens(book, low, drafted) <= tokens(book, low, drafted + 1) * (1 + 1e-12)
    assert tokens(book, high, drafted) <= drafted + 1 + 1e-9


def test_a_pass_of_denoising_fills_its_share_of_a_block(book: Book) -> None:
    assert by_law(book, "denoising", "tokens_per_pass", block=32, denoising_steps=8) == 4
