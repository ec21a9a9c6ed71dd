"""Write docs/oracle.md: our counts beside those of transformers, for every type that generates, encodes or looks.

python tools/oracle_table.py            # write the table
python tools/oracle_table.py --check    # exit 1 when the table is not what it would write
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from flopmap.floor.roofline import price
from flopmap.model.config import ConfigError
from flopmap.model.families import INDEX
from flopmap.records.book import Book, load
from flopmap.scenario import Request, make
from flopmap.step import ScenarioError

ROOT = Path(__file__).parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))
from tools.oracle_encoders import encoders_table  # noqa: E402 - found from there, also when this file is run

ORACLE = ROOT / "tests" / "oracle"
TABLE = ROOT / "docs" / "oracle.md"
PRODUCTS = ("aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm")
AS_TORCH = (("mask", "full"), ("logits", "all"))
FULL_FORWARD = {"mllama": 16}  # tokens of text, its image's among them: the tower cannot run alone
IMAGE_HEAD = """
## Towers of images

Every image-text type that transformers maps, and encoders of images alone: parameters of the whole model, and matrix
FLOP of tower and connector for one image as the type's own processor makes it. A convolution whose stride is its kernel
is a product. Made from `tests/oracle/image_text`.

"""
TEXT_ONLY = "only the text model is counted; what is around it is listed as not counted"
HEAD = """# Counts against the reference

Every causal-LM type that transformers maps, built on the meta device with few layers of its default config, and counted
by torch's FlopCounterMode in a prefill of 64 tokens (full square, logits of every position). Ours are under the same
conventions. Made by `python tools/oracle_table.py` from `tests/oracle/causal`, which `make test` holds our counts to.

"""


def main() -> int:
    """Write the table, or check it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    text = table(load())
    if options.check:
        current = TABLE.read_text() if TABLE.exists() else ""
        if current != text:
            print("docs/oracle.md is not current: python tools/oracle_table.py", file=sys.stderr)
        return int(current != text)
    TABLE.write_text(text)
    print(text.split("\n\n")[2])
    return 0


def table(book: Book) -> str:
    """The document."""
    reasons = exceptions()
    rows = [row(path, reasons, book) for path in sorted((ORACLE / "causal").glob("*.json"))]
    exact = sum(row[1] == row[2] and row[1] != "" for row in rows)
    flop = sum(row[3] == row[4] and row[3] != "" for row in rows)
    stated = sum(row[5] in reasons.values() for row in rows)
    refused = sum(row[5].startswith("refused") for row in rows)
    summary = (
        f"{len(rows)} types: {exact} with equal parameters, {flop} with equal FLOP, "
        f"{stated} with FLOP that differ for a stated reason, {refused} refused by name.\n\n"
    )
    head = "| type | parameters: ours | reference | FLOP: ours | torch | verdict |\n|" + " --- |" * 6 + "\n"
    causal = HEAD + summary + head + "".join(f"| {' | '.join(cells)} |\n" for cells in rows)
    return causal + encoders_table(book) + image_table(book)


def image_table(book: Book) -> str:
    """The part about image-text types."""
    reasons = YAML(typ="safe", pure=True).load((ORACLE / "image_text" / "exceptions.yaml").read_text())
    rows = [image_row(path, reasons, book) for path in sorted((ORACLE / "image_text").glob("*.json"))]
    equal = sum(row[1] == row[2] and row[1] != "" for row in rows)
    towers = sum(row[4] == row[5] and row[4] != "" for row in rows)
    summary = f"{len(rows)} types: {equal} with equal parameters, {towers} with equal FLOP of the tower.\n\n"
    columns = ("type", "parameters: ours", "reference", "image", "FLOP: ours", "torch", "verdict")
    head = f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}\n"
    return IMAGE_HEAD + summary + head + "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


def image_row(path: Path, reasons: dict[str, str], book: Book) -> tuple[str, ...]:
    """One image-text type's line: the whole model, and its tower for the first of its images."""
    truth = json.loads(path.read_text())
    name, run = truth["type"], (truth.get("flop") or [None])[0]
    if not truth["built"]:
        return name, "", "", "", "", "", "the reference does not build from its default config"
    theirs = f"{truth['parameters']:,}"
    flop = f"{sum(n for op, n in run['by_op'].items() if op in (*PRODUCTS, 'aten.convolution')):,}" if run else ""
    size = f"{run['image'][0]}x{run['image'][1]}" if run else ""
    config = {**truth["config"], "preprocessor_config": truth.get("processor", {})}
    scenario: dict[str, Any] = {"phase": "encode", "images": 1, "image_size": tuple(run["image"]) if run else None}
    if name in FULL_FORWARD:
        scenario |= {"phase": "prefill", "input_len": FULL_FORWARD[name] - 1}
    try:
        totals = counted(config, book, **scenario)
    except ConfigError:
        return name, "", theirs, size, "", flop, "refused by name"
    except ScenarioError:
        totals = counted(config, book, phase="prefill", input_len=64)
        ours = f"{totals['parameters']:,.0f}"
        if ours == theirs:
            return name, ours, theirs, "", "", "", "equal; there is no tower"
        return name, ours, theirs, size, "", flop, TEXT_ONLY
    verdict = reasons.get(name, "equal" if run else "equal parameters; the tower is not counted by the reference here")
    return name, f"{totals['parameters']:,.0f}", theirs, size, f"{totals['matrix']:,.0f}" if run else "", flop, verdict


def exceptions() -> dict[str, str]:
    """Why the FLOP of some types differ."""
    yaml = YAML(typ="safe", pure=True)
    files = sorted(ORACLE.glob("exceptions-*.yaml"))
    return {name: reason for path in files for name, reason in (yaml.load(path.read_text()) or {}).items()}


def row(path: Path, reasons: dict[str, str], book: Book) -> tuple[str, str, str, str, str, str]:
    """One type's line."""
    truth = json.loads(path.read_text())
    name = truth["type"]
    if not truth["built"]:
        return name, "", "", "", "", "the reference does not build from its default config"
    theirs, flop = f"{truth['parameters']:,}", reference_flop(truth)
    try:
        totals = counted(as_built(truth), book, phase="prefill", input_len=64)
    except ConfigError:
        return name, "", theirs, "", flop, "refused by name"
    if name not in INDEX:
        ours, products = f"{totals['parameters']:,.0f}", f"{totals['matrix']:,.0f}"
        inner = truth["config"]["text_config"].get("model_type", f"{name}_text")
        verdict = "equal" if (ours, products) == (theirs, flop) else reasons.get(inner, TEXT_ONLY)
        return name, ours, theirs, products, flop, verdict
    ours = f"{totals['parameters']:,.0f}"
    products = f"{totals['matrix']:,.0f}"
    verdict = reasons.get(name, "equal" if flop else "equal parameters; torch cannot count its FLOP here")
    return name, ours, theirs, products, flop, verdict


def reference_flop(truth: dict[str, Any]) -> str:
    """Matrix products as torch counted them, empty where it could not."""
    prefill = (truth["flop"] or {}).get("prefill")
    return f"{sum(flop for op, flop in prefill['by_op'].items() if op in PRODUCTS):,}" if prefill else ""


def as_built(truth: dict[str, Any]) -> dict[str, Any]:
    """The config without the towers that the causal class leaves out."""
    config: dict[str, Any] = truth["config"]
    if any(word in name for name, _ in truth["tensors"] for word in ("vision", "audio", "multi_modal")):
        return config
    return {key: value for key, value in config.items() if key not in ("vision_config", "audio_config")}


def counted(config: dict[str, Any], book: Book, **scenario: Any) -> dict[str, float]:
    """Our totals for the same config and step."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(config))
        formats: dict[str, Any] = {"dtype": "bf16", "quantization": "bf16", "conventions": AS_TORCH}
        request = Request(model=str(path), on="h100-sxm", batch_size=1, **formats, **scenario)
        return price(make(request, book), book).totals


if __name__ == "__main__":
    sys.exit(main())
