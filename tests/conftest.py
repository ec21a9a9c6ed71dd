"""What many tests need: the book, read once."""

from __future__ import annotations

import pytest

from flopmap.records.book import Book, load


@pytest.fixture(scope="session")
def book() -> Book:
    return load()
