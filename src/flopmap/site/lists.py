"""A list page a kind: a row a record, with what it can be filtered by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flopmap.quantity import amount
from flopmap.records.book import to_json
from flopmap.records.types import Crossover, Engine, Format, MachineRecord, Model, OpClass, Part, Record, Source, Spread
from flopmap.report.parts import listed
from flopmap.site.html import Markup, join, link, tag
from flopmap.site.links import Key
from flopmap.site.page import TITLES, Page, to_record

if TYPE_CHECKING:
    from flopmap.site.gather import Site

CONFIDENCES = (0.95, 0.9, 0.8, 0.7)


def list_page(kind: str, site: Site) -> Page:
    """All records of a kind, with a filter for each property that tells them apart."""
    records = [site.book.get(kind, record_id) for record_id in site.book.ids(kind)]
    rows = [_row(kind, record, site) for record in records]
    filters = [_filter(name, rows) for name in rows[0][0]] if rows else []
    heads = ["record", *(rows[0][1] if rows else {}), "status", "named by"]
    cells = [
        tag(
            "tr",
            tag("td", to_record(Key(kind, record.id), "../"), tag("span", record.title, class_="title")),
            [tag("td", value) for value in shown.values()],
            tag("td", tag("span", record.status, class_=f"chip {record.status}"), f" {record.confidence:g}"),
            tag("td", len(site.links.named_by[Key(kind, record.id)]), class_="n"),
            data_words=" ".join((record.id, record.title, *record.aliases)).lower(),
            data_confidence=record.confidence,
            **{f"data_{name}": value for name, value in told.items()},
        )
        for record, (told, shown) in zip(records, rows, strict=True)
    ]
    whole = tag("table", tag("thead", tag("tr", [tag("th", head, scope="col") for head in heads])), tag("tbody", cells))
    body = join(
        [
            tag("h1", TITLES[kind]),
            tag("form", _words(), filters, _confidence(), class_="filters", id="filters"),
            tag("p", f"{len(records)} of {len(records)} records", id="count", role="status"),
            tag("div", whole, class_="wide list", tabindex=0, role="region", aria_label=TITLES[kind]),
            tag("p", link("This list as JSON", "index.json"), class_="data"),
        ]
    )
    return Page(path=f"{kind}/index.html", title=TITLES[kind], body=body, scripts=("assets/list.js",))


def list_data(kind: str, site: Site) -> bytes:
    """The list as JSON: what the page shows and filters by."""
    found = []
    for record_id in site.book.ids(kind):
        record = site.book.get(kind, record_id)
        told, _ = _row(kind, record, site)
        found.append(
            {
                "id": record.id,
                "title": record.title,
                "aliases": record.aliases,
                **told,
                "status": record.status,
                "confidence": record.confidence,
            }
        )
    return to_json(found).encode()


def _row(kind: str, record: Record, site: Site) -> tuple[dict[str, str], dict[str, Any]]:
    """What a record is filtered by (several values with a ``|`` between), and what its row shows."""
    told: dict[str, str] = {}
    shown: dict[str, Any] = {}
    if isinstance(record, OpClass):
        told = {"bound": record.bound_by, "kind": record.kind, "phase": "|".join(site.links.phases.get(record.id, ()))}
        shown = {
            "kind": record.kind,
            "bound": record.bound_by.replace("_", " "),
            "phases": told["phase"].replace("|", ", "),
        }
    elif isinstance(record, Part):
        told = {"vendor": record.vendor, "kind": record.kind}
        head, row = listed([record])
        shown = dict(zip(head[1:-1], row[1:-1], strict=True))
    elif isinstance(record, MachineRecord):
        part = site.book.record(Part, record.part)
        told = {"vendor": part.vendor, "kind": part.kind}
        shown = {"part": to_record(Key("parts", part.id), "../"), "count": record.count}
    elif isinstance(record, Model):
        told = {
            "vendor": record.id.partition("/")[0] if "/" in record.id else "",
            "family": str(record.config.get("model_type", "")),
        }
        shown = {"family": told["family"]}
    elif isinstance(record, Source):
        told = {"kind": record.kind}
        shown = {"publisher": record.publisher, "kind": record.kind, "date": record.date}
    else:
        told, shown = _other(kind, record)
    return {**told, "status": record.status}, shown


def _other(kind: str, record: Record) -> tuple[dict[str, str], dict[str, Any]]:
    if isinstance(record, Engine):
        return {"phase": "|".join(record.graphs)}, {"captured graphs": ", ".join(record.graphs)}
    if isinstance(record, Spread):
        return {"phase": record.phase}, {"phase": record.phase, "results": f"{record.rows:,}"}
    if isinstance(record, Format):
        return {"kind": "|".join(record.applies_to)}, {"bits": f"{record.bits:g}", "group": str(record.group or "")}
    if isinstance(record, Crossover):
        return {}, {
            "part": to_record(Key("parts", record.part), "../"),
            "batches": ", ".join(f"{it.dtype} {amount(it.value, '')}".strip() for it in record.batches),
        }
    return {}, {"": record.summary[:120]} if kind != "laws" else {"summary": record.summary[:120]}


def _words() -> Markup:
    field = tag("input", type="search", name="words", autocomplete="off")
    return tag("label", "words ", field)


def _filter(name: str, rows: list[tuple[dict[str, str], dict[str, Any]]]) -> Markup | None:
    """A choice among the values of a property, with their numbers; none where there is no choice."""
    counts: dict[str, int] = {}
    for told, _ in rows:
        for value in told[name].split("|"):
            counts[value] = counts.get(value, 0) + 1
    options = [tag("option", "any", value="")]
    options += [
        tag("option", f"{value.replace('_', ' ')} ({counts[value]})", value=value) for value in sorted(counts) if value
    ]
    return tag("label", f"{name} ", tag("select", options, name=name)) if len(counts) > 1 else None


def _confidence() -> Markup:
    options = [tag("option", "any", value="")] + [
        tag("option", f"at least {least}", value=least) for least in CONFIDENCES
    ]
    return tag("label", "confidence ", tag("select", options, name="confidence"))
