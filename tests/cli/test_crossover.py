"""``flopmap crossover``: the answer first, never where there is none, one-line refusals."""

from __future__ import annotations

import pytest

from tests.cli.support import LLAMA_8B, data, flopmap, refused, text

CROSSOVER = ("crossover", LLAMA_8B, "--on", "h100-sxm", "--dtype", "bf16")
LEAN = ("--convention", "gemm-bytes=weights")


def first(*words: str) -> str:
    return text(*CROSSOVER, *words).splitlines()[0]


def test_the_first_line_is_the_answer() -> None:
    assert first("--context-len", "128").startswith(
        "batch 653.7: there the step leaves memory bandwidth for matrix peak"
    )
    assert first("--context-len", "2048").startswith("never: the step is bound by memory bandwidth at any batch")
    assert "from context 306 on" in first("--context-len", "2048")
    assert first("--phase", "prefill").startswith("prompt 408.8: ")
    assert first("--axis", "format").startswith("39.94 to 313.8 sequences")
    assert first("--against", "kv_cache_dtype=fp8").startswith("kv_cache_dtype=fp8 wins by ")


def test_a_series_says_from_where_on_there_is_none() -> None:
    report = text(*CROSSOVER, "--at", "context-len=1,128,394", *LEAN)
    assert "never from context 394 on (step, weights of GEMMs and cache only)" in report.splitlines()[0]
    assert [line.split()[0] for line in report.splitlines()[3:]] == ["1", "128", "394"]
    assert report.splitlines()[5].split()[1:3] == ["never", "never"]


def test_data_has_null_for_never() -> None:
    printed = data(*CROSSOVER, "--context-len", "2048")
    by_name = {one["what"]: one for one in printed["crossovers"]}
    assert by_name["step"]["at"] is None
    assert by_name["step"]["flips"] == []
    assert by_name["weight-gemm"]["at"] == pytest.approx(326.13, abs=0.01)
    against = data(*CROSSOVER, "--against", "on=h200-sxm", "--metric", "price")
    assert len(against["values"]) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--axis", "cached"), "--axis cached: changes nothing in a step of decode"),
        (("--at", "context-len"), "--at context-len: not FIELD=VALUE (such as on=l4)"),
        (("--against", "on=l4", "--metric", "price"), "l4: no price of an hour on record (accepted: --metric time)"),
        (("--against", "batch_size=0"), "--batch-size 0: out of range (accepted: 1 to 1000000000)"),
    ],
)
def test_what_cannot_be_solved_is_refused_in_a_line(words: tuple[str, ...], message: str) -> None:
    refused(2, f"flopmap crossover: error: {message}", *CROSSOVER, *words)


def test_an_unknown_field_names_those_that_are_there() -> None:
    answer = flopmap(*CROSSOVER, "--against", "partt=l4")
    assert answer.code == 2
    assert answer.err.startswith("flopmap crossover: error: partt: no field of a scenario (accepted: model, on, ")
    assert answer.err.count("\n") == 1
