"""Traces that are damaged, cut off, hostile or huge: bounded, and an error that names the place."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tracemalloc
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from flopmap.diagnosis.errors import ReadingError
from flopmap.diagnosis.traces import activity, chrome, stream
from flopmap.diagnosis.traces.read import read_trace
from flopmap.records.book import load
from tests.cli.support import flopmap
from tests.traces import support
from tests.traces.support import (
    BASE,
    GEMM,
    events,
    kernel,
    launch,
    profile_of,
    run_of,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def reader(data: bytes, most: int = 10**9) -> Callable[[int], bytes]:
    """Reads from bytes, at most so many at a time."""
    pieces = iter(range(0, len(data), most))
    if most == 10**9:
        pieces = iter([0])
    return lambda _size: data[at : at + most] if (at := next(pieces, None)) is not None else b""


def taken(data: bytes, most: int) -> list[dict[str, Any]]:
    """The events of a trace that comes in pieces of at most so many bytes, without what is not said of them."""
    chunks = list(stream.Events(reader(data, most)))
    return [
        {name: value for name, value in msgspec.to_builtins(event).items() if value is not None}
        for chunk in chunks
        for event in chunk
    ]


HOSTILE: list[dict[str, Any]] = [
    *events(),
    {
        "ph": "X",
        "name": '}, {"ph": "X"',
        "args": {"name": "},{", "list": [{"ph": "X"}, {"ph": ["}, {"]}], "a": {"b": {}}},
    },
    {"ph": "X", "name": 'back\\slash\\" }, {', "args": {}},
    {"ph": "X", "name": "ünïcode ☃ \u0000", "args": {"x": [[], [{}], {}]}},
    {},
    {"name": "last", "args": {"deep": [[[[{"a": [{}, {}]}]]]]}},
]


@pytest.mark.parametrize("most", [1, 2, 3, 7, 16, 61, 257, 1021, 10**9])
@pytest.mark.parametrize("indent", [None, 1])
def test_events_are_the_same_wherever_a_block_ends(most: int, indent: int | None) -> None:
    data = support.chrome(HOSTILE, indent)
    wanted = [
        {
            name: (
                {key: item for key, item in value.items() if key in stream.Args.__struct_fields__}
                if name == "args"
                else value
            )
            for name, value in event.items()
            if name in stream.Event.__struct_fields__ and value is not None
        }
        for event in HOSTILE
    ]
    for event in wanted:
        if "args" in event:
            event["args"] = dict.fromkeys(stream.Args.__struct_fields__) | event["args"]
    assert taken(data, most) == wanted


def test_properties_are_read_at_both_ends() -> None:
    found = stream.Events(reader(support.chrome(events())))
    assert sum(len(chunk) for chunk in found) == len(events())
    assert [each.device_properties for each in found.properties] == [[{"id": 0, "name": "NVIDIA H100 80GB HBM3"}], None]


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.99])
def test_a_trace_that_is_cut_off_says_after_which_event(tmp_path: Path, share: float) -> None:
    data = support.chrome(events())
    data = data[: int(len(data) * share)]
    whole = data[data.index(b"[{") :].count(b'"ph"') - 1
    with pytest.raises(ReadingError, match=r"cut off|damaged") as caught:
        run_of(tmp_path, data)
    message = str(caught.value)
    if "cut off" in message:
        assert f"after event {min(whole, len(events())):,}, byte {len(data):,} of the unpacked trace" in message


def test_a_packed_trace_that_is_cut_off_or_damaged(tmp_path: Path) -> None:
    # random ids, so that it does not pack into one block
    packed = gzip.compress(
        support.chrome([kernel(GEMM, index * 7919 % 10007, 1, 7, index) for index in range(3000)]), mtime=0
    )
    path = tmp_path / "trace.json.gz"
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(ReadingError, match="a gzip file that is cut off"):
        read_trace(str(path), load())
    path.write_bytes(packed[: len(packed) // 2] + b"\xff" * 100 + packed[len(packed) // 2 + 100 :])
    with pytest.raises(ReadingError, match=r"damaged|none|cut off"):
        read_trace(str(path), load())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"traceEvents": [], "deviceProperties": []}', "without any activity of a GPU"),
        (b'{"traceEvents": [{"ph": "X", "dur": }]}', r"damaged: .*byte 36"),
        (b'{"traceEvents": [{"ph": NaN}]}', "damaged"),
        (b'{"traceEvents": [1, 2]}', "an event that is none|damaged"),
        (b'{"traceEvents": [{"ph": "X", "args": [1]}]}', "an event that is none|damaged"),
        (b'{"traceEvents": [{"ph": "X"}', "cut off"),
        (b'{"traceEvents": [{"ph": "X"}]', "cut off"),
        (b'{"traceEvents": [{"ph": "X"}]} tail', "damaged beside the events"),
        (b'{"a": }, "traceEvents": [{"ph": "X"}]}', "damaged beside the events"),
        (b'{"traceEvents": {"ph": 1}}', "no traceEvents"),
        (b'{"traceEvents": [{"ph": "X", "args": {"a":' + b"[" * 600 + b"]" * 600 + b"}}]}", "nested too deeply"),
        (b'[{"ph": "X", "name": "\xff\xfe"}]', "damaged"),
    ],
)
def test_wrong_json_names_the_place(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(ReadingError, match=message) as caught:
        run_of(tmp_path, data)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_the_command_names_the_file_and_fails_with_one_line(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(support.chrome(events())[:-200])
    answer = flopmap("diagnose", str(path))
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith(f"flopmap diagnose: error: {path}: cut off (after event ")
    assert answer.err.count("\n") == 1


def test_negative_and_missing_times_are_left_out_and_said(tmp_path: Path) -> None:
    odd = [{**kernel(GEMM, 5, 5), "dur": -3}, {**kernel(GEMM, 5, 5), "dur": None}, {**kernel(GEMM, 5, 5), "ts": "now"}]
    odd += [kernel(GEMM, 1, 0), {**kernel(GEMM, 5, 5), "name": 5}]
    run = run_of(tmp_path, support.chrome([*events(), *odd]))
    assert run.profile == profile_of(tmp_path, support.chrome(events()))
    assert run.notes == (
        "1 events have a negative duration and are left out",
        "1 events have no length and are left out",
        "3 events have no number for a time and are left out",
    )


def test_a_trace_of_negative_durations_only(tmp_path: Path) -> None:
    with pytest.raises(ReadingError, match=r"without any activity .* \(1 have a negative duration\)"):
        run_of(tmp_path, support.chrome([{**kernel(GEMM, 5, 5), "dur": -3}]))


def test_times_that_are_no_times_do_not_upset_the_columns(tmp_path: Path) -> None:
    odd = [{**kernel(GEMM, 5, 5), "ts": 10**400}, {**kernel(GEMM, 5, 5), "dur": True}, kernel(GEMM, 9, 1, 7, 2**70)]
    text = support.chrome([*events(), *odd, launch(0, 1, 2**70)])
    profile = profile_of(tmp_path, text)
    assert profile.activities == 8  # the last is a kernel whose launch cannot be known


def test_more_than_can_be_held_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity, "MOST_ACTIVITIES", 5)
    with pytest.raises(ReadingError, match=r"more than 5 (activities of a device|launches): profile fewer steps"):
        run_of(tmp_path, support.chrome(events()))
    monkeypatch.undo()
    monkeypatch.setattr(activity, "MOST_NAMES", 2)
    with pytest.raises(ReadingError, match="more than 2 names of kernels"):
        run_of(tmp_path, support.chrome(events()))
    monkeypatch.undo()
    monkeypatch.setattr(stream, "LARGEST_TRACE", 10)
    with pytest.raises(ReadingError, match="unpacks to more than"):
        run_of(tmp_path, support.chrome([kernel(GEMM, index, 1) for index in range(20_000)]), "trace.json.gz")


def test_an_event_without_an_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "LARGEST_EVENT", 10_000)
    for filler in (
        b'{"ph": "X", "name": "' + b"a" * 50_000,
        b" " * 50_000,
        b'{"ph": "X", "args": {"a": [' + b"{}," * 20_000,
    ):
        with pytest.raises(ReadingError, match="no end of an event within"):
            run_of(tmp_path, b'{"traceEvents": [' + filler)


def test_a_gzip_bomb_costs_no_memory(tmp_path: Path) -> None:
    # 37 MB of events of no length in less than 200 kB
    bomb = b'{"traceEvents": [' + b'{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 0},' * 600_000
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(bomb, 6, mtime=0))
    assert path.stat().st_size < 200_000
    del bomb
    book = load()
    tracemalloc.start()
    try:
        with pytest.raises(ReadingError, match=r"cut off \(after event 600,000, byte "):
            read_trace(str(path), book)
        assert tracemalloc.get_traced_memory()[1] < 15e6  # blocks of 1 MiB with their events
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_what_is_not_kept() -> None:
    def endless(events_left: int) -> Iterator[bytes]:
        yield b'{"traceEvents": ['
        block = (
            b'{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1.5, "dur": 2, "args": {"a": [1, 2]}},\n' * 5000
        )
        for _ in range(events_left // 5000):
            yield block
        yield json.dumps(kernel(GEMM, 0, 1)).encode() + b"]}"

    peaks = []
    for count in (50_000, 200_000):
        pieces = endless(count)
        tracemalloc.start()
        found = chrome.read(lambda _size, pieces=pieces: next(pieces, b""))  # type: ignore[misc]
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert list(found.start) == [BASE]
    assert peaks[1] < 1.2 * peaks[0]


@pytest.mark.parametrize("name", ["ncu-details", "rocprof-v3"])
def test_tables_that_are_cut_off_keep_their_whole_rows(tmp_path: Path, name: str) -> None:
    profile = profile_of(tmp_path, table(name)[:-20], "table.csv")
    assert profile.activities == 1


def test_a_table_whose_quote_never_ends_is_refused(tmp_path: Path) -> None:
    text = table("rocprof-v3") + b'"KERNEL_DISPATCH,' + b"x" * 200_000
    with pytest.raises(ReadingError, match="line 4: field larger than field limit"):
        run_of(tmp_path, text, "table.csv")


def test_numpy_and_sqlite_are_read_for_traces_only(tmp_path: Path) -> None:
    path = tmp_path / "results.txt"
    path.write_text(
        "llama_print_timings: eval time = 100.00 ms / 10 runs (10.00 ms per token, 100.00 tokens per second)\n"
    )
    script = "import sys; from flopmap.cli.main import main; main(['diagnose', sys.argv[1], '--json']); "
    script += "print(*{'numpy', 'sqlite3', 'gzip', 'csv'} & set(sys.modules), file=sys.stderr)"
    process = subprocess.run((sys.executable, "-c", script, str(path)), capture_output=True, text=True, check=True)
    assert "numpy" not in process.stderr
    assert "sqlite3" not in process.stderr
