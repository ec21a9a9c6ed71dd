"""What the server answers, without any network: a method, an address and a body in; status, headers and bytes out."""

from __future__ import annotations

import threading
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec.structs import replace

from flopmap.diagnosis.diagnose import diagnose
from flopmap.diagnosis.errors import ReadingError
from flopmap.diagnosis.readers.read import read_bytes
from flopmap.diagnosis.verdict import judge
from flopmap.machine.machine import MachineError
from flopmap.model.config import ConfigError
from flopmap.quantity import QuantityError
from flopmap.records.book import UnknownRecordError, to_json
from flopmap.records.formula import FormulaError
from flopmap.report import content, diagnosis
from flopmap.report.data import verdict_data
from flopmap.site.build import ASSETS, build
from flopmap.site.openapi import openapi
from flopmap.site.page import POLICY, Page, render
from flopmap.site.query import read_fields, read_query
from flopmap.site.workbench import diagnose_page, why_page
from flopmap.step import ScenarioError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flopmap.diagnosis.readers.run import Run
    from flopmap.diagnosis.verdict import Verdict
    from flopmap.records.book import Book

LARGEST_BODY = 4 * 2**20
MOST_FIELDS = 60
REFUSED = (ScenarioError, MachineError, QuantityError, UnknownRecordError, ConfigError, FormulaError)
TYPES = {
    "html": "text/html; charset=utf-8",
    "json": "application/json",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
HEADERS = {
    "Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Answer(NamedTuple):
    """An answer; ``more`` are headers of its own."""

    status: int
    type: str
    body: bytes
    more: Mapping[str, str] = MappingProxyType({})


class Application:
    """The answers that a book gives. Pages are built once, when the first is asked for, and kept in memory."""

    def __init__(self, book: Book, files: dict[str, bytes] | None = None) -> None:
        self.book = book
        self._files = files
        self._building = threading.Lock()
        self._working = threading.BoundedSemaphore(2)  # of those that compute; the others wait
        self._own = {file.name: file.read_bytes() for file in ASSETS.iterdir()}
        self._pages: dict[str, tuple[str, Callable[[str, bytes], Answer]]] = {
            "/": ("GET", lambda _query, _body: Answer(302, TYPES["html"], b"", {"Location": "/why"})),
            "/why": ("GET", lambda _query, _body: _page(why_page(book))),
            "/diagnose": ("GET", lambda _query, _body: _page(diagnose_page(book))),
            "/api/why": ("GET", self._why),
            "/api/diagnose": ("POST", self._diagnose),
            "/api/openapi.json": ("GET", lambda _query, _body: as_json(openapi())),
        }

    def files(self) -> dict[str, bytes]:
        """Every file of the site."""
        with self._building:
            if self._files is None:
                self._files = dict(build(self.book, served=True))
            return self._files

    def method(self, target: str) -> str:
        """The method that an address takes (HEAD goes with GET)."""
        return self._pages.get(_path(target), ("GET", None))[0]

    def answer(self, method: str, target: str, body: bytes = b"") -> Answer:
        """The answer to a request. Nothing that can be asked raises."""
        path = _path(target)
        taken = self.method(target)
        if method not in (taken, "HEAD" if taken == "GET" else taken):
            return failed(
                405,
                f"{method} is not for {path[:100]} (accepted: {taken})",
                {"Allow": taken if taken == "POST" else "GET, HEAD"},
            )
        if path in self._pages:
            return self._pages[path][1](urlsplit(target).query, body)
        return self._file(path.removeprefix("/"))

    def _file(self, path: str) -> Answer:
        """A file by its name in a table: no path of the machine is ever made of what was asked."""
        own = self._own.get(path.removeprefix("assets/")) if path.startswith("assets/") else None
        path = f"{path}index.html" if path.endswith("/") else path
        found = own if own is not None else self.files().get(path)
        if found is None:
            return failed(404, "there is no such page")
        return Answer(200, TYPES.get(path.rsplit(".", 1)[-1], TYPES["html"]), found)

    def _why(self, query: str, _body: bytes) -> Answer:
        return self._guarded(query, self._priced)

    def _priced(self, pairs: list[tuple[str, str]], draw: bool) -> Any:  # noqa: FBT001 - one caller
        request, measured = read_query(pairs, self.book)
        verdict = judge(request, self.book, measured)
        data = verdict_data(verdict)
        return {**data, "drawing": drawing(verdict)} if draw else data

    def _diagnose(self, query: str, body: bytes) -> Answer:
        def work(pairs: list[tuple[str, str]], draw: bool) -> Any:  # noqa: FBT001 - one caller
            fields, measured = read_fields(pairs, self.book)
            if measured:
                raise ScenarioError(f"{measured[0]}: the text says what was measured")
            runs = [("pasted", self._without_paths(run)) for run in read_bytes(body)]
            found = diagnose(runs, fields, self.book)
            data = diagnosis.diagnosis_data(found)
            if not draw:
                return data
            said = {
                "headline": diagnosis.headline(found),
                "lines": diagnosis.lines(found),
                "markdown": diagnosis.markdown(found),
            }
            return {**said, "runs": data}

        return self._guarded(query, work)

    def _without_paths(self, run: Run) -> Run:
        """A model that a text names is looked up in the book, and never opened as a file."""
        known = run.model is None or self.book.find("models", run.model) is not None
        return run if known else replace(run, model=None)

    def _guarded(self, query: str, work: Callable[[list[tuple[str, str]], bool], Any]) -> Answer:
        """Run what computes, a few at a time, and say what is wrong with a question in one line."""
        try:
            pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=MOST_FIELDS)
            draw = ("draw", "1") in pairs
            with self._working:
                return as_json(work([pair for pair in pairs if pair[0] != "draw"], draw))
        except ReadingError as error:
            return failed(422, str(error))
        except REFUSED as error:
            return failed(400, str(error))
        except ValueError:
            return failed(400, f"a query has at most {MOST_FIELDS} fields")


def drawing(verdict: Verdict) -> dict[str, Any]:
    """What the page says and draws beside the data: sentences, and rates of the part in byte/s and FLOP/s."""
    rates = verdict.pricing.rates
    return {
        "headline": content.headline(verdict),
        "paragraphs": content.paragraphs(verdict),
        "footnotes": content.footnotes(verdict),
        "bandwidth": rates.values["bandwidth"],
        "matrix": rates.matrix,
    }


def as_json(data: Any, status: int = 200) -> Answer:
    """Data as the command line prints it."""
    return Answer(status, TYPES["json"], to_json(data).encode())


def failed(status: int, why: str, more: dict[str, str] | None = None) -> Answer:
    """An error in one line."""
    return as_json({"error": why}, status)._replace(more=more or {})


def _page(page: Page) -> Answer:
    return Answer(200, TYPES["html"], render(page, served=True))


def _path(target: str) -> str:
    try:
        return unquote(urlsplit(target).path)
    except ValueError:  # no address at all
        return ""
