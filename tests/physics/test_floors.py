"""The floors of a step: in order, never raised by a faster part, and scaled by one number when all rates are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from flopmap.estimate.estimate import estimate
from flopmap.floor.roofline import Pricer, Pricing, price
from flopmap.floor.summary import utilisation
from flopmap.ledger.ledger import DEVICE_BYTES
from flopmap.step import ScenarioError, mixed_step
from tests.physics.support import (
    LLAMA_8B,
    LLAMA_70B,
    decode,
    prefill,
    priced,
    priced_groups,
    scaled,
    scenario_of,
    with_launches,
    with_part,
)

if TYPE_CHECKING:
    from flopmap.records.book import Book
    from flopmap.records.types import Part
    from flopmap.scenario import Scenario

SPREAD = ("h100-sxm", "b200-sxm", "mi300x", "rtx-4090", "l4", "tpu-v5e", "m2-ultra", "epyc-genoa-9654", "v100-sxm2")
PHASES: tuple[dict[str, Any], ...] = (
    {"batch_size": 1, "context_len": 1},
    {"batch_size": 64, "context_len": 3000},
    {"phase": "prefill", "input_len": 1},
    {"phase": "prefill", "input_len": 5000},
    {"phase": "prefill", "batch_size": 4, "input_len": 100, "cached_len": 5000},
    {"phase": "mixed", "batch_size": 32, "context_len": 5000, "input_len": 512},
)


def computable(book: Book, model: str, part: str, **flags: Any) -> Scenario | None:
    """The scenario, or None where the part does not multiply in the model's data type."""
    try:
        return scenario_of(book, model, part, **flags)
    except ScenarioError:
        return None


def in_order(pricing: Pricing, book: Book) -> None:
    # equal up to rounding where one resource alone decides
    slack = 1 + 1e-12
    assert 0 < pricing.device_seconds <= pricing.operation_seconds * slack
    assert pricing.operation_seconds <= pricing.engine_seconds * slack
    likely = estimate(pricing, book)
    if likely is not None:
        assert pricing.engine_seconds <= likely.low * slack
        assert likely.low <= likely.value <= likely.high


@pytest.mark.parametrize("part", SPREAD)
def test_device_operation_engine_estimate_rise_in_this_order_for_every_model(part: str, book: Book) -> None:
    priced_ones = 0
    for index, model in enumerate(book.ids("models")):
        # each model in two of the phases, so that the two together see all of them
        for flags in (PHASES[index % 6], PHASES[(index + 3) % 6]):
            scenario = computable(book, model, part, dtype="auto", **flags)
            if scenario is not None:
                in_order(price(scenario, book), book)
                priced_ones += 1
    assert priced_ones > len(book.ids("models")) // 2


@pytest.mark.parametrize("part", ["h100-sxm", "rtx-4090", "tpu-v5e"])
@pytest.mark.parametrize("flags", PHASES, ids=str)
def test_the_order_holds_with_launches_and_host_time(part: str, flags: dict[str, Any], book: Book) -> None:
    scenario = with_launches(scenario_of(book, on=part, **flags), 20e-6, host=1e-3)
    pricing = price(scenario, book)
    in_order(pricing, book)
    launches = pricing.totals["launches"] * 20e-6
    assert pricing.launch_seconds == pytest.approx(launches, rel=1e-12)
    assert pricing.engine_seconds == pytest.approx(max(pricing.operation_seconds, launches) + 1e-3, rel=1e-12)


@pytest.mark.parametrize("flags", [{"quantization": "fp8"}, {"quantization": "awq", "kv_cache_dtype": "fp8"}], ids=str)
def test_the_order_holds_when_two_data_types_multiply(flags: dict[str, Any], book: Book) -> None:
    for phase in PHASES:
        in_order(priced(book, LLAMA_8B, "h100-sxm", **flags, **phase), book)


# -- exact times ------------------------------------------------------------------------------------------------------


def test_the_device_floor_of_a_decode_step_is_its_bytes(book: Book) -> None:
    # weights with one row of the embedding, the cache read and written, less what 83 MiB on chip may keep
    step = priced(book, LLAMA_8B, context_len=2048)
    on_chip = 50 * 2**20 + 132 * 256 * 2**10
    expected = (15_009_857_536 + 2048 * 131_072 - on_chip) / 3.35e12
    assert step.device_seconds == pytest.approx(expected, rel=1e-14)  # 4.534703 ms


def test_the_device_floor_of_a_prompt_is_its_matrix_flop_at_the_highest_clock(book: Book) -> None:
    # the peak is stated at 1.83 GHz, and the part reaches 1.98
    expected = 29_688_401_494_016 / (989.5e12 * 1.98 / 1.83)
    step = priced(book, LLAMA_8B, phase="prefill", input_len=2048)
    assert step.device_seconds == pytest.approx(expected, rel=1e-14)  # 27.730623 ms
    rated = priced(book, LLAMA_8B, phase="prefill", input_len=2048, conventions=(("clock", "rated"),))
    assert rated.device_seconds == pytest.approx(29_688_401_494_016 / 989.5e12, rel=1e-14)


def test_matrix_times_of_two_data_types_add_up(book: Book) -> None:
    # 8-bit layers run at 1979e12, attention and the head at 989.5e12, on the same matrix units
    head = 2 * 128256 * 4096
    attention = 32 * 32 * (4096 * 4097 // 2) * 4 * 128
    layers = 2 * 4096 * 32 * 218_103_808
    step = priced(book, LLAMA_8B, phase="prefill", input_len=4096, quantization="fp8")
    assert step.totals["matrix"] == layers + attention + head
    expected = (layers / 1979e12 + (attention + head) / 989.5e12) * 1.83 / 1.98
    assert step.device_seconds == pytest.approx(expected, rel=1e-14)


def test_the_operation_floor_is_the_sum_of_its_ops(book: Book) -> None:
    for flags in PHASES:
        step = priced(book, **flags)
        assert step.operation_seconds == pytest.approx(sum(line.seconds for line in step.lines), rel=1e-12)
        for line in step.lines:
            assert line.seconds == max(line.terms.values())
            assert line.terms["memory_seconds"] == pytest.approx(line.device_bytes / 3.35e12, rel=1e-14)


def test_the_floor_is_given_for_a_model_that_does_not_fit(book: Book) -> None:
    step = priced(book, LLAMA_70B, context_len=2048)
    assert step.operation_seconds > 137.9e9 * 0.99 / 3.35e12


def test_utilisation_of_a_step_that_takes_twice_its_floor_is_half(book: Book) -> None:
    step = priced(book, LLAMA_8B, batch_size=8, context_len=2048)
    used = utilisation(step, 2 * step.operation_seconds, book)
    moved = sum(step.totals[kind] for kind in DEVICE_BYTES)
    assert used["mbu"] == pytest.approx(moved / 3.35e12 / (2 * step.operation_seconds), rel=1e-12)
    assert used["mbu"] == pytest.approx(0.5, abs=0.005)
    assert used["mfu"] == pytest.approx(step.totals["matrix"] / 989.5e12 / (2 * step.operation_seconds), rel=1e-12)
    assert used["tokens_per_second"] == pytest.approx(8 / (2 * step.operation_seconds), rel=1e-12)


def test_a_scenario_that_is_compiled_once_prices_every_step_as_a_fresh_one_does(book: Book) -> None:
    scenario = scenario_of(book, "google/gemma-2-9b", phase="mixed")
    pricer = Pricer(scenario, book)
    for step in (mixed_step(8, 5000, 600), mixed_step(1, 1, 1), mixed_step(300, 20_000, 9000, 4000)):
        compiled, fresh = pricer(step), price(replace(scenario, step=step), book)
        assert compiled.statistics == pytest.approx(fresh.statistics, rel=1e-14)
        assert compiled.totals == pytest.approx(fresh.totals, rel=1e-14)
        for name in FLOORS:
            assert getattr(compiled, name) == pytest.approx(getattr(fresh, name), rel=1e-14)


# -- rates ------------------------------------------------------------------------------------------------------------

RATES = ("bandwidth", "matrix", "vector", "exp", "on_chip")
UP = st.floats(1, 100)
FLOORS = ("device_seconds", "operation_seconds", "engine_seconds")


def repriced(scenario: Scenario, part: Part, book: Book) -> Pricing:
    return price(with_part(scenario, part), book)


@given(
    factors=st.dictionaries(st.sampled_from(RATES), UP, min_size=1),
    flags=st.sampled_from(PHASES),
    part=st.sampled_from(["h100-sxm", "l4", "mi300x", "m2-ultra"]),
    launch=st.sampled_from([0.0, 5e-6]),
)
def test_no_floor_rises_when_a_rate_rises_nor_falls_when_one_falls(
    factors: dict[str, float], flags: dict[str, Any], part: str, launch: float, book: Book
) -> None:
    scenario = with_launches(scenario_of(book, "google/gemma-2-2b", part, dtype="bf16", **flags), launch)
    slow = scenario.machine.part
    before, after = price(scenario, book), repriced(scenario, scaled(slow, **factors), book)
    below = repriced(scenario, scaled(slow, **{name: 1 / factor for name, factor in factors.items()}), book)
    for floor in FLOORS:
        assert getattr(after, floor) <= getattr(before, floor) * (1 + 1e-12)
        assert getattr(before, floor) <= getattr(below, floor) * (1 + 1e-12)


def test_a_slower_launch_never_makes_a_step_faster(book: Book) -> None:
    scenario = scenario_of(book, context_len=2048)
    times = [price(with_launches(scenario, seconds), book).engine_seconds for seconds in (0, 1e-6, 5e-6, 2e-5, 1e-4)]
    assert times == sorted(times)


@given(factor=st.floats(0.01, 100), flags=st.sampled_from(PHASES))
def test_when_all_rates_are_multiplied_all_times_are_divided(factor: float, flags: dict[str, Any], book: Book) -> None:
    scenario = scenario_of(book, **flags)
    part = scaled(scenario.machine.part, bandwidth=factor, matrix=factor, vector=factor, exp=factor)
    before, after = price(scenario, book), repriced(scenario, part, book)
    for floor in FLOORS:
        assert getattr(after, floor) == pytest.approx(getattr(before, floor) / factor, rel=1e-12)


def test_a_rate_that_is_not_known_costs_no_time(book: Book) -> None:
    # a TPU v5e has neither a vector nor an exp rate on record
    pricing = priced(book, on="tpu-v5e", context_len=2048)
    assert set(pricing.rates.unknown) == {"vector_peak", "exp_rate"}
    assert all(line.terms["vector_seconds"] == line.terms["exp_seconds"] == 0 for line in pricing.lines)


# -- batch and context ------------------------------------------------------------------------------------------------

COSTS = ("matrix", "vector", "exp", *DEVICE_BYTES, "launches", "cache")


@pytest.mark.parametrize("model", [LLAMA_8B, "google/gemma-3-1b-it", "openai-community/gpt2"])
@given(
    sizes=st.tuples(st.integers(1, 2000), st.integers(1, 200_000)),
    more=st.tuples(st.integers(0, 500), st.integers(0, 50_000)),
)
def test_a_larger_batch_or_a_longer_context_never_costs_less(
    model: str, sizes: tuple[int, int], more: tuple[int, int], book: Book
) -> None:
    scenario = scenario_of(book, model, dtype="bf16")
    (batch, past), (extra, longer) = sizes, more
    small, large = (
        priced_groups(scenario, [decode(length, count=count)], book)
        for count, length in ((batch, past), (batch + extra, past + longer))
    )
    assert all(small.totals[name] <= large.totals[name] for name in COSTS)
    assert all(getattr(small, floor) <= getattr(large, floor) for floor in FLOORS)


@given(new=st.integers(1, 20_000), more=st.integers(0, 5000), past=st.integers(0, 20_000), longer=st.integers(0, 5000))
def test_a_longer_prompt_or_a_longer_prefix_never_costs_less(
    new: int, more: int, past: int, longer: int, book: Book
) -> None:
    scenario = scenario_of(book, "google/gemma-3-1b-it", phase="prefill", dtype="bf16")
    small, large = (
        priced_groups(scenario, [prefill(tokens, cached)], book)
        for tokens, cached in ((new, past), (new + more, past + longer))
    )
    assert all(small.totals[name] <= large.totals[name] for name in COSTS)
    assert all(getattr(small, floor) <= getattr(large, floor) for floor in FLOORS)
