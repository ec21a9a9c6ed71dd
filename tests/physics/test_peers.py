"""Errors that other calculators of the field make: each is a sentence that holds here.

The list is section 2.4 of the survey of peers; the comment beside each test names the error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from flopmap.floor.roofline import Pricer, Pricing
from flopmap.floor.summary import memory
from flopmap.records.book import UnknownRecordError
from flopmap.records.types import Part
from flopmap.step import decode_step
from tests.physics.support import LLAMA_8B, LLAMA_70B, priced, priced_groups, scenario_of, with_config
from tests.physics.support import decode as decoded

if TYPE_CHECKING:
    from flopmap.records.book import Book

HEAD_8B = 128256 * 4096


def costs(pricing: Pricing, op: str) -> dict[str, float]:
    """The costs of an op, over all its runs."""
    (line,) = [line for line in pricing.lines if line.line.op.name == op]
    return line.costs


# -- FLOP -------------------------------------------------------------------------------------------------------------


def test_the_head_is_two_flop_a_weight(book: Book) -> None:
    # a peer forgot the factor 2: -3.2% of a decode step of an 8B
    assert costs(priced(book, context_len=2048), "lm_head")["matrix"] == 2 * HEAD_8B == 1_050_673_152


def test_attention_over_the_cache_is_part_of_a_decode_step(book: Book) -> None:
    # a peer computed decode with a sequence of 1: -6.7% at 2048, and without bound as the context grows
    short, long = (priced(book, context_len=context).totals["matrix"] for context in (1, 100_000))
    assert long - short == 99_999 * 32 * 32 * 4 * 128
    assert long / short > 4


def test_attention_over_the_values_has_query_heads_too(book: Book) -> None:
    # a peer charged the second product of attention with key heads: 0.625 of it for groups of 4
    attention = costs(priced(book, context_len=2048), "attention.decode")["matrix"]
    assert attention == 32 * 2048 * (32 * 2 * 128 + 32 * 2 * 128) == 1_073_741_824


def test_a_causal_mask_halves_a_long_prompt_s_attention(book: Book) -> None:
    # most peers count the square
    exact, full = (
        costs(priced(book, phase="prefill", input_len=4096, conventions=mask), "attention.prefill")["matrix"]
        for mask in ((), (("mask", "full"),))
    )
    assert exact * 2 == full * (4097 / 4096)


def test_an_embedding_is_no_gemm(book: Book) -> None:
    # a peer multiplies by it in prefill: +6.5% of an 8B
    step = priced(book, phase="prefill", input_len=2048)
    assert costs(step, "embedding")["matrix"] == 0


def test_a_feed_forward_without_a_gate_has_two_matrices(book: Book) -> None:
    # a peer takes every feed-forward for a gated one: 1.5 times OPT, GPT-2 and BERT; another takes Llama's for ungated
    gpt2 = priced(book, "openai-community/gpt2", dtype="bf16")
    up, down = costs(gpt2, "mlp.up"), costs(gpt2, "mlp.down")
    assert up["active"] == down["active"] == 12 * 768 * 3072
    assert gpt2.totals["parameters"] == 124_439_808
    llama = priced(book, LLAMA_8B)
    assert costs(llama, "mlp.gate_up")["active"] == 32 * 2 * 4096 * 14336
    assert costs(llama, "mlp.down")["active"] == 32 * 4096 * 14336


def test_heads_are_as_wide_as_the_config_says(book: Book) -> None:
    # peers take hidden / heads; Qwen3-0.6B has 16 heads of 128 on a hidden size of 1024, Gemma 2 27B 32 of 128 on 4608
    step = priced(book, "Qwen/Qwen3-0.6B")
    assert memory(step, book).kv_bytes_per_token == 28 * 2 * 8 * 128 * 2
    assert costs(step, "attention.out")["active"] == 28 * (16 * 128) * 1024
    step = priced(book, "google/gemma-2-27b", dtype="bf16")
    assert costs(step, "attention.out")["active"] == 46 * (32 * 128) * 4608


def test_the_activation_is_as_wide_as_the_feed_forward(book: Book) -> None:
    # a peer has it as wide as the hidden size
    assert costs(priced(book, context_len=1), "mlp.activation")["exp"] == 32 * 14336


# -- bytes ------------------------------------------------------------------------------------------------------------


def test_the_cache_has_key_heads_and_not_query_heads(book: Book) -> None:
    # a peer charged 4 times the traffic of an 8B and 8 times that of a 70B
    for model, layers, groups in ((LLAMA_8B, 32, 4), (LLAMA_70B, 80, 8)):
        step = priced(book, model, context_len=2048)
        attention = costs(step, "attention.decode")
        assert attention["kv_traffic"] == layers * 2047 * 8 * (128 + 128) * 2
        assert attention["matrix"] / (attention["kv_traffic"] + attention["activations"]) == groups


def test_the_cache_is_read_once_and_its_own_token_written_once(book: Book) -> None:
    # a peer reads and writes the whole cache each step
    step = priced(book, context_len=2048)
    assert costs(step, "attention.decode")["kv_traffic"] == 2047 * 131_072
    assert costs(step, "attention.kv_write")["kv_traffic"] == 131_072
    assert step.totals["kv_traffic"] == 2048 * 131_072


def test_the_input_embedding_is_looked_up_and_not_streamed(book: Book) -> None:
    # peers stream the table: +7% of an 8B's bytes
    step = priced(book, context_len=2048)
    assert costs(step, "embedding")["weights"] == 4096 * 2
    table = priced(book, context_len=2048, conventions=(("embedding", "streamed"),))
    assert table.totals["weights"] == step.totals["resident"] == 16_060_522_496


def test_a_tied_embedding_is_held_once_and_still_streamed_as_the_head(book: Book) -> None:
    # a peer takes every embedding for a tied one (7.50 B for 8.03 B), others count a tied one twice
    step = priced(book, "meta-llama/Llama-3.2-1B")
    assert step.totals["parameters"] == 1_235_814_400
    table = 128256 * 2048
    layers = 16 * (2 * 2048 * 2048 + 2 * 2048 * 512 + 3 * 2048 * 8192) + 33 * 2048
    assert layers + table == 1_235_814_400
    assert step.totals["active"] == layers - 33 * 2048 + table
    assert step.totals["resident"] == 2 * 1_235_814_400
    assert step.totals["weights"] == 2 * (layers + table + 2048)


def test_the_embedding_and_the_head_take_memory(book: Book) -> None:
    # a peer drops both from the footprint: 13.96 GB for 16.06
    assert memory(priced(book), book).weight_bytes == 16_060_522_496


def test_a_window_is_used(book: Book) -> None:
    # a peer stores the field and never looks at it: a Mistral 7B holds 4096 MiB at 32k
    step = priced(book, "mistralai/Mistral-7B-v0.1", context_len=32_768)
    assert memory(step, book).cache_bytes == 4096 * 131_072 == 512 * 2**20


def test_weights_are_read_once_a_step_and_not_once_a_token(book: Book) -> None:
    # a serving engine multiplied them by the tokens
    one, many = (priced(book, batch_size=batch, context_len=100).totals["weights"] for batch in (1, 256))
    assert many - one == 255 * 4096 * 2  # rows of the embedding


# -- rates ------------------------------------------------------------------------------------------------------------


def test_a_gigabyte_is_1e9_bytes(book: Book) -> None:
    # with 2**30 the floor of an 8B came out at 4.248 ms where it is 4.561
    step = priced(book, context_len=2048)
    moved = step.totals["weights"] + step.totals["kv_traffic"]
    assert moved / 3.35e12 == pytest.approx(4.5607e-3, rel=1e-4)
    assert moved / (3350 * 2**30) == pytest.approx(4.2475e-3, rel=1e-4)
    assert step.operation_seconds > moved / 3.35e12
    assert memory(step, book).capacity_bytes == 80e9


def test_tables_do_not_mix_dense_and_sparse_peaks(book: Book) -> None:
    # a peer has 989 for the H100 and 1979 for the GH200, which is the same chip
    dense = {part: priced(book, on=part).rates.matrix["bf16"] for part in ("h100-sxm", "gh200-96gb")}
    assert dense["gh200-96gb"] == pytest.approx(dense["h100-sxm"], rel=0.01)
    sheet = priced(book, conventions=(("peak", "sheet"),)).rates.matrix["bf16"]
    assert sheet == 1978.9e12


def test_an_h100_moves_3_35_terabytes_a_second(book: Book) -> None:
    # a peer's 3.072 makes a floor that a good engine beats
    assert priced(book).rates.values["bandwidth"] == 3.35e12


@pytest.mark.parametrize("part", ["h100-smx", "h900", ""])
def test_a_part_that_is_not_known_is_refused(part: str, book: Book) -> None:
    with pytest.raises((UnknownRecordError, ValueError)):
        priced(book, on=part)


# -- the step as a whole ----------------------------------------------------------------------------------------------


def crossover(context: int, peak: float, book: Book) -> int | None:
    """The least batch at which the matrix FLOP of a whole decode step take as long as its weights and its cache."""
    part = book.record(Part, "h100-sxm")
    peaks = tuple(
        replace(row, value=peak) if row.dtype == "bf16" and row.unit == "matrix" else row for row in part.peaks
    )
    scenario = scenario_of(book, LLAMA_8B, context_len=context, conventions=(("gemm-bytes", "weights"),))
    pricer = Pricer(replace(scenario, machine=replace(scenario.machine, part=replace(part, peaks=peaks))), book)

    def computes(batch: int) -> bool:
        step = pricer(decode_step(batch, context))
        # weights without the rows of the embedding; keys and values of the context, the new token's included
        weights = sum(line.costs["weights"] for line in step.lines if line.line.op.name != "embedding")
        attention = costs(step, "attention.decode")
        moved = weights + attention["kv_traffic"] + attention["activations"]
        return step.totals["matrix"] / peak >= moved / 3.35e12

    most = 10**9
    if not computes(most):
        return None
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if computes(middle) else (middle, high)
    return high


def by_hand(context: int, peak: float) -> float | None:
    """The same from first principles: B (FLOP / peak - cache / bandwidth) = weights / bandwidth."""
    flop = 2 * 7_504_658_432 + 32 * 32 * 4 * 128 * context
    gained = flop / peak - 131_072 * context / 3.35e12
    weights = 2 * (7_504_658_432 + 65 * 4096)
    return weights / 3.35e12 / gained if gained > 0 else None


@pytest.mark.parametrize(
    ("context", "batch"), [(1, 296), (128, 438), (256, 846), (384, 12_606), (394, None), (4096, None)]
)
def test_the_whole_step_of_an_8b_crosses_where_the_survey_says(context: int, batch: int | None, book: Book) -> None:
    # with 989 TFLOP/s, as the survey took it; peers print 295 at every context. The survey rounds to the nearest.
    found, hand = crossover(context, 989e12, book), by_hand(context, 989e12)
    if batch is None:
        assert found is None
        assert hand is None
    else:
        assert found is not None
        assert hand is not None
        assert found == pytest.approx(hand, abs=1)
        assert hand == pytest.approx(batch, rel=1e-4, abs=0.6)


def test_from_a_context_of_394_an_h100_never_leaves_memory(book: Book) -> None:
    # with our 989.5: 15,009,316,864 * 3.35 / 989.5 = 50.815e6 of gain a sequence, 129,297 of loss a token: 393.01
    for context in (1, 128, 256, 384, 393):
        hand = by_hand(context, 989.5e12)
        assert hand is not None
        assert crossover(context, 989.5e12, book) == pytest.approx(hand, rel=1e-6, abs=1)
    for context in (394, 1000, 100_000):
        assert by_hand(context, 989.5e12) is None
        assert crossover(context, 989.5e12, book) is None


def test_a_group_of_four_keeps_its_intensity_at_any_batch(book: Book) -> None:
    for batch in (1, 32, 1000):
        attention = costs(priced(book, batch_size=batch, context_len=5000), "attention.decode")
        assert attention["matrix"] / (attention["kv_traffic"] + attention["activations"]) == 4


def test_multi_query_attention_has_one_key_head(book: Book) -> None:
    config: dict[str, Any] = {
        "model_type": "llama",
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "num_key_value_heads": 1,
        "vocab_size": 1000,
    }
    step = priced_groups(with_config(scenario_of(book, dtype="bf16"), config), [decoded(99)], book)
    assert step.totals["cache"] == 2 * 100 * 2 * 64 * 2
