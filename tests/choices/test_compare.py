"""Comparisons: the order is that of the prices, the reason is in the terms, and the ranking flips where it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from flopmap.choices.compare import Comparison, compare
from flopmap.choices.crossover import cost
from flopmap.floor.roofline import price
from flopmap.scenario import Request, make
from tests.cli.support import LLAMA_8B, LLAMA_70B, data, refused, text

if TYPE_CHECKING:
    from flopmap.records.book import Book

PARTS = ("h200-sxm", "mi300x", "b200-sxm", "h20", "h100-sxm", "a100-sxm-80gb", "l40s", "rtx-4090")


def ranked(book: Book, model: str, *, metric: str = "time", axis: str = "batch", **flags: Any) -> Comparison:
    requests = [(part, Request(model=model, on=part, dtype="fp16", **flags)) for part in PARTS]
    return compare(requests, "on", metric, axis, book)


def test_those_that_fit_come_first_and_of_them_the_fastest(book: Book) -> None:
    # 138 GB of weights: only these hold them
    rows = ranked(book, LLAMA_70B, batch_size=1, context_len=1024).rows
    assert {row.name for row in rows if row.fits} == {"mi300x", "b200-sxm", "h200-sxm"}
    assert [row.fits for row in rows] == sorted((row.fits for row in rows), reverse=True)
    for fits in (True, False):
        times = [row.step_seconds for row in rows if row.fits is fits]
        assert times == sorted(times)


def test_decode_goes_by_bandwidth_and_a_reranker_by_compute_so_that_the_ranking_inverts(book: Book) -> None:
    decode = [row.name for row in ranked(book, LLAMA_8B, batch_size=1, context_len=512).rows]
    pairs = ranked(book, LLAMA_8B, axis="prompt", phase="prefill", batch_size=64, input_len=512).rows
    prefill = [row.name for row in pairs]
    # 4.0 TB/s and 148 TFLOP/s against 3.35 and 989.5
    assert decode.index("h20") < decode.index("h100-sxm")
    assert prefill.index("h20") > prefill.index("h100-sxm")
    assert prefill.index("h20") > prefill.index("a100-sxm-80gb")
    assert all(row.bound_by == "matrix_peak" for row in pairs)


def test_the_terms_of_a_row_add_up_to_its_step(book: Book) -> None:
    for row in ranked(book, LLAMA_8B, batch_size=200, context_len=512).rows:
        assert sum(row.terms.values()) == pytest.approx(row.step_seconds)
        assert max(row.terms, key=lambda term: row.terms[term]) == row.bound_by
        pricing = price(
            make(Request(model=LLAMA_8B, on=row.name, dtype="fp16", batch_size=200, context_len=512), book), book
        )
        assert row.step_seconds == pricing.engine_seconds


def test_the_ranking_flips_at_the_batch_that_it_says(book: Book) -> None:
    requests = {part: Request(model=LLAMA_8B, on=part, dtype="fp16", context_len=64) for part in ("h20", "h100-sxm")}
    result = compare([*requests.items()], "on", "time", "batch", book)
    winner, other = result.rows
    assert (winner.name, other.name) == ("h20", "h100-sxm")
    assert other.flips_at is not None
    for batch, first in ((other.flips_at - 1, "h20"), (other.flips_at, "h100-sxm")):
        at = {
            part: Request(model=LLAMA_8B, on=part, dtype="fp16", context_len=64, batch_size=batch) for part in requests
        }
        assert min(at, key=lambda part: cost(at[part], "time", book)) == first


def test_a_mixture_of_experts_reads_more_of_itself_at_a_larger_batch(book: Book) -> None:
    requests = [
        (str(batch), Request(model="Qwen/Qwen3-30B-A3B", on="h200-sxm", batch_size=batch, context_len=1024))
        for batch in (1, 256)
    ]
    result = compare(requests, "batch_size", "time", "context", book)
    # 8 of 128 experts for one token, nearly all for 256: a step is longer, a token is cheaper
    by_name = {row.name: row for row in result.rows}
    assert result.rows[0].name == "256"
    assert 8 < by_name["256"].step_seconds / by_name["1"].step_seconds < 20
    assert by_name["256"].tokens_per_second > 12 * by_name["1"].tokens_per_second


# -- the command ------------------------------------------------------------------------------------------------------

COMPARE = ("compare", LLAMA_8B, "--on", "h100-sxm,h20,l40s", "--context-len", "64")


def test_the_first_line_names_the_winner_and_the_flip() -> None:
    report = text(*COMPARE).splitlines()
    flips = {row["name"]: row["flips_at"] for row in data(*COMPARE)["rows"]}
    assert report[0].startswith("h20 wins on time: ")
    assert report[0].endswith(f"h100-sxm wins from {flips['h100-sxm']:,} (batch)")
    assert report[1].startswith("time by what governs it: memory bandwidth ")
    assert [line.split()[0] for line in report[4:]] == ["h20", "h100-sxm", "l40s"]


def test_columns_are_those_that_are_asked_for() -> None:
    heads = text(*COMPARE, "--columns", "mfu,mbu").splitlines()[3]
    assert heads.split() == ["on", "MFU", "MBU", "beats", "the", "winner", "(batch)"]


def test_other_fields_and_models_are_compared_too() -> None:
    one = ("compare", LLAMA_8B, "--on", "h100-sxm")
    assert {row["name"] for row in data(*one, "--vary", "quantization=fp8,awq")["rows"]} == {"fp8", "awq"}
    rows = data(*one, "--vary", "context-len=1k,8k")["rows"]
    assert [row["name"] for row in rows] == ["1k", "8k"]
    assert len(data("compare", f"{LLAMA_8B},gpt2", "--on", "h100-sxm")["rows"]) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((LLAMA_8B, "--on", "h100"), "one field has several values, of MODEL, --on and --vary (given: none)"),
        (
            (LLAMA_8B, "--on", "h100,l4", "--vary", "engine=vllm,sglang"),
            "one field has several values, of MODEL, --on and --vary (given: on, engine)",
        ),
        ((LLAMA_8B, "--on", "h100,h100"), "on h100,h100: values are empty or come twice"),
        (
            (LLAMA_8B, "--on", "h100,l4", "--metric", "price"),
            "l4: no price of an hour on record (accepted: --metric time)",
        ),
        (
            (LLAMA_8B, "--on", "h100,l4", "--columns", "tps"),
            "--columns tps: unknown (accepted: step, device, throughput, price, bound, mbu, mfu, memory, fits)",
        ),
    ],
)
def test_a_wrong_comparison_is_refused_in_a_line(words: tuple[str, ...], message: str) -> None:
    refused(2, f"flopmap compare: error: {message}", "compare", *words)
