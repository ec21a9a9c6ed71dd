"""The site as files: every link leads somewhere, nothing comes from elsewhere, nothing is unescaped."""

from __future__ import annotations

import json
import posixpath
from collections import defaultdict
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pytest

from flopmap.cli.main import main
from flopmap.records.book import load
from flopmap.records.kinds import KINDS
from flopmap.site.build import ASSETS
from flopmap.site.gather import Site
from flopmap.site.html import VOID, Markup, items, join, link, outward, section, table, tag
from flopmap.site.links import Key, Links
from flopmap.site.lists import list_page
from flopmap.site.mathml import equation, inline
from flopmap.site.page import POLICY, Page, render
from flopmap.site.record import record_files

if TYPE_CHECKING:
    from pathlib import Path

    from flopmap.records.book import Book

LIMIT_BYTES = 1_200_000  # of a page with all that it loads, before data


class Reader(HTMLParser):
    """A page's tags: what is opened is closed, and what leads where."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.hrefs: list[str] = []
        self.loaded: list[str] = []
        self.ids: list[str] = []
        self.odd: list[str] = []
        self.meta: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.odd += [f"{tag} {name}" for name in given if name == "style" or name.startswith("on")]
        if tag == "style" or (tag == "script" and "src" not in given):
            self.odd.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        if "id" in given:
            self.ids.append(given["id"])
        if tag == "a":
            self.hrefs.append(given["href"])
        self.loaded += [given[name] for name in ("src", "action") if name in given]
        if tag == "link":
            self.loaded.append(given["href"])
        if tag == "meta":
            self.meta[given.get("http-equiv", given.get("name", ""))] = given.get("content", "")

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.odd.append(f"</{tag}>")


@pytest.fixture(scope="session")
def pages(files: dict[str, bytes]) -> dict[str, Reader]:
    found = {}
    for path, content in files.items():
        if path.endswith(".html"):
            found[path] = Reader()
            found[path].feed(content.decode())
    return found


def target(page: str, href: str) -> str:
    """The file that a link of a page leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(urlsplit(href).path)))


def test_every_record_has_a_page_and_its_data(book: Book, files: dict[str, bytes]) -> None:
    for kind in KINDS:
        for record_id in book.ids(kind):
            assert f"{kind}/{record_id}.html" in files
            data = json.loads(files[f"{kind}/{record_id}.json"])
            assert (data["kind"], data["record"]["id"]) == (kind, record_id)
        listed = json.loads(files[f"{kind}/index.json"])
        assert [entry["id"] for entry in listed] == book.ids(kind)


def test_every_link_leads_to_a_file_and_every_anchor_to_an_id(
    files: dict[str, bytes], pages: dict[str, Reader]
) -> None:
    for page, reader in pages.items():
        for href in reader.hrefs:
            if href.startswith(("https://", "http://")):
                continue
            path = page if href.startswith("#") else target(page, href)
            assert path in files, (page, href)
            anchor = urlsplit(href).fragment
            if anchor and "=" not in anchor:  # those with = are the state of a list
                assert anchor in pages[path].ids, (page, href)


def test_nothing_is_loaded_from_elsewhere_and_nothing_runs_from_within_a_page(
    files: dict[str, bytes], pages: dict[str, Reader]
) -> None:
    for page, reader in pages.items():
        assert reader.meta["Content-Security-Policy"] == POLICY
        assert [path for path in reader.loaded if target(page, path) not in files] == [], page
        assert reader.odd == [], page
        assert reader.open == [], page
        assert len(reader.ids) == len(set(reader.ids)), page
    assert "unsafe" not in POLICY
    assert POLICY.startswith("default-src 'none'")


def test_links_go_both_ways(files: dict[str, bytes]) -> None:
    records = {
        path.removesuffix(".json"): json.loads(content)
        for path, content in files.items()
        if path.endswith(".json") and not path.endswith("/index.json")
    }
    for place, record in records.items():
        for other in record["names"]:
            assert place in records[other]["named_by"]
        for other in record["named_by"]:
            assert place in records[other]["names"]
    # a p5.48xlarge is made of H100s, and decode attention is run by Llama 3.1 8B
    assert "parts/h100-sxm" in records["machines/p5.48xlarge"]["names"]
    assert "models/meta-llama/Llama-3.1-8B" in records["flops/decode-attention"]["named_by"]


def test_a_page_with_all_that_it_loads_is_light(files: dict[str, bytes], pages: dict[str, Reader]) -> None:
    assets = sum(len(content) for path, content in files.items() if path.startswith("assets/"))
    assert assets + max(len(files[path]) for path in pages) < LIMIT_BYTES


def test_the_phases_of_an_op_class_are_those_in_which_a_model_runs_it(files: dict[str, bytes]) -> None:
    phases = {entry["id"]: entry["phase"] for entry in json.loads(files["flops/index.json"])}
    assert phases["decode-attention"] == "decode"
    assert phases["prefill-attention"] == "prefill|encode"  # a causal model encodes as it reads a prompt
    assert phases["state-update"] == "decode"
    assert phases["weight-gemm"] == "decode|prefill|encode"
    assert phases["marlin-availability"] == ""


def test_a_record_with_markup_in_it_is_shown_as_text(tmp_path: Path) -> None:
    overlay = tmp_path / "sources"
    overlay.mkdir()
    overlay.joinpath("evil.yaml").write_text(
        'title: "<script>alert(1)</script>"\npublisher: "<b>"\nkind: blog\nurl: "javascript:alert(1)"\n'
        "summary: '\"><img src=x onerror=alert(1)>'\n",
        "utf-8",
    )
    links = Links(names=defaultdict(tuple), named_by=defaultdict(tuple), phases={})
    site = Site(book=load((tmp_path,)), links=links, claims={}, accounts={})
    _, page = next(iter(record_files(Key("sources", "evil"), site)))
    assert isinstance(page, Page)
    for shown in (page, list_page("sources", site)):
        written = render(shown, served=False).decode()
        reader = Reader()
        reader.feed(written)
        assert reader.odd == []
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in written
        assert "<img" not in written
        assert not [href for href in reader.hrefs if href.startswith("javascript")]


def test_docs_writes_every_file(
    tmp_path: Path, files: dict[str, bytes], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flopmap.site.build.build", lambda _: files.items())  # built already
    assert main(["docs", "--out", str(tmp_path / "site"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == len(files)
    assert (tmp_path / "site" / "models" / "Qwen" / "Qwen3-8B.html").read_bytes() == files["models/Qwen/Qwen3-8B.html"]


def test_docs_says_where_it_cannot_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit) as leave:
        main(["docs", "--out", str(tmp_path / "file")])
    assert leave.value.code == 2
    assert capsys.readouterr().err.startswith(f"flopmap docs: error: --out {tmp_path / 'file'}: cannot be written: ")


def test_text_is_escaped_and_markup_is_not() -> None:
    assert tag("p", "a < b", Markup("<b>c</b>"), None, ["&", 3], class_="x", hidden=True, title=None, data_of='"') == (
        '<p class="x" hidden data-of="&quot;">a &lt; b<b>c</b>&amp;3</p>'
    )
    assert tag("input", name="n") == '<input name="n">'
    assert join(None) == ""
    assert section("empty", None) is None
    assert items([]) is None
    assert link("x", "https://example.com").startswith('<a href="https://example.com" rel="noreferrer external"')
    assert outward("javascript:alert(1)") == "javascript:alert(1)"
    assert 'class="n">1</td>' in table(("a", "b"), [("x", 1)], numbers=1)


@pytest.mark.parametrize(
    ("expr", "spoken", "written"),
    [
        (("/", "a", ("+", "b", 1)), "x = a / (b + 1)", "<mfrac><mrow><mi>a</mi></mrow><mrow>"),
        (("**", ("-", 1, "p"), "t"), "x = (1 - p)^t", "<msup><mrow><mrow><mo"),
        (("sqrt", "a"), "x = sqrt(a)", "<msqrt><mi>a</mi></msqrt>"),
        (("//", "a", 2), "x = a div 2", "⌊"),
        (("ceil", "a"), "x = ceil(a)", "⌈"),
        (("where", ("<", "a", 1), 2, 3), "x = where(a < 1, 2, 3)", "<mtext>otherwise</mtext>"),
        (("log2", "a"), "x = log2(a)", "<msub><mi>log</mi><mn>2</mn></msub>"),
        (("neg", "a"), "x = -a", '<mo form="prefix">−</mo>'),
        (("*", -2, "a"), "x = -2 × a", "<mn>−2</mn>"),
    ],
)
def test_formulas_are_written_as_mathml(expr: Any, spoken: str, written: str) -> None:
    shown = equation("x", expr)
    assert f'alttext="{spoken.replace("<", "&lt;")}"' in shown
    assert written in shown
    reader = Reader()
    reader.feed(shown + inline(expr))
    assert (reader.open, reader.odd) == ([], [])


def test_assets_are_small_and_name_no_other_place() -> None:
    for file in ASSETS.iterdir():
        text = file.read_text("utf-8")
        assert "http" not in text.replace("http://www.w3.org/2000/svg", ""), file.name
        assert "innerHTML" not in text, file.name
        assert "eval(" not in text, file.name
