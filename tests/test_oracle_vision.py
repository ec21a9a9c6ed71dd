"""Our counts of towers and image tokens against transformers and torch, to the integer.

`tests/oracle/image_text` holds what torch counts of each image-text type's tower for an image of some size, and
`tests/oracle/images.json` what the processors make of many sizes (tests/oracle/README.md says how they are made).
`image_text/exceptions.yaml` says what the reference's tower does that ours does not count, or the other way round.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ruamel.yaml import YAML

from flopmap.floor.roofline import price
from flopmap.model.config import ConfigError
from flopmap.model.families import AROUND_INDEX, INDEX
from flopmap.model.reading import from_config
from flopmap.model.towers import tower_parameters
from flopmap.scenario import Request, make
from flopmap.step import MAIN

if TYPE_CHECKING:
    from flopmap.records.book import Book

ORACLE = Path(__file__).parent / "oracle"
FOLDER = ORACLE / "image_text"
EXCEPTIONS: dict[str, str] = YAML(typ="safe", pure=True).load((FOLDER / "exceptions.yaml").read_text())
# a convolution whose stride is its kernel is a product over patches, and is counted as one here
PRODUCTS = ("aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm", "aten.convolution")
AS_TORCH = (("mask", "full"), ("logits", "all"), ("mla", "expanded"))
FULL_FORWARD = {"mllama": 16}  # tokens of text; the tower cannot run alone


@functools.cache
def truth_of(kind: str) -> dict[str, Any]:
    truth: dict[str, Any] = json.loads((FOLDER / f"{kind}.json").read_text())
    return truth


TYPES = sorted(path.stem for path in FOLDER.glob("*.json"))
BUILT = [kind for kind in TYPES if truth_of(kind)["built"]]
COUNTED = [kind for kind in BUILT if kind in AROUND_INDEX or INDEX.get(kind) == "pictures_alone"]
RUNS = [(kind, number) for kind in COUNTED for number in range(len(truth_of(kind).get("flop") or []))]
TOKENS: dict[str, Any] = json.loads((ORACLE / "images.json").read_text())


def config_of(kind: str) -> dict[str, Any]:
    truth = truth_of(kind)
    return {**truth["config"], "preprocessor_config": truth.get("processor", {})}


def totals(kind: str, book: Book, tmp_path: Path, **scenario: Any) -> dict[str, float]:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config_of(kind)))
    formats: dict[str, Any] = {"dtype": "bf16", "quantization": "bf16"}
    request = Request(model=str(path), on="h100-sxm", conventions=AS_TORCH, **formats, **scenario)
    return price(make(request, book), book).totals


@pytest.mark.parametrize("kind", COUNTED)
def test_parameters_are_those_of_the_whole_model(kind: str, book: Book, tmp_path: Path) -> None:
    # language model, towers and connectors; a tower that does not run is held all the same
    assert totals(kind, book, tmp_path, phase="encode", images=1)["parameters"] == truth_of(kind)["parameters"]
    assert not [what for what in from_config(config_of(kind), kind).not_counted if "further tokens" not in what]


@pytest.mark.parametrize("kind", [kind for kind in COUNTED if kind != "mllama"])  # whose keys are the main layers'
def test_what_a_file_should_hold_of_towers_is_what_the_ledger_holds(kind: str, book: Book, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config_of(kind)))
    pricing = price(make(Request(model=str(path), on="h100-sxm", phase="encode", images=1), book), book)
    held = sum(line.costs["parameters"] for line in pricing.lines if line.line.op.stack != MAIN)
    assert tower_parameters(pricing.scenario.model.architecture) == held


@pytest.mark.parametrize(("kind", "number"), [pytest.param(*run, id=f"{run[0]}-{run[1]}") for run in RUNS])
def test_flop_of_an_image_are_those_of_the_reference_or_explained(
    kind: str, number: int, book: Book, tmp_path: Path
) -> None:
    run = truth_of(kind)["flop"][number]
    scenario: dict[str, Any] = {"phase": "encode", "images": 1, "image_size": tuple(run["image"])}
    if kind in FULL_FORWARD:  # the prompt's one image token is among these
        scenario |= {"phase": "prefill", "input_len": FULL_FORWARD[kind] - 1}
    ours = totals(kind, book, tmp_path, **scenario)["matrix"]
    theirs = sum(flop for operator, flop in run["by_op"].items() if operator in PRODUCTS)
    assert (ours != theirs) == (kind in EXCEPTIONS), (ours, theirs)


def test_most_types_are_counted_and_have_a_reference() -> None:
    assert len([kind for kind in COUNTED if truth_of(kind).get("flop")]) >= 50
    assert set(EXCEPTIONS) <= set(COUNTED)


@pytest.mark.parametrize("kind", [kind for kind in BUILT if kind not in COUNTED])
def test_a_type_whose_tower_is_not_counted_says_so_or_is_refused(kind: str) -> None:
    try:
        said = " ".join(from_config(config_of(kind), kind).not_counted)
    except ConfigError as refusal:
        said = str(refusal)
    assert "only" in said or "is not understood" in said or "is missing" in said or kind in NOTHING_AROUND


NOTHING_AROUND = ("mistral4",)  # mapped as an image-text type, and has no tower


@pytest.mark.parametrize("kind", TOKENS)
def test_image_tokens_are_those_of_the_processor(kind: str) -> None:
    entry = TOKENS[kind]
    config = {**config_of(kind), "preprocessor_config": entry["processor"]}
    config["video_preprocessor_config"] = entry.get("video_processor", {})
    images = from_config(config, kind).architecture.images
    assert images is not None
    around = AROUND_AN_IMAGE.get(kind, 0)
    ours = [[width, height, images.of(width, height).tokens - around] for width, height, _ in entry["tokens"]]
    assert ours == entry["tokens"]
    videos = [
        [frames, width, height, images.of(width, height, frames).tokens]
        for frames, width, height, _ in entry.get("videos", [])
    ]
    assert videos == entry.get("videos", [])


AROUND_AN_IMAGE = {"gemma3": 4}  # begin, end and two blank lines, which the processor writes and does not count
