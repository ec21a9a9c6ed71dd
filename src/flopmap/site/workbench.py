"""The pages that a server adds: Why (a scenario, drawn at each change) and Diagnose (a pasted text, judged)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopmap.records.types import Format
from flopmap.scenario import PHASE_NAMES
from flopmap.site.html import Markup, join, link, tag
from flopmap.site.page import Page
from flopmap.site.query import MEASURED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flopmap.records.book import Book

# vllm-project/vllm#42058, as in the README
FIRST = {
    "model": "Qwen/Qwen3-8B",
    "on": "a100-sxm-80gb",
    "engine": "vllm",
    "batch_size": "8",
    "context_len": "1024",
}
DRAWN = ("assets/formulas.js", "assets/draw.js")


def why_page(book: Book) -> Page:
    """A form whose every change is priced by ``/api/why``; its state is the address."""
    formats = [book.record(Format, name) for name in book.ids("formats")]
    weights = [it.id for it in formats if "weights" in it.applies_to]
    cache = [it.id for it in formats if "kv" in it.applies_to]
    fields = [
        _known("model", "models", FIRST["model"]),
        _known("on", "machine", FIRST["on"]),
        _choice("engine", book.ids("engines"), FIRST["engine"]),
        _choice("enforce_eager", ["true"], label="eager"),
        _choice("phase", PHASE_NAMES),
        _number("batch_size", "batch", FIRST["batch_size"]),
        _number("context_len", "context", FIRST["context_len"]),
        _number("input_len", "prompt"),
        _number("tensor_parallel_size", "tensor ranks"),
        _number("pipeline_parallel_size", "stages"),
        _choice("dtype", ["bf16", "fp16", "fp32"]),
        _choice("quantization", weights, label="weights"),
        _choice("kv_cache_dtype", cache, label="cache"),
        _choice("measured", MEASURED, none="nothing"),
        _number("value", "value (28ms, 227.8)"),
    ]
    lists = [_list("models", book.ids("models")), _list("machine", [*book.ids("parts"), *book.ids("machines")])]
    body = join(
        [
            tag("h1", "Why is it slow?"),
            tag("form", fields, lists, id="ask", class_="ask"),
            tag("p", id="verdict", class_="verdict", role="status", aria_live="polite"),
            tag("div", id="said"),
            tag("div", id="answer", aria_busy="true"),
            tag(
                "p",
                "Data: ",
                link("JSON", "api/why", id="json"),
                ". Interface: ",
                link("OpenAPI", "api/openapi.json"),
                ".",
            ),
        ]
    )
    return Page(path="why", title="Why", body=body, scripts=(*DRAWN, "assets/why.js"))


def diagnose_page(book: Book) -> Page:
    """A place to paste or drop what a tool printed."""
    fields = [
        tag(
            "label",
            "output of a benchmark, a log, metrics (or drop a file here) ",
            tag("textarea", name="text", spellcheck="false", required=True),
        ),
        tag(
            "div",
            tag("label", "or a file ", tag("input", type="file", name="file")),
            _known("model", "models", ""),
            _known("on", "machine", ""),
            _number("batch_size", "batch"),
            _number("context_len", "context"),
            class_="ask",
        ),
        tag("p", tag("button", "Diagnose", type="submit")),
        _list("models", book.ids("models")),
        _list("machine", [*book.ids("parts"), *book.ids("machines")]),
    ]
    body = join(
        [
            tag("h1", "Diagnose"),
            tag("p", "Nothing that is pasted here is stored; what the text does not tell is asked for by name."),
            tag("form", fields, id="paste"),
            tag("p", id="verdict", class_="verdict", role="status", aria_live="polite"),
            tag("div", id="said"),
        ]
    )
    return Page(path="diagnose", title="Diagnose", body=body, scripts=("assets/diagnose.js",))


def _known(name: str, of: str, value: str) -> Markup:
    return tag(
        "label",
        f"{'machine' if name == 'on' else name} ",
        tag("input", name=name, value=value, list=f"list-{of}", spellcheck="false"),
    )


def _list(of: str, names: Iterable[str]) -> Markup:
    return tag("datalist", [tag("option", value=name) for name in names], id=f"list-{of}")


def _number(name: str, label: str, value: str = "") -> Markup:
    return tag("label", f"{label} ", tag("input", name=name, value=value, autocomplete="off"))


def _choice(name: str, values: Iterable[str], chosen: str = "", *, label: str = "", none: str = "default") -> Markup:
    options = [tag("option", none, value="")]
    options += [tag("option", value.replace("_", " "), value=value, selected=value == chosen) for value in values]
    return tag("label", f"{label or name.replace('_', ' ')} ", tag("select", options, name=name))
