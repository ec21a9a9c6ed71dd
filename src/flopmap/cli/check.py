"""``flopmap check``: validate the book, or an overlay of your own on it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from flopmap.checks.run import Outcome, check
from flopmap.records.book import to_data, to_json
from flopmap.records.types import KINDS

if TYPE_CHECKING:
    import argparse

    from flopmap.cli.main import Parser

EXAMPLES = """\
examples:
  flopmap check
  flopmap check ./my-book
  flopmap check --claims --json
  flopmap check --schema > schemas.json
"""


def add_arguments(parser: Parser, _name: str) -> None:
    """A folder, and whether to list the claims."""
    parser.epilog = EXAMPLES
    parser.add_argument(
        "path", nargs="?", metavar="PATH", help="a folder of records of your own, laid over the bundled book"
    )
    parser.add_argument("--claims", action="store_true", help="list every published figure with ours beside it")
    parser.add_argument(
        "--schema", action="store_true", help="print the JSON Schema of every kind of record, for editors"
    )


def run(options: argparse.Namespace) -> int:
    """Print the outcome; 1 when something is wrong."""
    if options.schema:
        print(to_json(schemas()))
        return 0
    folders = [*options.book, *([options.path] if options.path else [])]
    outcome = check(tuple(Path(folder) for folder in folders))
    if options.json:
        problems = [problem._asdict() for problem in outcome.problems]
        data = {"schema_version": 1, "problems": problems, "records": outcome.counts, "claims": to_data(outcome.claims)}
        print(to_json(data))
    else:
        _write(outcome, claims=options.claims)
    return 1 if outcome.problems else 0


def schemas() -> dict[str, Any]:
    """The JSON Schema of each kind, from its type. A record's id is its path, so no schema asks for it."""
    found = {kind: msgspec.json.schema(of) for kind, of in KINDS.items()}
    for schema in found.values():
        for definition in schema["$defs"].values():
            definition.get("properties", {}).pop("id", None)
    return found


def _write(outcome: Outcome, *, claims: bool) -> None:
    number = len(outcome.problems)
    records = sum(outcome.counts.values())
    agreed = sum(judgement.verdict == "agrees" for judgement in outcome.claims)
    found = f"{number} problem{'' if number == 1 else 's'}" if number else "no problems"
    held = f", {agreed} of {len(outcome.claims)} claims agree" if outcome.claims else ""
    print(f"{found} in {records} records{held}")
    for problem in outcome.problems:
        print(problem, file=sys.stderr)
    if claims:
        for judgement in outcome.claims:
            ours = "none" if judgement.ours is None else f"{judgement.ours:.6g}"
            figures = f"ours {ours}, theirs {judgement.theirs:.6g} ({judgement.source})"
            why = f": {judgement.why}" if judgement.why else ""
            print(f"{judgement.verdict}: {judgement.id}: {judgement.quantity}: {figures}{why}")
