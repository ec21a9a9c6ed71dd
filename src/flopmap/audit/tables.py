"""Tables in blocks of columns, so that memory does not grow with the table: CSV, and Parquet where pyarrow is there."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

BLOCK = 1 << 17
MAX_LINES = 50  # of one record


class TableError(ValueError):
    """A table that cannot be read at all. One line."""


class Labels(NamedTuple):
    """A column of words: for each row the place of its word in ``names``."""

    codes: NDArray[np.int64]
    names: list[str]


class Block(NamedTuple):
    """Some rows of a table: where each stands in its file, and its columns of numbers (NaN where empty) or words."""

    lines: NDArray[np.int64]
    numbers: dict[str, NDArray[np.float64]]
    words: dict[str, Labels]
    faults: tuple[tuple[int, str], ...] = ()

    @property
    def rows(self) -> int:
        """How many rows the block has."""
        return len(self.lines)


def blocks(path: Path, words: Iterable[str], rows: int = BLOCK) -> Iterator[Block]:
    """The rows of a table. ``words`` are the columns that hold words; the others are numbers where they can be."""
    if path.suffix == ".parquet":
        yield from _parquet(path, set(words), rows)
    else:
        yield from _csv(path, set(words), rows)


def csv_rows(path: Path) -> Iterator[tuple[int, dict[str, str] | str]]:
    """Each row of a CSV file with the number of its line: its cells by column, or what is wrong with it."""
    import csv

    header: list[str] | None = None
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        for line, text, closed in _records(file):
            try:
                cells = next(csv.reader(text.splitlines(keepends=True)), []) if '"' in text else _plain(text)
            except csv.Error as error:
                yield line, f"not CSV: {error}"
                continue
            if header is None:
                header = [name.strip() for name in cells]
                twice = sorted({name for name in header if header.count(name) > 1})
                if twice:
                    raise TableError(f"{path}: column {twice[0]!r} appears more than once")
            elif cells and len(cells) != len(header):
                wrong = f"{len(cells)} cells where the header has {len(header)} columns"
                yield line, wrong if closed else f"a quote that is not closed; {wrong}"
            elif any(cells):
                yield line, dict(zip(header, cells, strict=True))
    if header is None:
        raise TableError(f"{path}: an empty file, without a line of column names")


def _plain(text: str) -> list[str]:
    """The cells of a record without quotes."""
    bare = text.rstrip("\r\n")
    return bare.split(",") if bare else []


def _records(file: Iterable[str]) -> Iterator[tuple[int, str, bool]]:
    """Each record with the number of its first line, and whether its quotes are closed within a few lines.

    One that is not closed is its first line alone, so that a stray quote does not swallow the rest of the file.
    """
    lines = enumerate(file, 1)
    waiting: list[tuple[int, str]] = []
    while True:
        record: list[tuple[int, str]] = []
        quotes = 0
        while not record or (quotes % 2 and len(record) < MAX_LINES):
            following = waiting.pop(0) if waiting else next(lines, None)
            if following is None:
                break
            record.append(following)
            quotes += following[1].count('"')
        if not record:
            return
        if quotes % 2:
            waiting = record[1:] + waiting
            yield *record[0], False
        else:
            yield record[0][0], "".join(text for _, text in record), True


def _csv(path: Path, words: set[str], rows: int) -> Iterator[Block]:
    kept: list[tuple[int, dict[str, str]]] = []
    faults: list[tuple[int, str]] = []
    for line, row in csv_rows(path):
        if isinstance(row, str):
            faults.append((line, row))
        else:
            kept.append((line, row))
        if len(kept) + len(faults) >= rows:
            yield _columns(kept, faults, words)
            kept, faults = [], []
    yield _columns(kept, faults, words)


def _columns(rows: list[tuple[int, dict[str, str]]], faults: list[tuple[int, str]], words: set[str]) -> Block:
    import numpy as np

    names = list(rows[0][1]) if rows else []
    numbers: dict[str, NDArray[np.float64]] = {}
    labels: dict[str, Labels] = {}
    for name in names:
        cells = [row[name].strip() for _, row in rows]
        if name in words:
            place = {word: index for index, word in enumerate(dict.fromkeys(cells))}
            labels[name] = Labels(np.array([place[cell] for cell in cells], dtype=np.int64), list(place))
        else:
            numbers[name] = np.array([_number(cell) for cell in cells], dtype=np.float64)
    lines = np.array([line for line, _ in rows], dtype=np.int64)
    return Block(lines, numbers, labels, tuple(faults))


def _number(text: str) -> float:
    with contextlib.suppress(ValueError):
        return float(text)
    return float("nan")


def _parquet(path: Path, words: set[str], rows: int) -> Iterator[Block]:
    import numpy as np

    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise TableError(f"{path}: reading Parquet needs pyarrow (pip install 'flopmap[validate]')") from None
    try:
        file = pq.ParquetFile(path, memory_map=True)
    except pa.ArrowInvalid as error:
        raise TableError(f"{path}: not a Parquet file: {error}") from None
    schema = file.schema_arrow
    wanted = [field.name for field in schema if field.name in words or not _is_text(field.type, pa)]
    start = 1
    for batch in file.iter_batches(batch_size=rows, columns=wanted):
        numbers: dict[str, NDArray[np.float64]] = {}
        labels: dict[str, Labels] = {}
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if name in words:
                encoded = column.cast(pa.string()).fill_null("").dictionary_encode()
                labels[name] = Labels(encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_pylist())
            else:
                numbers[name] = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        yield Block(np.arange(start, start + batch.num_rows), numbers, labels)
        start += batch.num_rows


def _is_text(kind: Any, pa: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
