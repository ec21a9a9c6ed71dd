"""One YAML 1.2 file as plain data, with the line and column of every value kept for error messages."""

from __future__ import annotations

import contextlib
import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
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
    kind = type(node).__name__
    if (
        kind != "ScalarNode" or node.value or node.style or path not in file.places
    ):  # an absent value has no place but its key's
        file.places[path] = (node.start_mark.line + 1, node.start_mark.column + 1)
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
