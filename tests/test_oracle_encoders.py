"""Our counts against encoders and encoder-decoders: equal to the integer, or refused by name.

The truth table is data (tests/oracle/README.md says how it is made), so neither torch nor transformers is needed here.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from flopmap.floor.roofline import price
from flopmap.media import tower_groups
from flopmap.model.config import ConfigError
from flopmap.model.families.encoders import BOTH_WAYS
from flopmap.model.reading import from_config
from flopmap.model.towers import tower_parameters
from flopmap.scenario import Request, make
from flopmap.step import MAIN, Group, Step

if TYPE_CHECKING:
    from flopmap.records.book import Book

TRUTHS: dict[str, dict[str, Any]] = {
    truth["id"]: truth
    for truth in json.loads((Path(__file__).parent / "oracle" / "encoders.json").read_text())
    if truth["built"]
}
PRODUCTS = ("aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm")
SOUND = (*PRODUCTS, "aten.convolution")  # those over sound are dense, and run as matrix products
AS_TORCH = (("mask", "full"), ("mla", "expanded"))
TOKENS, TARGETS = 64, 8  # of every pass of the table
# a text model inside of a model with towers: the text model is counted, what is around it is listed
TEXT_ALONE = ("modernvbert",)
HEARS = [name for name in TRUTHS if "tower" in TRUTHS[name]]  # text models with a tower of sound before them


def understood(name: str) -> bool:
    try:
        from_config(TRUTHS[name]["config"], "config.json")
    except ConfigError:
        return False
    return True


def of(*tasks: str) -> list[str]:
    """The entries of these tasks that are understood, and not only in part."""
    wanted = [name for name in TRUTHS if name.split("/")[0] in tasks and name.split("/")[1] not in TEXT_ALONE]
    return [name for name in wanted if understood(name) and not partial(name)]


def partial(name: str) -> bool:
    return bool(from_config(TRUTHS[name]["config"], "config.json").not_counted)


def counted(name: str, book: Book, tmp_path: Path, groups: tuple[Group, ...], logits: str) -> dict[str, float]:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(TRUTHS[name]["config"]))
    conventions = (*AS_TORCH, ("logits", logits))
    request = Request(model=str(path), on="h100-sxm", dtype="bf16", quantization="bf16", conventions=conventions)
    return price(replace(make(request, book), step=Step(groups=groups)), book).totals


def theirs(name: str, run: str = "pass") -> int | None:
    """The products of a pass, or None where the meta device could not run it."""
    by_op = TRUTHS[name][run].get("by_op")
    products = SOUND if name.startswith("speech/") else PRODUCTS
    return sum(flop for op, flop in by_op.items() if op in products) if by_op else None


def encoding(tokens: int, stack: str = MAIN, positions: int = 0) -> Group:
    return Group(count=1, new=tokens, past=0, positions=positions, phase="encode", stack=stack)


@pytest.mark.parametrize("name", of("masked", "sequence", "plain"))
def test_an_encoder_counts_as_torch_does(name: str, book: Book, tmp_path: Path) -> None:
    task = name.split("/", maxsplit=1)[0]
    config = from_config(TRUTHS[name]["config"], "config.json")
    if config.architecture.sources:  # masked words of an encoder-decoder: its decoder reads the same text
        decoder = Group(count=1, new=TOKENS, past=0, memory=TOKENS, positions=TOKENS, phase="prefill")
        groups: tuple[Group, ...] = (encoding(TOKENS, "encoder"), decoder)
    else:  # a decoder that scores does so at every token in the reference; an encoder scores a sequence
        every = task == "masked" or name.split("/")[1] not in BOTH_WAYS
        groups = (encoding(TOKENS, positions=TOKENS if every else 1),)
    totals = counted(name, book, tmp_path, groups, "last")
    assert totals["parameters"] == TRUTHS[name]["parameters"]
    assert theirs(name) in (None, totals["matrix"])


@pytest.mark.parametrize("name", [name for name in of("seq2seq") if name not in HEARS])
def test_an_encoder_decoder_counts_as_torch_does(name: str, book: Book, tmp_path: Path) -> None:
    decoder = Group(count=1, new=TARGETS, past=0, memory=TOKENS, positions=TARGETS, phase="prefill")
    totals = counted(name, book, tmp_path, (encoding(TOKENS, "encoder"), decoder), "all")
    assert totals["parameters"] == TRUTHS[name]["parameters"]
    assert totals["matrix"] == theirs(name)
    # the encoder by itself: what it leaves to the decoder's cross attention is made of its tokens, when it runs
    alone = counted(name, book, tmp_path, (encoding(TOKENS, "encoder"),), "all")
    crossed = totals["matrix"] - alone["matrix"]
    assert alone["parameters"] == totals["parameters"]
    assert alone["matrix"] > (theirs(name, "encoder") or 0)
    assert 0 < crossed < totals["matrix"]


@pytest.mark.parametrize("name", HEARS)
def test_the_tower_of_a_model_that_hears_counts_as_torch_does(name: str, book: Book, tmp_path: Path) -> None:
    # one window of 30 s through the tower and the connector; what is held is all of the model
    architecture = from_config(TRUTHS[name]["config"], "config.json").architecture
    assert architecture.sounds is not None
    groups = tower_groups((architecture.sounds.of(30),), 1)
    totals = counted(name, book, tmp_path, groups, "last")
    assert totals["matrix"] == sum(TRUTHS[name]["tower"]["by_op"].values())
    assert set(TRUTHS[name]["tower"]["by_op"]) == {"aten.addmm", "aten.bmm", "aten.convolution", "aten.mm"}
    assert totals["parameters"] == TRUTHS[name]["parameters"]
    # without a sound: the words alone, and their tower held
    words = counted(
        name, book, tmp_path, (Group(count=1, new=TOKENS, past=0, positions=TOKENS, phase="prefill"),), "all"
    )
    assert words["matrix"] == theirs(name)


@pytest.mark.parametrize("name", HEARS)
def test_a_file_should_hold_of_a_tower_that_hears_what_the_ledger_holds(name: str, book: Book, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(TRUTHS[name]["config"]))
    pricing = price(make(Request(model=str(path), on="h100-sxm", phase="encode"), book), book)
    held = sum(line.costs["parameters"] for line in pricing.lines if line.line.op.stack != MAIN)
    assert tower_parameters(pricing.scenario.model.architecture) == held > 0


@pytest.mark.parametrize("name", HEARS)
def test_the_tokens_of_a_sound_are_those_of_the_processor(name: str) -> None:
    sounds = from_config(TRUTHS[name]["config"], "config.json").architecture.sounds
    assert sounds is not None
    around = 2 if name == "seq2seq/musicflamingo" else 0  # begin and end, which its processor writes and does not count
    theirs = TRUTHS[name]["tokens"]
    assert [[seconds, sounds.of(seconds).tokens - around] for seconds, _ in theirs] == theirs
    assert len(theirs) >= 6 or name == "seq2seq/voxtral"  # whose tokens another tokenizer makes


def test_six_types_hear() -> None:
    assert len(HEARS) == 6


def test_whisper_counts_as_torch_does(book: Book, tmp_path: Path) -> None:
    (name,) = of("speech")
    sound = (encoding(3000, "frames"), encoding(1500, "encoder"))
    decoder = Group(count=1, new=TARGETS, past=0, memory=1500, positions=TARGETS, phase="prefill")
    totals = counted(name, book, tmp_path, (*sound, decoder), "all")
    assert totals["parameters"] == TRUTHS[name]["parameters"]
    assert totals["matrix"] == theirs(name)
    # keys and values for the 2 layers of the decoder are made when the encoder runs: 1500 tokens, 384 wide
    alone = counted(name, book, tmp_path, sound, "all")
    assert alone["matrix"] == (theirs(name, "encoder") or 0) + 2 * 2 * 2 * 1500 * 384 * 384


REFUSED = {
    "seq2seq": {
        "bigbird_pegasus",
        "encoder-decoder",
        "fsmt",
        "led",
        "longt5",
        "nllb-moe",
        "pegasus_x",
        "prophetnet",
        "seamless_m4t",
        "seamless_m4t_v2",
        "switch_transformers",
        "t5gemma",
        "t5gemma2",
        "voxtral_realtime",
    }
}


def test_what_is_not_understood_is_refused_by_the_field_that_says_it() -> None:
    refused = {name for name in TRUTHS if not understood(name)}
    for name in refused:
        with pytest.raises(ConfigError, match=r"(model_type|architectures|[a-z_]+): "):
            from_config(TRUTHS[name]["config"], "config.json")
    assert {name.split("/")[1] for name in refused if name.startswith("seq2seq/")} == REFUSED["seq2seq"]


def test_most_of_what_builds_is_exact() -> None:
    exact = Counter(name.split("/")[0] for name in of("masked", "sequence", "plain", "seq2seq", "speech"))
    assert exact == {"masked": 28, "sequence": 82, "plain": 82, "seq2seq": 18, "speech": 1}


@pytest.mark.parametrize("name", [name for name in TRUTHS if name.split("/")[1] in TEXT_ALONE])
def test_what_is_around_a_text_model_is_listed(name: str) -> None:
    assert partial(name)
