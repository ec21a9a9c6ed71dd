"""Evaluations a second: one step with every op, and a grid of steps beside its limit in the same run.

The grid's limit is the same floor fused by hand in NumPy for this one model and part.

    python benchmarks/speed.py [--points 1000000]
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from flopmap.floor.grid import BLOCK, decode_grid
from flopmap.floor.roofline import Pricer
from flopmap.records.book import load
from flopmap.scenario import Request, make
from flopmap.step import decode_step

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

MODEL, PART = "meta-llama/Llama-3.1-8B", "h100-sxm"


def main() -> int:
    """Print what each way of evaluating reaches."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=1_000_000)
    options = parser.parse_args()
    book = load()
    scenario = make(Request(model=MODEL, on=PART, phase="decode", batch_size=1, context_len=2048), book)
    pricer = Pricer(scenario, book)
    steps = [decode_step(1 + number % 256, 2048) for number in range(2000)]
    rate = len(steps) / best(lambda: [pricer(step) for step in steps])
    print(
        f"one step, every op: {rate:,.0f} evaluations/s ({len(pricer.ledger.lines)} ops, three floors, all resources)"
    )
    grid(options.points, scenario, book)
    return 0


def grid(points: int, scenario: Any, book: Any) -> None:
    """The grid against the floor fused by hand."""
    random = np.random.default_rng(0)
    batch = random.integers(1, 1024, points).astype(float)
    context = random.integers(1, 131072, points).astype(float)
    before = peak_megabytes()
    names = ("operation",)
    ours = best(lambda: decode_grid(scenario, book, batch, context, names), times=3)
    held = peak_megabytes() - before
    fused = best(lambda: blocks(by_hand, batch, context), times=3)
    counted = decode_grid(scenario, book, batch, context, names)["operation"]
    difference = np.abs(counted / blocks(by_hand, batch, context) - 1)
    rate = points / ours / 1e6
    print(f"grid of {points:,} (batch, context): {rate:.1f} M points/s, {ours / fused:.2f} x the time by hand")
    print(f"  largest difference to the floor by hand: {difference.max():.1e}; memory above the inputs: {held:.0f} MB")


def by_hand(batch: NDArray[np.float64], context: NDArray[np.float64]) -> NDArray[np.float64]:
    """The operation floor of Llama-3.1-8B in bf16 on an H100, written out for nothing else."""
    peak, bandwidth, width, ff, layers, vocab = 989.5e12, 3.35e12, 4096, 14336, 32, 128256
    total = np.zeros(len(batch))
    for n, traffic in ((width * 6144, 10240), (width * width, 8192), (width * 2 * ff, 32768), (ff * width, 18432)):
        total += layers * np.maximum(2 * batch * n / peak, (2 * n + 2 * batch * traffic) / bandwidth)
    total += np.maximum(2 * batch * vocab * width / peak, (2 * vocab * width + 2 * batch * (width + vocab)) / bandwidth)
    total += layers * ((context - 1) * 4096 + 4096) * batch / bandwidth  # keys and values, read; the step's own once
    total += layers * batch * 2 * 4096 / bandwidth  # keys and values, written and read from the projection
    norm = 2 * width + 4 * batch * width
    total += (2 * layers + 1) * norm / bandwidth
    total += (
        layers * (batch * 40 * 128 * 4 + 2 * batch * 6 * width + 6 * batch * ff) / bandwidth
    )  # rope, residuals, gate
    total += (
        4 * batch * width + 2 * batch * vocab
    ) / bandwidth  # embedding rows in and out; logits read by the sampler
    return total


def blocks(function: Callable[..., NDArray[np.float64]], *arrays: NDArray[np.float64]) -> NDArray[np.float64]:
    """A function over arrays, a cache-sized block at a time."""
    result = np.empty(len(arrays[0]))
    for start in range(0, len(result), BLOCK):
        result[start : start + BLOCK] = function(*(array[start : start + BLOCK] for array in arrays))
    return result


def best(function: Callable[[], Any], times: int = 5) -> float:
    """The fastest of a few runs, in seconds."""
    fastest = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        function()
        fastest = min(fastest, time.perf_counter() - start)
    return fastest


def peak_megabytes() -> float:
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main())
