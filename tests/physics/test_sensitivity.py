"""Which property governs a step: shares add up, derivatives agree, and re-pricing confirms doublings and flips."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from flopmap.floor.roofline import Pricing, price
from flopmap.floor.sensitivity import bound_by, doublings, elasticity, shares
from tests.physics.support import LLAMA_8B, priced, scaled, scenario_of, with_launches, with_part

if TYPE_CHECKING:
    from flopmap.records.book import Book
    from flopmap.scenario import Scenario

RATE_OF = {"memory_bandwidth": "bandwidth", "matrix_peak": "matrix", "vector_peak": "vector", "exp_rate": "exp"}
SCENARIOS: tuple[dict[str, Any], ...] = (
    {"batch_size": 1, "context_len": 2048},
    {"batch_size": 300, "context_len": 300},
    {"batch_size": 700, "context_len": 60},
    {"phase": "prefill", "input_len": 40},
    {"phase": "prefill", "input_len": 330},
    {"phase": "prefill", "input_len": 16_384},
    {"phase": "mixed", "batch_size": 64, "context_len": 4000, "input_len": 512},
)


def with_rate(scenario: Scenario, name: str, factor: float, book: Book) -> Pricing:
    """The step on the part with one of its properties multiplied."""
    if name == "launch":
        seconds = scenario.engine.launch_seconds
        return price(with_launches(scenario, seconds.value / factor if seconds else 0.0), book)
    return price(with_part(scenario, scaled(scenario.machine.part, **{RATE_OF[name]: factor})), book)


@pytest.mark.parametrize("flags", SCENARIOS, ids=str)
@pytest.mark.parametrize("part", ["h100-sxm", "l4", "m2-ultra"])
def test_shares_add_up_to_the_engine_floor_and_elasticities_to_one(
    flags: dict[str, Any], part: str, book: Book
) -> None:
    for launch, host in ((0.0, 0.0), (5e-6, 1e-3), (1e-3, 1e-4)):
        pricing = price(with_launches(scenario_of(book, on=part, **flags), launch, host=host), book)
        assert sum(shares(pricing).values()) == pytest.approx(pricing.engine_seconds, rel=1e-12)
        assert sum(elasticity(pricing).values()) == pytest.approx(1, rel=1e-12)
        assert all(share >= 0 for share in elasticity(pricing).values())


@pytest.mark.parametrize("flags", SCENARIOS, ids=str)
@pytest.mark.parametrize("launch", [0.0, 2e-5])
def test_an_elasticity_is_the_derivative_of_the_engine_floor(flags: dict[str, Any], launch: float, book: Book) -> None:
    scenario = with_launches(scenario_of(book, **flags), launch)
    pricing = price(scenario, book)
    step = 1e-6
    for name in (*RATE_OF, "launch"):  # those of links are in test_plans.py
        faster, slower = (with_rate(scenario, name, 1 + sign * step, book).engine_seconds for sign in (1, -1))
        slope = (slower - faster) / (2 * step * pricing.engine_seconds)
        # no op of these scenarios stands within a millionth of a kink
        assert slope == pytest.approx(elasticity(pricing)[name], abs=1e-5), name


@pytest.mark.parametrize("flags", SCENARIOS, ids=str)
@pytest.mark.parametrize("launch", [0.0, 2e-5])
def test_doubling_a_property_is_pricing_the_part_that_has_it(flags: dict[str, Any], launch: float, book: Book) -> None:
    scenario = with_launches(scenario_of(book, **flags), launch)
    pricing = price(scenario, book)
    found = doublings(pricing)
    assert [doubling.property for doubling in found] != []
    assert [doubling.step_seconds for doubling in found] == sorted(doubling.step_seconds for doubling in found)
    for doubling in found:
        after = with_rate(scenario, doubling.property, 2, book).engine_seconds
        assert doubling.step_seconds == pytest.approx(after, rel=1e-12)
        assert doubling.gain == pytest.approx(1 - after / pricing.engine_seconds, abs=1e-12)
        assert -1e-12 <= doubling.gain <= 0.5 + 1e-12


SIZES = st.one_of(
    st.fixed_dictionaries({"batch_size": st.integers(1, 2000), "context_len": st.integers(1, 4000)}),
    st.fixed_dictionaries({"phase": st.just("prefill"), "input_len": st.integers(1, 4000)}),
)


@given(
    size=SIZES,
    part=st.sampled_from(["h100-sxm", "l4", "rtx-4090", "a100-sxm-80gb"]),
    launch=st.sampled_from([0.0, 5e-6, 1e-4]),
)
def test_at_the_flip_another_property_takes_over(size: dict[str, Any], part: str, launch: float, book: Book) -> None:
    scenario = with_launches(scenario_of(book, on=part, **size), launch)
    pricing = price(scenario, book)
    binding = bound_by(pricing)
    flips = [doubling for doubling in doublings(pricing) if doubling.flips_at is not None]
    assume(flips)
    assert [doubling.property for doubling in flips] == [binding]
    at, to = flips[0].flips_at, flips[0].flips_to
    assert at is not None
    assert at > 1
    assert bound_by(with_rate(scenario, binding, at * (1 - 1e-6), book)) == binding
    assert bound_by(with_rate(scenario, binding, at * (1 + 1e-6), book)) == to != binding


def test_only_the_binding_property_flips(book: Book) -> None:
    for flags in SCENARIOS:
        pricing = priced(book, **flags)
        for doubling in doublings(pricing):
            assert (doubling.flips_at is None) == (doubling.flips_to is None)
            assert doubling.flips_at is None or doubling.property == bound_by(pricing)


def test_batch_one_is_governed_by_bandwidth_and_a_long_prompt_by_the_matrix_units(book: Book) -> None:
    small = elasticity(priced(book, batch_size=1, context_len=2048))
    assert small["memory_bandwidth"] > 0.999
    long = elasticity(priced(book, phase="prefill", input_len=16_384))
    assert long["matrix_peak"] > 0.85
    assert bound_by(priced(book, phase="prefill", input_len=16_384)) == "matrix_peak"


# -- launches ---------------------------------------------------------------------------------------------------------


def test_an_eager_engine_with_slow_launches_is_launch_bound(book: Book) -> None:
    # 388 launches of 20 us are 7.76 ms; the kernels take 4.56 ms
    scenario = scenario_of(book, LLAMA_8B, context_len=2048)
    eager = price(with_launches(scenario, 20e-6), book)
    assert eager.launch_seconds == pytest.approx(388 * 20e-6, rel=1e-12)
    assert eager.engine_seconds == eager.launch_seconds
    assert bound_by(eager) == "launch"
    assert elasticity(eager)["launch"] == 1
    # with captured graphs the same engine is back at the kernels
    replayed = price(with_launches(scenario, 20e-6, graphs=True), book)
    assert replayed.launch_seconds == 0
    assert replayed.engine_seconds == replayed.operation_seconds == eager.operation_seconds
    assert bound_by(replayed) == "memory_bandwidth"


def test_launches_stop_binding_where_they_take_as_long_as_the_kernels(book: Book) -> None:
    eager = price(with_launches(scenario_of(book, LLAMA_8B, context_len=2048), 20e-6), book)
    launch = next(doubling for doubling in doublings(eager) if doubling.property == "launch")
    assert launch.flips_at == pytest.approx(388 * 20e-6 / eager.operation_seconds, rel=1e-9)  # 1.70
    assert launch.flips_to == "memory_bandwidth"
    # twice as fast a launch is beyond that: the kernels are left
    assert launch.step_seconds == pytest.approx(eager.operation_seconds, rel=1e-12)


def test_asking_for_eager_execution_turns_the_graphs_off(book: Book) -> None:
    replayed = with_launches(scenario_of(book, context_len=2048), 20e-6, graphs=True)
    eager = with_launches(scenario_of(book, context_len=2048, enforce_eager=True), 20e-6, graphs=True)
    assert price(replayed, book).launch_seconds == 0
    assert price(eager, book).launch_seconds > 0


def test_host_time_between_steps_has_its_share(book: Book) -> None:
    pricing = price(with_launches(scenario_of(book, context_len=2048), 0.0, host=1e-3), book)
    assert elasticity(pricing)["host"] == pytest.approx(1e-3 / (1e-3 + pricing.operation_seconds), rel=1e-12)
