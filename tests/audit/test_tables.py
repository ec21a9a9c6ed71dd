"""Reading tables: what is malformed is told by its line, and everything else is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flopmap.audit.tables import MAX_LINES, csv_rows

if TYPE_CHECKING:
    from pathlib import Path


def read(folder: Path, text: str) -> list[tuple[int, object]]:
    path = folder / "table.csv"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return list(csv_rows(path))


def test_rows_have_the_number_of_their_first_line(tmp_path: Path) -> None:
    text = 'a,b\n1,"two\nlines"\n\n3,"say ""so"", yes"\n'
    assert read(tmp_path, text) == [
        (2, {"a": "1", "b": "two\nlines"}),
        (5, {"a": "3", "b": 'say "so", yes'}),
    ]


def test_a_stray_quote_costs_one_row(tmp_path: Path) -> None:
    lines = [f"{row},x" for row in range(3 * MAX_LINES)]
    lines[4] = '4,"never closed'
    found = read(tmp_path, "a,b\n" + "\n".join(lines) + "\n")
    assert len(found) == len(lines)
    # the line itself still has two cells
    assert found[4] == (6, {"a": "4", "b": "never closed\n"})
    lines[4] = '"4,never closed'
    found = read(tmp_path, "a,b\n" + "\n".join(lines) + "\n")
    assert found[4] == (6, "a quote that is not closed; 1 cells where the header has 2 columns")
    assert [line for line, _ in found] == list(range(2, len(lines) + 2))
    assert found[5] == (7, {"a": "5", "b": "x"})


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_ends_of_lines_and_marks_of_encodings_are_no_cells(end: str, tmp_path: Path) -> None:
    assert read(tmp_path, f"\ufeffa,b{end}1,2{end}") == [(2, {"a": "1", "b": "2"})]


def test_bytes_that_are_no_text_are_read_as_marks(tmp_path: Path) -> None:
    assert read(tmp_path, "a,b\n\udcff,2\n") == [(2, {"a": "\ufffd", "b": "2"})]


def test_rows_of_other_lengths_are_told(tmp_path: Path) -> None:
    assert read(tmp_path, "a,b\n1\n1,2,3\n4,5\n") == [
        (2, "1 cells where the header has 2 columns"),
        (3, "3 cells where the header has 2 columns"),
        (4, {"a": "4", "b": "5"}),
    ]
