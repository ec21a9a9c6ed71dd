"""``flopmap check``: validate the book, or an overlay of your own on it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from flopmap.checks.claims import VERDICTS, ours, theirs
from flopmap.checks.run import Outcome, check
from flopmap.records.book import to_data, to_json
from flopmap.records.kinds import KINDS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from flopmap.checks.claims import Judgement
    from flopmap.cli.main import Parser

PLURAL = {"agrees": "agree", "holds under a convention": "hold under a convention", "disagrees": "disagree"}
EXAMPLES = """\
examples:
  flopmap check
  flopmap check ./my-book
  flopmap check --claims
  flopmap check --claims --only S1-116
  flopmap check --claims --only agrees --json
  flopmap check --schema > schemas.json
"""


def add_arguments(parser: Parser, _name: str) -> None:
    """A folder, and whether to list the claims."""
    parser.epilog = EXAMPLES
    parser.add_argument(
        "path", nargs="?", metavar="PATH", help="a folder of records of your own, laid over the bundled book"
    )
    parser.add_argument("--claims", action="store_true", help="list the published figures that ours disagree with")
    parser.add_argument(
        "--only",
        metavar="WHICH",
        default="",
        help="all claims, or those of a verdict (agrees, disagrees, convention, unchecked), or of an id or a record",
    )
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
    chosen = select(outcome.claims, options.only or ("all" if options.json else "disagrees"))
    if options.json:
        problems = [problem._asdict() for problem in outcome.problems]
        data = {"schema_version": 1, "problems": problems, "records": outcome.counts, "claims": to_data(chosen)}
        print(to_json(data))
    else:
        _write(outcome, chosen if options.claims or options.only else [])
    return 1 if outcome.problems else 0


def schemas() -> dict[str, Any]:
    """The JSON Schema of each kind, from its type. A record's id is its path, so no schema asks for it."""
    found = {kind: msgspec.json.schema(of) for kind, of in KINDS.items()}
    for schema in found.values():
        for definition in schema["$defs"].values():
            definition.get("properties", {}).pop("id", None)
    return found


def select(claims: list[Judgement], which: str) -> list[Judgement]:
    """The claims of one verdict, or those whose id or record begins with a text; ``all`` takes every one."""
    if which in VERDICTS:
        return [claim for claim in claims if claim.verdict == VERDICTS[which]]
    return [claim for claim in claims if which == "all" or claim.id.startswith(which) or claim.record.startswith(which)]


def _write(outcome: Outcome, chosen: list[Judgement]) -> None:
    number = len(outcome.problems)
    found = f"{number} problem{'' if number == 1 else 's'}" if number else "no problems"
    print(f"{found} in {sum(outcome.counts.values())} records{_tally(outcome.claims)}")
    for problem in outcome.problems:
        print(problem, file=sys.stderr)
    for claim in chosen:
        print(*_lines(claim), sep="\n")


def _tally(claims: list[Judgement]) -> str:
    """How many claims there are of each verdict."""
    counts = [(sum(claim.verdict == verdict for claim in claims), verdict) for verdict in VERDICTS.values()]
    listed = ", ".join(f"{count} {PLURAL.get(verdict, verdict)}" for count, verdict in counts if count)
    return f", {len(claims)} claims: {listed}" if claims else ""


def _lines(claim: Judgement) -> Iterator[str]:
    """One claim: its verdict, what it says, both figures and our formula, and why."""
    verdict = f"holds under {claim.under}" if claim.under else claim.verdict
    place = f"{claim.source} {claim.section}".rstrip()
    yield f"{verdict}: {claim.id}: {claim.says or claim.quantity} ({place})"
    figures = [f"ours {ours(claim)}"] if claim.ours is not None else []
    figures += [f"theirs {theirs(claim)}"] if claim.printed or claim.theirs is not None else []
    if figures:
        yield f"  {', '.join(figures)}{'; ' if claim.formula else ''}{claim.formula}"
    if claim.why:
        yield f"  {claim.why}"
