"""Steps that yield more than a token a sequence: drafts and their check, passes of denoising; and adapters beside."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from flopmap.decoding import Speculation, drafting_groups, read_speculation
from flopmap.diagnosis.verdict import judge
from flopmap.floor.drafts import drafts
from flopmap.floor.grid import floor_trees
from flopmap.floor.roofline import price
from flopmap.floor.summary import memory
from flopmap.levers import gains
from flopmap.machine.machine import on_chip_bytes
from flopmap.model.config import ConfigError
from flopmap.model.reading import read_model
from flopmap.records.book import UnknownRecordError, load
from flopmap.report.explain import explain
from flopmap.scenario import Request, make
from flopmap.step import ScenarioError
from tests.cli.support import TINY
from tests.physics.support import LLAMA_8B, decode, priced, scaled, scenario_of, with_part

if TYPE_CHECKING:
    from pathlib import Path

    from flopmap.floor.drafts import Drafts
    from flopmap.floor.roofline import Pricing
    from flopmap.records.book import Book

BOOK = load()
TARGET = read_model(LLAMA_8B, BOOK)
EAGLE3 = "model=yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"
SMALL = "method=draft_model,model=meta-llama/Llama-3.2-1B"
V3 = "deepseek-ai/DeepSeek-V3"


def drafted(book: Book, speculation: str, tokens: int, acceptance: float | None = 0.7, **flags: Any) -> Pricing:
    config = f"{speculation},num_speculative_tokens={tokens}"
    return priced(book, speculative_config=config, acceptance_rate=acceptance, **flags)


def bought(pricing: Pricing, book: Book) -> Drafts:
    found = drafts(pricing, book)
    assert found is not None
    return found


def of(pricing: Pricing, name: str) -> dict[str, float]:
    return next(line.costs for line in pricing.lines if line.line.op.name == name)


# -- the check --------------------------------------------------------------------------------------------------------


def test_a_check_is_a_step_over_the_drafts_and_a_token(book: Book) -> None:
    plain = priced(book, batch_size=8, context_len=2048)
    check = drafted(book, "method=ngram", 3, batch_size=8, context_len=2048)
    assert [line.line.op.name for line in check.lines] == [line.line.op.name for line in plain.lines]
    # four tokens a sequence go through every matrix, and four rows of logits come out
    for name in ("mlp.down", "attention.qkv", "lm_head"):
        assert of(check, name)["matrix"] == 4 * of(plain, name)["matrix"]
        assert of(check, name)["weights"] == of(plain, name)["weights"]
    # each sees the 2047 cached tokens, which are read once, itself and the drafts before it: 4 x 2047 + 4 + 3 + 2 + 1
    heads, dim = 32, 128
    assert of(check, "attention.decode")["matrix"] == 32 * 8 * (4 * 2047 + 10) * heads * 2 * 2 * dim
    assert of(check, "attention.decode")["kv_traffic"] == of(plain, "attention.decode")["kv_traffic"]


def test_without_drafts_a_cycle_is_a_step() -> None:
    none = Speculation(method="ngram", tokens=0, acceptance=None, drafter=None)
    groups = (decode(2047, 8),)
    assert drafting_groups(none, groups) == groups


def test_a_check_touches_more_experts(book: Book) -> None:
    check = drafted(book, "method=ngram", 3, model=V3, on="h200-sxm", batch_size=8)
    # 8 of 256 experts for each of 32 tokens
    touched = 256 * (1 - (1 - 8 / 256) ** 32)
    expert = 3 * 7168 * 2048 * (1 + 4 / 128**2)  # a byte, and a scale of 4 for 128 x 128
    assert of(check, "moe.experts")["weights"] == pytest.approx(58 * touched * expert, rel=1e-9)


# -- the drafter ------------------------------------------------------------------------------------------------------


def test_each_pass_reads_the_drafter_anew(book: Book) -> None:
    cycle = drafted(book, SMALL, 4, batch_size=8, context_len=2048)
    alone = priced(book, "meta-llama/Llama-3.2-1B", batch_size=8, context_len=2048)
    for name in ("mlp.down", "attention.qkv", "lm_head"):
        assert of(cycle, f"draft.{name}")["weights"] == of(alone, name)["weights"]
        assert of(cycle, f"draft.later.{name}")["weights"] == 3 * of(alone, name)["weights"]
        assert of(cycle, f"draft.later.{name}")["matrix"] == 3 * of(alone, name)["matrix"]
    # the first pass reads the five tokens that were checked, and drafts one
    assert of(cycle, "draft.mlp.down")["matrix"] == 5 * of(alone, "mlp.down")["matrix"]
    assert of(cycle, "draft.lm_head")["matrix"] == of(alone, "lm_head")["matrix"]


def test_a_drafter_is_held_once_with_its_cache(book: Book) -> None:
    cycle, plain = (
        memory(drafted(book, SMALL, 4, batch_size=8, context_len=2048), book),
        memory(priced(book, batch_size=8, context_len=2048), book),
    )
    small = memory(priced(book, "meta-llama/Llama-3.2-1B", batch_size=8, context_len=2048), book)
    assert cycle.weight_bytes == plain.weight_bytes + small.weight_bytes
    assert cycle.kv_bytes_per_token == plain.kv_bytes_per_token + small.kv_bytes_per_token
    # four tokens more of each sequence than without drafts
    assert cycle.cache_bytes == 8 * (2048 + 4) * cycle.kv_bytes_per_token
    assert cycle.max_sequences is not None
    assert plain.max_sequences is not None
    assert cycle.max_sequences < plain.max_sequences


def test_a_head_fuses_the_models_rows_once_a_cycle(book: Book) -> None:
    cycle = drafted(book, EAGLE3, 3, batch_size=8)
    names = [line.line.op.name for line in cycle.lines]
    assert "draft.fusion.fc" in names
    assert "draft.later.fusion.fc" not in names
    # rows of three layers, of four tokens of each of 8 sequences
    assert of(cycle, "draft.fusion.fc")["matrix"] == 2 * 8 * 4 * 3 * 4096 * 4096
    # it borrows the embedding: a row a token is read, none is held
    assert of(cycle, "draft.embedding")["resident"] == 0
    assert of(cycle, "draft.embedding")["weights"] == 8 * 4 * 4096 * 2


def test_one_draft_needs_one_pass(book: Book) -> None:
    cycle = drafted(book, "method=mtp", 1, model=V3, on="h200-sxm")
    assert not [line for line in cycle.lines if line.line.op.name.startswith("draft.later")]
    # the same layer drafts again, as engines run it
    twice = drafted(book, "method=mtp", 3, model=V3, on="h200-sxm")
    again = of(twice, "draft.later.attention.out")
    assert again["weights"] == 2 * of(cycle, "draft.attention.out")["weights"]
    assert twice.totals["parameters"] == cycle.totals["parameters"]


def test_all_heads_of_medusa_draft_at_once(book: Book, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"medusa_num_heads": 5}))
    cycle = drafted(book, f"model={tmp_path}", 3, batch_size=8)
    # three of five run, for the last row of each sequence
    assert of(cycle, "draft.medusa.head")["matrix"] == 3 * 2 * 8 * 4096 * 128_256
    assert not [line for line in cycle.lines if line.line.op.name.startswith("draft.later")]
    idle = [line for line in cycle.lines if line.line.op.idle]
    assert sum(line.costs["parameters"] for line in idle) == 2 * (4096 * 4096 + 4096 + 4096 * 128_256)
    assert sum(line.device_bytes for line in idle) == 0


def test_a_drafter_has_formats_of_its_own(book: Book) -> None:
    # the model's weights are asked for in 8 bits, the head's are as they are published
    cycle = drafted(book, EAGLE3, 3, quantization="fp8")
    assert of(cycle, "draft.mlp.down")["weights"] == 4096 * 14336 * 2
    assert of(cycle, "mlp.down")["weights"] == 32 * 4096 * 14336
    # a layer of the model itself is in the model's format, but for what joins its two rows
    own = drafted(book, "method=mtp", 1, model=V3, on="h200-sxm")
    assert of(own, "draft.eh_proj")["weights"] == 2 * 7168 * 7168 * 2
    assert of(own, "draft.attention.out")["weights"] == of(own, "attention.out")["weights"] / 61


def test_a_prompt_is_read_by_the_drafter_too(book: Book) -> None:
    prompt = drafted(book, EAGLE3, 3, phase="prefill", input_len=512)
    assert prompt.scenario.tokens == 512
    assert of(prompt, "draft.mlp.down")["matrix"] == 2 * 512 * 4096 * 14336
    assert of(prompt, "mlp.down")["matrix"] == 32 * 2 * 512 * 4096 * 14336
    assert drafts(prompt, book) is None


# -- what drafts buy --------------------------------------------------------------------------------------------------

CASES = st.sampled_from(
    [
        (LLAMA_8B, "h100-sxm", EAGLE3),
        (LLAMA_8B, "h100-sxm", SMALL),
        (LLAMA_8B, "rtx-4090", "method=ngram"),
        (V3, "h200-sxm", "method=mtp"),
    ]
)


@given(CASES, st.integers(1, 8), st.integers(1, 512), st.integers(64, 100_000))
@settings(max_examples=40, deadline=None)
def test_drafts_that_are_never_accepted_are_never_faster(
    case: tuple[str, str, str], tokens: int, batch: int, context: int
) -> None:
    model, part, speculation = case
    flags: dict[str, Any] = {"model": model, "on": part, "batch_size": batch, "context_len": context}
    cycle, plain = drafted(BOOK, speculation, tokens, 0.0, **flags), priced(BOOK, **flags)
    assert cycle.scenario.tokens == batch
    for floor in ("device_seconds", "operation_seconds", "engine_seconds"):
        assert getattr(cycle, floor) >= getattr(plain, floor) * (1 - 1e-12)
    assert bought(cycle, BOOK).speedup[0] <= 1 + 1e-12


@given(CASES, st.integers(1, 8), st.integers(1, 64))
@settings(max_examples=20, deadline=None)
def test_at_break_even_a_token_takes_as_long_as_without(case: tuple[str, str, str], tokens: int, batch: int) -> None:
    model, part, speculation = case
    flags: dict[str, Any] = {"model": model, "on": part, "batch_size": batch, "context_len": 1024}
    even = bought(drafted(BOOK, speculation, tokens, None, **flags), BOOK).break_even
    if even is None:
        assert bought(drafted(BOOK, speculation, tokens, 1.0, **flags), BOOK).speedup[0] < 1
        return
    there = bought(drafted(BOOK, speculation, tokens, even, **flags), BOOK)
    assert there.seconds_per_token[0] == pytest.approx(there.plain_seconds, rel=1e-9)


def test_an_acceptance_that_nobody_states_is_a_range(book: Book) -> None:
    unknown = drafted(book, EAGLE3, 3, None, batch_size=8)
    found = bought(unknown, book)
    assert found.tokens_per_cycle == (1.0, 4.0)
    assert found.seconds_per_token == (unknown.engine_seconds, unknown.engine_seconds / 4)
    assert any("none to all of them" in note for note in unknown.scenario.assumptions)
    assert not any("none to all" in note for note in drafted(book, EAGLE3, 3, 0.5).scenario.assumptions)


def test_on_chip_memory_may_save_traffic_once_a_pass(book: Book) -> None:
    scenario = drafted(book, SMALL, 4).scenario
    whole = price(with_part(scenario, scaled(scenario.machine.part, on_chip=0)), book)
    saved = whole.device_seconds - price(scenario, book).device_seconds
    bandwidth = scenario.machine.part.bandwidth_bytes_per_second.value
    # four passes of the drafter and one of the model
    assert saved == pytest.approx(5 * on_chip_bytes(scenario.machine.part) / bandwidth, rel=1e-9)


def test_a_measured_time_a_token_is_that_of_a_cycle_over_its_tokens(book: Book) -> None:
    config = f"{EAGLE3},num_speculative_tokens=3"
    request = Request(model=LLAMA_8B, on="h100-sxm", speculative_config=config, acceptance_rate=0.5, batch_size=8)
    # 1.875 tokens a cycle: 4 ms a token, 7.5 ms between chunks, 8 sequences of 250 tokens a second
    for measured in (("tpot", 0.004), ("itl", 0.0075), ("throughput", 2000.0)):
        verdict = judge(request, book, measured)
        assert verdict.measured is not None
        assert verdict.measured.seconds == pytest.approx(0.0075, rel=1e-12)
    assert verdict.at_measured is not None
    assert verdict.at_measured["tokens_per_second"] == pytest.approx(2000, rel=1e-12)


def test_a_model_with_a_layer_that_drafts_is_told_what_it_would_buy(book: Book) -> None:
    request = Request(model=V3, on="h200-sxm", batch_size=1)
    pricing = price(make(request, book), book)
    gain = next(gain for gain in gains(request, pricing, book) if gain.id == "multi-token-prediction")
    cycle = drafted(book, "method=mtp", 1, 0.85, model=V3, on="h200-sxm", batch_size=1)
    # 1.85 tokens a cycle
    assert gain.step_seconds == pytest.approx(cycle.engine_seconds / 1.85, rel=1e-12)
    assert gain.gain == pytest.approx(1 - cycle.engine_seconds / 1.85 / pricing.engine_seconds, rel=1e-9)
    plain = Request(model=LLAMA_8B, on="h100-sxm")
    assert "multi-token-prediction" not in {g.id for g in gains(plain, price(make(plain, book), book), book)}


def test_a_state_that_a_rejected_draft_leaves_behind_is_stated(book: Book) -> None:
    request = Request(model="Qwen/Qwen3.5-27B", on="h200-sxm", speculative_config="method=mtp,num_speculative_tokens=1")
    notes = judge(request, book).not_counted
    assert "copies of the recurrent state to return to when a draft is rejected" in notes


def test_what_does_not_write_token_by_token_has_no_drafts(book: Book) -> None:
    with pytest.raises(ScenarioError, match="does not write token by token as a decoder does"):
        drafted(book, "method=ngram", 3, model="GSAI-ML/LLaDA-8B-Instruct")


@given(
    st.one_of(
        st.text(),
        st.text().map(lambda text: "{" + text),
        st.dictionaries(
            st.sampled_from(["method", "model", "num_speculative_tokens", "draft_tensor_parallel_size"]),
            st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.integers())),
        ).map(json.dumps),
    )
)
@settings(max_examples=200, deadline=None)
def test_settings_of_any_kind_are_refused_in_one_line(text: str) -> None:
    said = ""
    try:
        read_speculation(text, 0.5, TARGET, BOOK)
    except (ScenarioError, UnknownRecordError, ConfigError) as error:
        said = str(error)
    assert "\n" not in said


# -- denoising --------------------------------------------------------------------------------------------------------


@pytest.fixture
def shapes(tmp_path: Path) -> dict[str, str]:
    """A decoder, and the model of its shape that denoises blocks."""
    paths = {}
    for family in ("qwen3", "sdar"):
        (tmp_path / family).mkdir()
        (tmp_path / family / "config.json").write_text(json.dumps({**TINY, "model_type": family}))
        paths[family] = str(tmp_path / family)
    return paths


def test_a_block_of_one_token_in_one_pass_is_a_decode_step(shapes: dict[str, str], book: Book) -> None:
    step = priced(book, shapes["qwen3"], batch_size=4, context_len=300)
    denoised = priced(book, shapes["sdar"], batch_size=4, context_len=300, block_length=1, diffusion_steps=1)
    assert denoised.totals == step.totals
    assert denoised.operation_seconds == step.operation_seconds
    assert denoised.scenario.tokens == step.scenario.tokens == 4


def test_a_block_attends_to_all_of_itself_and_to_the_cache(shapes: dict[str, str], book: Book) -> None:
    one = priced(book, shapes["sdar"], batch_size=4, context_len=300, block_length=32, diffusion_steps=8)
    # 32 tokens of each sequence see 268 cached ones and 32 of their block; 4 heads of 128, scores and output
    assert of(one, "attention.decode")["matrix"] == 2 * 4 * 32 * 300 * 4 * 2 * 2 * 128
    # K and V of 268 tokens, 2 heads, 2 bytes, 2 layers
    assert of(one, "attention.decode")["kv_traffic"] == 2 * 4 * 268 * 2 * 2 * 128 * 2
    # logits for the whole block
    assert of(one, "lm_head")["matrix"] == 2 * 4 * 32 * 64 * 100
    # 32 tokens in 8 passes
    assert one.scenario.tokens == 4 * 4
    assert memory(one, book).cache_bytes == 4 * 300 * 2 * 2 * 2 * 128 * 2


def test_without_a_cache_every_pass_reads_the_whole_sequence(book: Book) -> None:
    one = priced(book, "GSAI-ML/LLaDA-8B-Instruct", context_len=512, block_length=32, diffusion_steps=16)
    layers = 32 * (4 * 4096**2 + 3 * 4096 * 12288)
    attention = 32 * 512 * 512 * 4096 * 2 * 2
    head = 32 * 4096 * 126_464
    assert one.totals["matrix"] == 2 * 512 * layers + attention + 2 * head
    assert one.totals["kv_traffic"] == one.totals["cache"] == 0
    assert one.scenario.tokens == 2


def test_an_engine_that_keeps_a_prefix_reads_only_the_rest(book: Book) -> None:
    kept = priced(book, "GSAI-ML/LLaDA-8B-Instruct", context_len=512, cached_len=400, block_length=32)
    assert of(kept, "mlp.down")["matrix"] == 32 * 2 * 112 * 4096 * 12288
    # the rest sees all 512
    assert of(kept, "attention.decode")["matrix"] == 32 * 112 * 512 * 4096 * 2 * 2
    with pytest.raises(ScenarioError, match="--cached-len 500: more than the 480 tokens before the block"):
        priced(book, "GSAI-ML/LLaDA-8B-Instruct", context_len=512, cached_len=500, block_length=32)


@given(st.integers(1, 64), st.integers(65, 5000))
@settings(max_examples=25, deadline=None)
def test_fewer_passes_write_faster(block: int, context: int) -> None:
    flags: dict[str, Any] = {"model": "JetLM/SDAR-4B-Chat", "context_len": context, "block_length": block}
    slow, fast = (priced(BOOK, diffusion_steps=steps, **flags) for steps in (block, 1))
    assert fast.operation_seconds == slow.operation_seconds
    assert (slow.scenario.tokens, fast.scenario.tokens) == (1, block)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"block_length": 0}, "--block-length 0: out of range"),
        ({"block_length": 600}, "--block-length 600: more than the 512 tokens of the context"),
        ({"diffusion_steps": 0}, "--diffusion-steps 0: out of range (accepted: 1 to the block's 32 tokens)"),
        ({"diffusion_steps": 33}, "--diffusion-steps 33: out of range (accepted: 1 to the block's 32 tokens)"),
        ({"phase": "prefill"}, "--phase prefill: no phase of llada models (accepted: decode)"),
    ],
)
def test_blocks_that_make_no_sense_are_refused(flags: dict[str, Any], message: str, book: Book) -> None:
    with pytest.raises(ScenarioError) as refused:
        priced(book, "GSAI-ML/LLaDA-8B-Instruct", context_len=512, **flags)
    assert message in str(refused.value)


def test_a_prompt_in_blocks_is_read_as_a_causal_one_and_says_so(book: Book) -> None:
    request = Request(model="JetLM/SDAR-4B-Chat", on="h100-sxm", phase="prefill", input_len=512)
    verdict = judge(request, book)
    # causal pairs of 512 tokens, 32 heads of 128, 36 layers
    pairs = 512 * 513 / 2
    assert of(verdict.pricing, "attention.prefill")["matrix"] == 36 * pairs * 32 * 2 * 2 * 128
    assert "pairs of a prompt's token with those after it in its block" in verdict.not_counted


# -- adapters ---------------------------------------------------------------------------------------------------------


def adapters(pricing: Pricing) -> dict[str, float]:
    held = [line.costs for line in pricing.lines if line.line.op.op_class == "lora"]
    return {resource: sum(costs[resource] for costs in held) for resource in held[0]}


@pytest.mark.parametrize(
    ("rank", "modules", "parameters"),
    [
        # 32 layers x 16 x (q, o: 8192 each; k, v: 5120 each; gate, up, down: 18,432 each)
        (16, None, 32 * 16 * (2 * 8192 + 2 * 5120 + 3 * 18_432)),
        (16, "all-linear", 41_943_040),
        (8, "q_proj,v_proj", 32 * 8 * (8192 + 5120)),
        (8, "q,v", 3_407_872),
    ],
)
def test_an_adapter_of_the_8b_has_these_parameters(rank: int, modules: str | None, parameters: int, book: Book) -> None:
    assert adapters(priced(book, lora_rank=rank, lora_modules=modules))["parameters"] == parameters


def test_a_fused_matrix_has_one_adapter_for_its_parts(book: Book) -> None:
    # GPT-2 has queries, keys and values in one matrix of 768 x 2304, 12 times
    assert adapters(priced(book, "gpt2", lora_rank=4, lora_modules="c_attn"))["parameters"] == 12 * 4 * (768 + 2304)


@given(st.integers(1, 64), st.integers(1, 256))
@settings(max_examples=25, deadline=None)
def test_adapters_add_up(loaded: int, rank: int) -> None:
    one, many = (adapters(priced(BOOK, lora_rank=rank, max_loras=count)) for count in (1, loaded))
    assert many["parameters"] == loaded * one["parameters"]
    assert many["resident"] == loaded * one["resident"]
    # one sequence uses one of them
    assert many["weights"] == pytest.approx(one["weights"], rel=1e-9)
    assert many["matrix"] == one["matrix"]


def test_adapters_come_on_top_of_the_step(book: Book) -> None:
    plain, adapted = priced(book, batch_size=8), priced(book, batch_size=8, lora_rank=16, max_loras=4)
    beside = adapters(adapted)
    for resource in ("matrix", "weights", "activations", "launches", "parameters", "resident"):
        assert adapted.totals[resource] == pytest.approx(plain.totals[resource] + beside[resource], rel=1e-12)
    # two kernels for each of seven matrices of 32 layers
    assert beside["launches"] == 2 * 7 * 32
    assert adapted.engine_seconds > plain.engine_seconds


def test_a_file_of_peft_says_rank_and_matrices(book: Book, tmp_path: Path) -> None:
    path = tmp_path / "adapter_config.json"
    path.write_text(json.dumps({"r": 8, "target_modules": ["q_proj", "v_proj"], "peft_type": "LORA"}))
    for given_path in (str(path), str(tmp_path)):
        assert adapters(priced(book, lora_modules=given_path))["parameters"] == 3_407_872
    with pytest.raises(ScenarioError, match=r"--lora-rank 4: .* says it"):
        priced(book, lora_modules=str(path), lora_rank=4)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rank_pattern": {"q_proj": 4}}, "rank_pattern "),
        ({"use_dora": True}, "use_dora true is not understood"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save "),
        ({"r": "eight"}, "r 'eight' is no rank"),
        ({"target_modules": ".*_proj"}, "target_modules '.*_proj' is not understood"),
        ({"target_modules": []}, "target_modules "),
    ],
)
def test_a_file_of_peft_that_would_count_otherwise_is_refused(
    fields: dict[str, Any], message: str, book: Book, tmp_path: Path
) -> None:
    path = tmp_path / "adapter_config.json"
    path.write_text(json.dumps({"r": 8, "target_modules": ["q_proj"], **fields}))
    with pytest.raises(ConfigError) as refused:
        priced(book, lora_modules=str(path))
    assert message in str(refused.value)


def test_adapters_do_not_touch_experts(book: Book) -> None:
    experts = {line.line.op.name for line in priced(book, V3, on="h200-sxm", lora_rank=8).lines}
    # a router and grouped experts keep none; latent attention, the dense halves and the shared experts have them
    names = {name for name in experts if name.startswith("lora.")}
    assert names == {
        *("lora.q_a_proj", "lora.q_b_proj", "lora.kv_a_proj_with_mqa", "lora.kv_b_proj", "lora.o_proj"),
        *("lora.gate_proj", "lora.up_proj", "lora.down_proj"),
    }


def test_no_grid_has_drafts(book: Book) -> None:
    with pytest.raises(ScenarioError, match="a grid is one of plain decode steps"):
        floor_trees(drafted(book, EAGLE3, 3).scenario, book)


def test_what_an_op_holds_elsewhere_is_not_explained_twice(book: Book) -> None:
    cycle = drafted(book, EAGLE3, 3)
    first, later = explain("draft.mlp.down", cycle, book), explain("draft.later.mlp.down", cycle, book)
    assert "resident = " in first
    assert "resident = " not in later
    assert "2 a step" in later


def test_a_scenario_without_any_of_it_is_as_before(book: Book) -> None:
    scenario = scenario_of(book)
    assert (scenario.speculation, scenario.blocks, scenario.adapters, scenario.kept) == (None, None, None, (1, 1))
    assert replace(scenario) == scenario
