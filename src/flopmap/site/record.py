"""The page of one record: what every kind has, around what only its kind has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flopmap.records.book import to_data, to_json
from flopmap.records.kinds import KINDS
from flopmap.records.types import Law, OpClass, Source
from flopmap.site.formula_section import formula_section
from flopmap.site.formulas import program, script
from flopmap.site.html import Markup, items, join, link, outward, section, table, tag
from flopmap.site.kinds import body
from flopmap.site.links import Key
from flopmap.site.page import TITLES, Page, path_of, to_record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopmap.checks.claims import Judgement
    from flopmap.records.types import Record
    from flopmap.site.gather import Site

SHOWN = 40  # records of a kind that name this one, before they are folded
RUNTIME = ("assets/formulas.js", "assets/draw.js", "assets/record.js")


def record_files(key: Key, site: Site) -> Iterator[tuple[str, Page | bytes]]:
    """The page of a record, its data, and the script of its formulas."""
    record = site.book.get(key.kind, key.id)
    root = "../" * path_of(key).count("/")
    live: Markup | None = None
    scripts: tuple[str, ...] = ()
    if isinstance(record, OpClass | Law):
        formulas = program(record, site.book)
        live = formula_section(formulas, root, site.book)
        if live:
            scripts = (*RUNTIME[:2], path_of(key, "js"), RUNTIME[2])
            yield path_of(key, "js"), script(formulas).encode()
    parts = (
        _head(key, record, site),
        live,
        body(key, record, site, root),
        _claims(site.claims.get(f"{key.kind}/{key.id}", []), root),
        section("Notes", items(record.notes)),
        _sources(key, site, root),
        _names(key, site, root),
        _named_by(key, site, root),
        tag("p", link("This record as JSON", key.id.rsplit("/", 1)[-1] + ".json"), class_="data"),
    )
    yield (
        path_of(key),
        Page(path=path_of(key), title=record.title, body=join(parts), description=record.summary, scripts=scripts),
    )
    yield path_of(key, "json"), to_json(record_data(key, record, site)).encode()


def record_data(key: Key, record: Record, site: Site) -> dict[str, Any]:
    """The record with what is known around it: verdicts on its claims, and links both ways."""
    return {
        "kind": key.kind,
        "record": to_data(record),
        "claims": to_data(site.claims.get(f"{key.kind}/{key.id}", [])),
        "names": [f"{other.kind}/{other.id}" for other in site.links.names[key]],
        "named_by": [f"{other.kind}/{other.id}" for other in site.links.named_by[key]],
    }


def _head(key: Key, record: Record, site: Site) -> Markup:
    chips = [
        tag("span", record.status, class_=f"chip {record.status}"),
        tag("span", f"confidence {record.confidence:g}", class_="chip"),
    ]
    if isinstance(record, OpClass):
        chips.insert(0, tag("span", record.kind, class_="chip"))
        chips.insert(1, tag("span", f"bound by {record.bound_by.replace('_', ' ')}", class_=f"chip {record.bound_by}"))
        chips += [tag("span", phase, class_="chip") for phase in site.links.phases.get(key.id, ())]
    also = tag("p", "also: ", ", ".join(record.aliases), class_="aliases") if record.aliases else None
    where = tag("p", link(TITLES[key.kind], "../" * key.id.count("/") + "index.html"), f" / {key.id}", class_="crumbs")
    summary = tag("p", record.summary, class_="summary") if record.summary else None
    return tag("div", where, tag("h1", record.title), tag("p", chips, class_="chips"), summary, also, class_="head")


def _claims(judged: list[Judgement], root: str) -> Markup | None:
    rows = [
        (
            tag("code", claim.quantity),
            f"{claim.theirs:.6g}",
            "none" if claim.ours is None else f"{claim.ours:.6g}",
            tag("span", claim.verdict, class_=f"chip {claim.verdict.split()[0]}"),
            to_record(Key("sources", claim.source), root),
            claim.why,
        )
        for claim in judged
    ]
    heads = ("quantity", "published", "recomputed", "verdict", "source", "note")
    return (
        section("Claims", table(heads, rows, caption="Published figures, recomputed when this site was built"))
        if rows
        else None
    )


def _sources(key: Key, site: Site, root: str) -> Markup | None:
    """The sources in full."""
    lines = []
    for other in site.links.names[key]:
        if other.kind == "sources":
            source = site.book.record(Source, other.id)
            details = ", ".join(filter(None, (source.publisher, source.date, source.kind)))
            there = join([" ", outward(source.url)])
            lines.append(join([to_record(other, root, source.title), f". {details}.", there]))
    return section("Sources", items(lines))


def _names(key: Key, site: Site, root: str) -> Markup | None:
    named = [other for other in site.links.names[key] if other.kind != "sources"]
    return section("Names", _by_kind(named, root)) if named else None


def _named_by(key: Key, site: Site, root: str) -> Markup | None:
    named = site.links.named_by[key]
    return section("Named by", _by_kind(named, root)) if named else None


def _by_kind(keys: list[Key] | tuple[Key, ...], root: str) -> Markup:
    """Records by kind; a long list is folded."""
    lists = []
    for kind in KINDS:
        found = [to_record(key, root) for key in keys if key.kind == kind]
        if not found:
            continue
        entries = tag("ul", [tag("li", each) for each in found], class_="inline")
        title = f"{TITLES[kind]}: {len(found)}"
        lists.append(tag("details", tag("summary", title), entries, open=len(found) <= SHOWN))
    return join(lists)
