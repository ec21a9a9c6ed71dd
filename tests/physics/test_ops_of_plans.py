"""What the ranks of a plan send to each other, one run of each collective, as sentences with round numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flopmap.records.formula import value
from flopmap.records.resolve import costs
from flopmap.records.types import OpClass
from tests.physics.support import by_law, cost, quantity

if TYPE_CHECKING:
    from flopmap.records.book import Book

ROWS = {"t": 7, "width": 80, "act_bytes": 3, "ranks": 5}
PAYLOAD = 7 * 80 * 3
WEIGHTS_ONLY = {"gemm-bytes": "weights"}


def least(book: Book, op_class: str, **symbols: float) -> dict[str, float]:
    """The costs as the device floor takes them."""
    return {name: value(tree, symbols) for name, tree in costs(book.record(OpClass, op_class), {}, least=True).items()}


def test_a_ring_scatters_sums_and_gathers_them(book: Book) -> None:
    for name in ("all-reduce", "embedding-reduce"):
        spent = cost(book, name, **ROWS)
        assert spent["link"] == pytest.approx(2 * 4 / 5 * PAYLOAD)
        assert spent["hops"] == 8  # to each of 4 others, twice around
        assert spent["vector"] == pytest.approx(4 / 5 * 7 * 80)  # an addition for each element that arrives
        assert spent["activations"] == 2 * PAYLOAD  # read and written
        assert spent["launches"] == 1
        assert cost(book, name, WEIGHTS_ONLY, **ROWS)["activations"] == 0
    assert quantity(book, "all-reduce", "a_layer", **ROWS) == pytest.approx(2 * 2 * 4 / 5 * PAYLOAD)
    assert quantity(book, "all-reduce", "a_token", **ROWS) == pytest.approx(2 * 2 * 4 / 5 * 80 * 3)
    assert quantity(book, "embedding-reduce", "of_payload", **ROWS) == pytest.approx(2 * 4 / 5)


def test_other_algorithms_of_an_all_reduce(book: Book) -> None:
    for algorithm, link, hops, vector in (
        ("in-network", 1, 2, 0),  # up to the switch, which adds, and down
        ("tree", 2, 6, 1),  # 5 ranks are 3 levels deep
        ("one-shot", 4, 1, 4),  # to each of the 4 others at once
        ("undivided", 1, 1, 0.8),
    ):
        spent = cost(book, "all-reduce", {"all-reduce": algorithm}, **ROWS)
        assert spent["link"] == link * PAYLOAD
        assert spent["hops"] == hops
        assert spent["vector"] == pytest.approx(vector * 7 * 80)


def test_at_least_the_vector_leaves_each_rank_once(book: Book) -> None:
    spent = least(book, "all-reduce", **ROWS)
    assert (spent["link"], spent["hops"], spent["vector"]) == (PAYLOAD, 1, 0)
    copied = least(book, "embedding-reduce", **ROWS)  # ranks could each hold the table
    assert (copied["link"], copied["hops"]) == (0, 0)


def test_a_gather_brings_what_the_others_have(book: Book) -> None:
    spent = cost(book, "all-gather", **ROWS)
    assert spent["link"] == pytest.approx(4 / 5 * PAYLOAD)
    assert (spent["hops"], spent["activations"], spent["launches"]) == (4, PAYLOAD, 1)
    assert quantity(book, "all-gather", "of_whole", **ROWS) == pytest.approx(0.8)
    assert least(book, "all-gather", **ROWS)["hops"] == 1
    assert cost(book, "all-gather", WEIGHTS_ONLY, **ROWS)["activations"] == 0


def test_a_scatter_sends_the_summands_of_what_others_keep(book: Book) -> None:
    spent = cost(book, "reduce-scatter", **ROWS)
    assert spent["link"] == pytest.approx(4 / 5 * PAYLOAD)
    assert spent["vector"] == pytest.approx(4 / 5 * 7 * 80)
    assert (spent["hops"], spent["activations"], spent["launches"]) == (4, PAYLOAD, 1)
    assert quantity(book, "reduce-scatter", "of_whole", **ROWS) == pytest.approx(0.8)
    lowest = least(book, "reduce-scatter", **ROWS)
    assert (lowest["hops"], lowest["vector"]) == (1, 0)
    assert cost(book, "reduce-scatter", WEIGHTS_ONLY, **ROWS)["activations"] == 0


def test_the_rank_that_samples_gathers_the_logits_of_all(book: Book) -> None:
    shapes = {"logits": 3, "vocab": 1000, "ranks": 5, "act_bytes": 2}
    spent = cost(book, "logits-gather", **shapes)
    assert spent["link"] == spent["logit_traffic"] == pytest.approx(4 / 5 * 3 * 1000 * 2)
    assert (spent["hops"], spent["launches"]) == (4, 1)
    none = cost(book, "logits-gather", **shapes | {"logits": 0})
    assert (none["hops"], none["launches"], none["link"]) == (0, 0, 0)
    lowest = least(book, "logits-gather", **shapes)  # a greedy draw needs the best of each
    assert (lowest["link"], lowest["logit_traffic"], lowest["hops"]) == (0, 0, 1)
    assert cost(book, "logits-gather", WEIGHTS_ONLY, **shapes)["logit_traffic"] == 0


def test_a_row_goes_once_to_each_rank_that_has_one_of_its_experts(book: Book) -> None:
    shapes = {**ROWS, "top_k": 3}
    reached = 4 * (1 - (4 / 5) ** 3)  # each of 4 others is missed by all 3 choices with (4/5)^3
    spent = cost(book, "expert-dispatch", **shapes)
    assert spent["link"] == pytest.approx(PAYLOAD * reached)
    assert spent["activations"] == pytest.approx(PAYLOAD * (1 + reached))
    assert (spent["hops"], spent["launches"]) == (1, 1)
    assert quantity(book, "expert-dispatch", "reached_ranks", **shapes) == pytest.approx(reached)
    lowest = least(book, "expert-dispatch", **shapes)
    assert (lowest["link"], lowest["hops"]) == (0, 0)  # all may lie on its own rank
    assert cost(book, "expert-dispatch", WEIGHTS_ONLY, **shapes)["activations"] == 0


def test_a_stage_sends_its_rows_in_pieces(book: Book) -> None:
    spent = cost(book, "stage-send", **ROWS)
    assert spent["link"] == PAYLOAD / 5
    assert spent["activations"] == 2 * PAYLOAD / 5
    assert (spent["hops"], spent["launches"]) == (1, 1)
    assert quantity(book, "stage-send", "a_token", **ROWS) == 80 * 3 / 5
    assert cost(book, "stage-send", WEIGHTS_ONLY, **ROWS)["activations"] == 0


def test_a_cache_is_sent_once(book: Book) -> None:
    shapes = {"cached": 11, "kv_heads": 3, "head_dim": 10, "value_dim": 20, "kv_bytes": 2}
    spent = cost(book, "kv-transfer", **shapes)
    assert spent["link"] == 11 * 3 * 30 * 2
    assert (spent["hops"], spent["launches"]) == (1, 1)
    assert quantity(book, "kv-transfer", "a_token", **shapes) == 3 * 30 * 2


def test_spread_experts_take_the_tokens_of_all_ranks_and_their_share_of_choices(book: Book) -> None:
    # 4 of 32 experts here, and an eighth of the 2 that each token chooses; 8 ranks of 7 tokens
    shapes = {"t": 7, "d_in": 10, "width": 30, "gated": 1, "experts": 4, "top_k": 0.25, "bias": 0, "replicas": 8}
    formats = {"weight_bytes": 2, "act_bytes": 3}
    spent = cost(book, "spread-experts", **shapes, **formats)
    assert spent["parameters"] == 4 * 900
    assert spent["resident"] == 4 * 900 * 2
    assert spent["active"] == 0.25 * 900
    assert spent["matrix"] == 2 * 56 * 0.25 * 900
    assert spent["vector"] == 0
    assert spent["weights"] == pytest.approx(4 * (1 - (1 - 2 / 32) ** 56) * 900 * 2)
    assert spent["activations"] == 2 * 56 * 0.25 * (10 + 30) * 3
    assert spent["launches"] == 2
    biased = cost(book, "spread-experts", **shapes | {"bias": 1}, **formats)
    assert biased["vector"] == 56 * 0.25 * (30 * 2 + 10)
    lowest = least(book, "spread-experts", **shapes, **formats)
    assert lowest["activations"] == 2 * 56 * 0.25 * 10 * 3
    assert lowest["weights"] == 0.25 * 900 * 2  # all tokens may choose the same two


def test_links_take_their_bytes_over_their_rate_and_their_messages_one_after_another(book: Book) -> None:
    for name in ("roofline", "device-floor"):
        assert by_law(book, name, "link_seconds", link=600, link_bandwidth=200) == 3
        assert by_law(book, name, "latency_seconds", hops=14, link_latency=0.5) == 7
