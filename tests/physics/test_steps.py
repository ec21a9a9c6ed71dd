"""Steps of any composition: counted token by token, in one go or in chunks, alone or together."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flopmap.floor.summary import memory
from flopmap.records.book import load
from flopmap.records.formula import value
from flopmap.step import Group, Statistic, formula, mixed_step, prefill_step
from tests.physics.support import (
    LLAMA_8B,
    decode,
    prefill,
    priced,
    priced_groups,
    scenario_of,
    summed,
    with_config,
)

if TYPE_CHECKING:
    from flopmap.records.book import Book

WINDOWED = "mistralai/Mistral-7B-v0.1"  # every layer sees 4096 tokens
LENGTHS = st.integers(1, 300)


# -- pairs, token by token --------------------------------------------------------------------------------------------


def seen(position: int, window: int | None) -> list[int]:
    """The positions that the token at ``position`` attends to, its own included."""
    return [other for other in range(position + 1) if window is None or position - other < window]


def counted(new: int, past: int, window: int | None) -> dict[str, int]:
    """The statistics of one sequence, counted by going through its tokens."""
    looks = [seen(position, window) for position in range(past, past + new)]
    last = past + new
    kept = set(range(last)) if window is None else set(range(max(0, last - window), last))
    return {
        "pairs": sum(map(len, looks)),
        "kv": len({other for look in looks for other in look if other < past}),
        "written": len([position for position in range(past, last) if position in kept]),
        "cached": len(kept),
    }


@given(new=st.integers(1, 40), past=st.integers(0, 40), window=st.none() | st.integers(1, 50))
def test_a_window_counts_what_each_token_sees(new: int, past: int, window: int | None, book: Book) -> None:
    for symbol, expected in counted(new, past, window).items():
        assert summed(book, symbol, [prefill(new, past)], window) == expected, symbol


def test_statistics_without_a_window(book: Book) -> None:
    groups = [prefill(5, 3, count=2, positions=4), decode(10, count=7)]
    assert summed(book, "t", groups) == 2 * 5 + 7
    assert summed(book, "seqs", groups) == 2 + 7
    assert summed(book, "logits", groups) == 2 * 4 + 7
    assert summed(book, "logits", groups, conventions={"logits": "all"}) == 2 * 5 + 7
    # 5 new tokens after 3: 5 * 3 old keys and 1 + 2 + 3 + 4 + 5 new ones; a decoded token sees 11
    assert summed(book, "pairs", groups) == 2 * (15 + 15) + 7 * 11
    assert summed(book, "pairs", groups, conventions={"mask": "full"}) == 2 * 5 * 8 + 7 * 11
    assert summed(book, "kv", groups) == 2 * 3 + 7 * 10
    assert summed(book, "written", groups) == 2 * 5 + 7
    assert summed(book, "cached", groups) == 2 * 8 + 7 * 11


def test_half_of_the_square_is_half_of_the_new_tokens_and_at_least_a_token_itself(book: Book) -> None:
    half = {"mask": "half"}
    assert summed(book, "pairs", [prefill(6, 4)], conventions=half) == 6 * 4 + 18
    assert summed(book, "pairs", [decode(9)], conventions=half) == 9 + 1
    assert summed(book, "pairs", [decode(0)], conventions=half) == 1


def test_statistics_under_a_window(book: Book) -> None:
    # a window of 4 and 3 tokens cached: the new ones see 4, 4, 4, 4, 4; the first still sees all 3 cached
    assert summed(book, "pairs", [prefill(5, 3)], 4) == 20
    assert summed(book, "kv", [prefill(5, 3)], 4) == 3
    assert summed(book, "written", [prefill(5, 3)], 4) == 4
    assert summed(book, "cached", [prefill(5, 3)], 4) == 4
    # a window of 6 and 2 cached: 3, 4, 5, 6, 6
    assert summed(book, "pairs", [prefill(5, 2)], 6) == 24
    assert summed(book, "kv", [prefill(5, 2)], 6) == 2
    assert summed(book, "written", [prefill(5, 2)], 6) == 5
    assert summed(book, "cached", [prefill(5, 2)], 6) == 6
    # a window of 10 is not full after 5 tokens
    assert summed(book, "cached", [prefill(2, 3)], 10) == 5
    # a window of 4 and 100 cached: each sees 4, and the first reaches 3 back
    assert summed(book, "pairs", [prefill(5, 100)], 4) == 20
    assert summed(book, "kv", [prefill(5, 100)], 4) == 3


# -- chunks -----------------------------------------------------------------------------------------------------------


def in_chunks(scenario: Any, cuts: list[int], book: Book) -> dict[str, float]:
    """The sum over the chunks of a prompt; only the last chunk wants logits."""
    totals: dict[str, float] = {}
    for start, end in pairwise(cuts):
        chunk = prefill(end - start, start, positions=int(end == cuts[-1]))
        for name, amount in priced_groups(scenario, [chunk], book).totals.items():
            totals[name] = totals.get(name, 0) + amount
    return totals


@pytest.mark.parametrize("model", [LLAMA_8B, WINDOWED, "google/gemma-2-9b"])
def test_four_chunks_of_512_are_the_flop_of_one_prompt_of_2048(model: str, book: Book) -> None:
    scenario = scenario_of(book, model, phase="prefill", input_len=2048, dtype="bf16")
    whole, chunks = (in_chunks(scenario, cuts, book) for cuts in ([0, 2048], [0, 512, 1024, 1536, 2048]))
    for resource in ("matrix", "exp", "vector"):
        assert chunks[resource] == whole[resource]
    if model == LLAMA_8B:
        # each chunk reads the weights of the layers again (the head's only for the last), and the keys and values of
        # the chunks before it
        layers = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336) + 65 * 4096
        assert chunks["weights"] - whole["weights"] == 3 * 2 * layers
        assert chunks["kv_traffic"] - whole["kv_traffic"] == (512 + 1024 + 1536) * 131_072
        assert whole["matrix"] == 29_688_401_494_016


@given(
    cuts=st.lists(st.integers(1, 399), max_size=6, unique=True).map(sorted),
    window=st.none() | st.integers(1, 500),
)
def test_flop_do_not_depend_on_the_chunks(cuts: list[int], window: int | None, book: Book) -> None:
    scenario = with_config(scenario_of(book, phase="prefill", input_len=400), {**TINY, "sliding_window": window})
    whole, chunks = in_chunks(scenario, [0, 400], book), in_chunks(scenario, [0, *cuts, 400], book)
    for resource in ("matrix", "exp", "vector"):
        assert chunks[resource] == whole[resource]


TINY = {
    "model_type": "mistral",
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 640,
    "sliding_window": None,
    "torch_dtype": "bfloat16",
}


# -- batches ----------------------------------------------------------------------------------------------------------

SEQUENCES = st.one_of(
    st.builds(prefill, LENGTHS, st.integers(0, 300), count=st.integers(1, 3), positions=st.integers(0, 1)),
    st.builds(decode, st.integers(0, 300), count=st.integers(1, 5)),
)


@given(groups=st.lists(SEQUENCES, min_size=1, max_size=5), window=st.none() | st.integers(1, 400))
def test_a_batch_is_the_sum_of_its_sequences_and_reads_the_weights_once(
    groups: list[Group], window: int | None, book: Book
) -> None:
    scenario = with_config(scenario_of(book), {**TINY, "sliding_window": window})
    together = priced_groups(scenario, groups, book).totals
    alone = [priced_groups(scenario, [group], book).totals for group in groups]
    for resource in ("matrix", "vector", "exp", "kv_traffic", "activations", "logit_traffic", "cache"):
        assert together[resource] == pytest.approx(sum(part[resource] for part in alone), rel=1e-12)
    # the matrices once; of the embedding a row a token
    tokens = sum(group.count * group.new for group in groups)
    logits = sum(group.count * group.positions for group in groups)
    layer = 96 * 96 * 2 + 96 * 32 * 2 + 3 * 96 * 160
    head = 640 * 96 if logits else 0
    assert together["weights"] == 2 * (3 * layer + 7 * 96 + head + min(tokens, 640) * 96)


def test_a_mixed_step_is_its_prompt_and_its_batch(book: Book) -> None:
    flags: dict[str, Any] = {"batch_size": 16, "context_len": 1000, "input_len": 256, "cached_len": 64}
    mixed = priced(book, phase="mixed", **flags)
    batch = priced(book, phase="decode", batch_size=16, context_len=1000)
    prompt = priced(book, phase="prefill", batch_size=1, input_len=256, cached_len=64)
    for resource in ("matrix", "vector", "exp", "kv_traffic", "activations", "logit_traffic", "cache"):
        assert mixed.totals[resource] == batch.totals[resource] + prompt.totals[resource]
    # norms, matrices and head are read once for both; 16 + 256 rows of the embedding are
    matrices = batch.totals["weights"] - 16 * 4096 * 2
    assert mixed.totals["weights"] == matrices + (16 + 256) * 4096 * 2
    # the engine runs attention twice a layer, everything else once
    assert mixed.totals["launches"] == 13 * 32 + 4


def test_a_mixed_step_runs_one_prompt_beside_the_batch() -> None:
    assert mixed_step(4, 100, 32, 8).groups == (prefill(32, 8), decode(99, count=4))
    assert prefill_step(3, 32, 8).groups == (prefill(32, 8, count=3),)


def test_a_cached_prefix_saves_its_flop_and_costs_its_reading(book: Book) -> None:
    whole = priced(book, phase="prefill", input_len=2048).totals
    rest = priced(book, phase="prefill", input_len=512, cached_len=1536).totals
    prefix = priced(book, phase="prefill", input_len=1536).totals
    # without the prefix's own head: 2 * 128256 * 4096 FLOP
    assert rest["matrix"] + prefix["matrix"] - 2 * 128256 * 4096 == whole["matrix"]
    # 1536 cached tokens are read, 512 written
    assert rest["kv_traffic"] == 2048 * 131_072
    assert rest["cache"] == whole["cache"] == 2048 * 131_072


# -- windows ----------------------------------------------------------------------------------------------------------


def test_beyond_its_window_a_windowed_model_decodes_at_a_constant_cost(book: Book) -> None:
    inside, edge, beyond = (priced(book, WINDOWED, context_len=context) for context in (4095, 4096, 100_000))
    assert inside.totals["matrix"] < edge.totals["matrix"]
    for resource in ("matrix", "exp", "kv_traffic", "cache"):
        assert beyond.totals[resource] == edge.totals[resource]
    # 32 layers, 32 heads, 4096 keys, 4 FLOP an element of 128: 2,147,483,648
    attention = [line.costs["matrix"] for line in beyond.lines if line.line.op.op_class == "decode-attention"]
    assert attention == [32 * 32 * 4096 * 4 * 128]
    # 4095 tokens are read and one is written, 131,072 bytes each
    assert beyond.totals["kv_traffic"] == 4096 * 131_072
    assert memory(beyond, book).cache_bytes == 4096 * 131_072


def test_every_other_layer_of_gemma_2_has_a_window(book: Book) -> None:
    # 42 layers with 8 key heads of 256: 21 keep the context, 21 keep 4096 tokens; a token and layer
    # are 2 * 8 * 256 * 2 = 8192
    step = priced(book, "google/gemma-2-9b", context_len=10_000, dtype="bf16")
    assert step.totals["cache"] == 21 * 8192 * (10_000 + 4096)
    assert step.totals["kv_traffic"] == 21 * 8192 * (10_000 + 4096)
    assert memory(step, book).kv_bytes_per_token == 42 * 8192


def test_a_prompt_under_a_window_stores_only_the_window(book: Book) -> None:
    step = priced(book, WINDOWED, phase="prefill", input_len=10_000)
    assert step.totals["kv_traffic"] == 4096 * 131_072
    # 1 + 2 + ... + 4096, then 4096 for each of the other 5904
    pairs = 4096 * 4097 // 2 + 5904 * 4096
    attention = sum(line.costs["matrix"] for line in step.lines if line.line.op.op_class == "prefill-attention")
    assert attention == 32 * 32 * pairs * 4 * 128


GLOSSARY = load().glossary


@given(st.integers(0, 60), st.integers(1, 60), st.integers(1, 20))
def test_chunked_attention_counts_the_pairs_of_each_chunk(past: int, new: int, chunk: int) -> None:
    # token p sees the tokens of its own chunk up to itself: p mod chunk + 1 of them
    seen = sum(position % chunk + 1 for position in range(past, past + new))
    pairs, kv = (
        value(formula(Statistic(name, None, chunk, chunked=True), GLOSSARY, {}), {"new": new, "past": past})
        for name in ("pairs", "kv")
    )
    assert pairs == seen
    assert kv == past % chunk
