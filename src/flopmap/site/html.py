"""HTML from plain functions: text is escaped unless it is markup already, so no page can forget to."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Markup(str):
    """Text that is HTML."""

    __slots__ = ()


Child: TypeAlias = "str | int | Iterable[Child] | None"
Attribute: TypeAlias = "str | float | bool | None"
VOID = ("input", "meta", "link", "br", "wbr")


def tag(name: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """An element. ``class_`` is written ``class`` and ``data_x`` ``data-x``; None and False leave an attribute out."""
    written = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        spelt = key.rstrip("_").replace("_", "-")
        written.append(spelt if value is True else f'{spelt}="{html.escape(str(value))}"')
    opening = f"<{' '.join(written)}>"
    return Markup(opening if name in VOID else f"{opening}{join(children)}</{name}>")


def join(children: Child) -> Markup:
    """Children one after another."""
    if children is None:
        return Markup("")
    if isinstance(children, Markup):
        return children
    if isinstance(children, str | int):
        return Markup(html.escape(str(children)))
    return Markup("".join(map(join, children)))


def link(text: Child, href: str, /, **attributes: Attribute) -> Markup:
    """A link; one that leads out of the site says so and tells the other side nothing."""
    if href.startswith(("http://", "https://")):
        attributes = {"rel": "noreferrer external", **attributes}
    return tag("a", text, href=href, **attributes)


def outward(address: str) -> Child:
    """An address out of the site as a link, if it is one of the web."""
    return link(address, address) if address.startswith(("http://", "https://")) else address


def table(head: Sequence[Child], rows: Iterable[Sequence[Child]], *, caption: str = "", numbers: int = 99) -> Markup:
    """A table that scrolls by itself where it is wide; columns from ``numbers`` on are set right."""
    cells = [
        tag("tr", [tag("td", cell, class_="n" if column >= numbers else None) for column, cell in enumerate(row)])
        for row in rows
    ]
    heads = [
        tag("th", cell, scope="col", class_="n" if column >= numbers else None) for column, cell in enumerate(head)
    ]
    whole = tag(
        "table", tag("caption", caption) if caption else None, tag("thead", tag("tr", heads)), tag("tbody", cells)
    )
    return tag("div", whole, class_="wide", tabindex=0, role="region", aria_label=caption or "table")


def section(title: str, *children: Child, **attributes: Attribute) -> Markup | None:
    """A section with its heading; None where there is nothing in it."""
    inside = join(children)
    return tag("section", tag("h2", title), inside, **attributes) if inside else None


def items(of: Iterable[Child]) -> Markup | None:
    """A list, or None when it is empty."""
    entries = [tag("li", each) for each in of]
    return tag("ul", entries) if entries else None
