"""Whatever the bytes of a trace are, it is read into finite times or refused with the documented error."""

from __future__ import annotations

import io
import json
import math
import sqlite3
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flopmap.diagnosis.errors import ReadingError
from flopmap.diagnosis.traces import chrome, nsys, tables
from flopmap.diagnosis.traces.kernels import Matcher
from flopmap.diagnosis.traces.timeline import profile
from flopmap.records.book import load, to_json
from tests.traces import support
from tests.traces.support import events, mark, table, xla

if TYPE_CHECKING:
    from collections.abc import Callable

    from flopmap.diagnosis.traces.activity import Activities

with TemporaryDirectory() as scratch:
    DATABASE = Path(support.nsys(Path(scratch) / "report.sqlite")).read_bytes()
MATCHER = Matcher(load())
STEPS = [mark("execute_context_0(0)_generation_8(8)", 0, 300), mark("ProfilerStep#1", 20, 300, device=True)]
TRACES = [support.chrome([*events(), *STEPS]), support.chrome(events(), 1), support.chrome(xla())]
TABLES = [table(name) for name in ("rocprof-v3", "rocprof-v1", "rocprof-stats", "ncu-details", "ncu-raw", "nsys-stats")]
ODD = (
    *(
        b"inf",
        b"NaN",
        b"-1",
        b"1e999",
        b"9" * 400,
        b"1e300",
        b"-0.0",
        b"null",
        b"true",
        b'""',
        b"[]",
        b"{}",
        b"\\u0000",
    ),
    *(
        b"\x00",
        b"\xff",
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b",",
        b":",
        b"\\",
        b"\n",
        b"",
        b'},{"ph":"X"',
        b"999999999999999999",
    ),
)
EDITS = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 12), st.sampled_from(ODD)), max_size=5)
TIMES = st.one_of(st.integers(), st.floats(), st.none(), st.text(max_size=3), st.booleans(), st.integers(0, 1000))
WORDS = st.sampled_from(
    (
        "kernel",
        "gpu_memcpy",
        "cuda_runtime",
        "user_annotation",
        "gpu_user_annotation",
        "cudaGraphLaunch",
        "ProfilerStep#1",
    )
)


def check(read: Callable[[], Activities]) -> None:
    """What is read has a profile that is finite, adds up and can be printed; what is not is refused in one line."""
    try:
        found = read()
    except ReadingError as error:
        message = str(error)
    else:
        sound(found)
        return
    assert "\n" not in message


def sound(found: Activities) -> None:
    if not found.start:
        return
    seen = profile(found, MATCHER)
    numbers = (seen.wall, seen.busy, seen.kernel_seconds, *seen.idle.values())
    assert all(math.isfinite(number) and number >= 0 for number in numbers), numbers
    assert seen.busy <= seen.wall * (1 + 1e-9) + 1e-9 or not found.timed
    assert 0 <= seen.matched <= 1 + 1e-9
    assert to_json(seen.kernels)


def edited(data: bytes, edits: list[tuple[float, int, bytes]]) -> bytes:
    for where, length, word in edits:
        at = int(where * len(data))
        data = data[:at] + word + data[at + length :]
    return data


@settings(max_examples=800, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(TRACES), EDITS)
def test_a_spoilt_chrome_trace_is_read_or_refused(data: bytes, edits: list[tuple[float, int, bytes]]) -> None:
    check(lambda: chrome.read(io.BytesIO(edited(data, edits)).read))


@settings(max_examples=400, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {"ph": st.just("X"), "cat": WORDS, "name": WORDS, "ts": TIMES, "dur": TIMES, "pid": TIMES},
            optional={
                "args": st.fixed_dictionaries({}, optional={"correlation": TIMES, "device": TIMES, "name": TIMES})
            },
        ),
        max_size=20,
    )
)
def test_events_of_any_times_are_read_or_refused(found: list[dict[str, Any]]) -> None:
    check(lambda: chrome.read(io.BytesIO(json.dumps({"traceEvents": found}).encode()).read))


@settings(max_examples=800, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(TABLES), EDITS)
def test_a_spoilt_table_is_read_or_refused(data: bytes, edits: list[tuple[float, int, bytes]]) -> None:
    check(lambda: tables.read(io.BytesIO(edited(data, edits)).read))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(EDITS)
def test_a_spoilt_database_is_read_or_refused(edits: list[tuple[float, int, bytes]]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "report.sqlite"
        path.write_bytes(edited(DATABASE, edits))
        check(lambda: nsys.read(str(path)))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            *[st.one_of(st.integers(-(2**63), 2**63 - 1), st.none(), st.text(max_size=5), st.binary(max_size=5))] * 6
        )
    )
)
def test_a_database_with_any_values_is_read_or_refused(rows: list[tuple[Any, ...]]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "report.sqlite"
        database = sqlite3.connect(path)
        columns = "start, end, deviceId, correlationId, demangledName, shortName"
        database.execute("PRAGMA synchronous = OFF")
        database.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({columns})")
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, nameId, correlationId)")
        database.execute("CREATE TABLE StringIds (id, value)")
        database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?)", rows)
        database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?)", [row[:4] for row in rows])
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", [(row[4], "cudaLaunchKernel") for row in rows])
        database.commit()
        database.close()
        check(lambda: nsys.read(str(path)))
