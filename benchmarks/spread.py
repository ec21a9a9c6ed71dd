"""How far above the operation floor public results lie: the quantiles that the book's `measurements` records hold.

Reads a table of public measurements (columns hardware, num_devices, engine, model, weight_dtype, kv_dtype, phase,
batch_or_concurrency, input_len, output_len, context_len, metric, value, quality) and prices every row that states what
is needed: one part, a dense bundled model, a 16-bit or 8-bit float format, a static batch or a single stream.

    python benchmarks/spread.py measurements.csv
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from flopmap.floor.roofline import price
from flopmap.records.book import Book, load
from flopmap.scenario import Request, make

FORMATS: dict[str, tuple[str, str | None]] = {
    "bf16": ("bf16", None),
    "bfloat16": ("bf16", None),
    "fp16": ("fp16", None),
    "float16": ("fp16", None),
}
FORMATS |= {"f16": ("fp16", None), "gguf f16": ("fp16", None), "gguf bf16": ("bf16", None), "fp8": ("bf16", "fp8")}
LEAST_OUTPUT = 0.5  # of the prompt: then decode takes most of the time
QUANTILES = {"low": 0.1, "middle": 0.5, "high": 0.9}


class Priced(NamedTuple):
    """A row as scenarios: their steps and how often each runs, the measured seconds, and the phase that dominates."""

    steps: tuple[tuple[Request, int], ...]
    seconds: float
    phase: str


def read(row: dict[str, str], book: Book) -> Priced | None:
    """The scenarios of a row, or None when it does not state enough."""
    if row["num_devices"] not in ("1", "1.0") or row["quality"] not in ("A", "B") or "spec_decode" in row["notes"]:
        return None
    stored = FORMATS.get(row["weight_dtype"].strip().lower())
    batch = number(row["batch_or_concurrency"])
    known = book.find("parts", row["hardware"]) and book.find("models", row["model"])
    if stored is None or not known or not batch or ("closed-loop" in row["notes"] and batch > 1):
        return None
    common = Request(model=row["model"], on=row["hardware"], dtype=stored[0], quantization=stored[1], batch_size=batch)
    return _steps(row, common, batch)


def _steps(row: dict[str, str], common: Request, batch: int) -> Priced | None:
    """Prefill and decode steps of a row, by its metric. Decode attends to the prompt and half of its output."""
    value = float(row["value"])
    past, prompt, output = (number(row[name]) for name in ("context_len", "input_len", "output_len"))
    mean = past + prompt + max(1, output // 2)
    decode = replace(common, phase="decode", context_len=mean)
    prefill = replace(common, phase="prefill", input_len=max(1, prompt), cached_len=past)
    if row["metric"] == "decode_tok_s_per_user":
        return Priced(((decode, 1),), 1 / value, "decode")
    if row["metric"] == "tpot_ms":
        return Priced(((decode, 1),), value / 1e3, "decode")
    if row["metric"] == "prefill_tok_s" and prompt:
        return Priced(((prefill, 1),), prompt * batch / value, "prefill")
    static = "batch_kind=static" in row["notes"] and "tokens_counted=input+output" in row["notes"]
    if row["metric"] == "e2e_tok_s_total" and static and prompt and output >= LEAST_OUTPUT * prompt:
        return Priced(((prefill, 1), (decode, output - 1)), (prompt + output) * batch / value, "decode")
    if row["metric"] == "ttft_ms" and "batch_kind=static" in row["notes"] and prompt:
        return Priced(((prefill, 1),), value / 1e3, "prefill")
    return None


def number(text: str) -> int:
    """A whole number, 0 where the cell is empty or says something else."""
    try:
        return int(float(text))
    except ValueError:
        return 0


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
    book = load()
    ratios: dict[str, dict[str, list[float]]] = {"decode": defaultdict(list), "prefill": defaultdict(list)}
    skipped: Counter[str] = Counter()
    lowest: list[tuple[float, Any]] = []
    with options.table.open(newline="") as file:
        for row in csv.DictReader(file):
            found = read(row, book)
            if found is None:
                skipped["states too little"] += 1
                continue
            try:
                pricings = [(price(make(asked, book), book), times) for asked, times in found.steps]
            except (ValueError, LookupError) as error:
                skipped[str(error).split(":")[0][:60]] += 1
                continue
            phase = found.phase
            ratio = found.seconds / sum(pricing.operation_seconds * times for pricing, times in pricings)
            device = sum(pricing.device_seconds * times for pricing, times in pricings)
            lowest.append((found.seconds / device, row["id"]))
            ratios[phase][f"{row['hardware']} / {row['engine']}"].append(ratio)
    for phase, groups in ratios.items():
        shown = "  ".join(f"{name} {quantile(list(groups.values()), share):.3f}" for name, share in QUANTILES.items())
        print(f"{phase}: {shown}  ({sum(map(len, groups.values()))} rows, {len(groups)} groups of part and engine)")
        for group, values in sorted(groups.items(), key=lambda item: -len(item[1])):
            shown = "  ".join(f"{name} {quantile([values], share):.2f}" for name, share in QUANTILES.items())
            print(f"  {len(values):4} rows  {shown}  {group}")
    print("lowest measured / device floor:", ", ".join(f"{ratio:.3f} ({row})" for ratio, row in sorted(lowest)[:5]))
    print(f"not priced: {dict(skipped.most_common(5))}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
