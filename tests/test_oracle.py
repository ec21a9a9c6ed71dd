"""Our counts against what transformers builds and torch counts: parameters, FLOP and cache, to the integer.

The truth table is data (tests/oracle/README.md says how it is made), so neither torch nor transformers is needed here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flopmap.floor.roofline import Pricing, price
from flopmap.floor.summary import memory
from flopmap.model.config import Config
from flopmap.model.families import family_of
from flopmap.scenario import Request, make
from flopmap.step import MAIN

if TYPE_CHECKING:
    from flopmap.records.book import Book
from flopmap.records.types import Model

ORACLE = Path(__file__).parent / "oracle"
AS_TORCH = (("mask", "full"), ("logits", "all"))


def entries(name: str) -> list[Any]:
    return [pytest.param(entry, id=entry["id"]) for entry in json.loads((ORACLE / name).read_text())["entries"]]


def priced(model: str, book: Book, **scenario: Any) -> Pricing:
    return price(make(Request(model=model, on="h100-sxm", dtype="bf16", **scenario), book), book)


def held_against(truth: dict[str, Any], model: str, book: Book) -> None:
    parameters = truth["parameters"]
    decode = priced(model, book, context_len=truth["decode"]["context"])
    main = [line for line in decode.lines if line.line.op.stack == MAIN]  # the reference is the text part alone
    assert sum(line.costs["parameters"] for line in main) == parameters["total"]
    assert decode.totals["active"] == parameters["matrices"] + (
        parameters["embedding"] if parameters["head_tied"] else parameters["head"]
    )
    assert decode.totals["matrix"] == truth["decode"]["flop"]
    assert memory(decode, book).kv_bytes_per_token == truth["kv_bytes_per_token"]
    for prefill in truth["prefill"]:
        counted = priced(model, book, phase="prefill", input_len=prefill["tokens"], conventions=AS_TORCH)
        assert counted.totals["matrix"] == prefill["flop"]


@pytest.mark.parametrize("truth", entries("dense.json"))
def test_every_bundled_model_counts_as_torch_does(truth: dict[str, Any], book: Book) -> None:
    held_against(truth, truth["id"], book)


@pytest.mark.parametrize("truth", entries("variations.json"))
def test_variations_of_each_family_count_as_torch_does(truth: dict[str, Any], book: Book, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(truth["config"]))
    held_against(truth, str(path), book)


def test_every_bundled_model_of_these_families_is_in_the_truth_table(book: Book) -> None:
    truths = json.loads((ORACLE / "dense.json").read_text())["entries"]
    families = {entry["model_type"] for entry in truths}
    bundled = {name for name in book.ids("models") if _family(name, book) in families}
    assert {entry["id"] for entry in truths} == bundled


def _family(name: str, book: Book) -> str:
    config = book.record(Model, name).config
    return str(config.get("text_config", {}).get("model_type", "") or family_of(Config(config, name)))
