"""The site in a browser, from a folder: no error, values as Python's, dark, narrow, by keyboard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from flopmap.records.formula import value
from flopmap.records.resolve import named
from flopmap.records.types import OpClass
from tests.site.browser import chromium, needs_browser

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from flopmap.records.book import Book

pytestmark = needs_browser

PAGES = (
    "index.html",
    "search.html?q=attention",
    "compare.html",
    "claims.html",
    "contradictions.html",
    "most-referenced.html",
    "glossary.html",
    "flops/index.html",
    "parts/index.html",
    "sources/index.html",
    "flops/decode-attention.html",
    "flops/moe-experts.html",
    "flops/marlin-availability.html",
    "laws/speculative-decoding.html",
    "parts/h100-sxm.html",
    "machines/p5.48xlarge.html",
    "models/deepseek-ai/DeepSeek-V3.html",
    "engines/vllm.html",
    "formats/awq.html",
    "levers/fp8-weights.html",
    "readings/measured-over-floor.html",
    "measurements/decode.html",
    "crossovers/h100-sxm.html",
    "traps/eager-mode-left-on.html",
    "sources/roofline-2009.html",
)


@pytest.fixture(scope="module")
def root(files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    for path, content in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture
def errors() -> list[str]:
    return []


@pytest.fixture
def page(browser: Any, errors: list[str]) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    opened = context.new_page()
    opened.on("console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None)
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("request", lambda asked: None if asked.url.startswith("file:") else errors.append(asked.url))
    yield opened
    context.close()
    assert errors == []  # nothing on the console, and no request that leaves the folder


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_kind_of_page_opens_without_an_error_and_fits_a_phone(page: Any, root: Path, scheme: str) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.emulate_media(color_scheme=scheme)
    grounds = {"light": "rgb(253, 253, 251)", "dark": "rgb(21, 24, 27)"}
    for path in PAGES:
        page.goto(f"{root.as_uri()}/{path}")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
        assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == grounds[scheme], path
        assert page.locator("h1").count() == 1, path
        # whatever can be operated has a name for a screen reader
        nameless = page.evaluate(
            "[...document.querySelectorAll('input, select, textarea, button')].filter((it) => "
            "!it.labels?.length && !it.getAttribute('aria-label')).map((it) => it.outerHTML)"
        )
        assert nameless == [], path


def shown(page: Any, name: str) -> float:
    return float(page.locator(f"output[data-formula={name}]").get_attribute("data-value"))


def test_a_slider_moves_the_number_to_what_python_gives(page: Any, root: Path, book: Book) -> None:
    page.goto(f"{root.as_uri()}/flops/decode-attention.html")
    before = shown(page, "matrix")
    slider = page.locator("input[data-of=pairs]")
    slider.focus()
    slider.press("End")  # by keyboard: to the end of the range
    assert page.input_value("#n-pairs") == "1000000000"
    page.fill("#n-heads", "48")
    page.select_option("select[data-convention=attention-bytes]", "naive")
    given = {each.get_attribute("name"): float(each.input_value()) for each in page.locator("input[type=number]").all()}
    trees = named(book.record(OpClass, "decode-attention"), {"attention-bytes": "naive"})
    for name in ("matrix", "vector", "exp", "kv_traffic", "activations", "intensity"):
        assert shown(page, name) == pytest.approx(value(trees[name], given), rel=1e-12)
    assert shown(page, "matrix") != before
    # the text is the number: 2 FLOP of 1e9 pairs, 48 heads, 256 elements
    assert page.inner_text("output[data-formula=matrix]") == "24.58 TFLOP"


def test_the_state_of_a_page_is_its_address(page: Any, root: Path) -> None:
    page.goto(f"{root.as_uri()}/flops/moe-experts.html")
    page.fill("#n-t", "64")
    page.select_option("select[data-convention=moe-bytes]", "all")
    page.select_option("select[name=y]", "weights")
    weights, address = shown(page, "weights"), page.url
    page.goto("about:blank")
    page.goto(address)
    assert shown(page, "weights") == weights
    assert page.input_value("#n-t") == "64"
    assert page.input_value("select[name=y]") == "weights"


def test_a_formula_without_a_value_says_so(page: Any, root: Path) -> None:
    page.goto(f"{root.as_uri()}/laws/ridge.html")
    page.fill("#n-bandwidth", "0")
    assert page.inner_text("output[data-formula=ridge]") == "no value"
    page.fill("#n-bandwidth", "3.35e12")
    page.fill("#n-matrix_peak", "989.5e12")
    assert shown(page, "ridge") == 989.5e12 / 3.35e12  # 295.4, the ridge of an H100


def test_a_plot_follows_its_sliders(page: Any, root: Path) -> None:
    page.goto(f"{root.as_uri()}/laws/speculative-decoding.html")
    page.select_option("select[name=y]", "tokens_per_cycle")
    page.select_option("select[name=x]", "acceptance")
    # with 2 drafts, as in its first claim, a cycle gives 1 token when none is accepted and 3 when all are
    spoken = page.locator("#plot svg").get_attribute("aria-label")
    assert spoken == "tokens_per_cycle over acceptance: from 1.000 token at 0 to 3.000 token at 1"


def test_lists_filter_and_say_how_many(page: Any, root: Path, book: Book) -> None:
    page.goto(f"{root.as_uri()}/flops/index.html#bound=interconnect")
    assert page.inner_text("#count") == f"9 of {len(book.ids('flops'))} records"
    page.select_option("select[name=bound]", "memory")
    page.select_option("select[name=phase]", "decode")
    page.fill("input[name=words]", "latent attention")
    visible = page.locator(".list tbody tr:visible a").all_inner_texts()
    assert visible == ["decode-latent-attention"]
    assert "bound=memory" in page.url
    page.goto(f"{root.as_uri()}/parts/index.html")
    page.select_option("select[name=vendor]", "AMD")
    page.select_option("select[name=confidence]", "0.9")
    wanted = [part for part in book.ids("parts") if _is_amd(book, part)]
    assert page.locator(".list tbody tr:visible").count() == len(wanted)


def _is_amd(book: Book, part: str) -> bool:
    record: Any = book.get("parts", part)
    return bool(record.vendor == "AMD" and record.confidence >= 0.9)


def test_the_search_finds_by_alias_and_the_slash_key_leads_to_it(page: Any, root: Path) -> None:
    page.goto(f"{root.as_uri()}/flops/decode-attention.html")
    page.keyboard.press("/")
    page.keyboard.type("h100-hbm3")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=h100-hbm3")
    assert page.locator("#results a").first.inner_text() == "NVIDIA H100 SXM5 80GB"
    page.locator("#results a").first.click()
    page.wait_for_url("**/parts/h100-sxm.html")


def test_parts_and_models_are_compared(page: Any, root: Path) -> None:
    page.goto(f"{root.as_uri()}/compare.html#kind=parts&a=h100-sxm&b=h200-sxm")
    row = page.locator("#comparison tr", has=page.get_by_role("rowheader", name="bandwidth", exact=True))
    assert row.locator("td").all_inner_texts() == ["3.350 TB/s", "4.800 TB/s", "1.43"]  # 4.8 over 3.35
    page.select_option("select[name=kind]", "models")
    page.select_option("select[name=a]", "Qwen/Qwen3-8B")
    cells = page.locator("#comparison tr", has=page.get_by_role("rowheader", name="parameters", exact=True))
    assert cells.locator("td").first.inner_text() == "8,190,735,360"


def test_a_page_prints_without_its_controls(page: Any, root: Path) -> None:
    page.goto(f"{root.as_uri()}/flops/decode-attention.html")
    page.emulate_media(media="print")
    assert not page.locator("header nav").is_visible()
    assert page.locator("output[data-formula=matrix]").is_visible()
