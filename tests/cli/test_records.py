"""parts, models, classes, engines, formats, traps: list, search and show."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.cli.support import data, flopmap, refused, text, why

if TYPE_CHECKING:
    from flopmap.records.book import Book

KINDS = {
    "parts": "parts",
    "models": "models",
    "classes": "flops",
    "engines": "engines",
    "formats": "formats",
    "traps": "traps",
}
SINGULAR = {
    "parts": "part",
    "models": "model",
    "classes": "operation class",
    "engines": "engine",
    "formats": "format",
    "traps": "trap",
}
commands = pytest.mark.parametrize("command", KINDS)


@commands
def test_a_list_has_a_line_for_every_record(command: str, book: Book) -> None:
    ids = book.ids(KINDS[command])
    lines = text(command).splitlines()
    assert lines[0] == f"{len(ids)} record{'' if len(ids) == 1 else 's'}"
    assert [line.split()[0] for line in lines[1:]] == ids


@commands
def test_the_data_of_a_list_has_id_aliases_title_and_status(command: str, book: Book) -> None:
    records = data(command)
    assert [record["id"] for record in records] == book.ids(KINDS[command])
    for record in records:
        assert isinstance(record["id"], str)
        assert isinstance(record["title"], str)
        assert record["title"]
        assert all(isinstance(alias, str) for alias in record["aliases"])
        assert record["status"] in ("verified", "draft", "contested")
        assert 0 < record["confidence"] <= 1


@commands
def test_one_record_is_a_list_of_one_under_its_id_and_every_alias(command: str) -> None:
    for record in data(command)[:6]:
        for name in (record["id"], record["id"].upper(), *record["aliases"]):
            assert data(command, name) == [record], name


@commands
def test_an_unknown_record_is_refused(command: str) -> None:
    message = f"flopmap {command}: error: unknown {SINGULAR[command]} 'qqqqqqqq' (all: flopmap {command})"
    refused(2, message, command, "qqqqqqqq")
    refused(2, message, command, "qqqqqqqq", "--json")


@pytest.mark.parametrize(
    ("command", "wrong", "near"),
    [
        ("parts", "h100-smx", "h100-sxm"),
        ("models", "Llama-3.1-9B", "meta-llama/Llama-3.1-8B"),
        ("classes", "weigth-gemm", "weight-gemm"),
        ("engines", "vllmm", "vllm"),
        ("formats", "bfloat61", "bf16"),
    ],
)
def test_a_misspelt_record_comes_with_the_nearest(command: str, wrong: str, near: str) -> None:
    answer = flopmap(command, wrong)
    assert answer.code == 2
    assert answer.err.startswith(f"flopmap {command}: error: unknown {SINGULAR[command]} {wrong!r}; nearest: {near}")
    assert answer.err.endswith(f" (all: flopmap {command})\n")
    assert answer.err.count("\n") == 1
    assert answer.out == ""


def test_a_word_that_is_no_id_searches() -> None:
    found = data("models", "Gemma 3")
    assert len(found) > 2
    assert all("gemma 3" in json.dumps(record).lower() for record in found)
    assert text("models", "gemma 3") == text("models", "GEMMA 3")


@commands
def test_a_record_is_shown_in_plain_words(command: str) -> None:
    for record in data(command)[:8]:
        shown = text(command, record["id"])
        first, *rest = shown.splitlines()
        confidence = f"{record['confidence']:g}"
        kind = KINDS[command]
        assert first == f"{record['title']} ({kind}/{record['id']}, {record['status']}, confidence {confidence})"
        assert rest
        assert all(line.startswith("  ") for line in rest)
        for python in ("('", '("', "{'", '{"', "', ", "None", "True", "False", ",)"):
            assert python not in "\n".join(line for line in rest if "summary" not in line and "note" not in line), (
                python
            )


def test_an_operation_class_shows_its_formulas_and_claims() -> None:
    shown = text("classes", "weight-gemm")
    assert "    matrix: 2 * t * n\n" in shown
    assert "    weights: n * weight_bytes + bias * d_out * act_bytes\n" in shown
    assert "claims:" in shown
    assert "sources: roofline-2009, seed-floor" in shown


def test_a_part_shows_figures_with_their_sources() -> None:
    shown = text("parts", "h100-sxm")
    assert "  bandwidth_bytes_per_second:\n    value: 3.35e+12\n    source: " in shown
    assert "aliases: h100, " in shown


def test_an_engine_of_the_list_prices() -> None:
    for engine in data("engines"):
        assert why("--engine", engine["id"])["scenario"]["engine"] == engine["id"]


def test_a_format_of_weights_prices() -> None:
    for stored in data("formats"):
        if "weights" in stored["applies_to"]:
            assert why("--quantization", stored["id"])["totals"]["device_bytes"]["weights"] > 0
