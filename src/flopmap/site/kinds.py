"""What only some kinds have on their page: figures and rooflines of parts, accounts of models, conditions of gates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from flopmap.machine.machine import dtypes, matrix_peak
from flopmap.quantity import amount, percent, significant
from flopmap.records.book import to_data
from flopmap.records.types import Model, OpClass, Part, Record, Source
from flopmap.report.parts import RIDGE_NOTES, Entry, entries, ridge_rows, ridges, written
from flopmap.site.html import Markup, items, join, outward, section, table, tag
from flopmap.site.links import KIND_OF_FIELD, Key
from flopmap.site.page import to_record
from flopmap.site.plot import roofline

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flopmap.records.book import Book
    from flopmap.report.model import Account
    from flopmap.site.gather import Site

COMMON = tuple(Record.__struct_fields__)
EMPTY: tuple[Any, ...] = ("", None, [], {}, ())


def body(key: Key, record: Record, site: Site, root: str) -> Markup | None:
    """The sections of a record's own kind."""
    if isinstance(record, Part):
        return _part(record, site.book, root)
    if isinstance(record, Model):
        return _model(record, site.accounts[record.id])
    if isinstance(record, OpClass):
        return _gate(record)
    if isinstance(record, Source):
        rest = ", ".join(filter(None, (record.publisher, record.date, record.kind, record.licence)))
        return tag("p", rest, tag("br"), outward(record.url))
    if key.kind == "laws":
        return None
    fields = {name: value for name, value in to_data(record).items() if name not in COMMON and value not in EMPTY}
    return section("Fields", _fields(fields, site.book, root))


# -- parts ------------------------------------------------------------------------------------------------------------


def _part(part: Part, book: Book, root: str) -> Markup:
    words = ", ".join(filter(None, (f"{part.vendor} {part.architecture}", part.kind, part.isa, part.memory_type)))
    peaks = {
        dtype: peak.value for dtype in dtypes(part) if (peak := matrix_peak(part, dtype)) and peak.unit == "matrix"
    }
    drawn = roofline(part.bandwidth_bytes_per_second.value, peaks)
    found = ridges([part], book)
    head, *rows = ridge_rows(found)
    return join(
        [
            tag("p", words),
            section("Figures", figures(entries(part), root)),
            section("Roofline", tag("figure", drawn, class_="plot")) if drawn else None,
            section(
                "Ridges",
                table(head[1:], [row[1:] for row in rows], numbers=1),
                tag("p", " ".join(RIDGE_NOTES), class_="note"),
            )
            if rows
            else None,
        ]
    )


def figures(of: Iterable[Entry], root: str) -> Markup:
    """Every figure with its source, and under it what other sources print."""
    rows: list[tuple[Any, ...]] = []
    for name, unit, figure in of:
        rows.append((name, written(figure.value, unit), to_record(Key("sources", figure.source), root), figure.note))
        rows += [
            (
                tag("span", "or", class_="or"),
                written(it.value, unit),
                to_record(Key("sources", it.source), root),
                it.note,
            )
            for it in figure.others
        ]
    return table(("figure", "value", "source", "note"), rows, caption="Figures and their sources")


# -- models -----------------------------------------------------------------------------------------------------------


def _model(record: Model, found: Account) -> Markup:
    whole = max(found.parameters, 1)
    facts: list[tuple[str, str]] = [
        ("family", found.family),
        ("parameters", f"{found.parameters:,}"),
        ("of them multiply a token", f"{found.active_parameters:,}"),
        *(
            (f"in {place}", f"{number:,} ({percent(number / whole)})")
            for place, number in found.parameters_by_place.items()
        ),
        ("weights", f"{amount(found.weight_bytes, 'B')} ({found.weight_format})"),
        ("cache of a token", f"{found.kv_bytes_per_token:,.0f} B"),
    ]
    if found.state_bytes_per_sequence:
        facts.append(("state of a sequence", amount(found.state_bytes_per_sequence, "B")))
    facts += [
        (f"a token at context {context:,}", amount(flop, "FLOP")) for context, flop in found.flop_per_token.items()
    ]
    if found.flop_per_image:
        facts.append(("an image of 1024x1024", f"{amount(found.flop_per_image, 'FLOP')} in towers"))
    facts += [("hidden", f"{found.hidden:,}"), ("vocabulary", f"{found.vocab:,}"), ("layers", found.layers)]
    facts += [(f"layer {letter}", words) for letter, words in found.legend.items()]
    notes = [f"assumed: {note}" for note in found.assumptions] + [f"not counted: {what}" for what in found.not_counted]
    config = msgspec.json.format(msgspec.json.encode(record.config), indent=1).decode()
    shown = tag("details", tag("summary", "Fields of its config.json"), tag("pre", config, tabindex=0))
    return join(
        [
            section("Account", table(("", "value"), facts, caption="Account of the model"), items(notes)),
            section("Config", shown),
        ]
    )


# -- operation classes ------------------------------------------------------------------------------------------------


def _gate(record: OpClass) -> Markup | None:
    rows = [(tag("code", each.when or "otherwise"), each.answer, each.why) for each in record.available]
    return (
        section("Where it runs", table(("when", "answer", "why"), rows, caption="The first that holds answers"))
        if rows
        else None
    )


# -- any other --------------------------------------------------------------------------------------------------------


def _fields(value: Any, book: Book, root: str) -> Markup:
    """Fields of any kind: nested tables as lists, names of records as links."""
    return tag(
        "dl",
        [
            [tag("dt", name.replace("_", " ")), tag("dd", _field(name, item, book, root))]
            for name, item in value.items()
            if item not in EMPTY
        ],
    )


def _field(name: str, item: Any, book: Book, root: str) -> Markup | str:
    if isinstance(item, dict):
        return _fields(item, book, root)
    if isinstance(item, list | tuple):
        return items(_field(name, entry, book, root) for entry in item) or ""
    kind = KIND_OF_FIELD.get(name)
    if kind and isinstance(item, str) and (found := book.find(kind, item)):
        return to_record(Key(kind, found), root)
    if isinstance(item, bool):
        return "yes" if item else "no"
    return (
        significant(item)
        if isinstance(item, float) and not item.is_integer()
        else f"{item:,.0f}"
        if isinstance(item, int | float)
        else str(item)
    )
