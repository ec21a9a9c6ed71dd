"""A sweep: the points of a plan priced, block by block, and written so that a killed run can go on."""

from __future__ import annotations

import collections
import csv
import functools
import hashlib
import io
import itertools
import os
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from flopmap.choices.axes import changed
from flopmap.choices.plan import CHUNK, SECONDS
from flopmap.floor.grid import HELD, grid_function
from flopmap.floor.roofline import price
from flopmap.floor.summary import utilisation
from flopmap.machine.machine import MachineError
from flopmap.model.config import ConfigError, MissingFileError
from flopmap.quantity import QuantityError
from flopmap.records.book import Book, UnknownRecordError, load
from flopmap.records.formula import FormulaError
from flopmap.scenario import Request, make
from flopmap.step import ScenarioError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Executor, Future
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from flopmap.choices.plan import Plan, Unit

INVALID = (ScenarioError, MachineError, QuantityError, UnknownRecordError, ConfigError, MissingFileError, FormulaError)
TASK = 32  # units that a process prices at a time at most, and no more than fill a chunk
AHEAD = 64  # tasks that may wait for those before them
EVERY_SECONDS = 0.5
SUFFIXES = (".csv", ".jsonl")


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """How far a sweep has come: ``size`` is that of the file up to the last whole unit."""

    plan: str
    units: int = 0
    size: int = 0
    rows: int = 0
    invalid: int = 0
    first: str = ""


class Written(NamedTuple):
    """The rows of some units as text, how many they are, how many of them are invalid, and the first reason."""

    text: str
    units: int
    rows: int
    invalid: int
    first: str


class SweepError(ValueError):
    """A file of a sweep that is in the way, or that is not there to go on with. One line."""


# -- points -----------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4)
def _book(overlays: tuple[str, ...]) -> Book:
    return load(overlays)


@functools.lru_cache(maxsize=4)
def _block(plan: Plan, values: tuple[Any, ...], overlays: tuple[str, ...]) -> Callable[[Unit], dict[str, list[Any]]]:
    """A function from units of a block to their columns. Raises the error of a block without a valid scenario."""
    book = _book(overlays)
    request = Request(model="", on="")
    for (field, _), value in zip(plan.structural, values, strict=True):
        request = changed(request, field, value)
    first = {field: numbers[0] for field, numbers in plan.numeric}
    scenario = make(msgspec.structs.replace(request, **first), book)
    if scenario.phase != "decode" or scenario.speculation or scenario.blocks or scenario.plan or not plan.numeric:
        return lambda unit: _one_by_one(plan, request, unit, book)
    needed = [SECONDS.get(name, name) for name in plan.outputs if name not in ("memory_bytes", "fits")]
    function = grid_function(scenario, book, dict.fromkeys((*needed, *HELD)))
    capacity = scenario.machine.part.capacity_bytes.value
    given = {"batch_size": scenario.batch_size, "context_len": scenario.context_len}

    def arrays(unit: Unit) -> dict[str, list[Any]]:
        columns = _numbers(plan, unit)
        full = {name: columns.get(name, _repeated(number, unit)) for name, number in given.items()}
        found = function(full["batch_size"], full["context_len"])
        held = functools.reduce(lambda one, other: one + other, (found[name] for name in HELD))
        listed = {name: column.tolist() for name, column in found.items()}
        listed |= {"memory_bytes": held.tolist(), "fits": (held <= capacity).tolist()}
        return {name: listed[SECONDS.get(name, name)] for name in plan.outputs}

    return arrays


def _numbers(plan: Plan, unit: Unit) -> dict[str, NDArray[np.float64]]:
    """The values of the numeric fields at the points of a unit; the last field changes fastest."""
    import numpy as np

    places = np.arange(unit.start, unit.stop)
    columns = {}
    for field, values in reversed(plan.numeric):
        places, place = np.divmod(places, len(values))
        columns[field] = np.asarray(values, dtype=float)[place]
    return columns


def _repeated(number: Any, unit: Unit) -> NDArray[np.float64]:
    import numpy as np

    return np.full(unit.stop - unit.start, float(number))


def _one_by_one(plan: Plan, request: Request, unit: Unit, book: Book) -> dict[str, list[Any]]:
    """The columns of a step that is no plain decode, a point at a time; ``error`` says why one is invalid."""
    numbers = {field: column.tolist() for field, column in _numbers(plan, unit).items()}
    columns: dict[str, list[Any]] = {name: [] for name in (*plan.outputs, "error")}
    for place in range(unit.stop - unit.start):
        here = {field: int(column[place]) for field, column in numbers.items()}
        try:
            row = _priced(msgspec.structs.replace(request, **here), book)
        except INVALID as error:
            row = {"error": str(error)}
        for name, column in columns.items():
            column.append(row.get(name))
    return columns


def _priced(request: Request, book: Book) -> dict[str, Any]:
    pricing = price(make(request, book), book)
    held = sum(pricing.totals[name] for name in HELD)
    return {
        **pricing.totals,
        **{name: getattr(pricing, name) for name in SECONDS},
        "tokens_per_second": utilisation(pricing, pricing.engine_seconds, book)["tokens_per_second"],
        "memory_bytes": held,
        "fits": held <= pricing.scenario.machine.part.capacity_bytes.value,
    }


def rows(plan: Plan, unit: Unit, overlays: tuple[str, ...] = ()) -> Iterator[dict[str, Any]]:
    """The rows of a unit: the fields, the outputs, and ``error`` where the scenario is invalid (else empty)."""
    size = unit.stop - unit.start
    fixed = dict(zip((field for field, _ in plan.structural), unit.values, strict=True))
    try:
        columns = _block(plan, unit.values, overlays)(unit)
    except INVALID as error:
        columns = {"error": [str(error)] * size}
    numbers = {field: list(map(int, column.tolist())) for field, column in _numbers(plan, unit).items()}
    empty = [None] * size
    named = {name: numbers.get(name) or columns.get(name, empty) for name in (*plan.outputs, "error")}
    varied = {field: numbers[field] for field, _ in plan.numeric}
    for place in range(size):
        yield {
            **fixed,
            **{field: column[place] for field, column in varied.items()},
            **{name: column[place] for name, column in named.items()},
        }


def priced_text(plan: Plan, units: list[Unit], suffix: str, overlays: tuple[str, ...]) -> Written:
    """The rows of some units as lines of CSV or JSON. (A process of its own may run it.)."""
    out = io.StringIO()
    count, invalid, first = 0, 0, ""
    names = (*plan.fields, *plan.outputs, "error")
    table = csv.DictWriter(out, names, lineterminator="\n")
    for unit in units:
        for row in rows(plan, unit, overlays):
            count += 1
            if row["error"]:
                invalid += 1
                first = first or row["error"]
            if suffix == ".csv":
                table.writerow(row)
            else:
                out.write(msgspec.json.encode(row).decode() + "\n")
    return Written(out.getvalue(), len(units), count, invalid, first)


# -- the run ----------------------------------------------------------------------------------------------------------


def sweep(
    plan: Plan,
    path: Path,
    *,
    executor: Executor | None = None,
    resume: bool = False,
    overlays: tuple[str, ...] = (),
    progress: Callable[[Done], None] = lambda _: None,
) -> Done:
    """Price every point of a plan into a file, in the plan's order.

    How far it has come stands in a file beside (``.progress``), which a finished sweep removes. ``resume`` cuts off
    what was written after it, and goes on from there. Raises :class:`SweepError`.
    """
    beside = path.with_name(f"{path.name}.progress")
    digest = hashlib.sha256(msgspec.json.encode((plan, path.suffix))).hexdigest()
    done = _begun(path, beside, digest) if resume else _fresh(plan, path, beside, digest)
    units = itertools.islice(plan.units(), done.units, None)
    work = functools.partial(priced_text, plan, suffix=path.suffix, overlays=overlays)
    noted = monotonic()
    with path.open("r+b") as file:
        file.truncate(done.size)
        file.seek(done.size)
        for written in _in_order(work, _tasks(units), executor):
            text = written.text.encode()
            file.write(text)
            done = Done(
                plan=digest,
                units=done.units + written.units,
                size=done.size + len(text),
                rows=done.rows + written.rows,
                invalid=done.invalid + written.invalid,
                first=done.first or written.first,
            )
            if monotonic() - noted > EVERY_SECONDS:
                file.flush()
                _note(beside, done)
                progress(done)
                noted = monotonic()
    beside.unlink(missing_ok=True)
    return done


def _tasks(units: Iterable[Unit]) -> Iterator[list[Unit]]:
    """Units in the portions that a process takes."""
    task: list[Unit] = []
    points = 0
    for unit in units:
        task.append(unit)
        points += unit.stop - unit.start
        if len(task) >= TASK or points >= CHUNK:
            yield task
            task, points = [], 0
    if task:
        yield task


def _in_order(
    work: Callable[[list[Unit]], Written], tasks: Iterable[list[Unit]], executor: Executor | None
) -> Iterator[Written]:
    """The results of tasks in their order, with few of them waiting at a time."""
    if executor is None:
        yield from map(work, tasks)
        return
    waiting: collections.deque[Future[Written]] = collections.deque()
    for task in tasks:
        waiting.append(executor.submit(work, task))
        if len(waiting) >= AHEAD:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _fresh(plan: Plan, path: Path, beside: Path, digest: str) -> Done:
    if path.exists() or beside.exists():
        raise SweepError(f"{path}: is there already (accepted: --resume, or another name)")
    head = ",".join((*plan.fields, *plan.outputs, "error")) + "\n" if path.suffix == ".csv" else ""
    path.write_text(head, encoding="utf-8")
    done = Done(plan=digest, size=len(head))
    _note(beside, done)
    return done


def _begun(path: Path, beside: Path, digest: str) -> Done:
    """How far an earlier run has come."""
    try:
        done = msgspec.json.decode(beside.read_bytes(), type=Done)
        size = path.stat().st_size
    except FileNotFoundError:
        raise SweepError(f"{path}: no unfinished sweep to go on with ({beside.name} and it must be there)") from None
    except (msgspec.DecodeError, OSError) as error:
        raise SweepError(f"{beside}: cannot be read: {error}") from None
    if done.plan != digest:
        raise SweepError(f"{path}: was begun with another plan")
    if size < done.size:
        raise SweepError(f"{path}: is shorter than when its progress was noted")
    return done


def _note(beside: Path, done: Done) -> None:
    """Write the progress whole or not at all."""
    new = beside.with_name(f"{beside.name}.new")
    new.write_bytes(msgspec.json.encode(done))
    new.replace(beside)


def workers(wanted: int | None) -> int:
    """How many processes to spread over: those wanted, else one a core that this process may use."""
    if wanted is not None:
        return wanted
    with suppress(AttributeError):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
