"""The part of docs/oracle.md about encoders and encoder-decoders: ours beside the reference's."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from flopmap.floor.roofline import price
from flopmap.model.config import ConfigError
from flopmap.model.families.encoders import BOTH_WAYS
from flopmap.model.reading import from_config
from flopmap.scenario import Request, make
from flopmap.step import MAIN, Group, Step

if TYPE_CHECKING:
    from flopmap.model.architecture import Architecture
    from flopmap.records.book import Book

TRUTHS = Path(__file__).parent.parent / "tests" / "oracle" / "encoders.json"
PRODUCTS = ("aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm")
SOUND = (*PRODUCTS, "aten.convolution")  # those over sound are dense, and run as matrix products
TOKENS, TARGETS = 64, 8  # of every pass of the table
FRAMES = {"frames": 3000, "encoder": 1500}  # of a window of sound
HEAD = """
## Encoders and encoder-decoders

Every type that transformers maps for masked words, for classes of a text and for text to text, the plain models of the
first two, and Whisper: parameters, and matrix FLOP of a pass over 64 tokens (with 8 of the decoder, or a window of 30 s
of sound). Made from `tests/oracle/encoders.json`.

"""
LISTED = "only the text model is counted; what is around it is listed as not counted"


def encoders_table(book: Book) -> str:
    """The table with its head."""
    rows = [row(truth, book) for truth in json.loads(TRUTHS.read_text())]
    equal = sum(cells[1] == cells[2] and cells[1] != "" for cells in rows)
    flop = sum(cells[3] == cells[4] and cells[3] != "" for cells in rows)
    refused = sum(cells[5].startswith("refused") for cells in rows)
    summary = (
        f"{len(rows)} classes: {equal} with equal parameters, {flop} with equal FLOP, {refused} refused by name.\n\n"
    )
    head = "| task/type | parameters: ours | reference | FLOP: ours | torch | verdict |\n|" + " --- |" * 6 + "\n"
    return HEAD + summary + head + "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


def row(truth: dict[str, Any], book: Book) -> tuple[str, str, str, str, str, str]:
    """One class's line."""
    name = truth["id"]
    if not truth["built"]:
        return name, "", "", "", "", "the reference does not build from its default config"
    flop = reference(truth)
    theirs = f"{truth['parameters']:,}", "" if flop is None else f"{flop:,}"
    try:
        checkpoint = from_config(truth["config"], "config.json")
    except ConfigError:
        return name, "", theirs[0], "", theirs[1], "refused by name"
    if checkpoint.not_counted:
        return name, "", theirs[0], "", theirs[1], LISTED
    totals = counted(truth, checkpoint.architecture, book)
    ours = f"{totals['parameters']:,.0f}", f"{totals['matrix']:,.0f}"
    verdict = "equal" if theirs[1] else "equal parameters; the reference does not run on the meta device"
    return name, ours[0], theirs[0], ours[1] if theirs[1] else "", theirs[1], verdict


def reference(truth: dict[str, Any], run: str = "pass") -> int | None:
    """The products of a pass as torch counted them, or None where the meta device could not run it."""
    by_op = truth[run].get("by_op")
    products = SOUND if truth["id"].startswith("speech/") else PRODUCTS
    return sum(flop for op, flop in by_op.items() if op in products) if by_op else None


def encoded(stack: str, tokens: int, positions: int = 0) -> Group:
    """A sequence through an encoder."""
    return Group(count=1, new=tokens, past=0, positions=positions, phase="encode", stack=stack)


def pass_of(task: str, kind: str, architecture: Architecture) -> tuple[Group, ...]:
    """The pass that the table counts."""
    if task == "speech":
        heard = tuple(encoded(stack, tokens) for stack, tokens in FRAMES.items())
        targets, memory = TARGETS, FRAMES["encoder"]
    elif architecture.sources:  # masked words of an encoder-decoder: its decoder reads the same text
        heard = (encoded("encoder", TOKENS),)
        targets, memory = TARGETS if task == "seq2seq" else TOKENS, TOKENS
    else:  # a decoder that scores does so at every token in the reference; an encoder scores a sequence
        return (encoded(MAIN, TOKENS, TOKENS if task == "masked" or kind not in BOTH_WAYS else 1),)
    return (*heard, Group(count=1, new=targets, past=0, memory=memory, positions=targets, phase="prefill"))


def counted(
    truth: dict[str, Any], architecture: Architecture, book: Book, groups: tuple[Group, ...] | None = None
) -> dict[str, float]:
    """Our totals of the pass, or of these groups."""
    task, _, kind = truth["id"].partition("/")
    logits = "all" if task in ("seq2seq", "speech") else "last"
    conventions = (("mask", "full"), ("mla", "expanded"), ("logits", logits))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(truth["config"]))
        request = Request(model=str(path), on="h100-sxm", dtype="bf16", quantization="bf16", conventions=conventions)
        step = Step(groups=groups or pass_of(task, kind, architecture))
        return price(replace(make(request, book), step=step), book).totals
