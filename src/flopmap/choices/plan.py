"""The plan of a sweep: a YAML file with a grid over the fields of a scenario, and what is wanted of each point."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from flopmap.floor.grid import FLOORS, HELD
from flopmap.ledger.ledger import STEP_RESOURCES
from flopmap.model.config import MissingFileError
from flopmap.records.faults import BookError
from flopmap.records.yaml_file import Faults, File, read_file
from flopmap.scenario import MAX_LENGTH, Request

if TYPE_CHECKING:
    from collections.abc import Iterator

NUMERIC = ("batch_size", "context_len")
SECONDS = {f"{name}_seconds": name for name in FLOORS}
OUTPUTS = (*SECONDS, "tokens_per_second", "memory_bytes", "fits")
ACCEPTED = (*OUTPUTS, *STEP_RESOURCES, *HELD)
RANGE = ({"from", "to", "step"}, {"from", "to", "factor"})
MOST_VALUES = 1_000_000
CHUNK = 65_536


class Unit(NamedTuple):
    """Some points of a block of the grid: the values of its structural fields, and a range of its numeric points."""

    values: tuple[Any, ...]
    start: int
    stop: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A grid: values by field. ``numeric`` fields are evaluated as arrays in each combination of the others."""

    structural: tuple[tuple[str, tuple[Any, ...]], ...]
    numeric: tuple[tuple[str, tuple[int, ...]], ...]
    outputs: tuple[str, ...] = OUTPUTS

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of the grid in the order of the columns."""
        return tuple(name for name, _ in (*self.structural, *self.numeric))

    @property
    def block(self) -> int:
        """Points of a block."""
        return math.prod(len(values) for _, values in self.numeric)

    @property
    def points(self) -> int:
        """Points of the whole grid."""
        return self.block * math.prod(len(values) for _, values in self.structural)

    def units(self) -> Iterator[Unit]:
        """The units of work, always in the same order."""
        for values in itertools.product(*(values for _, values in self.structural)):
            for start in range(0, self.block, CHUNK):
                yield Unit(values, start, min(start + CHUNK, self.block))


def read_plan(path: str) -> Plan:
    """A plan from its file. Raises :class:`BookError` with the line of every fault, or MissingFileError."""
    if not Path(path).is_file():
        raise MissingFileError(f"{path}: no such file")
    try:
        file = read_file(Path(path), path)
    except Faults as error:
        raise BookError(str(error)) from None
    faults = [*_faults(file)]
    if faults:
        raise BookError("\n".join(faults))
    grid = {field: _values(given) for field, given in file.data["grid"].items()}
    outputs = tuple(file.data.get("outputs") or OUTPUTS)
    return Plan(
        structural=tuple((field, values) for field, values in grid.items() if field not in NUMERIC),
        numeric=tuple((field, values) for field, values in grid.items() if field in NUMERIC),
        outputs=outputs,
    )


def _faults(file: File) -> Iterator[str]:
    """What is wrong with a plan, each with its line."""
    data = file.data
    grid = data.get("grid") if isinstance(data, dict) else None
    if not isinstance(grid, dict) or not grid:
        yield str(file.problem((), "a plan has a grid: of fields with their values", "see flopmap sweep --help"))
        return
    for key in data.keys() - {"grid", "outputs"}:
        yield str(file.problem((key,), "no key of a plan", "use grid and outputs"))
    for name in ("model", "on"):
        if name not in grid:
            yield str(file.problem(("grid",), f"{name} is missing", f"add {name}: [...]"))
    for field, given in grid.items():
        if field not in Request.__struct_fields__:
            fix = f"use one of {', '.join(Request.__struct_fields__)}"
            yield str(file.problem(("grid", field), "a scenario has no such field", fix))
        else:
            fault = _fault_of_values(field, given)
            if fault:
                yield str(file.problem(("grid", field), fault))
    outputs = data.get("outputs") or OUTPUTS
    for name in outputs if isinstance(outputs, list | tuple) else [outputs]:
        if name not in ACCEPTED:
            yield str(file.problem(("outputs",), f"no output {name!r}", f"use some of {', '.join(ACCEPTED)}"))


def _fault_of_values(field: str, given: Any) -> str:
    if isinstance(given, dict):
        numbers = all(isinstance(value, int) and not isinstance(value, bool) for value in given.values())
        if set(given) not in RANGE or not numbers:
            return "a range is {from: 1, to: 64, step: 1} or {from: 1, to: 64, factor: 2} in whole numbers"
        if given["from"] < 1 or given.get("step", 1) < 1 or given.get("factor", 2) < 2:  # noqa: PLR2004 - it must grow
            return "a range begins at 1 or later and grows"
    values = _values(given)
    if not values:
        return "no values: the grid is empty"
    if len(values) > MOST_VALUES:
        return f"more than {MOST_VALUES:,} values"
    if len(set(map(repr, values))) < len(values):
        return "a value stands twice"
    whole = all(type(value) is int and 1 <= value <= MAX_LENGTH for value in values)
    if field in NUMERIC and not whole:
        return f"values are whole numbers from 1 to {MAX_LENGTH}"
    return ""


def _values(given: Any) -> tuple[Any, ...]:
    """The values of an axis: of a list, of a range, or the one that is given."""
    if isinstance(given, list):
        return tuple(map(_frozen, given))
    if not isinstance(given, dict):
        return (given,)
    if "step" in given:
        return tuple(itertools.islice(range(given["from"], given["to"] + 1, given["step"]), MOST_VALUES + 1))
    powers = itertools.count()
    found = (given["from"] * given["factor"] ** power for power in powers)
    return tuple(itertools.takewhile(lambda value: value <= given["to"], found))


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
