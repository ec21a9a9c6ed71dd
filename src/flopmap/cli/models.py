"""``flopmap models``: list, search, show with its account, and compare two."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopmap.cli import records
from flopmap.model.reading import looks_like_path
from flopmap.records.book import Book, load, to_data, to_json
from flopmap.step import ScenarioError

if TYPE_CHECKING:
    import argparse

    from flopmap.cli.main import Parser

EXAMPLES = """\
examples:
  flopmap models llama
  flopmap models Qwen/Qwen3-8B
  flopmap models diff meta-llama/Llama-3.1-8B meta-llama/Llama-2-7b-hf
  flopmap models --families
"""


def add_arguments(parser: Parser, _name: str) -> None:
    """Ids, paths, a word to search for, or ``diff`` and two of them."""
    parser.epilog = EXAMPLES
    described = "a model's id, alias or path to show, or a word to search for; or diff and two models"
    parser.add_argument("names", nargs="*", metavar="MODEL", help=described)
    parser.add_argument("--families", action="store_true", help="list the model types that a config.json may have")


def run(options: argparse.Namespace) -> int:
    """Print what is asked for."""
    if options.families:
        return _families(as_json=options.json)
    book = load(tuple(options.book))
    if options.names[:1] == ["diff"]:
        return _diff(options.names[1:], book, as_json=options.json)
    if len(options.names) > 1:
        raise ScenarioError(f"models {' '.join(options.names)}: one model at a time, or diff and two of them")
    name = options.names[0] if options.names else None
    found = book.find("models", name) if name else None
    if name is None or (found is None and not looks_like_path(name)):
        return records.search(book, "models", name, as_json=options.json)
    return _show(name, found, book, as_json=options.json)


def _show(name: str, found: str | None, book: Book, *, as_json: bool) -> int:
    from flopmap.report.model import account, lines

    counted = account(name, book)
    record = (
        to_data(book.get("models", found)) if found else {"id": name, "aliases": [], "title": name, "status": "file"}
    )
    if as_json:
        print(to_json([{**record, "account": to_data(counted)}]))
        return 0
    title, *rest = records.shown(record, "models") if found else [f"{name} ({counted.family})"]
    print("\n".join([title, *(f"  {line}" for line in lines(counted)), *rest]))
    return 0


def _diff(names: list[str], book: Book, *, as_json: bool) -> int:
    from flopmap.report.model import account, differences

    if len(names) != len(("one", "other")):
        raise ScenarioError("models diff: give two models, such as: flopmap models diff gpt2 gpt2-xl")
    one, other = (account(name, book) for name in names)
    rows = differences(one, other)
    if as_json:
        print(to_json([{"field": field, names[0]: left, names[1]: right} for field, left, right in rows]))
        return 0
    print(f"{len(rows)} differences between {one.name} and {other.name}")
    width = max((len(field) for field, _, _ in rows), default=0)
    for field, left, right in rows:
        print(f"  {field:{width}}  {left}  |  {right}")
    return 0


def _families(*, as_json: bool) -> int:
    from flopmap.model.families import KNOWN

    names = list(KNOWN)
    print(to_json(names) if as_json else f"{len(names)} model types\n  " + "\n  ".join(names))
    return 0
