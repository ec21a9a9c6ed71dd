"""The numbers in the documents that count what is there, and the numbers that are there.

Each sentence holds its numbers as ``{name}``; what stands in the document in their place must be what :func:`facts`
says. ``python tests/docs/examples.py`` writes them anew.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

from flopmap.model.families import KNOWN
from flopmap.model.gguf_model import ARCHITECTURES
from flopmap.model.methods import METHODS
from flopmap.records.kinds import KINDS
from flopmap.records.types import Spread

if TYPE_CHECKING:
    from pathlib import Path

    from flopmap.records.book import Book

SUMMARY = re.compile(
    r"^(?P<types>\d+) types: (?P<equal_parameters>\d+) with equal parameters, (?P<equal_flop>\d+) with equal FLOP, "
    r"(?P<explained>\d+) with FLOP that differ for a stated reason, (?P<refused>\d+) refused by name\.$",
    re.MULTILINE,
)


ERRATA = re.compile(
    r"^(?P<said>\d+) claims: (?P<agreeing>\d+) agree, (?P<conventional>\d+) hold under a convention, "
    r"(?P<disagreeing>\d+) disagree, (?P<unchecked>\d+) cannot be checked\.$",
    re.MULTILINE,
)


class Sentence(NamedTuple):
    """A piece of a document with numbers in it."""

    document: str
    text: str


SENTENCES = (
    Sentence("README.md", "| models | {models} bundled, and any `config.json` of {families} model types"),
    Sentence("README.md", "GGUF files of {gguf} architectures"),
    Sentence("README.md", "| parts | {parts}: "),
    Sentence("README.md", "server CPUs; {machines} machines that people rent or buy"),
    Sentence("README.md", "| formats | {formats}: "),
    Sentence("README.md", "`quantization_config` of {methods} methods"),
    Sentence("README.md", "| engines | {engines} records"),
    Sentence("README.md", "The best known of the {families} model types"),
    Sentence("README.md", "{truths} dense models and of {variations} made-up variations"),
    Sentence("README.md", "Of the {types} causal-LM types that transformers maps, {equal_parameters} have"),
    Sentence("README.md", "and {equal_flop} have equal FLOP; {explained} differ"),
    Sentence("README.md", "{refused} are refused by name"),
    Sentence("README.md", "Of {measured} public measurements"),
    Sentence(
        "README.md", "Of {said} statements of three documents {agreeing} agree, {conventional} hold under one way"
    ),
    Sentence("README.md", "under one way of counting, {disagreeing} do not, and {unchecked} cannot be checked"),
    Sentence(
        "docs/design.md", "of the {said} figures in the documents that this project started from, {disagreeing} do not"
    ),
    Sentence("CHANGELOG.md", "the {said} figures and formulas of three documents"),
    Sentence("CHANGELOG.md", "{flops} operation classes and {laws} laws"),
    Sentence(
        "CHANGELOG.md",
        "{parts} parts, {machines} machines, {models} models, {engines} engines, {formats} number formats",
    ),
    Sentence("CHANGELOG.md", "number formats, {levers} levers"),
    Sentence("CHANGELOG.md", "{families} model types"),
    Sentence("CHANGELOG.md", "to the integer for {equal_parameters} of the {types} types"),
    Sentence("docs/design.md", "all {families} model types"),
)


def facts(book: Book, root: Path) -> dict[str, int]:
    """What there is, by the names that sentences use."""
    oracle = root / "tests" / "oracle"
    summary = SUMMARY.search((root / "docs" / "oracle.md").read_text())
    assert summary, "docs/oracle.md has no summary: python tools/oracle_table.py"
    errata = ERRATA.search((root / "docs" / "errata.md").read_text())
    assert errata, "docs/errata.md has no summary: python tools/errata.py"
    return {
        **{kind: len(book.ids(kind)) for kind in KINDS},
        **{name: int(number) for found in (summary, errata) for name, number in found.groupdict().items()},
        "families": len(KNOWN),
        "gguf": len(ARCHITECTURES),
        "methods": len(METHODS),
        "measured": sum(book.record(Spread, name).rows for name in book.ids("measurements")),
        "truths": _entries(oracle / "dense.json"),
        "variations": _entries(oracle / "variations.json"),
    }


def _entries(path: Path) -> int:
    return len(json.loads(path.read_text())["entries"])


def pattern(sentence: Sentence) -> re.Pattern[str]:
    """What finds the sentence in its document, however its lines are broken and whatever its numbers are."""
    parts = re.split(r"\{\w+\}", sentence.text)
    return re.compile(r"([\d,]+)".join(r"\s+".join(map(re.escape, part.split(" "))) for part in parts))


def names(sentence: Sentence) -> list[str]:
    """The names of its numbers in order."""
    return re.findall(r"\{(\w+)\}", sentence.text)


def renewed(text: str, document: str, known: dict[str, int]) -> str:
    """The text of a document with the numbers that are there."""
    for sentence in SENTENCES:
        found = pattern(sentence).search(text)
        if found is None or sentence.document != document:
            continue
        for group, name in reversed([*enumerate(names(sentence), 1)]):
            text = f"{text[: found.start(group)]}{known[name]}{text[found.end(group) :]}"
    return text
