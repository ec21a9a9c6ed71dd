"""Pages over all records: the first page, search, most referenced, claims, contradictions, glossary, comparison."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from flopmap.records.formula import parse
from flopmap.records.kinds import KINDS
from flopmap.records.types import Law, OpClass, Part
from flopmap.report.model import flat
from flopmap.report.parts import contradictions, entries, written
from flopmap.site.formulas import program
from flopmap.site.html import join, link, section, table, tag
from flopmap.site.links import Key
from flopmap.site.mathml import inline
from flopmap.site.page import OTHER_PAGES, TITLES, Page, to_record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopmap.site.gather import Site
    from flopmap.site.html import Child, Markup

SUMMARY = 160  # characters of a summary in the index of the search
TOP, MOST = 12, 200


def overview_pages(site: Site) -> Iterator[Page]:
    """Every page that is about no single record."""
    yield _first(site)
    search = tag(
        "div", tag("h1", "Search"), tag("p", id="count", role="status"), tag("ol", id="results", class_="results")
    )
    yield Page(path="search.html", title="Search", body=search, scripts=("data/search.js", "assets/search.js"))
    yield _referenced(site)
    yield _claims(site)
    yield _contradictions(site)
    yield _glossary(site)
    yield _compare()


def search_index(site: Site) -> bytes:
    """What the search looks through: kind, id, title, other names and summary of each record, as a script."""
    known = []
    for kind in KINDS:
        for record_id in site.book.ids(kind):
            record = site.book.get(kind, record_id)
            known.append([kind, record.id, record.title, " ".join(record.aliases), record.summary[:SUMMARY]])
    return b'"use strict";\nconst flopmapIndex = ' + msgspec.json.encode({"kinds": TITLES, "records": known}) + b";\n"


def _first(site: Site) -> Page:
    counts = [(link(title, f"{kind}/index.html"), len(site.book.ids(kind))) for kind, title in TITLES.items()]
    judged = [claim for claims in site.claims.values() for claim in claims]
    agree = sum(claim.verdict == "agrees" for claim in judged)
    bounds: dict[str, int] = {}
    for record_id in site.book.ids("flops"):
        bound = site.book.record(OpClass, record_id).bound_by
        bounds[bound] = bounds.get(bound, 0) + 1
    bound_rows = [
        (link(bound.replace("_", " "), f"flops/index.html#bound={bound}"), count)
        for bound, count in sorted(bounds.items(), key=lambda item: -item[1])
    ]
    intro = (
        "Why is my LLM inference slow, and which hardware property would fix it? This is the book that answers: every "
        "cost formula runs in its page, every figure names its source, every published claim is recomputed."
    )
    body = join(
        [
            tag("h1", "flopmap"),
            tag("p", intro, class_="summary"),
            tag(
                "div",
                section("Records", table(("kind", "records"), counts, numbers=1)),
                section("Operation classes by bound", table(("bound", "classes"), bound_rows, numbers=1)),
                section("Most referenced", _ranked(site, TOP)),
                class_="columns",
            ),
            tag(
                "p",
                f"{agree} of {len(judged)} published figures agree with the formulas of the book: ",
                link("all claims", "claims.html"),
                f". Sources disagree on {len(contradictions(_parts(site)))} figures of parts: ",
                link("contradictions", "contradictions.html"),
                ".",
            ),
            tag("p", [[link(title, path), " "] for path, title in OTHER_PAGES.items()]),
        ]
    )
    return Page(path="index.html", title="The book", body=body, description=intro)


def _parts(site: Site) -> list[Part]:
    return [site.book.record(Part, part) for part in site.book.ids("parts")]


def _ranked(site: Site, most: int) -> Markup:
    """The records that most others name."""
    ranked = sorted(site.links.named_by.items(), key=lambda item: (-len(item[1]), item[0]))[:most]
    rows = [(to_record(key, ""), TITLES[key.kind], len(named)) for key, named in ranked if named]
    return table(("record", "kind", "named by"), rows, caption="Records that most others name", numbers=2)


def _referenced(site: Site) -> Page:
    body = join([tag("h1", "Most referenced"), _ranked(site, MOST)])
    return Page(path="most-referenced.html", title="Most referenced", body=body)


def _claims(site: Site) -> Page:
    rows = []
    for place, claims in site.claims.items():
        kind, _, record_id = place.partition("/")
        rows += [
            (
                to_record(Key(kind, record_id), ""),
                tag("code", claim.quantity),
                f"{claim.theirs:.6g}",
                "none" if claim.ours is None else f"{claim.ours:.6g}",
                tag("span", claim.verdict, class_=f"chip {claim.verdict.split()[0]}"),
                to_record(Key("sources", claim.source), ""),
            )
            for claim in claims
        ]
    heads = ("record", "quantity", "published", "recomputed", "verdict", "source")
    body = join(
        [
            tag("h1", "Claims"),
            tag("p", "Figures that others published, held against the formulas of the book."),
            table(heads, rows, caption=f"{len(rows)} claims"),
        ]
    )
    return Page(path="claims.html", title="Claims", body=body)


def _contradictions(site: Site) -> Page:
    rows: list[tuple[Child, ...]] = []
    for part, (name, unit, figure) in contradictions(_parts(site)):
        ours = (
            to_record(Key("parts", part), ""),
            name,
            written(figure.value, unit),
            to_record(Key("sources", figure.source), ""),
            figure.note,
        )
        rows.append(ours)
        rows += [
            (
                "",
                tag("span", "or", class_="or"),
                written(it.value, unit),
                to_record(Key("sources", it.source), ""),
                it.note,
            )
            for it in figure.others
        ]
    heads = ("part", "figure", "value", "source", "why")
    intro = "Where sources print different values for the same figure. The first is the one in use."
    body = join(
        [
            tag("h1", "Contradictions"),
            tag("p", intro),
            table(heads, rows, caption="Figures of parts on which sources disagree"),
        ]
    )
    return Page(path="contradictions.html", title="Contradictions", body=body)


def _glossary(site: Site) -> Page:
    used: dict[str, list[Key]] = {}
    for kind, of in (("flops", OpClass), ("laws", Law)):
        for record_id in site.book.ids(kind):
            record: OpClass | Law = site.book.record(of, record_id)  # type: ignore[assignment]
            for symbol in program(record, site.book).symbols:
                used.setdefault(symbol.name, []).append(Key(kind, record_id))
    rows = [
        (
            tag("code", name, id=name),
            symbol.unit,
            symbol.meaning,
            inline(parse(symbol.sum)) if symbol.sum else "",
            join([[to_record(key, ""), " "] for key in used.get(name, ())]),
        )
        for name, symbol in site.book.glossary.symbols.items()
    ]
    conventions = [
        (tag("code", name), convention.meaning, choice, meaning, "default" if index == 0 else "")
        for name, convention in site.book.conventions.items()
        for index, (choice, meaning) in enumerate(convention.values.items())
    ]
    body = join(
        [
            tag("h1", "Glossary"),
            section(
                "Symbols",
                table(("symbol", "unit", "meaning", "sum over sequences", "in"), rows, caption="Symbols of formulas"),
            ),
            section(
                "Conventions",
                table(("convention", "chooses", "value", "meaning", ""), conventions, caption="Ways of counting"),
            ),
        ]
    )
    return Page(path="glossary.html", title="Glossary", body=body)


# -- comparison -------------------------------------------------------------------------------------------------------


def _compare() -> Page:
    chosen = tag(
        "form",
        tag("label", "compare ", tag("select", tag("option", "parts"), tag("option", "models"), name="kind")),
        tag("label", "one ", tag("select", name="a")),
        tag("label", "other ", tag("select", name="b")),
        id="compare",
        class_="filters",
    )
    body = join([tag("h1", "Compare"), chosen, tag("div", id="comparison")])
    return Page(path="compare.html", title="Compare", body=body, scripts=("data/compare.js", "assets/compare.js"))


def compare_data(site: Site) -> bytes:
    """What the comparison shows: every figure of parts, every count of models, as text by name, as a script."""
    parts = {
        part.id: {entry.name: [written(entry.figure.value, entry.unit), entry.figure.value] for entry in entries(part)}
        for part in _parts(site)
    }
    models = {
        model: {name: [text, None] for name, text in flat(found).items()} for model, found in site.accounts.items()
    }
    return (
        b'"use strict";\nconst flopmapCompare = '
        + json.dumps({"parts": parts, "models": models}, separators=(",", ":")).encode()
        + b";\n"
    )
