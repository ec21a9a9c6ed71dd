"""``flopmap machines``, ``engines``, ``formats``, ``traps``: list, search, show. Other listings build on it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from flopmap.records.book import Book, load, to_data, to_json

if TYPE_CHECKING:
    import argparse

    from flopmap.cli.main import Parser

KINDS = {"classes": "flops"}
EMPTY: tuple[Any, ...] = ("", None, [], {}, ())


def add_arguments(parser: Parser, name: str) -> None:
    """An optional id, or words to search for."""
    parser.set_defaults(kind=KINDS.get(name, name))
    example = {
        "machines": "p5.48xlarge",
        "models": "llama",
        "classes": "decode-attention",
        "engines": "vllm",
        "formats": "fp8",
    }.get(name, "graphs")
    parser.epilog = f"example: flopmap {name} {example}"
    parser.add_argument("id", nargs="?", help="a record's id or alias to show, or a word to search for")


def run(options: argparse.Namespace) -> int:
    """One record when the word names one, else every record that contains it."""
    book = load(tuple(options.book))
    found = book.find(options.kind, options.id) if options.id else None
    if found is None:
        return search(book, options.kind, options.id, as_json=options.json)
    record = to_data(book.get(options.kind, found))
    print(to_json([record]) if options.json else "\n".join(shown(record, options.kind)))
    return 0


def search(book: Book, kind: str, word: str | None, *, as_json: bool) -> int:
    """Every record of a kind, or those that contain a word. Raises with the nearest ids when none does."""
    records = [to_data(book.get(kind, record_id)) for record_id in book.ids(kind)]
    if word:
        records = [record for record in records if word.lower() in to_json(record).lower()]
        if not records:
            book.get(kind, word)
    if as_json:
        print(to_json(records))
    else:
        listed(records)
    return 0


def shown(record: dict[str, Any], kind: str) -> list[str]:
    """A record as text: its title and state, then every field that says something."""
    rest = {key: value for key, value in record.items() if key not in ("title", "id", "status", "confidence")}
    state = f"{kind}/{record['id']}, {record['status']}, confidence {record['confidence']:g}"
    return [f"{record['title']} ({state})", *_fields(rest, 1)]


def _fields(value: Any, depth: int) -> list[str]:
    """A record as indented lines, without what is empty."""
    lines = []
    for key, item in value.items():
        if item in EMPTY:
            continue
        pad = "  " * depth
        if isinstance(item, dict):
            lines += [f"{pad}{key}:", *_fields(item, depth + 1)]
        elif isinstance(item, list | tuple) and any(isinstance(entry, dict) for entry in item):
            lines.append(f"{pad}{key}:")
            lines += [f"{pad}  - {_flat(entry)}" for entry in item]
        else:
            lines.append(f"{pad}{key}: {_flat(item)}")
    return lines


def _flat(item: Any) -> str:
    if isinstance(item, dict):
        return ", ".join(f"{key} {_flat(value)}" for key, value in item.items() if value not in EMPTY)
    if isinstance(item, list | tuple):
        return ", ".join(_flat(entry) for entry in item)
    if isinstance(item, bool):
        return "true" if item else "false"
    return f"{item:.6g}" if isinstance(item, float) else str(item)


def listed(records: list[dict[str, Any]]) -> None:
    """A line a record: id, title, status."""
    print(f"{len(records)} record{'' if len(records) == 1 else 's'}")
    width = max((len(record["id"]) for record in records), default=0)
    for record in records:
        mark = "" if record["status"] == "verified" else f"  [{record['status']}]"
        print(f"  {record['id']:{width}}  {record['title']}{mark}", file=sys.stdout)
