"""Write docs/errata.md: what published documents say that does not come out as they say, beside our figure and why.

python tools/errata.py            # write the page
python tools/errata.py --check    # exit 1 when the page is not what it would write
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from flopmap.checks.claims import VERDICTS, Judgement, ours, theirs
from flopmap.checks.run import check
from flopmap.records.book import Book, load
from flopmap.records.types import Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PAGE = Path(__file__).parent.parent / "docs" / "errata.md"
HEAD = """# Errata

Every figure and formula of the documents that this project started from is a record of the book (`book/claims`), in our
words. `flopmap check` recomputes each, from the formulas of the op classes and laws where they have it. This page holds
what does not come out as printed. A printed figure agrees when ours rounds to it. The inputs of a formula are in its
record, its names in the glossary (`book/symbols.yaml`). Made by `python tools/errata.py`.

"""


def main() -> int:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    text = page(check(()).claims, load())
    if options.check:
        current = PAGE.read_text() if PAGE.exists() else ""
        if current != text:
            print("docs/errata.md is not current: python tools/errata.py", file=sys.stderr)
        return int(current != text)
    PAGE.write_text(text)
    print(text.split("\n\n")[2])
    return 0


def page(claims: Sequence[Judgement], book: Book) -> str:
    """The document, of the claims that documents make."""
    said = [claim for claim in claims if claim.says]
    of = {word: [claim for claim in said if claim.verdict == verdict] for word, verdict in VERDICTS.items()}
    counts = (
        f"{len(said)} claims: {len(of['agrees'])} agree, {len(of['convention'])} hold under a convention, "
        f"{len(of['disagrees'])} disagree, {len(of['unchecked'])} cannot be checked.\n"
    )
    parts = [HEAD + counts]
    for title, word, columns in (
        ("Disagree", "disagrees", ("theirs", "ours", "our formula", "why")),
        ("Hold under a convention", "convention", ("theirs", "ours", "holds under", "otherwise")),
        ("Cannot be checked", "unchecked", ("why",)),
    ):
        parts.append(f"\n## {title}\n")
        for source in dict.fromkeys(claim.source for claim in of[word]):
            rows = [row(claim, columns) for claim in of[word] if claim.source == source]
            parts.append(f"\n### {book.record(Source, source).title}\n\n{''.join(table(columns, rows))}")
    return "".join(parts)


def table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """The lines of a table."""
    heads = ("claim", "place", "it says", *columns)
    yield f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}\n"
    for cells in rows:
        yield f"| {' | '.join(cells)} |\n"


def row(claim: Judgement, columns: tuple[str, ...]) -> tuple[str, ...]:
    """One claim, in the columns of its table."""
    on = f"`{claim.formula}`" + (f" ({claim.record})" if not claim.record.startswith("claims/") else "")
    cells = {
        "theirs": theirs(claim),
        "ours": ours(claim),
        "our formula": on,
        "holds under": claim.under,
        "otherwise": claim.why,
        "why": claim.why,
    }
    return (claim.id, claim.section, claim.says, *(cells[column] for column in columns))


if __name__ == "__main__":
    sys.exit(main())
