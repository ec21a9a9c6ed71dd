"""How far above the operation floor public results lie: the quantiles that the book's `measurements` records hold.

Reads a table of public measurements (columns as `flopmap audit` reads them) and prices every row that states what is
needed: one part, a dense bundled model, a 16-bit or 8-bit float format, a static batch or a single stream.

    python benchmarks/spread.py measurements.csv
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from flopmap.audit.measurements import Auditor, Held, Unpriced
from flopmap.audit.tables import csv_rows
from flopmap.records.book import load

if TYPE_CHECKING:
    from flopmap.audit.rows import Reading

FORMATS = (None, "fp8")  # of weights, beside those of the activations
LEAST_OUTPUT = 0.5  # of the prompt: then decode takes most of the time
QUANTILES = {"low": 0.1, "middle": 0.5, "high": 0.9}


def counts(held: Held) -> bool:
    """Whether a row states enough to be an example of how far results lie above the floor."""
    reading, cells = held.reading, held.reading.cells
    if reading.devices != 1 or cells["quality"] not in ("A", "B") or "spec_decode" in cells["notes"]:
        return False
    if "not stated" in cells["hardware"]:  # a floor may take the fastest variant, an example may not
        return False
    if reading.quantization not in FORMATS or not cells["weight_dtype"] or not reading.static or not reading.batch:
        return False
    if any(line.op_class.id == "moe-experts" for line in held.pricings[0][0].ledger.lines):
        return False
    if reading.cells["metric"] == "e2e_tok_s_total":
        return "tokens_counted=input+output" in cells["notes"] and _is_decode(reading)
    return cells["metric"] != "decode_tok_s_total"


def _is_decode(reading: Reading) -> bool:
    """Whether most of an end-to-end time is decode."""
    prompt, output = float(reading.cells["input_len"] or 0), float(reading.cells["output_len"] or 0)
    return prompt > 0 and output >= LEAST_OUTPUT * prompt


def quantile(groups: list[list[float]], share: float) -> float:
    """The value below which a share of the results lies, every group counting as much as another."""
    weighted = sorted((value, 1 / len(values)) for values in groups for value in values)
    left = share * len(groups)
    for value, weight in weighted:
        left -= weight
        if left <= 0:
            return value
    return weighted[-1][0]


def main() -> int:
    """Print quantiles per phase, and per part and engine."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", type=Path, nargs="?", help="the measurements (without it there is nothing to do)")
    options = parser.parse_args()
    if options.table is None or not options.table.exists():
        print("no table of measurements given: nothing to fit (python benchmarks/spread.py TABLE.csv)")
        return 0
    auditor = Auditor(load())
    ratios: dict[str, dict[str, list[float]]] = {"decode": defaultdict(list), "prefill": defaultdict(list)}
    skipped: Counter[str] = Counter()
    for line, cells in csv_rows(options.table):
        held = auditor.hold(line, cells) if isinstance(cells, dict) else Unpriced(line, cells)
        if isinstance(held, Unpriced):
            skipped[held.why.split(":")[0][:60]] += 1
        elif not counts(held):
            skipped["states too little"] += 1
        else:
            floor = sum(pricing.operation_seconds * times for pricing, times in held.pricings)
            group = f"{held.reading.cells['hardware']} / {held.reading.cells['engine']}"
            ratios[held.reading.phase][group].append(held.reading.seconds / floor)
    for phase, groups in ratios.items():
        shown = "  ".join(f"{name} {quantile(list(groups.values()), share):.3f}" for name, share in QUANTILES.items())
        print(f"{phase}: {shown}  ({sum(map(len, groups.values()))} rows, {len(groups)} groups of part and engine)")
        for group, values in sorted(groups.items(), key=lambda item: -len(item[1])):
            shown = "  ".join(f"{name} {quantile([values], share):.2f}" for name, share in QUANTILES.items())
            print(f"  {len(values):4} rows  {shown}  {group}")
    print(f"not priced: {dict(skipped.most_common(5))}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
