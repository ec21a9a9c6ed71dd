"""The site of the whole book, built once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flopmap.site.build import build

if TYPE_CHECKING:
    from flopmap.records.book import Book


@pytest.fixture(scope="session")
def files(book: Book) -> dict[str, bytes]:
    return dict(build(book))
