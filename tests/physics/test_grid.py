"""Many steps at once come to what each comes to alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from flopmap.floor.grid import BLOCK, decode_grid
from flopmap.floor.roofline import Pricer
from flopmap.ledger.ledger import DEVICE_BYTES
from flopmap.step import decode_step
from tests.physics.support import LLAMA_8B, scenario_of, with_launches

if TYPE_CHECKING:
    from flopmap.records.book import Book

RESOURCES = ("matrix", "vector", "exp", *DEVICE_BYTES, "launches")
BATCHES = (1, 2, 7, 32, 100, 300, 1000, 5000, 200_000)
CONTEXTS = (1, 2, 100, 1023, 1024, 1025, 4096, 5000, 131_072)


@pytest.mark.parametrize("model", [LLAMA_8B, "google/gemma-2-2b", "mistralai/Mistral-7B-v0.1", "facebook/opt-350m"])
@pytest.mark.parametrize(
    "flags",
    [{}, {"on": "rtx-4090", "kv_cache_dtype": "fp8"}, {"quantization": "fp8", "conventions": (("mask", "half"),)}],
    ids=str,
)
@pytest.mark.parametrize("launch", [0.0, 2e-5])
def test_a_grid_of_steps_is_each_of_its_steps(model: str, flags: dict[str, Any], launch: float, book: Book) -> None:
    scenario = with_launches(scenario_of(book, model, **{"on": "h100-sxm", "dtype": "bf16", **flags}), launch)
    batch, context = (np.array(axis, dtype=float).ravel() for axis in np.meshgrid(BATCHES, CONTEXTS))
    grid = decode_grid(scenario, book, batch, context, (*RESOURCES, "device", "operation", "engine"))
    pricer = Pricer(scenario, book)
    for index, (count, length) in enumerate(zip(batch, context, strict=True)):
        step = pricer(decode_step(int(count), int(length)))
        floors = {"device": step.device_seconds, "operation": step.operation_seconds, "engine": step.engine_seconds}
        for name, expected in {**{name: step.totals[name] for name in RESOURCES}, **floors}.items():
            assert grid[name][index] == pytest.approx(expected, rel=1e-12), (name, count, length)


def test_a_grid_longer_than_a_block_has_no_seam(book: Book) -> None:
    scenario = scenario_of(book, context_len=2048)
    size = BLOCK + 3
    batch, context = np.arange(1, size + 1, dtype=float), np.full(size, 777.0)
    seconds = decode_grid(scenario, book, batch, context)["operation"]
    pricer = Pricer(scenario, book)
    for index in (0, BLOCK - 1, BLOCK, size - 1):
        expected = pricer(decode_step(index + 1, 777)).operation_seconds
        assert seconds[index] == pytest.approx(expected, rel=1e-12)
    assert np.all(np.diff(seconds) >= 0)
