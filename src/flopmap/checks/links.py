"""Every source, link and convention that a record names is there, and a contested record shows both values."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from flopmap.records.author import entries
from flopmap.records.book import to_data

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopmap.records.author import Source
    from flopmap.records.book import Book
    from flopmap.records.yaml_file import File, Path_, Problem

SOURCELESS = ("sources",)
OF_PARTS = ("crossovers", "efficiency")


def check(book: Book, source: Source) -> Iterator[Problem]:
    """The faults of all links."""
    yield from _unknown_conventions(source.singles["symbols"].data, source.singles["symbols"], book)
    for kind, record_id, file in entries(source):
        data = to_data(book.get(kind, record_id))
        for path, name in _sources(data, ()):
            if book.find("sources", name) is None:
                yield file.problem(
                    path, f"no source record {name!r}", _near(name, book.ids("sources"), f"sources/{name}.yaml")
                )
        for index, name in enumerate(data["see"]):
            if book.find(kind, name) is None:
                yield file.problem(
                    ("see", index), f"no {kind} record {name!r}", _near(name, book.ids(kind), f"{kind}/{name}.yaml")
                )
        if kind == "machines" and book.find("parts", data["part"]) is None:
            yield file.problem(
                ("part",), f"no part {data['part']!r}", _near(data["part"], book.ids("parts"), "its record")
            )
        yield from _unknown_conventions(data, file, book)
        if kind in OF_PARTS and book.find("parts", data["part"]) is None:
            yield file.problem(
                ("part",), f"no parts record {data['part']!r}", _near(data["part"], book.ids("parts"), "a part")
            )
        if kind not in SOURCELESS and not data["sources"] and not list(_sources(data, ())) and data["confidence"] < 1:
            yield file.problem(("sources",), "a record names its sources", "add sources: [id]")
        if data["status"] == "contested" and not _has_others(data):
            yield file.problem(
                ("status",), "a contested record shows the other values", "add others: to the figure in question"
            )


def _unknown_conventions(data: Any, file: File, book: Book) -> Iterator[Problem]:
    for path, convention, choice in _conventions(data, ()):
        known = book.conventions.get(convention)
        if known is None or choice not in known.values:
            yield file.problem(path, f"unknown convention {convention}={choice}", "see conventions.yaml")


def _sources(value: Any, path: Path_) -> Iterator[tuple[Path_, str]]:
    """Every source id in a record, and where it stands."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "source" and isinstance(item, str) and item:
                yield (*path, key), item
            elif key == "sources" and isinstance(item, list | tuple):
                yield from (((*path, key, index), name) for index, name in enumerate(item))
            else:
                yield from _sources(item, (*path, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _sources(item, (*path, index))


def _conventions(data: Any, path: Path_) -> Iterator[tuple[Path_, str, str]]:
    """Every convention that a record gives a reading for, or that a claim is made under."""
    if isinstance(data, list | tuple):
        for index, item in enumerate(data):
            yield from _conventions(item, (*path, index))
    elif isinstance(data, dict):
        for key, value in data.items():
            if key != "conventions" or not isinstance(value, dict):
                yield from _conventions(value, (*path, key))
                continue
            for convention, readings in value.items():
                if isinstance(readings, str):
                    yield (*path, key, convention), convention, readings
                else:
                    yield from (((*path, key, convention, choice), convention, choice) for choice in readings)


def _has_others(value: Any) -> bool:
    if isinstance(value, dict):
        return bool(value.get("others")) or any(map(_has_others, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_others, value))


def _near(name: str, known: list[str], place: str) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"use {close[0]}, or write {place}" if close else f"write {place}"
