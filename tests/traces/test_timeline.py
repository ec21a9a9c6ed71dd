"""Where the time of a device went: kinds of work, gaps by cause, communication, graphs and steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flopmap.diagnosis.traces import gaps
from flopmap.diagnosis.traces.profile import Lost, against, lost, shares
from tests.traces.support import (
    ATTENTION,
    GEMM,
    H100,
    NCCL,
    NORM,
    STRANGE,
    chrome,
    events,
    kernel,
    launch,
    mark,
    profile_of,
    run_of,
)

if TYPE_CHECKING:
    from pathlib import Path

MICRO = 1e-6


def micro(seconds: float) -> float:
    """Microseconds, without the rounding of a time of day."""
    return round(seconds / MICRO, 2)


def test_busy_time_is_the_union_over_streams(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, chrome(events()))
    assert micro(profile.wall) == 345  # from 10 to 355
    # 10-30, 32-42, 70-120 (attention to 90 and the collective from 80), 125-135, 335-345, 350-355
    assert micro(profile.busy) == 20 + 10 + 50 + 10 + 10 + 5
    # the sum counts the ten µs that both ran twice
    assert micro(profile.kernel_seconds) == 105 + 10


def test_gaps_are_of_the_host_the_launch_the_collective_or_what_the_trace_does_not_tell(tmp_path: Path) -> None:
    idle = {name: micro(time) for name, time in profile_of(tmp_path, chrome(events())).idle.items()}
    assert idle == {
        "host": 18,  # 42 to 60: the attention's launch was called 18 µs after the norm ended
        "launch": 2 + 10 + 100,  # queued norm; 60 to 70; the first 100 µs of the gap that ends at 335
        "communication": 5,  # 120 to 125: a queued GEMM after the collective
        "waiting": 100,  # 235 to 335: launched at 63, and nothing in the trace held it
        "unknown": 5,  # 345 to 350: no launch of this kernel is known
    }
    profile = profile_of(tmp_path, chrome(events()))
    assert sum(profile.idle.values()) == pytest.approx(profile.wall - profile.busy)


def test_communication_is_exposed_where_nothing_else_runs(tmp_path: Path) -> None:
    talk = profile_of(tmp_path, chrome(events())).communication
    assert (micro(talk.seconds), micro(talk.exposed_seconds), micro(talk.overlapped_seconds)) == (40, 30, 10)


def test_a_collective_that_is_hidden_wholly_is_not_exposed(tmp_path: Path) -> None:
    data = chrome([kernel(GEMM, 0, 100), kernel(NCCL, 20, 30, 20)])
    talk = profile_of(tmp_path, data).communication
    assert (micro(talk.exposed_seconds), micro(talk.overlapped_seconds)) == (0, 30)


def test_times_of_work_are_exact_where_times_of_day_are_rounded(tmp_path: Path) -> None:
    # µs since 1970, as older versions of torch write them: a float holds a quarter of one there
    found = [{**kernel(GEMM, 0, 0.1), "ts": 1_751_410_836_000_000.0 + 100 * index} for index in range(10)]
    assert profile_of(tmp_path, chrome(found)).kernel_seconds == pytest.approx(1e-6)


def test_work_is_summed_by_kind_and_what_is_not_known_is_listed(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, chrome(events()))
    assert {work.id: (micro(work.seconds), work.calls) for work in profile.work} == {
        "matrix": (30, 2),
        "norm": (20, 2),
        "attention": (20, 1),
        "collective": (40, 1),
    }
    (strange,) = [each for each in profile.kernels if each.work is None]
    assert (strange.name, micro(strange.seconds), micro(strange.idle_seconds)) == (STRANGE, 5, 5)
    assert profile.matched == pytest.approx(110 / 115)


def test_idle_time_is_that_before_a_kernel(tmp_path: Path) -> None:
    before = {each.name: micro(each.idle_seconds) for each in profile_of(tmp_path, chrome(events())).kernels}
    # the norms: 30 to 32 and 135 to 335; the second GEMM: 120 to 125
    assert before == {GEMM: 5, NORM: 202, ATTENTION: 28, NCCL: 0, STRANGE: 5}


def test_kernels_of_a_graph_are_counted_by_its_launch(tmp_path: Path) -> None:
    found = [
        launch(0, 50, 1, "cudaGraphLaunch"),
        launch(60, 50, 2, "cudaGraphLaunch"),
        *(kernel(GEMM, start, 5, 7, 1) for start in (10, 20, 30)),
        kernel(NORM, 100, 5, 7, 9),
    ]
    profile = profile_of(tmp_path, chrome(found))
    assert (profile.graphs.launches, profile.graphs.expanded, profile.graphs.kernels) == (2, 1, 3)
    assert micro(profile.idle["launch"]) == 10  # 15 to 20 and 25 to 30: nodes of one launch


def test_of_several_devices_the_busiest_is_told(tmp_path: Path) -> None:
    other = kernel(GEMM, 0, 500)
    other["args"]["device"] = 3
    profile = profile_of(tmp_path, chrome([*events(), other]))
    assert profile.device == "3"
    assert {name: micro(time) for name, time in profile.other_devices.items()} == {"0": 115}


def test_steps_marked_on_the_device_bound_what_is_told(tmp_path: Path) -> None:
    found = [kernel(GEMM, 0, 50), kernel(GEMM, 100, 10), kernel(NORM, 120, 10), kernel(GEMM, 900, 50)]
    marks = [mark("ProfilerStep#6", 0, 140), mark("ProfilerStep#6", 100, 40, device=True)]
    profile = profile_of(tmp_path, chrome([*found, *marks]))
    assert (micro(profile.wall), micro(profile.kernel_seconds)) == (30, 20)
    assert profile.steps is not None
    assert (profile.steps.count, profile.steps.phase) == (1, None)


@pytest.mark.parametrize(
    ("names", "shape"),
    [
        # 32 sequences whose contexts add up to 55086: 1721 each
        (
            ["execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)"],
            (1, "decode", 32, 1721, None, None),
        ),
        # two steps, of 4 and 8 sequences with contexts of 4000 and 20000 in all: 6 sequences, 24000 / 12 = 2000
        (
            [
                "execute_4_context_0(sq0sk0sqsq0sqsk0)_generation_4(sq4sk4000sqsq4sqsk4000)",
                "execute_8_context_0(sq0sk0sqsq0sqsk0)_generation_8(sq8sk20000sqsq8sqsk20000)",
            ],
            (2, "decode", 6, 2000, None, None),
        ),
        (["execute_context_0(0)_generation_16(16)"], (1, "decode", 16, None, None, None)),
        # two prompts with 1000 new tokens, after 200 cached ones
        (
            ["execute_1000_context_2(sq1000sk1200sqsq500000sqsk600000)_generation_0(sq0sk0sqsq0sqsk0)"],
            (1, "prefill", 2, None, 500, 100),
        ),
        (["execute_context_1(512)_generation_7(7)"], (1, None, None, None, None, None)),  # both kinds in one step
        (["step[DECODE bs=32]"], (1, "decode", 32, None, None, None)),
        (["step[EXTEND bs=2]"], (1, "prefill", 2, None, None, 0)),
        (["step[EXTEND bs=16 toks=8192]"], (1, "prefill", 16, None, 512, 0)),  # 8192 / 16
        (["step[IDLE bs=0]"], (1, None, None, None, None, None)),
        (["ProfilerStep#3", "ProfilerStep#4"], (2, None, None, None, None, None)),
        (["ProfilerStep#3", "execute_context_0(0)_generation_9(9)"], (1, "decode", 9, None, None, None)),
        (["execute_context_0(0)_generation_8(8)", "execute_something_new"], (2, None, None, None, None, None)),
    ],
)
def test_the_shape_of_steps_is_in_their_names(
    tmp_path: Path, names: list[str], shape: tuple[int, str | None, int | None, int | None, int | None, int | None]
) -> None:
    marks = [mark(name, index, 1) for index, name in enumerate(names)]
    steps = profile_of(tmp_path, chrome([*events(), *marks])).steps
    assert steps is not None
    found = (steps.count, steps.phase, steps.batch_size, steps.context_len, steps.input_len, steps.cached_len)
    assert found == shape


def test_a_number_of_steps_that_is_given_wins(tmp_path: Path) -> None:
    assert profile_of(tmp_path, chrome(events())).steps is None
    steps = profile_of(tmp_path, chrome(events()), steps=5).steps
    assert steps is not None
    assert steps.count == 5
    run = run_of(tmp_path, chrome(events()), steps=5)
    assert run.get("step_time") == pytest.approx(345 * MICRO / 5)


def test_a_run_knows_the_part_and_how_many_ran(tmp_path: Path) -> None:
    run = run_of(tmp_path, chrome(events(), distributedInfo={"backend": "nccl", "rank": 0, "world_size": 8}))
    assert (run.tool, run.part, run.parts) == ("torch profiler trace", H100, 8)
    assert run_of(tmp_path, chrome(events())).parts is None


def test_time_lost_is_above_the_floor_of_the_work_and_the_idle_time_before(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, chrome(events()), steps=1)
    rows, left = against(profile, {"weight-gemm": 10 * MICRO, "lm-head": 5 * MICRO, "rope": 2 * MICRO})
    matrix = next(row for row in rows if row.work.id == "matrix")
    assert matrix.floor_seconds == pytest.approx(15 * MICRO)
    assert matrix.over == pytest.approx(2)  # 30 µs
    assert left == {"rope": 2 * MICRO}  # no kernel of the trace is for it
    gemm = next(each for each in profile.kernels if each.name == GEMM)
    assert lost(gemm, rows) == pytest.approx(20 * MICRO, rel=1e-3)  # half of 30 µs, and 5 µs idle
    assert lost(gemm, ()) == pytest.approx(35 * MICRO, rel=1e-3)  # without a floor, all


def test_a_step_is_parted_by_cause(tmp_path: Path) -> None:
    parts = shares(profile_of(tmp_path, chrome(events()), steps=1), 25 * MICRO)
    # busy without exposed communication: 105 - 30 = 75 µs, 25 of them the floor; idle as above; 345 in all
    expected = {"floor": 25, "slow kernels": 50, "launch-host": 18 + 112, "interconnect": 30 + 5, "waiting": 100}
    assert {name: round(share * 345, 1) for name, share in parts.items()} == {**expected, "unknown idle": 5}
    assert sum(parts.values()) == pytest.approx(1)


def test_a_row_without_a_floor_has_no_ratio(tmp_path: Path) -> None:
    rows, _ = against(profile_of(tmp_path, chrome(events()), steps=1), {})
    assert all(row == Lost(work=row.work, seconds=row.seconds, floor_seconds=None, over=None) for row in rows)


@pytest.mark.parametrize("piece", [1, 2, 3, 5])
def test_gaps_do_not_depend_on_the_pieces_that_are_walked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    whole = profile_of(tmp_path, chrome(events()))
    monkeypatch.setattr(gaps, "PIECE", piece)
    assert profile_of(tmp_path, chrome(events())) == whole


INTERVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), min_size=1, max_size=30)


@given(INTERVALS, st.integers(1, 7))
def test_what_intervals_cover_is_what_counting_finds(intervals: list[tuple[int, int]], piece: int) -> None:
    ordered = sorted(intervals)
    start = np.array([float(first) for first, _ in ordered])
    end = start + np.array([float(length) for _, length in ordered])
    counted = {at for first, length in ordered for at in range(first, first + length)}
    before = gaps.PIECE
    gaps.PIECE = piece
    try:
        assert gaps.covered(start, end) == len(counted)
    finally:
        gaps.PIECE = before
