"""Levers pulled together: what each saves is the difference of two prices, and nothing is broken on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flopmap.choices.combine import greedy, levers
from flopmap.facts import availability, part_facts
from flopmap.floor.roofline import price
from flopmap.floor.summary import memory
from flopmap.levers import gains, pulled
from flopmap.records.types import Lever, OpClass
from flopmap.scenario import Request, make
from tests.cli.support import LLAMA_8B, data, refused, text

if TYPE_CHECKING:
    from flopmap.records.book import Book

PARTS = ["h100-sxm", "a100-sxm-80gb", "b200-sxm", "rtx-4090", "mi300x", "m4-max", "l4", "t4"]
MODELS = [LLAMA_8B, "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V3", "gpt2"]
EAGER: dict[str, Any] = {"engine": "vllm", "enforce_eager": True}


@settings(max_examples=25, deadline=None)
@given(
    model=st.sampled_from(MODELS),
    on=st.sampled_from(PARTS),
    batch=st.sampled_from([1, 16, 300, 3000]),
    context=st.sampled_from([1, 512, 8192]),
    engine=st.sampled_from([{}, EAGER]),
)
def test_pulled_levers_fit_pass_their_gates_and_gain_what_two_prices_differ_by(
    *, model: str, on: str, batch: int, context: int, engine: dict[str, Any], book: Book
) -> None:
    request = Request(model=model, on=on, batch_size=batch, context_len=context, dtype="fp16", **engine)
    part = make(request, book).machine.part
    set_before: set[str] = set()
    for step in greedy(request, 4, book):
        lever = book.record(Lever, step.gain.id)
        changed = pulled(lever, request)
        before, after = (price(make(one, book), book) for one in (request, changed))
        kept = before.scenario.kept[0] / after.scenario.kept[0]
        assert step.gain.gain == pytest.approx(1 - after.engine_seconds * kept / before.engine_seconds, abs=1e-12)
        assert step.gain.gain > 0
        assert step.tokens_per_second == pytest.approx(after.scenario.tokens / after.engine_seconds)
        assert memory(after, book).fits or not memory(before, book).fits
        for gate, answers in lever.gates.items():
            assert availability(book.record(OpClass, gate), part_facts(part)).answer in answers
        assert not set_before & lever.set.keys()
        set_before |= lever.set.keys()
        request = changed


def test_the_best_lever_comes_first_and_others_follow_in_its_wake(book: Book) -> None:
    request = Request(model=LLAMA_8B, on="h100-sxm", batch_size=32, context_len=8192)
    steps = greedy(request, 9, book)
    alone = gains(request, price(make(request, book), book), book)
    assert steps[0].gain == alone[0]
    assert len({step.gain.id for step in steps}) == len(steps) >= 2
    assert greedy(request, 1, book) == steps[:1]
    assert greedy(request, 0, book) == []


def test_a_part_without_the_math_has_no_lever_for_it(book: Book) -> None:
    def ids(on: str) -> set[str]:
        request = Request(model=LLAMA_8B, on=on, dtype="fp16")
        return {gain.id for gain in gains(request, price(make(request, book), book), book)}

    assert "nvfp4-weights" in ids("b200-sxm")
    assert "nvfp4-weights" not in ids("h100-sxm") | ids("mi355x")  # multiplied in 16 bits; another maker's
    assert "fp8-weights" in ids("h100-sxm")
    assert "fp8-weights" not in ids("m4-max")


def test_drafts_turn_to_a_loss_at_some_batch(book: Book) -> None:
    request = Request(model="deepseek-ai/DeepSeek-V3", on="b200-sxm", batch_size=1, context_len=256)
    (drafts,) = (one for one in levers(request, 0, "batch", book).single if one.gain.id == "multi-token-prediction")
    assert drafts.wins_at_1 is not None
    if drafts.turns_at is not None:
        for batch, wins in ((drafts.turns_at - 1, drafts.wins_at_1), (drafts.turns_at, not drafts.wins_at_1)):
            at = Request(model=request.model, on=request.on, batch_size=batch, context_len=256)
            (gain,) = (one for one in gains(at, price(make(at, book), book), book) if one.id == drafts.gain.id)
            assert (gain.gain > 0) == wins


def test_the_first_line_says_what_the_levers_come_to() -> None:
    words = ("levers", LLAMA_8B, "--on", "h100-sxm", "--batch-size", "32", "--context-len", "8k")
    printed = data(*words, "--best", "2")
    factor = printed["together"][-1]["tokens_per_second"] / printed["tokens_per_second"]
    assert text(*words, "--best", "2").startswith(f"{factor:.3f}x with ")
    assert len(printed["together"]) == 2
    assert {one["gain"]["id"] for one in printed["single"]} & set(printed["without_effect"]) == set()
    refused(2, "flopmap levers: error: --best 'many' is not a count (accepted: 2048, 8k, 1m)", *words, "--best", "many")


def test_where_nothing_helps_it_says_so() -> None:
    words = ("levers", LLAMA_8B, "--on", "h100-sxm", "--batch-size", "32", "--context-len", "8k", "--best", "0")
    assert text(*words).startswith("no lever is pulled: ")
