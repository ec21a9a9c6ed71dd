"""parts, models, classes, engines, formats, traps: list, search and show."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from flopmap.model.families import KNOWN
from tests.cli.support import data, flopmap, refused, text, why, write_config

if TYPE_CHECKING:
    from pathlib import Path

    from flopmap.records.book import Book

KINDS = {
    "parts": "parts",
    "machines": "machines",
    "models": "models",
    "classes": "flops",
    "engines": "engines",
    "formats": "formats",
    "traps": "traps",
}
SINGULAR = {
    "parts": "part",
    "machines": "machine",
    "models": "model",
    "classes": "operation class",
    "engines": "engine",
    "formats": "format",
    "traps": "trap",
}
commands = pytest.mark.parametrize("command", KINDS)


@pytest.mark.parametrize("command", [command for command in KINDS if command != "parts"])  # a table: test_parts.py
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
            (found,) = data(command, name)
            assert {key: value for key, value in found.items() if key != "account"} == record, name


def test_a_model_comes_with_its_account() -> None:
    (record,) = data("models", "google/gemma-2-9b")
    account = record["account"]
    assert account["parameters"] == sum(account["parameters_by_place"].values()) == 9_241_705_984
    assert account["layers"] == "21 x (A, B)"
    assert "window 4,096" in account["legend"]["A"]
    # K and V, 8 heads, 256 wide, 2 bytes, 42 layers
    assert account["kv_bytes_per_token"] == 2 * 8 * 256 * 2 * 42
    shown = text("models", "google/gemma-2-9b").splitlines()
    assert shown[1].startswith("  9,241,705,984 parameters, ")


def test_a_config_file_is_shown_like_a_model(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    (record,) = data("models", str(path))
    assert record["id"] == str(path)
    assert text("models", str(path)).splitlines()[0] == f"{path} (llama)"


def test_two_models_are_compared_field_by_field() -> None:
    lines = text("models", "diff", "llama-3.1-8b", "llama-3.2-3b").splitlines()
    assert lines[0] == f"{len(lines) - 1} differences between meta-llama/Llama-3.1-8B and meta-llama/Llama-3.2-3B"
    assert any(line.split() == ["hidden", "4,096", "|", "3,072"] for line in lines)
    rows = data("models", "diff", "llama-3.1-8b", "llama-3.2-3b")
    assert {"field": "hidden", "llama-3.1-8b": "4,096", "llama-3.2-3b": "3,072"} in rows
    message = "models diff: give two models, such as: flopmap models diff gpt2 gpt2-xl"
    refused(2, f"flopmap models: error: {message}", "models", "diff", "gpt2")
    refused(2, "flopmap models: error: models a b: one model at a time, or diff and two of them", "models", "a", "b")


def test_the_families_are_listed() -> None:
    assert data("models", "--families") == list(KNOWN)
    assert text("models", "--families").splitlines()[0] == f"{len(KNOWN)} model types"


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


def test_an_engine_of_the_list_prices() -> None:
    for engine in data("engines"):
        assert why("--engine", engine["id"])["scenario"]["engine"] == engine["id"]


def test_a_format_of_weights_prices() -> None:
    for stored in data("formats"):
        if "weights" in stored["applies_to"]:
            assert why("--quantization", stored["id"])["totals"]["device_bytes"]["weights"] > 0
