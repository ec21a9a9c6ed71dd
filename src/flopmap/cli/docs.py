"""``flopmap docs``: write the book as a static site."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flopmap.records.book import load, to_json
from flopmap.step import ScenarioError

if TYPE_CHECKING:
    import argparse

    from flopmap.cli.main import Parser


def add_arguments(parser: Parser, _name: str) -> None:
    """The folder."""
    parser.epilog = "example: flopmap docs --out site && open site/index.html"
    parser.add_argument(
        "--out", metavar="DIR", required=True, type=Path, help="the folder that is written; made if need be"
    )


def run(options: argparse.Namespace) -> int:
    """Build the site and write it."""
    from flopmap.site.build import write

    try:
        count = write(load(tuple(options.book)), options.out)
    except OSError as error:
        raise ScenarioError(f"--out {options.out}: cannot be written: {error.strerror}") from None
    print(to_json({"files": count, "out": str(options.out)}) if options.json else f"{count} files in {options.out}")
    return 0
