"""The book as people write it: YAML 1.2 files, with the place of every value kept for error messages.

Only authors pay for this: `flopmap check`, the build of the wheel, and commands that are given `--book DIR`.
"""

from __future__ import annotations

import contextlib
import difflib
import math
import re
import time
import typing
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from flopmap.records.book import BookError, MissingBookError
from flopmap.records.types import KINDS, Convention, Glossary

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Path_ = tuple["str | int", ...]
MAX_FILE_BYTES = 1_000_000


class Problem(NamedTuple):
    """One fault of a book, located, with what would mend it."""

    file: str
    line: int
    column: int
    where: str
    message: str
    fix: str = ""

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        return f"{self.file}:{self.line}:{self.column}: {where}{self.message}" + (
            f". Fix: {self.fix}" if self.fix else ""
        )


class File(NamedTuple):
    """One YAML file: its data, and the line and column of each value by its path."""

    name: str
    data: Any
    places: dict[Path_, tuple[int, int]]
    below: File | None = None

    def problem(self, path: Path_, message: str, fix: str = "") -> Problem:
        """A fault at a path of this file (or of the file below it that has the path; or at the nearest parent)."""
        if path not in self.places and self.below is not None and path in self.below.places:
            return self.below.problem(path, message, fix)
        place = path
        while place not in self.places and place:
            place = place[:-1]
        line, column = self.places.get(place, (1, 1))
        return Problem(self.name, line, column, ".".join(map(str, path)), message, fix)


class Faults(Exception):  # noqa: N818 - it carries many problems, it is not one error
    """All problems found while reading."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


# -- one file ---------------------------------------------------------------------------------------------------------


def read_file(path: Path, name: str) -> File:
    """Read one YAML 1.2 file into plain data. Raises :class:`Faults` at a syntax error, duplicate key or alias."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise Faults([Problem(name, 1, 1, "", f"a record file is at most {MAX_FILE_BYTES} bytes")])
        node = YAML(typ="safe", pure=True).compose(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Faults([Problem(name, 1, 1, "", f"cannot be read: {error.strerror}")]) from None
    except UnicodeDecodeError as error:
        raise Faults([Problem(name, 1, 1, "", f"not UTF-8: {error.reason} at byte {error.start}")]) from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        context = f"{error.context} " if error.context and str(error.problem).startswith("but") else ""
        problem = f"not YAML: {context}{error.problem}"
        raise Faults([Problem(name, mark.line + 1, mark.column + 1, "", problem)]) from None
    except YAMLError as error:
        raise Faults([Problem(name, 1, 1, "", f"not YAML: {str(error).splitlines()[0]}")]) from None
    except RecursionError:
        raise Faults([Problem(name, 1, 1, "", "not YAML: nested too deeply")]) from None
    places: dict[Path_, tuple[int, int]] = {}
    problems: list[Problem] = []
    data = _plain(node, (), File(name, None, places), problems, set())
    if problems:
        raise Faults(problems)
    return File(name, data, places)


def _plain(node: Any, path: Path_, file: File, problems: list[Problem], seen: set[int]) -> Any:
    """Plain data of a YAML node; ``seen`` holds the nodes above it and before it, since an alias repeats a node."""
    if node is None:
        return None
    if id(node) in seen:
        problems.append(file.problem(path, "an alias (*name)", "write the value out; a book has no anchors"))
        return None
    seen.add(id(node))
    file.places[path] = (node.start_mark.line + 1, node.start_mark.column + 1)
    kind = type(node).__name__
    if kind == "MappingNode":
        return _plain_mapping(node, path, file, problems, seen)
    if kind == "SequenceNode":
        return [_plain(item, (*path, index), file, problems, seen) for index, item in enumerate(node.value)]
    try:
        return _scalar(str(node.tag), node.value, plain=node.style is None)
    except ValueError as error:
        problems.append(file.problem(path, str(error)))
        return None


def _plain_mapping(node: Any, path: Path_, file: File, problems: list[Problem], seen: set[int]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line, column = key_node.start_mark.line + 1, key_node.start_mark.column + 1
        if type(key_node).__name__ != "ScalarNode":
            problems.append(Problem(file.name, line, column, ".".join(map(str, path)), "a key is a word"))
            continue
        key = str(key_node.value)
        if key in data:
            problems.append(Problem(file.name, line, column, ".".join(map(str, (*path, key))), "this key stands twice"))
        file.places[(*path, key)] = (line, column)
        data[key] = _plain(value_node, (*path, key), file, problems, seen)
    return data


YAML_KINDS = ("str", "int", "float", "bool", "null", "timestamp")
NUMBER_LIKE = re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9]+)?|0b[01]+")


def _scalar(tag: str, value: str, *, plain: bool) -> Any:
    """The value of a YAML scalar. Raises ValueError for what YAML 1.1 and 1.2 read differently."""
    kind = tag.rsplit(":", 1)[-1]
    if kind not in YAML_KINDS:
        raise ValueError(f"{tag!r} is a tag; a book has plain values")
    if not plain or kind == "str":
        if plain and NUMBER_LIKE.fullmatch(value):
            raise ValueError(f"{value!r} is read differently by YAML 1.1 and 1.2; write plain digits")
        return value
    if kind == "bool":
        if value.lower() not in ("true", "false"):
            raise ValueError(f"{value!r} is read differently by YAML 1.1 and 1.2; write true or false")
        return value.lower() == "true"
    if kind == "null":
        return None
    if kind == "timestamp":
        raise ValueError(f"a date must be quoted: {value!r}")
    return _number(kind, value)


def _number(kind: str, value: str) -> int | float:
    digits = value.lstrip("+-")
    octal = len(digits) > 1 and digits[0] == "0" and digits[1] not in ".eE"
    if "_" in value or octal:
        raise ValueError(f"{value!r} is read differently by YAML 1.1 and 1.2; write plain digits")
    number: int | float = math.inf
    with contextlib.suppress(ValueError):
        number = int(value) if kind == "int" else float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is not a finite number")
    return number


# -- a book -----------------------------------------------------------------------------------------------------------


class Source(NamedTuple):
    """The files of a book: base and overlays. ``records[kind][id]`` is the file that defines that record."""

    records: dict[str, dict[str, File]]
    singles: dict[str, File]


def read(folders: tuple[Path, ...]) -> Source:
    """Every file of the folders, later ones over earlier ones. Raises :class:`Faults` with all that cannot be read."""
    records: dict[str, dict[str, File]] = {kind: {} for kind in KINDS}
    singles: dict[str, File] = {}
    problems: list[Problem] = []
    for number, folder in enumerate(folders):
        for path in sorted((*folder.rglob("*.yaml"), *folder.rglob("*.yml"))):
            relative = path.relative_to(folder)
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
        return path, message, ""
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


def _fields(of: Any, path: Path_) -> str:
    """The fields that the type accepts at a path."""
    for step in path:
        of = _inside(of, step)
    return ", ".join(sorted(set(getattr(of, "__struct_fields__", ())) - {"id"})) or "none"


def _inside(of: Any, step: str | int) -> Any:
    """The type of what lies at one step of a path: a field, a table's value, a list's item."""
    of = next((option for option in typing.get_args(of) if hasattr(option, "__struct_fields__")), of)
    if hasattr(of, "__struct_fields__"):
        found = typing.get_type_hints(of).get(str(step))
        options = [option for option in typing.get_args(found) if option not in (type(None), Ellipsis)]
        inner = options[-1] if options and typing.get_origin(found) is not dict else found
        return found if typing.get_origin(found) in (dict, tuple) else inner
    return typing.get_args(of)[-1] if typing.get_origin(of) is dict else of


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
    """A book as read from YAML: where each record stands, the built JSON, and the problems of form found so far.

    ``started`` is when reading began, in nanoseconds of the file system's clock.
    """

    source: Source
    built: bytes
    problems: list[Problem]
    started: int


def draft(folders: tuple[Path, ...]) -> Draft:
    """Read and build the folders, later ones over earlier ones. Raises :class:`Faults` when that makes no book."""
    started = time.time_ns()
    source = read(folders)
    resolved = resolve(source)
    names, problems = aliases(resolved, source)
    problems += validate(source, resolved)
    built = {
        "glossary": source.singles["symbols"].data,
        "conventions": source.singles["conventions"].data,
        "records": resolved,
        "aliases": names,
    }
    return Draft(source, msgspec.json.encode(built), problems, started)


def build(folder: Path, overlays: tuple[Path, ...] = (), write: Path | None = None) -> bytes:
    """The built book as JSON, written to ``write`` where it can be. Raises :class:`BookError` with every fault."""
    for overlay in overlays:
        if not overlay.is_dir():
            raise MissingBookError(f"{overlay}: no such folder")
    try:
        drafted = draft((folder, *overlays))
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
