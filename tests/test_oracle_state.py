"""Cache and recurrent state of a sequence against the cache objects of transformers: equal to the element.

The truth table has the shapes of every tensor that a prefill left behind (tests/oracle/README.md says how).
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ruamel.yaml import YAML

from flopmap.floor.roofline import price
from flopmap.model.families import INDEX
from flopmap.scenario import Request, make

if TYPE_CHECKING:
    from flopmap.floor.roofline import Pricing
    from flopmap.records.book import Book

FOLDER = Path(__file__).parent / "oracle"
EXCEPTIONS: dict[str, str] = YAML(typ="safe", pure=True).load((FOLDER / "state-exceptions.yaml").read_text())
COUNTERS = ("seqlen_offset", "position_ids", "_sliding_window_tensor")  # positions, and no part of any key or value
AS_ACTIVATIONS = ("short-convolution", "shared-write")


def decodes() -> dict[str, dict[str, Any]]:
    """The decode steps of the truth table that kept a state, by type."""
    found = {}
    for path in sorted((FOLDER / "causal").glob("*.json")):
        truth = json.loads(path.read_text())
        step = (truth.get("flop") or {}).get("decode") or {}
        if step.get("state") and path.stem in INDEX:
            found[path.stem] = {**step, "config": truth["config"]}
    return found


DECODES = decodes()


def elements(pricing: Pricing) -> float:
    """Elements that a sequence holds: cached keys and values, and state in its own formats."""
    total = 0.0
    for line in pricing.lines:
        state = "act_bytes" if line.line.op.op_class in AS_ACTIVATIONS else "state_bytes"
        total += line.costs["cache"] / line.line.formats["kv_bytes"]
        total += line.costs["held"] / line.line.formats[state]
    return total


@pytest.mark.parametrize("model_type", DECODES)
def test_a_sequence_holds_what_the_reference_caches(model_type: str, book: Book, tmp_path: Path) -> None:
    truth = DECODES[model_type]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(truth["config"]))
    # the cache that the step found: all tokens but its own
    request = Request(
        model=str(path),
        on="h100-sxm",
        dtype="bf16",
        quantization="bf16",
        context_len=truth["context"] - 1,
        conventions=(("conv-state", "reference"),),
    )
    ours = elements(price(make(request, book), book))
    theirs = sum(math.prod(shape) for name, shape, _ in truth["state"] if not name.endswith(COUNTERS))
    assert (ours != theirs) == (model_type in EXCEPTIONS), (ours, theirs)


def test_hybrids_and_recurrent_models_are_among_them() -> None:
    hybrids = {"nemotron_h", "jamba", "zamba2", "qwen3_next", "kimi_linear", "falcon_mamba", "rwkv", "mamba2"}
    assert hybrids <= DECODES.keys() - EXCEPTIONS.keys()
    assert len(DECODES) >= 170
