"""All rules over a book, each a module of this package."""

from __future__ import annotations

from pathlib import Path

import msgspec

from flopmap.checks import claims, conditions, formulas, kernels, links, scenarios, statements
from flopmap.records.author import draft, replace
from flopmap.records.book import BOOK, BUILT, decode
from flopmap.records.faults import MissingBookError
from flopmap.records.yaml_file import Faults, Problem


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found: problems in order of file and line, how many records of each kind, the claims' verdicts."""

    problems: list[Problem]
    counts: dict[str, int]
    claims: list[claims.Judgement]


def check(overlays: tuple[Path, ...]) -> Outcome:
    """Read, build and check the bundled book with the overlays on it.

    Raises :class:`MissingBookError` for a missing folder.
    """
    for overlay in overlays:
        if not overlay.is_dir():
            raise MissingBookError(f"{overlay}: no such folder")
    try:
        drafted = draft((Path(BOOK), *overlays))
    except Faults as faults:
        return Outcome(problems=_ordered(faults.problems), counts={}, claims=[])
    counts = {kind: len(files) for kind, files in drafted.source.records.items() if files}
    if drafted.problems:
        return Outcome(problems=_ordered(drafted.problems), counts=counts, claims=[])
    if not overlays:
        replace(Path(BUILT), drafted.built, drafted.started)
    book = decode(drafted.whole)
    problems = list(formulas.check(book, drafted.source))
    judged: list[claims.Judgement] = []
    if not problems:  # a formula that cannot be read or evaluated would stop the rules that evaluate
        judged = claims.judge(book)
        problems += claims.check(judged, drafted.source)
        said = statements.judge(book)
        problems += statements.check(said, book, drafted.source)
        judged += said
    problems += links.check(book, drafted.source)
    problems += scenarios.check(book, drafted.source)
    problems += conditions.check(book, drafted.source)
    problems += kernels.check(book, drafted.source)
    return Outcome(problems=_ordered(problems), counts=counts, claims=judged)


def _ordered(problems: list[Problem]) -> list[Problem]:
    return sorted(set(problems))
