"""The crossovers that people quote, from the ledger's own formulas."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flopmap.choices.axes import changed
from flopmap.choices.crossover import Crossover, by_format, cost, crossovers, prefer
from flopmap.floor.roofline import price
from flopmap.ledger.ledger import DEVICE_BYTES
from flopmap.scenario import Request, make
from flopmap.step import ScenarioError
from tests.physics.support import LLAMA_8B, by_law

if TYPE_CHECKING:
    from flopmap.records.book import Book

WEIGHTS = (("gemm-bytes", "weights"),)
DEEPSEEK = "deepseek-ai/DeepSeek-V3"


def request(model: str = LLAMA_8B, on: str = "h100-sxm", **flags: Any) -> Request:
    return Request(model=model, on=on, **{"dtype": "bf16", **flags})


def along(book: Book, axis: str, asked: Request) -> dict[str, Crossover]:
    return {one.what: one for one in crossovers(asked, axis, book).found}


def lean(found: dict[str, Crossover]) -> Crossover:
    return next(one for what, one in found.items() if what.endswith("cache only"))


# -- the batch of a whole step ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("context", "batch", "near"),
    # FLOP of a token 2 N + 524,288 C, bytes 2 N + 131,072 B C, N = 7,504,658,432 in GEMMs, ridge 989 / 3.35 = 295.22
    [(1, 296, 0.002), (128, 438, 0.002), (256, 846, 0.002), (384, 12_606, 0.001), (393, 555_265, 0.005)],
)
def test_the_batch_of_a_step_grows_with_the_context_up_to_a_pole(
    context: int, batch: float, near: float, book: Book
) -> None:
    asked = request(on="h100-sxm@aiconfigurator", context_len=context, conventions=WEIGHTS)
    found = lean(along(book, "batch", asked))
    assert found.exact
    assert found.at == pytest.approx(batch, rel=near)
    n, ridge = 7_504_658_432, 989e12 / 3.35e12
    assert found.at == pytest.approx(2 * n * ridge / (2 * n + context * (524_288 - 131_072 * ridge)), rel=2e-3)


@pytest.mark.parametrize("context", [394, 2048, 131_072])
def test_beyond_the_pole_no_batch_is_enough(context: int, book: Book) -> None:
    asked = request(on="h100-sxm@aiconfigurator", context_len=context, conventions=WEIGHTS)
    found = along(book, "batch", asked)
    assert lean(found).at is None
    assert found["step"].at is None
    pole = found["step, weights of GEMMs and cache only: does any batch do"]
    # 2 N = C (131,072 x 295.22 - 524,288): C = 393.2
    assert pole.at is not None
    assert math.ceil(pole.at) == 394


def test_near_the_pole_a_percent_of_the_peak_moves_the_batch_by_half(book: Book) -> None:
    at_384 = [
        lean(along(book, "batch", request(on=part, context_len=384, conventions=WEIGHTS)))
        for part in ("h100-sxm", "h100-sxm@aiconfigurator")
    ]
    assert at_384[0].at is not None
    assert at_384[1].at is not None
    # 989.5 over 989 is 0.05%, and the batch moves 43 times as far
    assert at_384[0].at / at_384[1].at - 1 == pytest.approx(0.0005 * at_384[1].flips[0].sensitivity, rel=0.1)


def test_all_bytes_move_the_step_further_out(book: Book) -> None:
    batches = [along(book, "batch", request(context_len=context))["step"].at for context in (1, 128, 256)]
    assert batches == pytest.approx([381.1, 653.7, 2341], rel=1e-3)
    assert along(book, "batch", request(context_len=384))["step"].at is None


@settings(max_examples=8, deadline=None)
@given(context=st.integers(1, 300), weights=st.booleans())
def test_the_step_flips_between_the_batches_that_brute_force_finds(context: int, weights: bool, book: Book) -> None:
    asked = request(context_len=context, conventions=WEIGHTS if weights else ())
    at = along(book, "batch", asked)["step"].at

    def compute_bound(batch: int) -> bool:
        pricing = price(make(changed(asked, "batch_size", batch), book), book)
        moved = sum(pricing.totals[kind] for kind in DEVICE_BYTES)
        return pricing.totals["matrix"] / 989.5e12 > moved / 3.35e12

    assert at is not None
    assert not compute_bound(math.floor(at))
    assert compute_bound(math.ceil(at))


def test_attention_of_decode_never_leaves_memory_and_weights_do_at_the_ridge(book: Book) -> None:
    found = along(book, "batch", request(context_len=2048, conventions=WEIGHTS))
    assert found["decode-attention"].at is None
    assert found["weight-gemm"].at == pytest.approx(989.5 / 3.35)
    assert found["weight-gemm"].flips[0].sensitivity == pytest.approx(1)


# -- prompts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "group", "prompt"),
    [("meta-llama/Llama-2-7b-hf", 1, 591), (LLAMA_8B, 4, 148), ("meta-llama/Llama-2-70b-hf", 8, 74)],
)
def test_attention_of_a_prompt_leaves_memory_at_twice_the_ridge_over_the_group(
    model: str, group: int, prompt: int, book: Book
) -> None:
    found = along(book, "prompt", request(model, phase="prefill"))["prefill-attention"]
    # g (L + 1) / 2 FLOP a byte
    assert found.at == pytest.approx(2 * 989.5 / 3.35 / group - 1)
    assert math.ceil(2 * 989.5 / 3.35 / group) == prompt


def test_attention_overtakes_the_gemms_at_53_248_tokens(book: Book) -> None:
    found = along(book, "prompt", request(phase="prefill"))["most FLOP"]
    # 218,103,808 weights of a layer over 32 heads of 128, less the diagonal, and an LM head at one position
    assert found.at == pytest.approx(218_103_808 / 4096, abs=1)
    assert (found.below, found.beyond) == ("FLOP of the GEMMs", "FLOP of attention")


def test_an_encoder_leaves_memory_at_the_ridge_in_tokens(book: Book) -> None:
    found = along(book, "prompt", request(phase="encode", conventions=WEIGHTS))
    assert found["weight-gemm"].at == pytest.approx(989.5 / 3.35)


# -- experts, formats, absorption -------------------------------------------------------------------------------------


def test_experts_cross_at_their_ratio_and_the_whole_model_at_its_own(book: Book) -> None:
    found = along(book, "batch", request(DEEPSEEK, context_len=1024, quantization="bf16", conventions=WEIGHTS))
    # 256 / 8 = 32 times the ridge of 295.37: by then every expert is touched
    assert found["moe-experts"].at == pytest.approx(32 * 989.5 / 3.35, rel=1e-9)
    rounded = {"matrix_peak": 295, "bandwidth": 1, "weight_bytes": 2, "experts": 256, "top_k": 8}
    assert by_law(book, "ridge-of-experts", "ridge_batch", **rounded) == 9440
    given = {"matrix_peak": 295.4, "bandwidth": 1, "weight_bytes": 2, "parameters": 671e9, "active": 37e9}
    assert by_law(book, "ridge-of-experts", "ridge_batch_whole", **given) == pytest.approx(5357, abs=0.5)


def test_absorption_breaks_even_at_29_127_tokens_and_36_400_with_rotated_elements(book: Book) -> None:
    asked = request(DEEPSEEK, context_len=1024, quantization="bf16")
    figures = {one.what: one.value for one in crossovers(asked, "context", book).figures}
    # 512 x 128 x (128 + 128) weights over 576 elements a token; 512 x 128 x 320 with the 64 that are rotated
    assert figures["absorption"] == pytest.approx(16_777_216 / 576)
    assert figures["absorption, as published with rotated elements"] == pytest.approx(20_971_520 / 576)
    assert round(16_777_216 / 576) == 29_127


def test_four_bit_weights_cross_at_a_quarter_of_the_ridge_and_later_with_scales(book: Book) -> None:
    rows = {row.format: row for row in by_format(make(request(), book), book)}
    # 295.37 / 4, and 4.125 bits with a 16-bit scale every 128
    assert rows["int4-group"].batch_of_elements == pytest.approx(73.8, abs=0.05)
    assert rows["int4-group"].batch == pytest.approx(76.15, abs=0.05)
    assert rows["fp8"].batch == pytest.approx(295.4, abs=0.1)  # its math doubles as its bytes halve
    assert rows["bf16"].batch == pytest.approx(295.4, abs=0.1)
    assert list(rows) == sorted(rows, key=lambda name: (rows[name].batch, name))


def test_the_cache_overtakes_a_recurrent_state_at_some_context(book: Book) -> None:
    model = next(name for name in book.ids("models") if "Nemotron-H-56B" in name)
    found = along(book, "context", request(model))["attention against recurrence"]
    assert (found.below, found.beyond) == ("recurrent state", "cache")
    pricing = price(make(request(model, context_len=1), book), book)
    assert found.at is not None
    after = price(make(request(model, context_len=math.ceil(found.at) + 1), book), book).totals
    before = price(make(request(model, context_len=math.floor(found.at) - 1), book), book).totals
    assert before["kv_traffic"] < before["state"] < after["kv_traffic"]
    assert pricing.totals["state"] == before["state"]


def test_offload_loads_a_byte_a_byte_and_pays_from_a_hit_rate(book: Book) -> None:
    # 64 GB over 32 GB/s: 2 s; each prompt pays 2, a hit saves 10 - 2
    given = {"cache": 64e9, "host_bandwidth": 32e9, "prompt_seconds": 10}
    assert by_law(book, "kv-offload", "load_seconds", **given) == 2
    assert by_law(book, "kv-offload", "hit_rate", **given) == 0.25


def test_a_token_costs_the_price_of_its_time(book: Book) -> None:
    # 3.60 USD an hour is a thousandth a second
    assert by_law(book, "price", "usd_per_token", usd_per_second=0.001, seconds=0.02, tokens=4) == 5e-6


# -- two scenarios ----------------------------------------------------------------------------------------------------


@settings(max_examples=3, deadline=None)
@given(context=st.sampled_from([64, 512, 4096]), other=st.sampled_from(["h20", "a100-sxm-80gb", "l40s", "h200-sxm"]))
def test_a_preference_flips_where_brute_force_sees_it(context: int, other: str, book: Book) -> None:
    first, second = request(context_len=context), request(on=other, context_len=context)
    found = prefer(first, second, "batch", "time", book, last=256)
    wins = []
    for batch in range(1, 257):
        left, right = (cost(changed(one, "batch_size", batch), "time", book) for one in (first, second))
        wins.append(left < right)
    expected = next((batch for batch, won in enumerate(wins, 1) if won != wins[0]), None)
    assert found.first_wins_at_1 == wins[0]
    assert found.flips_at == expected


def test_what_has_no_axis_or_no_price_is_refused_by_name(book: Book) -> None:
    with pytest.raises(ScenarioError, match="--axis prompt: changes nothing in a step of decode"):
        crossovers(request(context_len=8), "prompt", book)
    with pytest.raises(ScenarioError, match="l4: no price of an hour on record"):
        cost(request(on="l4"), "price", book)
    with pytest.raises(ScenarioError, match="btach: no field of a scenario"):
        changed(request(), "btach", 1)
    with pytest.raises(ScenarioError, match="batch_size 'many'"):
        changed(request(), "batch_size", "many")
