"""The whole site, file by file, from a book."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flopmap.records.kinds import KINDS
from flopmap.site.gather import gather
from flopmap.site.links import Key
from flopmap.site.lists import list_data, list_page
from flopmap.site.overview import compare_data, overview_pages, search_index
from flopmap.site.page import Page, render
from flopmap.site.record import record_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopmap.records.book import Book

ASSETS = Path(__file__).parent / "assets"


def build(book: Book, *, served: bool = False) -> Iterator[tuple[str, bytes]]:
    """Every file of the site: its path with ``/`` between folders, and its bytes. ``served`` adds what a server has."""
    site = gather(book)
    for file in sorted(ASSETS.iterdir()):
        yield f"assets/{file.name}", file.read_bytes()
    for kind in KINDS:
        yield _laid(list_page(kind, site), served=served)
        yield f"{kind}/index.json", list_data(kind, site)
        for record_id in book.ids(kind):
            for path, content in record_files(Key(kind, record_id), site):
                yield _laid(content, served=served) if isinstance(content, Page) else (path, content)
    for page in overview_pages(site):
        yield _laid(page, served=served)
    yield "data/search.js", search_index(site)
    yield "data/compare.js", compare_data(site)


def _laid(page: Page, *, served: bool) -> tuple[str, bytes]:
    return page.path, render(page, served=served)


def write(book: Book, folder: Path) -> int:
    """Write the site below a folder, which is made. Returns the number of files. Raises :class:`OSError`."""
    folder.mkdir(parents=True, exist_ok=True)  # what cannot be written is said before the work
    count = 0
    for path, content in build(book):
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        count += 1
    return count
