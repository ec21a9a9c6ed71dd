"""A sample of broken formulas, each of which a claim or a test must notice. `python tools/mutants.py` runs all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flopmap.records.book import Book, Built, load
from flopmap.records.formula import parse
from flopmap.records.types import Law, OpClass
from tools.mutants import Check, Mutant, built_book, caught, checks, formulas, mutants, mutations, overlay, put_on

if TYPE_CHECKING:
    from pathlib import Path

SAMPLE = [
    # kind, record, path, a wrong formula
    ("flops", "weight-gemm", "cost.matrix", "t * n"),
    ("flops", "weight-gemm", "cost.weights", "t * n * weight_bytes + bias * d_out * act_bytes"),
    ("flops", "weight-gemm", "cost.active", "2 * n"),
    ("flops", "lm-head", "cost.matrix", "logits * n"),
    ("flops", "lm-head", "cost.resident", "n * weight_bytes + bias * d_out * act_bytes"),
    ("flops", "decode-attention", "cost.kv_traffic", "kv * heads * (head_dim + value_dim) * kv_bytes"),
    ("flops", "decode-attention", "cost.kv_traffic", "2 * kv * kv_heads * (head_dim + value_dim) * kv_bytes"),
    ("flops", "decode-attention", "cost.matrix", "2 * pairs * heads * head_dim"),
    ("flops", "prefill-attention", "cost.matrix", "2 * t * heads * (head_dim + value_dim)"),
    ("flops", "prefill-attention", "cost.exp", "pairs * kv_heads * (1 + capped)"),
    ("flops", "kv-write", "cost.cache", "written * kv_heads * (head_dim + value_dim) * kv_bytes"),
    ("flops", "embedding", "cost.weights", "rows * width * weight_bytes"),
    ("flops", "rms-norm", "cost.vector", "3 * t * width"),
    ("flops", "rope", "cost.vector", "3 * t * heads * rotary_dim"),
    ("flops", "activation", "cost.activations", "t * width * 2 * act_bytes"),
    ("flops", "sampling", "cost.exp", "vocab * (1 + capped)"),
    ("flops", "all-reduce", "cost.link", "2 * payload"),
    ("flops", "expert-dispatch", "define.reached", "(ranks - 1) * (1 - (1 - 1 / ranks))"),
    ("laws", "roofline", "quantities.device_bytes.formula", "weights + kv_traffic + activations + logit_traffic"),
    ("laws", "device-floor", "quantities.matrix_seconds.formula", "matrix / matrix_peak"),
    ("laws", "engine-floor", "quantities.seconds.formula", "operation_seconds + host_seconds"),
    ("laws", "capacity", "quantities.max_sequences.formula", "max(0, floor(capacity / sequence_bytes))"),
    ("laws", "utilisation", "quantities.mfu.formula", "matrix / matrix_peak"),
    ("laws", "formats", "quantities.element_bytes.formula", "bits / 8"),
    ("symbols", "", "symbols.pairs.sum", "new * past + new * new / 2"),
    ("symbols", "", "symbols.kv.windowed", "min(past, window)"),
    ("symbols", "", "symbols.logits.sum", "new"),
]


@pytest.fixture(scope="module")
def built() -> Built:
    return built_book()


@pytest.fixture(scope="module")
def suite() -> list[Check]:
    return checks()


def test_the_book_itself_passes(built: Built, suite: list[Check]) -> None:
    assert caught(Book(built), suite) == ""


@pytest.mark.parametrize("wrong", SAMPLE, ids=str)
def test_a_wrong_formula_is_noticed(wrong: tuple[str, str, str, str], built: Built, suite: list[Check]) -> None:
    kind, record, path, text = wrong
    mutant = Mutant(kind, record, tuple(path.split(".")), "", text)
    assert (kind, record, mutant.path) in {found[:3] for found in formulas(built)}
    assert caught(put_on(built, mutant), suite)


def test_mutations_of_a_formula() -> None:
    assert set(mutations("2 * t * n")) == {
        *("3 * t * n", "1 * t * n"),  # another number
        *("2 * t * t", "2 * n * n"),  # another symbol of the formula
        *("2 * t", "n", "2 * n", "t * n"),  # a part dropped
        *("2 * t / n", "2 / t * n"),  # an operator turned round
    }
    assert set(mutations("max(a - 1, b)")) >= {"a - 1", "b", "min(a - 1, b)", "max(a + 1, b)", "max(a, b)"}
    assert mutations("new") == ["2 * new"]
    assert mutations("1") == ["2"]
    assert set(mutations("a ** 16")) == {"a", "16", "a * 16", "a ** 15"}  # the language has no exponent of 17


def test_no_mutant_reads_as_the_formula_that_it_changes(built: Built) -> None:
    everyone = mutants(built)
    assert len(everyone) > 1500
    assert all(parse(mutant.after) != parse(mutant.before) for mutant in everyone[::20])


def test_a_mutant_is_what_its_overlay_makes_of_the_book(built: Built, tmp_path: Path) -> None:
    gemm = Mutant("flops", "weight-gemm", ("cost", "matrix"), "2 * t * n", "3 * t * n")
    ridge = Mutant("laws", "ridge", ("quantities", "ridge", "formula"), "matrix_peak / bandwidth", "matrix_peak")
    kv = Mutant("symbols", "", ("symbols", "kv", "sum"), "past", "2 * past")
    folders = tuple(overlay(mutant, built, tmp_path / mutant.kind) for mutant in (gemm, ridge, kv))
    read = load(folders)
    assert read.record(OpClass, "weight-gemm") == put_on(built, gemm).record(OpClass, "weight-gemm")
    assert read.record(OpClass, "weight-gemm").cost["matrix"] == "3 * t * n"
    assert read.record(Law, "ridge") == put_on(built, ridge).record(Law, "ridge")
    assert read.glossary == put_on(built, kv).glossary
