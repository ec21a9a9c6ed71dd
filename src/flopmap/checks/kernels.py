"""Names of kernels: patterns that can be read, examples that their own record knows, op classes held by one record."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from flopmap.records.kernels import KernelWork
from flopmap.records.types import OpClass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopmap.records.author import Source
    from flopmap.records.book import Book
    from flopmap.records.yaml_file import Problem


def check(book: Book, source: Source) -> Iterator[Problem]:
    """The faults of all records of kernels."""
    files = source.records["kernels"]
    records = {record_id: book.record(KernelWork, record_id) for record_id in files}
    priced = [name for name in book.ids("flops") if book.record(OpClass, name).kind == "cost"]
    broken = False
    for record_id, file in files.items():
        for at, names in enumerate(records[record_id].kernels):
            for index, pattern in enumerate(names.patterns):
                try:
                    re.compile(pattern)
                except re.error as error:
                    broken = True
                    yield file.problem(("kernels", at, "patterns", index), f"no regular expression: {error}", "mend it")
        for index, name in enumerate(records[record_id].classes):
            others = [other for other, record in records.items() if other != record_id and name in record.classes]
            if name not in priced:
                near = difflib.get_close_matches(name, priced, n=1)
                yield file.problem(
                    ("classes", index), f"no op class {name!r} with a cost", f"use {near[0]}" if near else ""
                )
            elif others:
                yield file.problem(("classes", index), f"{name} is also of kernels/{others[0]}", "name it once")
    if not broken:
        yield from _examples(records, source)


def _examples(records: dict[str, KernelWork], source: Source) -> Iterator[Problem]:
    known = [
        (re.compile("|".join(f"(?:{pattern})" for pattern in names.patterns)), record.id)
        for record in sorted(records.values(), key=lambda record: (record.order, record.id))
        for names in record.kernels
    ]
    for record_id, file in source.records["kernels"].items():
        for at, names in enumerate(records[record_id].kernels):
            own = re.compile("|".join(f"(?:{pattern})" for pattern in names.patterns))
            for index, example in enumerate(names.examples):
                place = ("kernels", at, "examples", index)
                if not own.search(example):
                    yield file.problem(place, "none of its patterns finds this name", "mend a pattern")
                    continue
                taken = next(record for pattern, record in known if pattern.search(example))
                if taken != record_id:
                    yield file.problem(place, f"kernels/{taken} takes this name first", "mend a pattern or the order")
