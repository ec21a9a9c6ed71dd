"""What every page has: head, policy, navigation, and the way from one page to another."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from flopmap import __version__
from flopmap.site.html import Markup, join, link, tag

if TYPE_CHECKING:
    from flopmap.site.html import Child
    from flopmap.site.links import Key

TITLES = {
    "flops": "Operation classes",
    "laws": "Laws",
    "parts": "Parts",
    "machines": "Machines",
    "models": "Models",
    "engines": "Engines",
    "formats": "Formats",
    "levers": "Levers",
    "readings": "Readings",
    "measurements": "Measurements",
    "crossovers": "Measured crossovers",
    "efficiency": "Efficiency of kernels",
    "traps": "Traps",
    "kernels": "Names of kernels",
    "claims": "Claims",
    "sources": "Sources",
}
OTHER_PAGES = {
    "compare.html": "Compare",
    "claims.html": "Claims",
    "contradictions.html": "Contradictions",
    "most-referenced.html": "Most referenced",
    "glossary.html": "Glossary",
}
WORKBENCH = {"why": "Why", "diagnose": "Diagnose"}
# no request leaves the page: scripts, styles and answers come from where the page comes from
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'"
)


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One page before it is laid out. ``path`` is below the site's root, ``scripts`` are paths there too."""

    path: str
    title: str
    body: Markup
    description: str = ""
    scripts: tuple[str, ...] = ()

    @property
    def root(self) -> str:
        """The way from the page to the site's root."""
        return "../" * self.path.count("/")


def path_of(key: Key, ending: str = "html") -> str:
    """Where the page of a record is."""
    return f"{key.kind}/{key.id}.{ending}"


def to_record(key: Key, root: str, text: Child = None) -> Markup:
    """A link to a record's page."""
    return link(text or key.id, root + quote(path_of(key)))


def render(page: Page, *, served: bool) -> bytes:
    """The page as HTML; ``served`` adds the workbench to the navigation."""
    root = page.root
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="description", content=page.description or page.title),
        tag("title", f"{page.title} · flopmap"),
        tag("link", rel="icon", href=f"{root}assets/icon.svg", type="image/svg+xml"),
        tag("link", rel="stylesheet", href=f"{root}assets/style.css"),
        [tag("script", src=root + quote(script), defer=True) for script in ("assets/site.js", *page.scripts)],
    ]
    body = [
        tag("a", "Skip to content", href="#main", class_="skip"),
        tag("header", _banner(page, served=served)),
        tag("main", page.body, id="main", tabindex=-1),
        tag(
            "footer",
            tag("p", f"flopmap {__version__}. Figures in SI units; one multiply-add is 2 FLOP; GB is 1e9 bytes."),
        ),
    ]
    whole = tag("html", tag("head", head), tag("body", body), lang="en")
    return f"<!doctype html>\n{whole}\n".encode()


def _banner(page: Page, *, served: bool) -> Markup:
    root = page.root
    kinds = [
        _entry(title, f"{root}{kind}/index.html", page.path == f"{kind}/index.html") for kind, title in TITLES.items()
    ]
    more = [_entry(title, root + path, page.path == path) for path, title in OTHER_PAGES.items()]
    tools = [_entry(title, root + path, page.path == path) for path, title in WORKBENCH.items()] if served else []
    search = tag(
        "form",
        tag("label", "Search", for_="q", class_="unseen"),
        tag("input", type="search", name="q", id="q", placeholder="Search all records", autocomplete="off"),
        action=f"{root}search.html",
        method="get",
        role="search",
    )
    menu = tag("details", tag("summary", "All pages"), tag("ul", join(kinds + more)), class_="menu")
    return join(
        [
            tag("a", "flopmap", href=f"{root}index.html", class_="name"),
            tag("nav", tag("ul", tools, kinds[:3], kinds[4:5]), menu, aria_label="Pages"),
            search,
        ]
    )


def _entry(title: str, href: str, here: bool) -> Markup:  # noqa: FBT001 - one caller
    return tag("li", tag("a", title, href=href, aria_current="page" if here else None))
