"""The workbench in a browser: its answers are the command line's, and its state is its address."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from flopmap.diagnosis.verdict import judge
from flopmap.report.content import headline
from flopmap.scenario import Request
from flopmap.site.answers import Application
from flopmap.site.server import Server
from tests.readers.support import content
from tests.site.browser import chromium, needs_browser

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopmap.records.book import Book

pytestmark = needs_browser

QWEN: dict[str, Any] = {"model": "Qwen/Qwen3-8B", "on": "a100-sxm-80gb", "engine": "vllm"}


@pytest.fixture(scope="module")
def url(book: Book, files: dict[str, bytes]) -> Iterator[str]:
    server = Server("127.0.0.1", 0, Application(book, files))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server.url
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture
def page(browser: Any, url: str) -> Iterator[Any]:
    errors: list[str] = []
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    opened = context.new_page()
    opened.on("console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None)
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("request", lambda asked: None if asked.url.startswith(url) else errors.append(asked.url))
    yield opened
    context.close()
    assert [error for error in errors if "Failed to load resource" not in error] == []


def wait(page: Any, floor: float) -> None:
    """Until the page says a floor."""
    page.wait_for_function("(floor) => document.getElementById('verdict').dataset.floor === String(floor)", arg=floor)


@pytest.mark.parametrize(
    ("fields", "measured"),
    [
        ({**QWEN, "batch_size": 8, "context_len": 1024, "enforce_eager": True}, ("throughput", 227.8)),
        ({"model": "deepseek-ai/DeepSeek-V3", "on": "b200", "phase": "prefill", "input_len": 4096}, ("ttft", 0.9)),
        ({**QWEN, "on": "rtx-4090", "quantization": "awq", "kv_cache_dtype": "fp8", "context_len": 8192}, None),
    ],
)
def test_the_page_answers_as_the_command_line(
    fields: dict[str, Any], measured: tuple[str, float] | None, page: Any, url: str, book: Book
) -> None:
    verdict = judge(Request(**fields), book, measured)
    state = {**fields, **({"enforce_eager": "true"} if "enforce_eager" in fields else {})}
    if measured:
        state[measured[0]] = "900ms" if measured[0] == "ttft" else str(measured[1])
    page.goto(f"{url}why?{urlencode(state)}")
    page.wait_for_selector("#answer[aria-busy=false]")
    said = page.locator("#verdict")
    assert said.inner_text() == headline(verdict)
    floor = float(said.get_attribute("data-floor"))
    assert floor == pytest.approx(verdict.pricing.operation_seconds, rel=1e-9)
    if measured:
        assert float(said.get_attribute("data-over")) == pytest.approx(verdict.over_floor, rel=1e-9)
    # a point for every class that multiplies, a row for every class that takes time
    classes = {line.line.op.op_class for line in verdict.pricing.lines}
    drawn = {point.get_attribute("data-class") for point in page.locator("circle.point").all()}
    assert {"weight-gemm", "lm-head"} <= drawn <= {getattr(each, "id", each) for each in classes}


def test_each_change_redraws_and_its_state_is_the_address(page: Any, url: str, book: Book) -> None:
    def floor(batch: int) -> float:
        request = Request(**QWEN, batch_size=batch, context_len=1024)
        return judge(request, book).pricing.operation_seconds

    page.goto(f"{url}why")
    wait(page, floor(8))  # where the page begins
    page.fill("input[name=batch_size]", "64")
    wait(page, floor(64))
    page.locator("input[name=batch_size]").blur()
    page.fill("input[name=batch_size]", "256")
    page.locator("input[name=batch_size]").blur()
    wait(page, floor(256))
    address = page.url
    assert "batch_size=256" in address
    page.go_back()
    wait(page, floor(64))
    assert page.input_value("input[name=batch_size]") == "64"
    page.go_back()
    wait(page, floor(8))
    page.go_forward()
    wait(page, floor(64))
    page.goto(address)
    wait(page, floor(256))


def test_a_wrong_field_is_said_and_the_next_change_mends_it(page: Any, url: str) -> None:
    page.goto(f"{url}why")
    page.wait_for_selector("#answer[aria-busy=false]")
    page.fill("input[name=batch_size]", "eight")
    page.wait_for_selector("#verdict.wrong")
    assert page.inner_text("#verdict") == "batch_size: 'eight' is not a count (accepted: 2048, 8k, 1m)"
    page.fill("input[name=batch_size]", "8")
    page.wait_for_selector("#verdict:not(.wrong)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_pages_fit_a_phone_in_light_and_dark(scheme: str, page: Any, url: str) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.emulate_media(color_scheme=scheme)
    for path in ("why", "diagnose"):
        page.goto(f"{url}{path}")
        if path == "why":
            page.wait_for_selector("#answer[aria-busy=false]")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        ground = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert (ground == "rgb(21, 24, 27)") is (scheme == "dark")
        assert page.locator("input:visible, select:visible, textarea:visible").evaluate_all(
            "(fields) => fields.every((field) => field.labels.length)"
        )


def test_a_pasted_summary_gives_the_verdict(page: Any, url: str) -> None:
    page.goto(f"{url}diagnose")
    page.fill("textarea", content("vllm-serve-old.txt").decode())
    page.fill("input[name=model]", "meta-llama/Llama-3.1-8B")
    page.fill("input[name=on]", "h100-sxm")
    page.click("button[type=submit]")
    page.wait_for_selector("#said details")
    assert " ms a step is " in page.inner_text("#verdict")
    data = json.loads(page.locator("#said details pre").last.text_content())
    (verdict,) = data[0]["verdicts"]
    page.locator("#said a").first.click()  # to play with it on the other page
    page.wait_for_selector("#answer[aria-busy=false]")
    over = float(page.locator("#verdict").get_attribute("data-over"))
    assert over == pytest.approx(verdict["measured_over_floor"], rel=1e-9)


def test_a_text_without_a_result_is_said(page: Any, url: str) -> None:
    page.goto(f"{url}diagnose")
    page.fill("textarea", "hello")
    page.evaluate("document.querySelector('#paste').requestSubmit()")
    page.wait_for_selector("#verdict.wrong")
    assert page.inner_text("#verdict").startswith("no result in it that is known")
