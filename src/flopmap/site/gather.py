"""What all pages are made of, computed once: links, verdicts on claims, accounts of models."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flopmap.checks.claims import judge
from flopmap.report.model import account
from flopmap.site.links import links

if TYPE_CHECKING:
    from flopmap.checks.claims import Judgement
    from flopmap.records.book import Book
    from flopmap.report.model import Account
    from flopmap.site.links import Links


class Site(NamedTuple):
    """The book, and what is known around its records; claims by ``kind/id``, accounts by model."""

    book: Book
    links: Links
    claims: dict[str, list[Judgement]]
    accounts: dict[str, Account]


def gather(book: Book) -> Site:
    """Everything about the records of a book."""
    claims: dict[str, list[Judgement]] = {}
    for claim in judge(book):
        claims.setdefault(claim.record, []).append(claim)
    accounts = {model: account(model, book) for model in book.ids("models")}
    return Site(book=book, links=links(book), claims=claims, accounts=accounts)
