"""Each format of a trace gives the same activities in microseconds, whatever its own units and tables are."""

from __future__ import annotations

import io
import sqlite3
import sys
from typing import TYPE_CHECKING, Any

import pytest

from flopmap.diagnosis.errors import ReadingError
from flopmap.diagnosis.traces.read import read_trace
from flopmap.records.book import load
from tests.traces.support import (
    GEMM,
    H100,
    chrome,
    events,
    kernel,
    nsys,
    profile_of,
    run_of,
    table,
    xla,
)

if TYPE_CHECKING:
    from pathlib import Path


def micro(seconds: float) -> float:
    return round(seconds * 1e6, 2)


def test_an_export_of_nsight_systems_is_the_same_timeline(tmp_path: Path) -> None:
    run = read_trace(nsys(tmp_path / "report.sqlite"), load())
    assert run is not None
    profile = run.profile
    assert profile is not None
    assert (run.tool, run.part) == ("Nsight Systems export", H100)
    # as the Chrome trace, and a copy of 10 µs at once after it, whose launch is not in the trace
    assert (micro(profile.wall), micro(profile.busy)) == (355, 115)
    assert {name: micro(time) for name, time in profile.idle.items()} == {
        "host": 18,
        "launch": 112,
        "communication": 5,
        "waiting": 100,
        "unknown": 5,
    }
    assert {work.id: micro(work.seconds) for work in profile.work}["copy"] == 10
    assert next(each.name for each in profile.kernels if each.work == "copy") == "[CUDA memcpy Device-to-Host]"
    assert (run.phase, run.batch_size) == ("decode", 8)  # the NVTX range of vLLM


def test_correlations_are_of_their_process(tmp_path: Path) -> None:
    path = nsys(tmp_path / "report.sqlite")
    database = sqlite3.connect(path)
    # a second rank on another device, whose launches have the same numbers and came a millisecond later
    other = "SELECT start + 1000000, end + 1000000"
    for kind, rest in (
        ("CUPTI_ACTIVITY_KIND_KERNEL", "1, 1, streamId, correlationId, globalPid + (1 << 24), demangledName, 0, NULL"),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "0, globalTid + (1 << 24), correlationId, nameId"),
    ):
        database.execute(f"INSERT INTO {kind} {other}, {rest} FROM {kind}")
    database.commit()
    database.close()
    run = read_trace(path, load())
    assert run is not None
    assert run.profile is not None
    assert run.profile.device == "0"  # the first has a copy, and so a little more time
    assert {name: micro(time) for name, time in run.profile.idle.items()}["host"] == 18
    assert {name: micro(time) for name, time in run.profile.other_devices.items()} == {"1": 115}


def test_graphs_that_nsys_recorded_whole_are_time_without_kernels(tmp_path: Path) -> None:
    run = read_trace(nsys(tmp_path / "report.sqlite", node=False), load())
    assert run is not None
    assert run.profile is not None
    assert run.notes == (
        "1 launches of graphs are recorded without their kernels: record again with --cuda-graph-trace=node",
    )
    (whole,) = [each for each in run.profile.kernels if each.name == "CUDA graph (whole)"]
    assert (micro(whole.seconds), whole.work) == (100, None)
    assert (run.profile.graphs.launches, run.profile.graphs.expanded) == (1, 0)


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE people (name TEXT)")
    database.commit()
    database.close()
    with pytest.raises(ReadingError, match="a SQLite database without CUPTI_ACTIVITY_KIND_KERNEL"):
        read_trace(str(path), load())


def test_a_database_without_rows_or_columns_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.sqlite"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER)")
    database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1)")
    database.commit()
    database.close()
    with pytest.raises(ReadingError, match="no activity of a GPU"):
        read_trace(str(path), load())


def test_a_damaged_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "report.sqlite"
    nsys(path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(ReadingError, match="a database that is damaged"):
        read_trace(str(path), load())


def test_a_database_is_read_by_its_path_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nsys(tmp_path / "report.sqlite")
    data = (tmp_path / "report.sqlite").read_bytes()

    class Stdin:
        buffer = io.BytesIO(data)

    monkeypatch.setattr(sys, "stdin", Stdin)
    with pytest.raises(ReadingError, match="give it by its path"):
        read_trace("-", load())
    with pytest.raises(ReadingError, match="give it by its path, unpacked"):
        run_of(tmp_path, data, "report.sqlite.gz")


def test_a_trace_of_rocprof_has_gaps_whose_cause_it_does_not_tell(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, table("rocprof-v3"), "kernel_trace.csv")
    # 20 µs, a gap of 5, 10 µs; exact though the times are those of an epoch in nanoseconds
    assert profile.wall == pytest.approx(35e-6, rel=1e-9)
    assert {name: micro(time) for name, time in profile.idle.items() if time} == {"unknown": 5}
    assert [(work.id, micro(work.seconds)) for work in profile.work] == [("matrix", 20), ("attention", 10)]


def test_a_trace_of_the_first_rocprof(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, table("rocprof-v1").replace(b"\n", b"\r\n"), "results.csv")
    assert (micro(profile.wall), micro(profile.busy)) == (35, 30)  # from 2 to 37, without 22 to 27
    assert [(work.id, micro(work.seconds)) for work in profile.work] == [("matrix", 20), ("copy", 10)]


def test_statistics_of_rocprof_have_calls_and_no_gaps(tmp_path: Path) -> None:
    run = run_of(tmp_path, table("rocprof-stats"), "results.stats.csv")
    assert run.profile is not None
    assert run.profile.wall == 0
    assert run.notes == ("durations only: the time between kernels is not in it",)
    assert [(work.id, work.calls, micro(work.seconds)) for work in run.profile.work] == [("matrix", 36, 720)]
    assert run.profile.matched == pytest.approx(0.72)
    assert run.get("calls") == 40


def test_statistics_of_nsight_systems_have_calls_and_no_gaps(tmp_path: Path) -> None:
    run = run_of(tmp_path, table("nsys-stats"), "stats.csv")
    assert run.profile is not None
    assert (run.tool, run.profile.wall) == ("Nsight Systems statistics", 0)
    found = [(work.id, work.calls, micro(work.seconds)) for work in run.profile.work]
    assert found == [("matrix", 36, 720), ("attention", 4, 280)]


def test_details_of_nsight_compute_are_durations_in_their_own_units(tmp_path: Path) -> None:
    run = run_of(tmp_path, table("ncu-details"), "details.csv")
    assert run.profile is not None
    assert run.tool == "Nsight Compute"
    # 4.50 microseconds; 13,500 nanoseconds with a separator of thousands
    assert [(work.id, micro(work.seconds)) for work in run.profile.work] == [("matrix", 13.5), ("norm", 4.5)]
    assert any("slower than in a real step" in note for note in run.notes)


def test_a_raw_page_of_nsight_compute_has_its_units_in_the_second_row(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, table("ncu-raw"), "raw.csv")
    assert [(work.id, micro(work.seconds)) for work in profile.work] == [("attention", 18)]


def test_nsight_compute_without_durations_is_read_for_what_it_is(tmp_path: Path) -> None:
    run = run_of(tmp_path, table("ncu-untimed"), "some.csv")
    assert run.profile is None
    assert run.notes == ("an export without the Duration of its kernels: collect --section SpeedOfLight, too",)


def test_an_xla_trace_is_the_ops_of_its_device(tmp_path: Path) -> None:
    run = run_of(tmp_path, chrome(xla()), "trace.json.gz")
    assert run.profile is not None
    assert (run.tool, run.profile.device) == ("JAX/XLA trace", "/device:TPU:0")
    # not the loop around them, not the module, not the host
    assert [(work.id, micro(work.seconds)) for work in run.profile.work] == [
        ("matrix", 40),
        ("collective", 20),
        ("elementwise", 20),
    ]
    assert micro(run.profile.wall) == 90
    assert {name: micro(time) for name, time in run.profile.idle.items() if time} == {"unknown": 10}
    assert run.profile.steps is not None
    assert run.profile.steps.count == 1


def test_an_xla_trace_of_a_gpu_has_streams(tmp_path: Path) -> None:
    names = [("process_name", 0, "/device:GPU:0"), ("thread_name", 13, "Stream #13(Compute)")]
    found: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "tid": tid, "name": what, "args": {"name": name}} for what, tid, name in names
    ]
    found.append({"ph": "X", "pid": 1, "tid": 13, "name": "gemm_fusion_dot_12", "ts": 1, "dur": 7, "args": {}})
    profile = profile_of(tmp_path, chrome(found))
    assert [(work.id, micro(work.seconds)) for work in profile.work] == [("matrix", 7)]


def test_a_trace_that_names_no_device_is_of_one(tmp_path: Path) -> None:
    found = [{"cat": "kernel", "name": GEMM, "ts": start, "dur": 5} for start in (0, 10)]
    assert micro(profile_of(tmp_path, chrome(found)).busy) == 10


def test_categories_of_older_torch_versions(tmp_path: Path) -> None:
    found = [
        {**event, "cat": {"kernel": "Kernel", "cuda_runtime": "Runtime"}.get(str(event.get("cat")), "Operator")}
        for event in events()
    ]
    assert micro(profile_of(tmp_path, chrome(found)).busy) == 105


@pytest.mark.parametrize("indent", [None, 0, 2])
def test_layout_and_the_order_of_keys_do_not_matter(tmp_path: Path, indent: int | None) -> None:
    turned = [dict(reversed(event.items())) for event in events()]
    assert profile_of(tmp_path, chrome(turned, indent)) == profile_of(tmp_path, chrome(events()))


def test_an_array_without_an_object_around_it_is_a_trace(tmp_path: Path) -> None:
    data = chrome(events())
    array = data[data.index(b'"traceEvents": ') + 15 : data.rindex(b', "traceName"')]
    assert array.startswith(b"[")
    profile = profile_of(tmp_path, b"\xef\xbb\xbf " + array)
    assert micro(profile.busy) == 105


def test_packed_and_plain_are_the_same(tmp_path: Path) -> None:
    data = chrome(events())
    assert run_of(tmp_path, data, "trace.json.gz") == run_of(tmp_path, data)


def test_a_trace_on_stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = chrome([kernel(GEMM, 0, 10)])

    class Stdin:
        buffer = io.BufferedReader(io.BytesIO(data))

    monkeypatch.setattr(sys, "stdin", Stdin)
    run = read_trace("-", load())
    assert run == run_of(tmp_path, data)


@pytest.mark.parametrize(
    "text", [b"", b"hello", b'{"a": 1}', b"[1, 2]", b"Name,Calls\n", b"\x1f\x8b", b"Kernel_Name\n"]
)
def test_what_is_no_trace_is_left_to_the_others(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "file").write_bytes(text)
    assert read_trace(str(tmp_path / "file"), load()) is None
