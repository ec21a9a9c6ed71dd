"""Write docs/oracle.md: our counts beside the reference's, for every causal-LM type that transformers maps.

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

ROOT = Path(__file__).parent.parent
ORACLE = ROOT / "tests" / "oracle"
TABLE = ROOT / "docs" / "oracle.md"
PRODUCTS = ("aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm")
AS_TORCH = (("mask", "full"), ("logits", "all"))
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
    return HEAD + summary + head + "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


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
        totals = counted(truth, book)
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


def counted(truth: dict[str, Any], book: Book) -> dict[str, float]:
    """Our totals for the same config and step."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(truth["config"]))
        request = Request(
            model=str(path),
            on="h100-sxm",
            dtype="bf16",
            quantization="bf16",
            phase="prefill",
            batch_size=1,
            input_len=64,
            conventions=AS_TORCH,
        )
        return price(make(request, book), book).totals


if __name__ == "__main__":
    sys.exit(main())
