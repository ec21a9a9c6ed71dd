"""The batch at which measured GEMM time leaves memory for compute: the figures of the book's `crossovers` records.

For each shape of weights (n, k), the shortest measured time at each batch m, over engines and kernels. While weights
bound it, the time does not depend on m: the plateau is the median over m up to 16. When compute bounds it, the time
grows with m: the slope is the median of time / m for m of 4096 and more. Both lines meet at plateau / slope. The figure
is the median over shapes whose weights are more than 4 times the on-chip memory and whose sides are 1024 at least.

    pip install 'flopmap[validate]'
    python benchmarks/crossover.py            # look
    python benchmarks/crossover.py --write    # renew src/flopmap/book/crossovers
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from flopmap.audit.kernel_names import TYPES, WORDS
from flopmap.audit.kernels import BIG
from flopmap.audit.names import part_id
from flopmap.audit.tables import blocks
from flopmap.machine.machine import on_chip_bytes
from flopmap.records.book import load
from flopmap.records.types import Format, Part
from flopmap.scenario import element_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopmap.records.book import Book

FOLDER = Path(__file__).resolve().parent.parent / "src" / "flopmap" / "book" / "crossovers"
PLATEAU, SLOPE = 16, 4096  # tokens: up to, and from
LEAST_SIDE = 1024
LEAST_POINTS = {"plateau": 3, "slope": 2}
LEAST_SHAPES = 3
NAMES = {"bfloat16": "bf16"}
MIXED = {"int8_wo", "int4_wo", "sq"}  # of too few kernels to stand for the part

Times = dict[tuple[int, int], dict[int, float]]


class Found(NamedTuple):
    """A part's crossover in a data type: the median over shapes, where 8 in 10 of them lie, and how many they are."""

    dtype: str
    value: float
    low: float
    high: float
    shapes: int


def shortest(folder: Path, book: Book) -> dict[tuple[str, str], Times]:
    """The shortest time of every shape and batch, by part and data type."""
    best: dict[tuple[str, str], Times] = defaultdict(lambda: defaultdict(dict))
    for path in sorted(folder.rglob("gemm_perf.parquet")):
        for block in blocks(path, WORDS):
            device, dtype = block.words["device"], block.words["gemm_dtype"]
            columns = [block.numbers[name].tolist() for name in ("m", "n", "k", "latency")]
            codes = zip(device.codes.tolist(), dtype.codes.tolist(), strict=True)
            for (of, kind), m, n, k, latency in zip(codes, *columns, strict=True):
                key = (part_id(device.names[of], book), NAMES.get(dtype.names[kind], dtype.names[kind]))
                times = best[key][int(n), int(k)]
                times[int(m)] = min(latency, times.get(int(m), latency))
    return best


def crossing(shapes: Times, part: Part, dtype: str, book: Book) -> Found | None:
    """Where plateau and slope meet; None where too few shapes show both."""
    least = BIG * on_chip_bytes(part) / element_bytes(book.record(Format, TYPES[dtype][0]), book)
    meets = []
    for (n, k), times in shapes.items():
        plateau = [time for m, time in times.items() if m <= PLATEAU]
        slope = [time / m for m, time in times.items() if m >= SLOPE]
        enough = len(plateau) >= LEAST_POINTS["plateau"] and len(slope) >= LEAST_POINTS["slope"]
        if n * k > least and min(n, k) >= LEAST_SIDE and enough:
            meets.append(statistics.median(plateau) / statistics.median(slope))
    if len(meets) < LEAST_SHAPES:
        return None
    tenths = statistics.quantiles(meets, n=10, method="inclusive")
    return Found(dtype, round(statistics.median(meets)), round(tenths[0]), round(tenths[-1]), len(meets))


def record(part: Part, found: list[Found]) -> Iterator[str]:
    """The record's lines."""
    yield f"title: Measured crossover of GEMMs on {part.title}"
    yield "status: verified"
    yield "confidence: 0.8"
    yield f"part: {part.id}"
    yield "method: >-"
    yield "  For each shape of weights larger than 4 times the on-chip memory, the shortest time of all engines and"
    yield f"  kernels: median over batches up to {PLATEAU} (the plateau), over the median time a token from {SLOPE} on"
    yield "  (the slope). The median over shapes, and where 8 in 10 of them lie. benchmarks/crossover.py derives it."
    yield "batches:"
    for one in found:
        yield (
            f"  - {{dtype: {one.dtype}, value: {one.value:g}, low: {one.low:g}, high: {one.high:g}, "
            f"shapes: {one.shapes}, source: aiconfigurator}}"
        )
    yield "sources: [aiconfigurator]"


def main() -> int:
    """Print the crossovers, or write the records."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the records of the book")
    options = parser.parse_args()
    package = importlib.util.find_spec("aiconfigurator_core")
    if package is None or package.origin is None:
        print("aiconfigurator-core is not installed: nothing to derive from (pip install 'flopmap[validate]')")
        return 0
    book = load()
    by_part: dict[str, list[Found]] = defaultdict(list)
    for (part, dtype), shapes in sorted(shortest(Path(package.origin).parent / "systems" / "data", book).items()):
        found = None if dtype in MIXED else crossing(shapes, book.record(Part, part), dtype, book)
        if found:
            by_part[part].append(found)
            spread = f"[{found.low:.0f} .. {found.high:.0f}]"
            print(f"{part:20} {dtype:10} {found.value:5.0f}  {spread}  {found.shapes} shapes")
    if options.write:
        FOLDER.mkdir(exist_ok=True)
        for part, rows in by_part.items():
            (FOLDER / f"{part}.yaml").write_text("\n".join(record(book.record(Part, part), rows)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
