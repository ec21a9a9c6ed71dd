"""What the indexers of sparse attention cost, and attention whose values are its keys, as sentences with numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.physics.support import cost

if TYPE_CHECKING:
    from flopmap.records.book import Book

INDEX = {"pairs": 600, "kv": 50, "t": 7, "heads": 4, "head_dim": 16, "kv_bytes": 2, "act_bytes": 3}


def test_an_indexer_scores_every_pair_and_sums_the_heads_with_weights(book: Book) -> None:
    spent = cost(book, "sparse-index", **INDEX, weighted=1, rate=1)
    assert spent["matrix"] == 2 * 600 * 4 * 16 + 2 * 600 * 4
    # a ReLU a head and one comparison
    assert spent["vector"] == 600 * 4 + 600
    # one key a token, whatever the heads
    assert spent["kv_traffic"] == 50 * 16 * 2
    # the queries of 4 heads and the key of each new token
    assert spent["activations"] == 7 * (4 + 1) * 16 * 3
    assert spent["launches"] == 2
    assert cost(book, "sparse-index", **INDEX, weighted=0, rate=1)["matrix"] == 2 * 600 * 4 * 16


def test_a_row_for_several_tokens_divides_scores_and_traffic(book: Book) -> None:
    spent = cost(book, "sparse-index", **INDEX, weighted=0, rate=2)
    assert spent["matrix"] == 2 * 300 * 4 * 16
    assert spent["kv_traffic"] == 25 * 16 * 2


def test_attention_whose_values_are_its_keys_reads_one_row_for_all_heads(book: Book) -> None:
    spent = cost(book, "shared-attention", **INDEX, rate=2)
    # scores and output over 300 rows: twice a multiply-add an element
    assert spent["matrix"] == 2 * 2 * 300 * 4 * 16
    assert spent["vector"] == 4 * 300 * 4
    assert spent["exp"] == 300 * 4
    assert spent["kv_traffic"] == 25 * 16 * 2
    assert spent["activations"] == 7 * 16 * 3
    assert spent["launches"] == 1


def test_queries_outputs_and_scores_of_shared_rows_count_where_the_convention_says_so(book: Book) -> None:
    qkvo = cost(book, "shared-attention", {"attention-bytes": "qkvo"}, **INDEX, rate=5)
    naive = cost(book, "shared-attention", {"attention-bytes": "naive"}, **INDEX, rate=5)
    # a query and an output of each of 4 heads, and one row
    assert qkvo["activations"] == 7 * (2 * 4 + 1) * 16 * 3
    # scores and probabilities of 600 / 5 pairs, written and read
    assert naive["activations"] == 7 * (2 * 4 + 1) * 16 * 3 + 4 * 120 * 4 * 3
    assert naive["kv_traffic"] == 50 / 5 * 16 * 2


def test_a_shared_row_is_stored_once_and_what_it_is_made_of_waits(book: Book) -> None:
    shapes = {"head_dim": 16, "rate": 4, "buffer": 256, "width": 64, "kv_bytes": 2, "act_bytes": 3}
    spent = cost(book, "shared-write", cached=80, written=8, t=8, seqs=5, **shapes)
    assert spent["cache"] == 80 / 4 * 16 * 2
    assert spent["kv_traffic"] == 8 / 4 * 16 * 2
    assert spent["held"] == 5 * 256 * 3
    # each token's 64 elements are written to the buffer and read from it
    assert spent["state"] == 2 * 8 * 64 * 3
    assert spent["activations"] == 8 * 16 * 3
    assert spent["launches"] == 1
