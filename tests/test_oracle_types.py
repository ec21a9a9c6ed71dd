"""Our counts against every causal-LM type that transformers maps: equal to the integer, or refused by name.

The truth table is data, a file a type (tests/oracle/README.md says how it is made). `exceptions-*.yaml` say, for each
type whose FLOP differ, what the reference code does that no serving engine does; one that no longer differs fails.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ruamel.yaml import YAML

from flopmap.floor.roofline import price
from flopmap.model.config import ConfigError
from flopmap.model.families import INDEX
from flopmap.model.reading import from_config
from flopmap.scenario import Request, make

if TYPE_CHECKING:
    from flopmap.records.book import Book

FOLDER = Path(__file__).parent / "oracle" / "causal"
EXCEPTIONS: dict[str, str] = {
    name: reason
    for path in sorted(FOLDER.parent.glob("exceptions-*.yaml"))
    for name, reason in (YAML(typ="safe", pure=True).load(path.read_text()) or {}).items()
}
TYPES = sorted(path.stem for path in FOLDER.glob("*.json") if json.loads(path.read_text())["built"])
PRODUCTS = ("aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm")  # convolutions run on the vector units here
AS_TORCH = (("mask", "full"), ("logits", "all"), ("mla", "expanded"))


def truth_of(model_type: str) -> dict[str, Any]:
    truth: dict[str, Any] = json.loads((FOLDER / f"{model_type}.json").read_text())
    return truth


def counted(truth: dict[str, Any], book: Book, tmp_path: Path, **scenario: Any) -> dict[str, float]:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(truth["config"]))
    request = Request(model=str(path), on="h100-sxm", dtype="bf16", quantization="bf16", **scenario)
    return price(make(request, book), book).totals


VARIATIONS = json.loads((FOLDER.parent / "variations-experts.json").read_text())


@pytest.mark.parametrize("truth", [pytest.param(truth, id=truth["id"]) for truth in VARIATIONS])
def test_variations_of_mixtures_count_as_torch_does(truth: dict[str, Any], book: Book, tmp_path: Path) -> None:
    # other sizes, heads, windows, expert counts, ties, biases and layer patterns; a prefill of 64 tokens
    totals = counted(truth, book, tmp_path, phase="prefill", input_len=64, conventions=AS_TORCH)
    assert totals["parameters"] == truth["parameters"]
    if truth["matrix"] is not None:  # torch could not count every product of a few
        assert totals["matrix"] == truth["matrix"] or truth["config"]["model_type"] in EXCEPTIONS


@pytest.mark.parametrize("model_type", [name for name in TYPES if name in INDEX])
def test_parameters_are_those_of_the_reference(model_type: str, book: Book, tmp_path: Path) -> None:
    truth = truth_of(model_type)
    totals = counted(truth, book, tmp_path, phase="prefill", input_len=64, conventions=AS_TORCH)
    assert totals["parameters"] == truth["parameters"]


@pytest.mark.parametrize(
    "model_type", [name for name in TYPES if name in INDEX and (truth_of(name)["flop"] or {}).get("prefill")]
)
def test_flop_are_those_of_the_reference_or_explained(model_type: str, book: Book, tmp_path: Path) -> None:
    truth = truth_of(model_type)
    totals = counted(truth, book, tmp_path, phase="prefill", input_len=64, conventions=AS_TORCH)
    theirs = sum(flop for op, flop in truth["flop"]["prefill"]["by_op"].items() if op in PRODUCTS)
    assert (totals["matrix"] != theirs) == (model_type in EXCEPTIONS), (totals["matrix"], theirs)


@pytest.mark.parametrize(
    "model_type", [name for name in TYPES if name not in INDEX and "text_config" not in truth_of(name)["config"]]
)
def test_a_type_that_is_not_understood_is_refused_by_name(model_type: str, book: Book, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"'{model_type}' is not understood|model_type"):
        counted(truth_of(model_type), book, tmp_path)


AROUND = [name for name in TYPES if "text_config" in truth_of(name)["config"] and name not in INDEX]
REFUSED = ("gemma4_assistant", "gemma4_unified_assistant")  # drafters
TOWERS = re.compile(r"vision|audio|multi_modal")


def as_built(truth: dict[str, Any]) -> dict[str, Any]:
    """The config without the towers that the causal class leaves out."""
    if any(TOWERS.search(name) for name, _ in truth["tensors"]):
        return truth
    config = {key: value for key, value in truth["config"].items() if key not in ("vision_config", "audio_config")}
    return {**truth, "config": config}


@pytest.mark.parametrize("model_type", [name for name in AROUND if name not in REFUSED])
def test_of_a_model_around_a_text_model_all_that_is_built_is_counted(
    model_type: str, book: Book, tmp_path: Path
) -> None:
    truth = as_built(truth_of(model_type))
    totals = counted(truth, book, tmp_path, phase="prefill", input_len=64, conventions=AS_TORCH)
    not_counted = from_config(truth["config"], "config.json").not_counted
    left = TOWERS if any("only its text model" in what for what in not_counted) else re.compile("(?!)")
    assert totals["parameters"] == sum(math.prod(shape) for name, shape in truth["tensors"] if not left.search(name))
    theirs = sum(flop for op, flop in truth["flop"]["prefill"]["by_op"].items() if op in PRODUCTS)
    inner = truth["config"]["text_config"].get("model_type", f"{model_type}_text")
    assert (totals["matrix"] != theirs) == (inner in EXCEPTIONS), (totals["matrix"], theirs)


@pytest.mark.parametrize("model_type", [name for name in AROUND if name in REFUSED])
def test_a_drafter_is_refused(model_type: str) -> None:
    with pytest.raises(ConfigError, match=r"model_type: .* is not understood"):
        from_config(truth_of(model_type)["config"], "config.json")
