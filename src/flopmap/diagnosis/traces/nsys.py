"""The SQLite export of Nsight Systems (`nsys export --type sqlite`): kernels, copies, launches and NVTX ranges."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flopmap.diagnosis.errors import ReadingError
from flopmap.diagnosis.traces.activity import Activities
from flopmap.diagnosis.traces.chrome import LAUNCHES, STEP

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TOOL = "Nsight Systems export"
KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
COPIES = {"CUPTI_ACTIVITY_KIND_MEMCPY": "[CUDA memcpy]", "CUPTI_ACTIVITY_KIND_MEMSET": "[CUDA memset]"}
# CUpti_ActivityMemcpyKind
DIRECTIONS = {1: "Host-to-Device", 2: "Device-to-Host", 8: "Device-to-Device", 10: "Peer-to-Peer"}
MOST_STRINGS = 100_000
MOST_PROCESSES = 100_000
CORRELATION_BITS = 40
THREAD_BITS = 24  # a global thread id is the global id of its process and so many bits of its own
WHOLE = "CUDA graph (whole)"
NANO = 1e-3  # microseconds


def read(path: str) -> Activities:
    """The activities of a database. Raises :class:`ReadingError` for one that is damaged or of another program."""
    found = Activities(TOOL)
    try:
        database = sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    except sqlite3.Error as error:
        raise ReadingError(f"a database that cannot be opened: {_line(error)}") from None
    try:
        _read(Database(database), found)
    except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:
        raise ReadingError(f"a database that is damaged: {_line(error)}") from None
    finally:
        database.close()
    if not found.start:
        raise ReadingError(f"no activity of a GPU in {KERNELS}: record with --trace=cuda")
    return found


def _line(error: Exception) -> str:
    """What SQLite says, which may quote a schema of many lines."""
    return " ".join(str(error).split())[:200]


class Database:
    """A database, its tables and their columns; a column that is not there reads as NULL."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        self.tables = {name for (name,) in tables}

    def rows(self, table: str, *columns: str, where: str = "") -> Iterator[tuple[Any, ...]]:
        """The rows of a table, none where there is no such table."""
        if table not in self.tables:
            return
        there = {row[1] for row in self._database.execute(f"PRAGMA table_info({table})")}
        wanted = ", ".join(f'"{column}"' if column in there else "NULL" for column in columns)
        yield from self._database.execute(f"SELECT {wanted} FROM {table} {where}")  # noqa: S608 - names of ours

    def first(self, table: str, column: str) -> Any:
        """A column of the first row, or None."""
        return next(self.rows(table, column, where="LIMIT 1"), (None,))[0]


def _read(database: Database, found: Activities) -> None:
    if not database.tables & {KERNELS, GRAPHS, *COPIES}:
        raise ReadingError(f"a SQLite database without {KERNELS}: export it with nsys export --type sqlite")
    names, processes = Strings(database), Processes()
    columns = ("start", "end", "deviceId", "correlationId", "globalPid")
    for *row, long, short in database.rows(KERNELS, *columns, "demangledName", "shortName"):
        _add(found, names.get(short if long is None else long), row, processes)
    for table, what in COPIES.items():
        for *row, kind in database.rows(table, *columns, "copyKind"):
            _add(found, f"{what[:-1]} {DIRECTIONS[kind]}]" if kind in DIRECTIONS else what, row, processes)
    for whole in database.rows(GRAPHS, *columns):
        _add(found, WHOLE, whole, processes)
        found.whole_graphs += 1
    calls: dict[Any, str] = {}
    for start, end, name, correlation, thread in database.rows(
        RUNTIME, "start", "end", "nameId", "correlationId", "globalTid"
    ):
        if name not in calls:
            calls[name] = names.get(name)
        if LAUNCHES.search(calls[name]) and isinstance(start, int) and isinstance(end, int):
            number = processes.number(correlation, thread)
            found.launched(calls[name], start * NANO, (end - start) * NANO, number)
    for start, end, text, text_id in database.rows("NVTX_EVENTS", "start", "end", "text", "textId"):
        name = text if isinstance(text, str) else names.get(text_id)
        if STEP.match(name) and isinstance(start, int) and isinstance(end, int):
            found.step(name, start * NANO, (end - start) * NANO, on_device=False)
    part = database.first("TARGET_INFO_GPU", "name")
    found.part = part if isinstance(part, str) and part.strip() else None


def _add(found: Activities, name: str, row: Sequence[Any], processes: Processes) -> None:
    """An activity from its start, end, device, correlation and process."""
    start, end, device, correlation, process = row
    if isinstance(start, int) and isinstance(end, int):
        device = 0 if device is None else device
        found.add(name, start * NANO, (end - start) * NANO, device, processes.number(correlation, process))
    else:
        found.unreadable += 1


class Processes:
    """Correlations count from 1 in each process, so a process has its own range of numbers here."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def number(self, correlation: Any, process: Any) -> int | None:
        """A number of this correlation and the process of this global process or thread id; None for what is none."""
        if not isinstance(correlation, int) or not 0 <= correlation < 1 << CORRELATION_BITS:
            return None
        known = process >> THREAD_BITS if isinstance(process, int) else 0
        if len(self._numbers) < MOST_PROCESSES:
            self._numbers.setdefault(known, len(self._numbers))
        at = self._numbers.get(known)
        return None if at is None else (at << CORRELATION_BITS) + correlation


class Strings:
    """``StringIds``, looked up one by one: only names of kernels and calls are wanted of them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[int, str] = {}

    def get(self, number: Any) -> str:
        """The text of an id; the id itself where it has none."""
        if not isinstance(number, int):
            return str(number)[:200]
        if number not in self._known:
            found = next(self._database.rows("StringIds", "value", where=f"WHERE id = {number:d}"), (None,))[0]
            text = found if isinstance(found, str) else f"string {number}"
            if len(self._known) >= MOST_STRINGS:
                return text
            self._known[number] = text
        return self._known[number]
