"""``flopmap parts``: list, filter and show parts, their ridges, and where sources disagree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopmap.machine.machine import read_part
from flopmap.records.book import Book, load, to_data, to_json
from flopmap.records.types import Part
from flopmap.report import parts as report
from flopmap.report.filters import TYPES, is_filter, read_filter
from flopmap.step import ScenarioError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from flopmap.cli.main import Parser

EXAMPLES = """\
examples:
  flopmap parts h100-sxm
  flopmap parts 'bandwidth>3TB/s' dtype:fp8 vendor:amd
  flopmap parts kind:apu 'capacity>=64GB'
  flopmap parts --ridge h100-sxm b200-sxm
  flopmap parts --ridge --measured
  flopmap parts --contradictions b300-sxm
"""


def add_arguments(parser: Parser, _name: str) -> None:
    """Names, words and filters, and what to print of the parts that they select."""
    parser.epilog = EXAMPLES
    described = "an id or alias to show, words to search for, or filters such as bandwidth>3TB/s and dtype:fp8"
    parser.add_argument("words", nargs="*", metavar="PART|FILTER", help=described)
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--ridge", action="store_true", help="by data type: ridge, and the batch and prompt at it")
    shape.add_argument("--contradictions", action="store_true", help="figures for which sources print other values")
    parser.add_argument(
        "--measured", action="store_true", help="with --ridge: the batch by the ridge beside that of measured GEMMs"
    )
    parser.add_argument("--dtype", choices=TYPES, help="with --ridge: only this data type")


def run(options: argparse.Namespace) -> int:
    """Print what is asked for."""
    if options.dtype and not options.ridge:
        raise ScenarioError("--dtype goes with --ridge; the filter for parts is dtype:fp8")
    if options.measured and not options.ridge:
        raise ScenarioError("--measured goes with --ridge")
    book = load(tuple(options.book))
    parts, one = select(options.words, book)
    if options.ridge:
        return _ridge(parts, book, options)
    if options.contradictions:
        return _contradictions(parts, as_json=options.json)
    if options.json:
        print(to_json([to_data(part) for part in parts]))
    elif one:
        print("\n".join(report.lines(parts[0])))
    else:
        print(_counted(len(parts), "part"))
        _table(report.listed(parts))
    return 0


def select(words: Sequence[str], book: Book) -> tuple[list[Part], bool]:
    """The parts that every filter and word holds for; whether one was named. No words select all parts."""
    every = [book.record(Part, name) for name in book.ids("parts")]
    names = [word for word in words if not is_filter(word)]
    exact = [read_part(name, book) for name in names if book.find("parts", name.partition("@")[0])]
    if exact and len(exact) < len(names):
        book.get("parts", next(name for name in names if not book.find("parts", name.partition("@")[0])))
    chosen = exact or every
    for word in names if not exact else ():
        chosen = [part for part in chosen if word.lower() in to_json(to_data(part)).lower()]
        if not chosen:
            book.get("parts", word)  # raises with the nearest
    for holds in [read_filter(word, every) for word in words if is_filter(word)]:
        chosen = [part for part in chosen if holds(part)]
    return chosen, len(exact) == 1 and len(words) == 1


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def _ridge(parts: Sequence[Part], book: Book, options: argparse.Namespace) -> int:
    if options.measured:
        return _measured(parts, book, options)
    found = report.ridges(parts, book, options.dtype)
    if options.json:
        print(to_json([row._asdict() for row in found]))
        return 0
    print(f"{_counted(len(found), 'ridge')} of {_counted(len({row.part for row in found}), 'part')}")
    _table(report.ridge_rows(found))
    print("\n".join(report.RIDGE_NOTES))
    return 0


def _measured(parts: Sequence[Part], book: Book, options: argparse.Namespace) -> int:
    found = report.measured_ridges(parts, book, options.dtype)
    if options.json:
        print(to_json([row._asdict() for row in found]))
        return 0
    print(f"{_counted(len(found), 'measured crossover')} of {_counted(len({row.part for row in found}), 'part')}")
    _table(report.measured_rows(found))
    print("\n".join(report.MEASURED_NOTES))
    return 0


def _contradictions(parts: Sequence[Part], *, as_json: bool) -> int:
    found = report.contradictions(parts)
    if as_json:
        print(to_json(report.contradiction_data(found)))
        return 0
    of = _counted(len({part for part, _ in found}), "part")
    print(f"{_counted(len(found), 'figure')} of {of} with other values")
    print("\n".join(report.contradiction_lines(found)))
    return 0
