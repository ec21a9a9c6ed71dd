"""Plans over several parts: what a rank holds, what ranks send, and floors that no plan beats."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from flopmap.floor.roofline import Pricing, price
from flopmap.floor.sensitivity import doublings, elasticity
from flopmap.floor.summary import memory, utilisation
from flopmap.machine.machine import together
from flopmap.plans.links import wires
from flopmap.records.types import Figure, Link, Part
from flopmap.step import ScenarioError
from tests.physics.support import LLAMA_8B, LLAMA_70B, cost, priced, scenario_of, with_part

if TYPE_CHECKING:
    from flopmap.records.book import Book

DEEPSEEK = "deepseek-ai/DeepSeek-V3"
MIXTRAL = "mistralai/Mixtral-8x7B-v0.1"
LLAMA_2_7B_LAYER = 202_375_168  # 4 x 4096^2 + 3 x 4096 x 11008; norms not counted
STEPS: list[dict[str, Any]] = [
    {"batch_size": 1, "context_len": 2048},
    {"batch_size": 64, "context_len": 8192},
    {"phase": "prefill", "input_len": 2048},
    {"phase": "mixed", "batch_size": 16, "context_len": 1024, "input_len": 512},
]
PLANS: list[tuple[str, int, dict[str, Any]]] = [
    (LLAMA_8B, 2, {"tensor_parallel_size": 2}),
    (LLAMA_8B, 8, {"tensor_parallel_size": 8}),
    (LLAMA_8B, 4, {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}),
    (LLAMA_8B, 3, {"pipeline_parallel_size": 3}),
    (LLAMA_70B, 16, {"tensor_parallel_size": 16}),
    (MIXTRAL, 8, {"tensor_parallel_size": 8}),
    (MIXTRAL, 8, {"tensor_parallel_size": 8, "expert_parallel_size": 8}),
    (MIXTRAL, 8, {"tensor_parallel_size": 8, "expert_parallel_size": 2}),
    (DEEPSEEK, 8, {"tensor_parallel_size": 8, "enable_expert_parallel": True}),
    (DEEPSEEK, 8, {"data_parallel_size": 8, "enable_expert_parallel": True}),
    (DEEPSEEK, 16, {"tensor_parallel_size": 4, "data_parallel_size": 4, "enable_expert_parallel": True}),
]


def planned(book: Book, model: str = LLAMA_8B, on: str = "h200-sxm", tp: int = 1, **flags: Any) -> Pricing:
    return priced(book, model, on, tensor_parallel_size=tp, **flags)


def sent(pricing: Pricing, name: str) -> float:
    """Bytes that a rank sends in the runs of a collective."""
    return sum(line.costs["link"] for line in pricing.lines if line.line.op.name == name)


def count(pricing: Pricing, name: str) -> int:
    return sum(line.line.op.count for line in pricing.lines if line.line.op.name == name)


# -- what a rank holds ------------------------------------------------------------------------------------------------


def test_two_ranks_of_llama_8b_divide_every_matrix_and_copy_the_norms(book: Book) -> None:
    norms = 65 * 4096  # two a layer and the last
    rank = planned(book, tp=2)
    assert rank.held.totals["parameters"] == (8_030_261_248 - norms) / 2 + norms == 4_015_263_744
    assert rank.entire.totals["parameters"] == 8_030_261_248


@pytest.mark.parametrize(
    ("tp", "per_token"),
    [
        (1, 80 * 8 * 256 * 2),  # K and V of 128, 8 heads, 80 layers, 2 bytes
        (8, 80 * 1 * 256 * 2),  # one head a rank
        (16, 80 * 1 * 256 * 2),  # and one for every two ranks, so each holds a copy
    ],
)
def test_key_heads_are_divided_and_then_copied(tp: int, per_token: int, book: Book) -> None:
    assert memory(planned(book, LLAMA_70B, tp=tp), book).kv_bytes_per_token == per_token


def test_the_latent_cache_is_not_divided(book: Book) -> None:
    for tp in (1, 2, 8):
        held = memory(planned(book, DEEPSEEK, tp=tp), book)
        assert held.kv_bytes_per_token == 70_272  # 61 layers x (512 + 64) x 2 bytes


def test_eight_expert_ranks_of_deepseek_hold_32_experts_of_each_layer(book: Book) -> None:
    rank = planned(book, DEEPSEEK, tp=8, expert_parallel_size=8)
    (experts,) = [line for line in rank.lines if line.line.op.name == "moe.experts"]
    assert experts.costs["parameters"] == 58 * 32 * 3 * 7168 * 2048
    (router,) = [line for line in rank.lines if line.line.op.name == "moe.router"]
    assert router.costs["parameters"] == 58 * 256 * 7168  # all of it on each


def test_expert_and_tensor_ranks_do_the_same_flop(book: Book) -> None:
    flops = [
        planned(book, MIXTRAL, tp=8, expert_parallel_size=experts, batch_size=4).totals["matrix"]
        for experts in (1, 2, 4, 8)
    ]
    assert flops == [flops[0]] * 4


def test_a_stage_holds_its_layers_and_one_of_the_two_tables(book: Book) -> None:
    layer = 2 * 8192**2 + 2 * 8192 * 1024 + 3 * 8192 * 28672 + 2 * 8192
    last = planned(book, LLAMA_70B, pipeline_parallel_size=2).held
    assert last.totals["parameters"] == 40 * layer + 32000 * 8192 + 8192  # the head and the last norm


def test_what_is_left_over_of_layers_goes_to_stages_before_the_last(book: Book) -> None:
    plan = scenario_of(book, pipeline_parallel_size=3).plan
    assert plan is not None
    assert plan.stages == (11, 11, 10)


@pytest.mark.parametrize("flag", ["tensor_parallel_size", "pipeline_parallel_size"])
@pytest.mark.parametrize("model", [LLAMA_8B, LLAMA_70B, MIXTRAL, DEEPSEEK])
def test_more_parts_never_hold_more_each(flag: str, model: str, book: Book) -> None:
    held = [memory(priced(book, model, "h200-sxm", batch_size=8, **{flag: parts}), book) for parts in (1, 2, 4, 8)]
    for fewer, more in itertools.pairwise(held):
        assert more.weight_bytes < fewer.weight_bytes
        assert more.cache_bytes <= fewer.cache_bytes


def test_replicas_hold_as_many_sequences_each(book: Book) -> None:
    one = memory(priced(book, batch_size=8), book)
    four = memory(priced(book, batch_size=32, data_parallel_size=4), book)
    assert (four.weight_bytes, four.cache_bytes) == (one.weight_bytes, one.cache_bytes)
    assert one.max_sequences is not None
    assert four.max_sequences == 4 * one.max_sequences


# -- floors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS, ids=[step.get("phase", "decode") for step in STEPS])
@pytest.mark.parametrize(("model", "parts", "plan"), PLANS)
def test_no_plan_beats_its_parts_taken_together(
    model: str, parts: int, plan: dict[str, Any], step: dict[str, Any], book: Book
) -> None:
    one = scenario_of(book, model, "h200-sxm", **step)
    bound = price(with_part(one, together(one.machine.part, parts)), book)
    rank = priced(book, model, f"h200-sxm:{parts}", **plan, **step)
    assert rank.device_seconds >= bound.device_seconds * (1 - 1e-12)
    # the floors above the first do not credit what stays on chip, so they are a part's divided by their number
    assert rank.operation_seconds >= price(one, book).operation_seconds / parts * (1 - 1e-12)
    assert rank.device_seconds <= rank.operation_seconds


def test_every_bundled_model_is_refused_by_name_or_gains_no_more_than_two_from_two(book: Book) -> None:
    refused = 0
    for model in book.ids("models"):
        try:
            alone = priced(book, model, "h200-sxm", batch_size=4)
            two = planned(book, model, tp=2, batch_size=4)
        except ScenarioError as error:
            assert "cannot be divided" in str(error)  # noqa: PT017 - which models are refused is not the point
            refused += 1
            continue
        assert alone.operation_seconds >= two.operation_seconds >= alone.operation_seconds / 2
        assert two.entire.totals["parameters"] == alone.totals["parameters"]
        assert two.totals["parameters"] >= alone.totals["parameters"] / 2
    assert refused <= 3


def test_stages_take_the_time_of_one_part_and_that_of_their_sends(book: Book) -> None:
    alone = priced(book, LLAMA_70B, "rtx-3090", quantization="q4_k", engine="llama.cpp")
    split = priced(book, LLAMA_70B, "rtx-3090:2", quantization="q4_k", engine="llama.cpp")
    plan = split.scenario.plan
    assert plan is not None
    assert (plan.tensor, plan.pipeline) == (1, 2)
    sends = sum(line.seconds for line in split.lines if line.line.op.name == "pipeline.send")
    assert split.operation_seconds == pytest.approx(alone.operation_seconds + sends, rel=1e-12)
    assert sends == pytest.approx(8192 * 2 / 56.25e9)  # a row of 16 bits over the bridge
    used = [utilisation(pricing, 1.0, book)["mbu"] for pricing in (alone, split)]
    assert used[1] == pytest.approx(used[0] / 2, rel=1e-3)  # each waits while the other works


def test_a_prompt_may_be_in_several_stages_at_once(book: Book) -> None:
    alone = priced(book, LLAMA_70B, "h200-sxm", phase="prefill", input_len=8192)
    split = priced(book, LLAMA_70B, "h200-sxm:4", pipeline_parallel_size=4, phase="prefill", input_len=8192)
    assert split.device_seconds == pytest.approx(alone.device_seconds / 4, rel=0.01)
    assert split.operation_seconds > alone.operation_seconds


@pytest.mark.parametrize(("model", "parts", "plan"), PLANS)
def test_a_faster_link_never_slows_a_step(model: str, parts: int, plan: dict[str, Any], book: Book) -> None:
    scenario = scenario_of(book, model, f"h200-sxm:{parts}", batch_size=64, **plan)
    assert scenario.plan is not None
    floors = []
    for factor in (0.01, 0.1, 1, 10):
        links = tuple(
            replace(wire, bytes_per_second=wire.bytes_per_second and wire.bytes_per_second * factor)
            for wire in scenario.plan.wires
        )
        pricing = price(replace(scenario, plan=replace(scenario.plan, wires=links)), book)
        floors.append((pricing.device_seconds, pricing.operation_seconds))
    assert floors == sorted(floors, reverse=True)
    assert floors[0][1] > floors[-1][1]


@pytest.mark.parametrize("batch", [1, 64, 1024])
def test_the_elasticity_of_links_is_the_derivative_of_the_floor(batch: int, book: Book) -> None:
    scenario = scenario_of(book, on="h200-sxm:8", tensor_parallel_size=8, batch_size=batch)
    assert scenario.plan is not None
    floors = []
    for factor in (1 - 1e-6, 1, 1 + 1e-6, 2):
        links = tuple(replace(wire, bytes_per_second=450e9 * factor) for wire in scenario.plan.wires)
        floors.append(price(replace(scenario, plan=replace(scenario.plan, wires=links)), book))
    slope = (floors[0].engine_seconds - floors[2].engine_seconds) / (2e-6 * floors[1].engine_seconds)
    assert slope == pytest.approx(elasticity(floors[1])["link_bandwidth"], abs=1e-5)
    (doubled,) = [doubling for doubling in doublings(floors[1]) if doubling.property == "link_bandwidth"]
    assert doubled.step_seconds == pytest.approx(floors[3].engine_seconds, rel=1e-12)


# -- what ranks send --------------------------------------------------------------------------------------------------


def test_two_all_reduces_a_layer_by_ring(book: Book) -> None:
    rank = planned(book, tp=8, batch_size=4)
    row = 4 * 4096 * 2  # 4 tokens, 4096 wide, 2 bytes
    for half in ("attention", "mlp"):
        assert count(rank, f"{half}.all_reduce") == 32
        assert sent(rank, f"{half}.all_reduce") == 32 * 2 * 7 / 8 * row
    assert sent(rank, "lm_head.gather") == 7 / 8 * 4 * 128256 * 2


@pytest.mark.parametrize(
    ("algorithm", "rows"), [("ring", 1.75), ("in-network", 1), ("tree", 2), ("one-shot", 7), ("undivided", 1)]
)
def test_the_convention_is_the_algorithm(algorithm: str, rows: float, book: Book) -> None:
    rank = planned(book, tp=8, conventions=(("all-reduce", algorithm),))
    assert sent(rank, "mlp.all_reduce") == 32 * rows * 4096 * 2
    assert rank.device_seconds == planned(book, tp=8).device_seconds  # the floor takes the least, whatever is used


def test_no_algorithm_sends_less_than_the_floor_counts(book: Book) -> None:
    shapes = {"t": 3, "width": 4096, "act_bytes": 2}
    for ranks in (2, 3, 8, 72):
        for algorithm in book.conventions["all-reduce"].values:
            amounts = cost(book, "all-reduce", {"all-reduce": algorithm}, ranks=ranks, **shapes)
            assert amounts["link"] >= 3 * 4096 * 2 * (1 - 1e-12)


def test_scattered_and_gathered_is_reduced(book: Book) -> None:
    shapes = {"t": 3, "width": 4096, "act_bytes": 2, "ranks": 8}
    halves = [cost(book, name, **shapes)["link"] for name in ("reduce-scatter", "all-gather")]
    assert sum(halves) == cost(book, "all-reduce", **shapes)["link"]


@pytest.mark.parametrize(
    ("ranks", "algorithm", "shards", "batch"),
    [
        (8, "undivided", 1, 3318.45),  # as published: no ring, all of the layer's weights
        (2, "ring", 2, 1659.22),
        (8, "ring", 8, 237.03),
    ],
)
def test_the_batch_from_which_all_reduces_outweigh_the_weights(
    ranks: int, algorithm: str, shards: int, batch: float, book: Book
) -> None:
    token = cost(book, "all-reduce", {"all-reduce": algorithm}, t=1, width=4096, act_bytes=2, ranks=ranks)["link"]
    weights_seconds = LLAMA_2_7B_LAYER * 2 / shards / 3.35e12
    assert weights_seconds / (2 * token / 450e9) == pytest.approx(batch, abs=0.01)


def test_a_group_beyond_a_domain_reduces_inside_and_then_between_its_pieces(book: Book) -> None:
    rank = planned(book, LLAMA_70B, "p5.48xlarge:2", tp=16)
    row = 8192 * 2
    assert sent(rank, "mlp.all_reduce") == 80 * 2 * 7 / 8 * row  # 8 parts of a host
    assert sent(rank, "mlp.all_reduce.out") == 80 * 2 * 1 / 2 * row / 8  # 2 hosts, an eighth of the row for each part
    outside = [line for line in rank.lines if line.line.op.name == "mlp.all_reduce.out"]
    assert outside[0].times[4] == pytest.approx(80 * row / 8 / 50e9)  # EFA: 50 GB/s a part


def test_a_stage_beyond_a_domain_is_sent_to_over_the_network(book: Book) -> None:
    rank = planned(book, LLAMA_70B, "p5.48xlarge:2", tp=8, pipeline_parallel_size=2)
    assert sent(rank, "pipeline.send.out") == 8192 * 2 / 8  # each of 8 ranks sends its piece
    assert count(rank, "pipeline.send") == 0


def test_tokens_go_to_the_ranks_of_their_experts_and_come_back(book: Book) -> None:
    rank = priced(book, DEEPSEEK, "h200-sxm:8", data_parallel_size=8, enable_expert_parallel=True, batch_size=64)
    reached = 7 * (1 - (7 / 8) ** 8)  # ranks other than its own, of 8 experts chosen at random
    assert sent(rank, "moe.dispatch") == pytest.approx(58 * 8 * reached * 7168 * 2)  # 8 tokens a rank
    assert sent(rank, "moe.combine") == sent(rank, "moe.dispatch")
    assert count(rank, "attention.all_reduce") == 0


def test_spread_experts_get_the_tokens_of_all_ranks(book: Book) -> None:
    alone = priced(book, DEEPSEEK, "h200-sxm", batch_size=64)
    rank = priced(book, DEEPSEEK, "h200-sxm:8", data_parallel_size=8, enable_expert_parallel=True, batch_size=64)
    flops = [
        sum(line.costs["matrix"] for line in one.lines if line.line.op.name == "moe.experts") for one in (alone, rank)
    ]
    read = [
        sum(line.costs["weights"] for line in one.lines if line.line.op.name == "moe.experts") for one in (alone, rank)
    ]
    assert flops[1] == pytest.approx(flops[0] / 8)
    assert read[1] == pytest.approx(read[0] / 8)  # an eighth of the union of all 64 tokens


def test_a_block_with_one_norm_sums_its_halves_at_once(book: Book) -> None:
    parallel = [
        model
        for model in book.ids("models")
        if {layer.norms for layer in scenario_of(book, model).model.architecture.layers} == {1}
        and all(layer.attention and layer.feed_forward for layer in scenario_of(book, model).model.architecture.layers)
    ]
    assert parallel
    for model in parallel:
        rank = planned(book, model, tp=2)
        assert count(rank, "attention.all_reduce") == len(rank.scenario.model.architecture.layers)
        assert count(rank, "mlp.all_reduce") == 0


@pytest.mark.parametrize("tp", [2, 4])
def test_mixers_without_attention_reduce_too(tp: int, book: Book) -> None:
    # 30 layers of linear attention and 10 of softmax; the way back of the former is twice as wide as the layer
    rank = planned(book, "Qwen/Qwen3.5-35B-A3B", tp=tp)
    reduced = [count(rank, f"{half}.all_reduce") for half in ("mixer", "attention", "mlp")]
    assert reduced == [30, 10, 40]


def test_towers_are_shared_as_far_as_their_heads_go(book: Book) -> None:
    flags: dict[str, Any] = {"phase": "prefill", "input_len": 512, "images": 1}
    shared = planned(book, "Qwen/Qwen2.5-VL-3B-Instruct", tp=4, **flags)
    assert count(shared, "vision.attention.all_reduce") == 32
    copied = planned(book, "Qwen/Qwen2.5-VL-3B-Instruct", tp=8, **flags)
    assert count(copied, "vision.attention.all_reduce") == 0
    said = "vision is on every rank: a feed-forward of 3,420 cannot be divided by 8"
    assert said in copied.scenario.assumptions


def test_a_message_takes_the_latency_of_its_link(book: Book) -> None:
    scenario = scenario_of(book, on="h200-sxm:8", tensor_parallel_size=8)
    assert scenario.plan is not None
    slow = tuple(replace(wire, latency_seconds=1e-6) for wire in scenario.plan.wires)
    pricing = price(replace(scenario, plan=replace(scenario.plan, wires=slow)), book)
    (reduced,) = [line for line in pricing.lines if line.line.op.name == "mlp.all_reduce"]
    assert reduced.seconds == pytest.approx(32 * 14e-6)  # a ring of 8 passes on 14 times
    assert reduced.bound_by == "link_latency"


# -- links ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "parts", "rates"),
    [
        ("h100-sxm", 8, {"scale-up": 450e9}),
        ("h100-sxm", 16, {"scale-up": 450e9, "scale-out": 64e9}),  # no network on record: the host link bounds it
        ("mi300x", 2, {"scale-up": 64e9}),  # a pair has one of seven links
        ("mi300x", 8, {"scale-up": 448e9}),
        ("rtx-4090", 2, {"scale-up": 32e9}),  # no link between: through the host
        ("rtx-3090", 4, {"scale-up": 56.25e9, "scale-out": 32e9}),  # bridges join two
    ],
)
def test_parts_talk_over_the_narrowest_link_that_joins_them(
    part: str, parts: int, rates: dict[str, float], book: Book
) -> None:
    found = wires(book.record(Part, part), parts)
    assert {wire.level: wire.bytes_per_second for wire in found} == rates


def test_a_link_without_a_rate_takes_no_time_and_is_named(book: Book) -> None:
    part = replace(book.record(Part, "h100-sxm"), links=(), host_link_bytes_per_second=None)
    assert [wire.bytes_per_second for wire in wires(part, 2)] == [None]
    scenario = scenario_of(book, on="h100-sxm:2")
    assert scenario.plan is not None
    pricing = price(replace(scenario, plan=replace(scenario.plan, wires=wires(part, 2))), book)
    assert "scale-up_bandwidth" in pricing.rates.unknown
    assert sum(line.times[4] for line in pricing.lines) == 0


def test_a_link_of_any_number_of_parts_has_no_end(book: Book) -> None:
    figure = Figure(value=1e11, source="arithmetic")
    link = Link(name="any", value=figure.value, source=figure.source)
    part = replace(book.record(Part, "h100-sxm"), links=(link,))
    assert [wire.level for wire in wires(part, 4096)] == ["scale-up"]


# -- plans that cannot work -------------------------------------------------------------------------------------------

REFUSED: list[tuple[str, str, dict[str, Any], str]] = [
    (LLAMA_8B, "h100-sxm", {"tensor_parallel_size": 5}, "-tp 5: 32 heads cannot be divided by 5 (nearest: -tp 4)"),
    (LLAMA_8B, "h100-sxm:4", {"tensor_parallel_size": 8}, "-tp 8: 8 parts, but --on gives 4 (nearest: -tp 4)"),
    (LLAMA_8B, "h100-sxm:1", {"tensor_parallel_size": 2}, "-tp 2: 2 parts, but --on gives 1 (nearest: -tp 1)"),
    (
        LLAMA_8B,
        "h100-sxm",
        {"tensor_parallel_size": 0},
        "--tensor-parallel-size 0: out of range (accepted: 1 to 1000000)",
    ),
    (LLAMA_8B, "h100-sxm", {"pipeline_parallel_size": 33}, "-pp 33: there are 32 layers (nearest: -pp 32)"),
    (LLAMA_8B, "h100-sxm", {"expert_parallel_size": 2}, "-ep 2: llama models have no experts"),
    (LLAMA_8B, "h100-sxm", {"enable_expert_parallel": True}, "--enable-expert-parallel: llama models have no experts"),
    (
        MIXTRAL,
        "h100-sxm",
        {"tensor_parallel_size": 16, "enable_expert_parallel": True},
        "-tp 16 -ep 16: 8 experts cannot be divided by 16 (nearest: -tp 16 -ep 8)",
    ),
    (MIXTRAL, "h100-sxm:8", {"expert_parallel_size": 3}, "-ep 3: 8 ranks of a stage cannot hold it (nearest: -ep 8)"),
    (
        LLAMA_8B,
        "rtx-3090:2",
        {"tensor_parallel_size": 2, "engine": "llama.cpp"},
        "--tensor-parallel-size 2: llama.cpp splits a model by layers (nearest: -pp 2)",
    ),
    (
        LLAMA_8B,
        "h100-sxm:2",
        {"lora_rank": 8},
        "--lora-rank: not counted yet under a plan over several parts (TP 2); give one part",
    ),
]


@pytest.mark.parametrize(("model", "on", "flags", "message"), REFUSED)
def test_a_plan_that_cannot_work_is_refused_with_the_nearest(
    model: str, on: str, flags: dict[str, Any], message: str, book: Book
) -> None:
    with pytest.raises(ScenarioError) as refused:
        scenario_of(book, model, on, **flags)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("model", "on", "flags", "sizes"),
    [
        (LLAMA_8B, "h100-sxm:8", {}, (8, 1, 1, 1)),
        (LLAMA_8B, "h100-sxm:16", {}, (8, 2, 1, 1)),  # a domain of 8
        (LLAMA_8B, "h100-sxm:3", {}, (1, 3, 1, 1)),  # 32 heads, 3 parts
        (LLAMA_8B, "h100-sxm:6", {}, (2, 3, 1, 1)),
        (LLAMA_8B, "gb200:32", {}, (32, 1, 1, 1)),  # a domain of 72
        (LLAMA_8B, "p5.48xlarge", {}, (8, 1, 1, 1)),
        (LLAMA_8B, "rtx-3090:2", {"engine": "ollama"}, (1, 2, 1, 1)),
        (DEEPSEEK, "h200-sxm:8", {"expert_parallel_size": 8}, (8, 1, 1, 8)),
        (DEEPSEEK, "h200-sxm:8", {"enable_expert_parallel": True}, (8, 1, 1, 8)),
        (LLAMA_8B, "h100-sxm", {"tensor_parallel_size": 4}, (4, 1, 1, 1)),  # nobody said how many parts
    ],
)
def test_the_plan_that_people_run_is_taken(
    model: str, on: str, flags: dict[str, Any], sizes: tuple[int, ...], book: Book
) -> None:
    plan = scenario_of(book, model, on, **flags).plan
    assert plan is not None
    assert (plan.tensor, plan.pipeline, plan.data, plan.expert) == sizes


def test_one_part_has_no_plan(book: Book) -> None:
    assert scenario_of(book, tensor_parallel_size=1).plan is None
    assert scenario_of(book, on="h100-sxm:1").plan is None
