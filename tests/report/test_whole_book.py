"""Every model and every part of the book can be priced, in every phase."""

from __future__ import annotations

import pytest

from flopmap.model.reading import from_config
from flopmap.records.book import load
from flopmap.records.types import Model
from tests.cli.support import LLAMA_8B, data

BOOK = load()


def phases_of_models() -> list[tuple[str, str]]:
    """What drafts for another model is priced with that one; without a cache there is no prompt to read first."""
    found = []
    for model in BOOK.ids("models"):
        architecture = from_config(BOOK.record(Model, model).config, model).architecture
        phases = ["decode", "prefill", "mixed"] if architecture.generative else ["encode"]
        if architecture.denoising:
            phases = phases[: 1 + architecture.denoising.cached]
        found += [(model, phase) for phase in phases if architecture.embedding == "own"]
    return found


@pytest.mark.parametrize(("model", "phase"), phases_of_models())
def test_every_model_prices_in_every_phase(model: str, phase: str) -> None:
    answer = data("why", model, "--on", "h100-sxm", "--phase", phase)
    floors, totals = answer["floor_seconds"], answer["totals"]
    assert 0 < floors["device"] <= floors["operation"] <= floors["engine"]
    assert sum(op["matrix_flop"] for op in answer["ops"]) == totals["matrix_flop"]
    moved = sum(totals["device_bytes"].values())
    assert sum(op["device_bytes"] for op in answer["ops"]) == pytest.approx(moved, rel=1e-12)
    assert sum(op["share"] for op in answer["ops"]) == pytest.approx(1, abs=1e-9)
    assert sum(answer["elasticity"].values()) == pytest.approx(1, abs=1e-9)
    assert answer["parameters"]["active"] > 0 or phase == "encode"
    assert answer["parameters"]["embedding"] <= answer["parameters"]["total"]


@pytest.mark.parametrize("part", BOOK.ids("parts"))
def test_every_part_prices_the_8b(part: str) -> None:
    decode = data("why", LLAMA_8B, "--on", part)
    prefill = data("why", LLAMA_8B, "--on", part, "--phase", "prefill")
    for answer in (decode, prefill):
        floors = answer["floor_seconds"]
        assert 0 < floors["device"] <= floors["operation"] <= floors["engine"]
        assert answer["memory"]["capacity_bytes"] > 2e8  # a Groq chip has 230 MB
    assert decode["bound_by"] == "memory_bandwidth"
    assert decode["floor_seconds"]["operation"] < prefill["floor_seconds"]["operation"]
