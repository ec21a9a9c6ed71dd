"""Which kind of work a kernel does: that of the first record of ``book/kernels`` that knows its name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from flopmap.records.kernels import KernelWork

if TYPE_CHECKING:
    from flopmap.records.book import Book

COLLECTIVE = "collective"  # the record whose time is communication


class Match(NamedTuple):
    """The kind of work of a kernel and the library that it is of; neither where no record knows it."""

    work: str | None
    library: str | None


class Matcher:
    """The records of a book, compiled once."""

    def __init__(self, book: Book) -> None:
        records = [book.record(KernelWork, record_id) for record_id in book.ids("kernels")]
        self._records = {record.id: record for record in records}
        self._patterns = [
            (re.compile("|".join(f"(?:{pattern})" for pattern in names.patterns)), Match(record.id, names.library))
            for record in sorted(records, key=lambda record: (record.order, record.id))
            for names in record.kernels
        ]

    def match(self, name: str) -> Match:
        """The kind of work of a kernel's name."""
        return next((match for pattern, match in self._patterns if pattern.search(name)), Match(None, None))

    def title(self, work: str) -> str:
        """The title of a kind of work."""
        return self._records[work].title

    def classes(self, work: str) -> tuple[str, ...]:
        """The op classes of a kind of work."""
        return self._records[work].classes
