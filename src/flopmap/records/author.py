"""The book as people write it: YAML 1.2 files, with the place of every value kept for error messages.

Only authors pay for this: `flopmap check`, the build of the wheel, and commands that are given `--book DIR`.
"""

from __future__ import annotations

import contextlib
import difflib
import re
import time
import typing
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from flopmap.records.faults import BookError, MissingBookError
from flopmap.records.kinds import AUTHORED, KINDS
from flopmap.records.types import Convention, Glossary
from flopmap.records.yaml_file import Faults, File, Path_, Problem, read_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Source(NamedTuple):
    """The files of a book: base and overlays. ``records[kind][id]`` is the file that defines that record."""

    records: dict[str, dict[str, File]]
    singles: dict[str, File]


def read(folders: tuple[Path, ...], without: tuple[str, ...] = ()) -> Source:
    """Every file of the folders, later ones over earlier ones, without those of some kinds.

    Raises :class:`Faults` with all that cannot be read.
    """
    records: dict[str, dict[str, File]] = {kind: {} for kind in KINDS}
    singles: dict[str, File] = {}
    problems: list[Problem] = []
    for number, folder in enumerate(folders):
        for path in sorted((*folder.rglob("*.yaml"), *folder.rglob("*.yml"))):
            relative = path.relative_to(folder)
            if relative.parts[0] in without:
                continue
            name = relative.as_posix() if number == 0 else path.as_posix()
            if path.suffix == ".yml":
                fix = f"rename it to {path.stem}.yaml"
                problems.append(Problem(name, 1, 1, "", "a record's file ends in .yaml", fix))
                continue
            try:
                _place(relative.with_suffix("").as_posix(), read_file(path, name), records, singles)
            except Faults as faults:
                problems += faults.problems
    if problems:
        raise Faults(problems)
    return Source(records, singles)


def _place(place: str, file: File, records: dict[str, dict[str, File]], singles: dict[str, File]) -> None:
    kind, _, record_id = place.partition("/")
    if place in ("symbols", "conventions"):
        singles[place] = _over(singles.get(place), file)
    elif kind in KINDS and record_id:
        records[kind][record_id] = file
    else:
        raise Faults(
            [
                file.problem(
                    (), f"no kind of record is kept at {place}.yaml", f"put it in a folder of {', '.join(KINDS)}"
                )
            ]
        )


def _over(below: File | None, file: File) -> File:
    """An overlay's symbols or conventions beside the book's own."""
    if below is None or not isinstance(file.data, dict):
        return file
    data = _merge(below.data, file.data)
    added = file.data.get("counts")
    if isinstance(added, list) and isinstance(below.data, dict):
        data["counts"] = [*below.data.get("counts", ()), *added]
    return file._replace(data=data, below=below)


def _merge(base: Any, over: Any) -> Any:
    """Tables are merged, everything else (lists too) is replaced."""
    if isinstance(base, dict) and isinstance(over, dict):
        return {**base, **{key: _merge(base.get(key), value) for key, value in over.items()}}
    return over


def resolve(source: Source) -> dict[str, dict[str, Any]]:
    """The data of every record with ``extends`` carried out and its id put in. Raises :class:`Faults`."""
    problems: list[Problem] = []
    resolved: dict[str, dict[str, Any]] = {kind: {} for kind in source.records}
    for kind, record_id, file in entries(source):
        try:
            resolved[kind][record_id] = _extended(source, kind, record_id, ()) | {"id": record_id}
        except Faults as faults:
            problems += faults.problems
        if isinstance(file.data, dict) and "id" in file.data:
            problems.append(file.problem(("id",), "a record's id is its path", "delete this line"))
    if problems:
        raise Faults(problems)
    return resolved


def entries(source: Source) -> Iterator[tuple[str, str, File]]:
    """Kind, id and file of every record."""
    for kind, files in source.records.items():
        for record_id, file in files.items():
            yield kind, record_id, file


def _extended(source: Source, kind: str, record_id: str, chain: tuple[str, ...]) -> dict[str, Any]:
    file = source.records[kind][record_id]
    if not isinstance(file.data, dict):
        raise Faults([file.problem((), "a record is a mapping of fields")])
    if "extends" not in file.data:
        return dict(file.data)
    base = file.data["extends"]
    if not isinstance(base, str):
        raise Faults([file.problem(("extends",), "names one record by its id", f"name one of the {kind}")])
    if base in (*chain, record_id):
        circle = " -> ".join((*chain, record_id, base))
        raise Faults([file.problem(("extends",), f"a circle of extends: {circle}", "let one of them stand alone")])
    if base not in source.records[kind]:
        close = difflib.get_close_matches(base, source.records[kind], n=1)
        fix = f"use {close[0]}" if close else f"name one of the {kind}"
        raise Faults([file.problem(("extends",), f"no {kind} record {base!r}", fix)])
    below = _extended(source, kind, base, (*chain, record_id))
    below.pop("aliases", None)
    own = {key: value for key, value in file.data.items() if key != "extends"}
    return _merge(below, own)  # type: ignore[no-any-return]


def validate(source: Source, resolved: dict[str, dict[str, Any]]) -> list[Problem]:
    """The first fault of each record against its type, located in its file."""
    problems = []
    for kind, record_id, file in entries(source):
        fault = _fault(resolved[kind][record_id], KINDS[kind])
        if fault:
            problems.append(file.problem(*fault))
    for name, of in (("symbols", Glossary), ("conventions", dict[str, Convention])):
        fault = _fault(source.singles[name].data, of) if name in source.singles else None
        if fault:
            problems.append(source.singles[name].problem(*fault))
    return problems


def _fault(data: Any, of: Any) -> tuple[Path_, str, str] | None:
    """Path, message and fix of the first place where data do not fit a type."""
    try:
        msgspec.convert(data, of, strict=True)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        path: Path_ = ()
        for key, index in re.findall(r"\.([^.\[\]`]+)|\[(\d+|\.\.\.)\]", place):
            path = (*path, _culprit(data, path, of, str(error)) if index == "..." else int(index) if index else key)
        unknown = re.search(r"unknown field `(.+)`", message)
        if unknown:
            return (*path, unknown[1]), message, f"fields here: {_fields(of, path)}"
        return path, message, _accepted(of, path) if "enum" in message else ""
    return None


def _culprit(data: Any, path: Path_, of: Any, message: str) -> str:
    """The key of a table whose value is at fault: the checker says only that it is one of them."""
    table = data
    for step in path:
        table = table[step]
    for key in table:
        alone = _with(data, path, {key: table[key]})
        try:
            msgspec.convert(alone, of, strict=True)
        except msgspec.ValidationError as error:
            if str(error) == message:
                return str(key)
    return "..."


def _with(data: Any, path: Path_, value: Any) -> Any:
    """A copy of the data with the value at the path put in."""
    if not path:
        return value
    if isinstance(data, dict):
        return {**data, path[0]: _with(data[path[0]], path[1:], value)}
    return [_with(item, path[1:], value) if index == path[0] else item for index, item in enumerate(data)]


def _accepted(of: Any, path: Path_) -> str:
    """The words that a field accepts."""
    for step in path:
        of = _inside(of, step)
    return f"use one of {', '.join(map(str, typing.get_args(of)))}"


def _fields(of: Any, path: Path_) -> str:
    """The fields that the type accepts at a path."""
    for step in path:
        of = _inside(of, step)
    options = (of, *typing.get_args(of))
    names = {name for option in options for name in getattr(option, "__struct_fields__", ())}
    return ", ".join(sorted(names - {"id"})) or "none"


def _inside(of: Any, step: str | int) -> Any:
    """The type of what lies at one step of a path: a field, a table's value, a list's item."""
    if typing.get_origin(of) in (dict, tuple):
        return next(option for option in reversed(typing.get_args(of)) if option is not Ellipsis)
    structs = [option for option in (of, *typing.get_args(of)) if hasattr(option, "__struct_fields__")]
    return typing.get_type_hints(structs[0]).get(str(step)) if structs else None


def aliases(resolved: dict[str, dict[str, Any]], source: Source) -> tuple[dict[str, dict[str, str]], list[Problem]]:
    """Each kind's lower-case names and the record each belongs to, and the names that two records claim."""
    table: dict[str, dict[str, str]] = {}
    problems = []
    for kind, records in resolved.items():
        names = table.setdefault(kind, {record_id.lower(): record_id for record_id in records})
        for record_id, data in records.items():
            claimed = data.get("aliases")
            for index, alias in enumerate(claimed if isinstance(claimed, list) else ()):
                owner = names.setdefault(str(alias).lower(), record_id)
                if owner != record_id:
                    file = source.records[kind][record_id]
                    problems.append(
                        file.problem(("aliases", index), f"{alias!r} already names {owner}", "give it to one of them")
                    )
    return table, problems


class Draft(NamedTuple):
    """A book as read from YAML: where each record stands, and the problems of form found so far.

    ``whole`` is the JSON of all records, ``built`` of those that programs read. ``started`` is when reading began, in
    nanoseconds of the file system's clock.
    """

    source: Source
    whole: bytes
    built: bytes
    problems: list[Problem]
    started: int


def draft(folders: tuple[Path, ...], without: tuple[str, ...] = ()) -> Draft:
    """Read and build the folders, later ones over earlier ones. Raises :class:`Faults` when that makes no book."""
    started = time.time_ns()
    source = read(folders, without)
    resolved = resolve(source)
    names, problems = aliases(resolved, source)
    problems += validate(source, resolved)
    built = {
        "glossary": source.singles["symbols"].data,
        "conventions": source.singles["conventions"].data,
        "records": resolved,
        "aliases": names,
    }
    whole = msgspec.json.encode(built)
    for kind in AUTHORED:
        resolved.pop(kind)
        names.pop(kind)
    return Draft(source, whole, msgspec.json.encode(built), problems, started)


def build(folder: Path, overlays: tuple[Path, ...] = (), write: Path | None = None) -> bytes:
    """The built book as JSON, written to ``write`` where it can be. Raises :class:`BookError` with every fault."""
    for overlay in overlays:
        if not overlay.is_dir():
            raise MissingBookError(f"{overlay}: no such folder")
    try:
        drafted = draft((folder, *overlays), AUTHORED)
    except Faults as faults:
        raise BookError(str(faults)) from None
    if drafted.problems:
        raise BookError("\n".join(map(str, drafted.problems)))
    if write is not None:
        replace(write, drafted.built, drafted.started)
    return drafted.built


def replace(path: Path, built: bytes, started: int) -> None:
    """Replace the built book in one move, so that another process never reads half of it."""
    import os

    fresh = path.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):  # a read-only installation still works, it only builds again next time
        fresh.write_bytes(built)
        os.utime(fresh, ns=(started, started))  # so that what was edited meanwhile is newer
        fresh.replace(path)
