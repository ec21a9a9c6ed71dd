"""Traps: each is raised in a scenario that it describes, and not in its neighbour; facts are what they say."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from flopmap.checks.conditions import faults
from flopmap.diagnosis.verdict import Verdict, judge
from flopmap.facts import FACTS, facts
from flopmap.floor.roofline import price
from flopmap.records.types import Trap
from flopmap.scenario import Request, make
from tests.physics.support import LLAMA_8B, LLAMA_70B

if TYPE_CHECKING:
    from flopmap.records.book import Book

MIXTURE, LATENT, HYBRID = (
    "Qwen/Qwen3-30B-A3B",
    "deepseek-ai/DeepSeek-V2-Lite",
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
)
SMALL = "meta-llama/Llama-3.2-1B"


def judged(
    book: Book,
    model: str = LLAMA_8B,
    on: str = "h100-sxm",
    over: float | None = None,
    beats: float | None = None,
    **flags: Any,
) -> Verdict:
    """The verdict on a scenario, measured at a multiple of its operation floor (or of its device floor)."""
    request = Request(model=model, on=on, **flags)
    pricing = price(make(request, book), book)
    seconds = pricing.operation_seconds * over if over else pricing.device_seconds * beats if beats else None
    return judge(request, book, ("step-time", seconds) if seconds else None)


PROMPT = {"phase": "prefill", "input_len": 4096}
# the scenario in which each trap is raised, and what changes so that it is not
RAISED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "eager-mode-left-on": ({"engine": "vllm", "enforce_eager": True, "over": 3.0}, {"over": 1.2}),
    "faster-than-the-floor": ({"beats": 0.9}, {"beats": 1.1}),
    "sparse-peak-as-dense": ({**PROMPT, "over": 2.0}, {"over": 1.3}),
    "utilisation-is-not-use": ({"over": 5.0}, {"over": 3.0}),
    "quantised-and-no-faster": ({"quantization": "awq", "over": 4.0}, {"over": 2.0}),
    "small-model-host-bound": ({"model": SMALL, "over": 4.0}, {"model": LLAMA_8B}),
    "experts-launched-one-by-one": (
        {"model": MIXTURE, "engine": "vllm", "enforce_eager": True},
        {"enforce_eager": False},
    ),
    "default-mixture-tuning": ({"model": MIXTURE, "engine": "sglang", "over": 4.0}, {"over": 2.0}),
    "fp8-stored-not-multiplied": ({"quantization": "fp8", "on": "a100-sxm-80gb"}, {"on": "h100-sxm"}),
    "int4-at-a-large-batch": ({"quantization": "awq", "batch_size": 128}, {"batch_size": 16}),
    "kernel-for-one-row": ({"quantization": "awq", "batch_size": 32, "over": 6.0}, {"over": 2.0}),
    "eight-bit-cache-hardly-read": ({"kv_cache_dtype": "fp8", "context_len": 128}, {"context_len": 200_000}),
    "memory-that-spills": ({"model": LLAMA_70B, "over": 30.0}, {"model": LLAMA_8B}),
    "some-layers-on-the-host": ({"model": LLAMA_70B, "engine": "llama.cpp"}, {"engine": "vllm"}),
    "more-sequences-than-fit": ({"batch_size": 4000}, {"batch_size": 8}),
    "no-room-for-a-batch": ({"on": "rtx-4090", "context_len": 16_384}, {"context_len": 1024}),
    "graphs-would-gain-nothing": (
        {"engine": "vllm", "enforce_eager": True, "batch_size": 128, "context_len": 8192},
        {"enforce_eager": False},
    ),
    "unified-lpddr": ({"on": "dgx-spark"}, {"on": "rtx-5090"}),
    "prompt-on-few-flop": ({"on": "m4-max", **PROMPT}, {"on": "h100-sxm"}),
    "memory-not-wired": ({"on": "m4-max", "over": 40.0}, {"over": 2.0}),
    "two-sockets-one-memory": ({"on": "epyc-genoa-9654", "over": 2.5}, {"over": 1.3}),
    "clocks-below-the-sheet": ({**PROMPT, "over": 1.6}, {"over": 1.3}),
    "queue-in-the-first-token": ({**PROMPT, "over": 20.0}, {"over": 2.0}),
    "prompt-that-was-cached": ({**PROMPT, "beats": 0.5}, {"beats": 1.5}),
    "several-tokens-a-step": ({"beats": 0.7}, {"beats": 1.5}),
    "sum-of-a-batch": ({"batch_size": 1, "beats": 0.1}, {"batch_size": 4}),
    "client-sets-the-pace": ({"batch_size": 64, "over": 8.0}, {"over": 2.0}),
    "no-batching-of-hybrids": ({"model": HYBRID, "batch_size": 16, "over": 6.0}, {"model": LLAMA_8B}),
    "latent-attention-launched-by-hand": (
        {"model": LATENT, "engine": "vllm", "enforce_eager": True},
        {"model": LLAMA_8B},
    ),
    "kernels-missing-for-workstation-blackwell": ({"on": "rtx-5090", "over": 4.0}, {"on": "b200-sxm"}),
    "kernels-missing-for-a-new-part": ({"on": "b200-sxm", "over": 4.0}, {"on": "h100-sxm"}),
    "rocm-without-its-kernels": ({"on": "mi300x", "over": 4.0}, {"over": 2.0}),
    "no-fast-int4-before-ampere": ({"on": "t4", "quantization": "awq", "engine": "vllm"}, {"on": "l4"}),
    "bf16-before-ampere": ({"on": "v100-sxm2", "dtype": "auto"}, {"on": "h100-sxm"}),
    "thirty-two-bit-weights": ({"model": "openai-community/gpt2"}, {"dtype": "bf16"}),
    "bitsandbytes-for-speed": ({"quantization": "bnb-nf4"}, {"quantization": "awq"}),
    "reference-loop": ({"engine": "transformers"}, {"engine": "vllm"}),
    "context-governs-decode": ({"batch_size": 8, "context_len": 60_000}, {"context_len": 100}),
    "batch-past-the-ridge": ({"batch_size": 512, "context_len": 64}, {"batch_size": 8}),
    "encoder-below-the-ridge": ({"phase": "encode", "input_len": 32}, {"input_len": 8192}),
    "wide-heads": ({"model": "google/gemma-4-26B-A4B"}, {"model": LLAMA_8B}),
    "chunks-too-small": ({"phase": "mixed", "input_len": 128, "context_len": 1024}, {"input_len": 4096}),
}
SEVERAL = {"layer-split-is-not-tensor-parallel", "nothing-to-gain-from-more-parts"}  # machines of several parts
UNCONDITIONAL = {"small-batch-slower-than-large"}  # needs two measurements


def names(verdict: Verdict) -> set[str]:
    return {trap.id for trap in verdict.traps}


@pytest.mark.parametrize("trap", RAISED)
def test_a_trap_is_raised_where_it_is_and_not_beside_it(trap: str, book: Book) -> None:
    near, change = RAISED[trap]
    assert trap in names(judged(book, **near))
    assert trap not in names(judged(book, **{**near, **change}))


def test_every_trap_with_a_condition_has_its_scenario(book: Book) -> None:
    conditional = {trap for trap in book.ids("traps") if book.record(Trap, trap).when}
    assert conditional == RAISED.keys() | SEVERAL
    assert set(book.ids("traps")) == conditional | UNCONDITIONAL
    assert len(conditional) >= 40


def test_nothing_is_raised_on_a_plain_step_near_its_floor(book: Book) -> None:
    assert names(judged(book, over=1.3, engine="vllm")) == set()


def test_the_most_specific_trap_comes_first(book: Book) -> None:
    raised = [trap.id for trap in judged(book, SMALL, over=8.0, engine="transformers").traps]
    assert raised.index("small-model-host-bound") < raised.index("utilisation-is-not-use")


# -- facts ------------------------------------------------------------------------------------------------------------


def test_facts_are_those_of_the_scenario(book: Book) -> None:
    verdict = judged(book, MIXTURE, engine="vllm", batch_size=8, context_len=1000, quantization="fp8", over=2.0)
    known = facts(verdict.pricing, verdict.memory, verdict.measured.seconds if verdict.measured else None)
    assert known.keys() == FACTS.keys()
    assert (known["vendor"], known["compute_capability"], known["isa"]) == ("nvidia", 90.0, "sm_90")
    assert (known["experts"], known["latent_attention"], known["recurrent"]) == (True, False, False)
    assert (known["head_dim"], known["group"]) == (128, 8)  # 32 heads over 4 key heads
    assert (known["weights"], known["weight_bits"], known["native_math"]) == ("fp8", 8, True)
    assert (known["graphs"], known["eager"], known["input_len"]) == (True, False, None)
    assert known["over_floor"] == pytest.approx(2.0)
    for name, value in known.items():
        assert value is None or isinstance(value, (FACTS[name].kind, int)), name


def test_a_part_that_is_not_nvidias_has_no_compute_capability(book: Book) -> None:
    verdict = judged(book, on="mi300x")
    number = facts(verdict.pricing, verdict.memory, None)["compute_capability"]
    assert isinstance(number, float)
    assert math.isnan(number)
    assert "bf16-before-ampere" not in names(verdict)


# -- what is wrong with a condition -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "message", "fix"),
    [
        ('vendr == "amd"', "no fact 'vendr'", "use vendor"),
        ("vendor == 3", 'vendor == 3 compares a "word" with another kind', 'give a "word"'),
        ("eager > 1", "eager > 1 compares true or false with another kind", "give true or false"),
        ('batch_size in ["8"]', "batch_size in '8' compares a number with another kind", "give a number"),
        ("batch_size > context_len", "'context_len' is no word or number", ""),
    ],
)
def test_a_wrong_condition_is_one_line_with_a_fix(condition: str, message: str, fix: str) -> None:
    found = list(faults(condition))
    assert [(text.startswith(message), mend) for text, mend in found] == [(True, fix)]
