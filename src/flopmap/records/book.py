"""The book as programs read it: built JSON, each record decoded when it is first asked for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from flopmap.quantity import shown
from flopmap.records.kinds import KINDS
from flopmap.records.types import Convention, Glossary, Record

if TYPE_CHECKING:
    from pathlib import Path

# os.path and not pathlib: a cold command imports only what it needs
BOOK = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "book")
BUILT = os.path.join(BOOK, "book.json")

R = TypeVar("R", bound=Record)


class UnknownRecordError(LookupError):
    """No record has this id or alias. ``nearest`` are the ids that look most like it."""

    def __init__(self, kind: str, name: str, nearest: list[str]) -> None:
        hint = f"; nearest: {', '.join(nearest)}" if nearest else ""
        listing = f" (all: flopmap {COMMANDS[kind]})" if kind in COMMANDS else ""
        super().__init__(f"unknown {KINDS_SINGULAR[kind]} {shown(name)}{hint}{listing}")
        self.nearest = nearest


KINDS_SINGULAR = {
    "flops": "operation class",
    "laws": "law",
    "parts": "part",
    "machines": "machine",
    "models": "model",
    "engines": "engine",
    "formats": "format",
    "levers": "lever",
    "readings": "reading",
    "measurements": "measurement",
    "crossovers": "measured crossover",
    "efficiency": "record of kernel efficiency",
    "traps": "trap",
    "kernels": "kind of kernel",
    "claims": "set of claims",
    "sources": "source",
}
# the command that lists a kind
COMMANDS = {"flops": "classes"} | {
    kind: kind for kind in ("parts", "machines", "models", "engines", "formats", "traps")
}


class Built(msgspec.Struct):
    """The built book: ``records[kind][id]`` stays undecoded until it is used."""

    glossary: Glossary
    conventions: dict[str, Convention]
    records: dict[str, dict[str, msgspec.Raw]]
    aliases: dict[str, dict[str, str]]


class Book:
    """The records, by kind and id. Reading is lazy; nothing is ever written."""

    def __init__(self, built: Built) -> None:
        self.glossary = built.glossary
        self.conventions = built.conventions
        self._raw = built.records
        self._aliases = built.aliases
        self._decoded: dict[tuple[str, str], Record] = {}

    def ids(self, kind: str) -> list[str]:
        """Every id of a kind, sorted."""
        return sorted(self._raw.get(kind, {}))

    def find(self, kind: str, name: str) -> str | None:
        """The id that ``name`` (an id or alias, in any case) stands for, or None."""
        if name in self._raw.get(kind, {}):
            return name
        return self._aliases.get(kind, {}).get(name.lower())

    def get(self, kind: str, name: str) -> Record:
        """The record of this id or alias. Raises :class:`UnknownRecordError` with the nearest ids."""
        found = self.find(kind, name)
        if found is None:
            raise UnknownRecordError(kind, name, self.nearest(kind, name))
        key = (kind, found)
        if key not in self._decoded:
            self._decoded[key] = msgspec.json.decode(self._raw[kind][found], type=KINDS[kind])
        return self._decoded[key]

    def record(self, of: type[R], name: str) -> R:
        """The record of a type, such as ``book.record(Part, "h100-sxm")``."""
        return cast("R", self.get(_KIND_OF[of], name))

    def nearest(self, kind: str, name: str, count: int = 3) -> list[str]:
        """The ids whose own or other names look most like ``name``."""
        import difflib

        names = {
            spelling.lower(): record
            for record in self._raw.get(kind, {})
            for spelling in (record, record.rsplit("/", 1)[-1])
        }
        names |= self._aliases.get(kind, {})
        close = difflib.get_close_matches(name.lower(), names, n=3 * count, cutoff=0.5)
        return list(dict.fromkeys(names[spelling] for spelling in close))[:count]


_KIND_OF: dict[type[Record], str] = {of: kind for kind, of in KINDS.items()}


def load(overlays: tuple[str | Path, ...] = ()) -> Book:
    """The bundled book, with the records of each overlay folder added or put in place of ours.

    Raises :class:`BookError` when an overlay has a fault, or when the bundled book was never built.
    """
    if overlays or _is_stale():
        from pathlib import Path

        from flopmap.records import author

        return decode(author.build(Path(BOOK), tuple(map(Path, overlays)), write=None if overlays else Path(BUILT)))
    with open(BUILT, "rb") as file:
        return decode(file.read())


def decode(built: bytes) -> Book:
    """A book from its built JSON."""
    return Book(msgspec.json.decode(built, type=Built))


def _is_stale() -> bool:
    """Whether the YAML is newer than the built book. Only a checkout's YAML changes, so only there is it looked at."""
    checkout = os.path.dirname(os.path.dirname(os.path.dirname(BOOK)))
    if not os.path.exists(os.path.join(checkout, "pyproject.toml")):
        return not os.path.exists(BUILT)
    try:
        built = os.stat(BUILT).st_mtime_ns
    except FileNotFoundError:
        return True
    return _newest(BOOK) > built


def _newest(folder: str) -> int:
    newest = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                newest = max(newest, _newest(entry.path), entry.stat().st_mtime_ns)
            elif entry.name.endswith(".yaml"):
                newest = max(newest, entry.stat().st_mtime_ns)
    return newest


def to_data(record: Any) -> Any:
    """A record as plain data, for JSON output."""
    return msgspec.to_builtins(record)


def to_json(data: Any) -> str:
    """Data as indented JSON. What is not a finite number becomes null."""
    return msgspec.json.format(msgspec.json.encode(data), indent=1).decode()
