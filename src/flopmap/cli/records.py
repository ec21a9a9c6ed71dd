"""``flopmap parts``, ``models``, ``classes``, ``engines``, ``formats``, ``traps``: list, search, show."""

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
        "parts": "h100-sxm",
        "models": "llama",
        "classes": "decode-attention",
        "engines": "vllm",
        "formats": "fp8",
    }.get(name, "graphs")
    parser.epilog = f"example: flopmap {name} {example}"
    parser.add_argument("id", nargs="?", help="a record's id or alias to show, or a word to search for")
    if name == "models":
        parser.add_argument("--families", action="store_true", help="list the model types that a config.json may have")


def run(options: argparse.Namespace) -> int:
    """One record when the word names one, else every record that contains it."""
    if getattr(options, "families", False):
        return _families(as_json=options.json)
    book = load(tuple(options.book))
    found = book.find(options.kind, options.id) if options.id else None
    if found is not None:
        return _show(book, options.kind, found, as_json=options.json)
    records = [to_data(book.get(options.kind, record_id)) for record_id in book.ids(options.kind)]
    if options.id:
        records = [record for record in records if options.id.lower() in to_json(record).lower()]
        if not records:
            book.get(options.kind, options.id)  # raises with the nearest ids
    if options.json:
        print(to_json(records))
    else:
        _list(records)
    return 0


def _families(*, as_json: bool) -> int:
    from flopmap.model.families import INDEX

    names = sorted(INDEX)
    print(to_json(names) if as_json else f"{len(names)} model types\n  " + "\n  ".join(names))
    return 0


def _show(book: Book, kind: str, record_id: str, *, as_json: bool) -> int:
    record = to_data(book.get(kind, record_id))
    if as_json:
        print(to_json([record]))
        return 0
    print(f"{record['title']} ({kind}/{record_id}, {record['status']}, confidence {record['confidence']:g})")
    for line in _fields(
        {key: value for key, value in record.items() if key not in ("title", "id", "status", "confidence")}, 1
    ):
        print(line)
    return 0


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


def _list(records: list[dict[str, Any]]) -> None:
    """A line a record: id, title, status."""
    print(f"{len(records)} record{'' if len(records) == 1 else 's'}")
    width = max((len(record["id"]) for record in records), default=0)
    for record in records:
        mark = "" if record["status"] == "verified" else f"  [{record['status']}]"
        print(f"  {record['id']:{width}}  {record['title']}{mark}", file=sys.stdout)
