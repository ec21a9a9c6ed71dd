"""Points a second of a grid of models, parts, batches and contexts on one core, beside its limit in the same run.

The limit is the operation floor of Llama 2 70B in bf16 fused by hand in NumPy, with the rates of each part.

    python benchmarks/sweep.py [--points 1000000]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from speed import best, blocks, peak_megabytes

from flopmap.choices.plan import read_plan
from flopmap.choices.sweep import sweep
from flopmap.floor.grid import grid_function
from flopmap.machine.machine import matrix_peak
from flopmap.records.book import load
from flopmap.scenario import Request, make

if TYPE_CHECKING:
    from numpy.typing import NDArray

MODEL = "meta-llama/Llama-2-70b-hf"
PARTS = ("h100-sxm", "h200-sxm", "b200-sxm", "mi300x", "a100-sxm-80gb", "h20", "l40s", "l4")
STRUCTURAL = """
grid:
  model: [meta-llama/Llama-3.1-8B, Qwen/Qwen3-8B, Qwen/Qwen3-30B-A3B, deepseek-ai/DeepSeek-V3]
  on: [h100-sxm, h200-sxm, b200-sxm, mi300x, h20, l40s]
  quantization: [null, fp8, awq]
  batch_size: {from: 1, to: 256, factor: 2}
  context_len: {from: 128, to: 131072, factor: 2}
"""


def main() -> int:
    """Print what the grid reaches, and what a sweep into a file does."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=1_000_000)
    options = parser.parse_args()
    book, random = load(), np.random.default_rng(0)
    batch = random.integers(1, 1024, options.points).astype(float)
    context = random.integers(1, 131072, options.points).astype(float)
    before = peak_megabytes()
    ours = by_hand_time = widest = 0.0
    for name in PARTS:
        scenario = make(Request(model=MODEL, on=name, dtype="bf16", context_len=2048), book)
        part = scenario.machine.part
        peak = matrix_peak(part, "bf16")
        assert peak is not None
        rates = (peak.value, part.bandwidth_bytes_per_second.value)
        start = time.perf_counter()
        function = grid_function(scenario, book, ("operation",))
        ours += time.perf_counter() - start
        ours += best(lambda function=function: function(batch, context), times=3)  # type: ignore[misc]
        by_hand_time += best(lambda rates=rates: blocks(fused(*rates), batch, context), times=3)  # type: ignore[misc]
        sample = slice(0, 10_000)
        counted = function(batch[sample], context[sample])["operation"]
        widest = max(widest, float(np.abs(counted / fused(*rates)(batch[sample], context[sample]) - 1).max()))
    total = options.points * len(PARTS)
    print(
        f"grid of {total:,} (part, batch, context) points of {MODEL}: {total / ours / 1e6:.1f} M points/s "
        f"with composing, {ours / by_hand_time:.2f} x the time by hand; largest difference {widest:.1e}; "
        f"{peak_megabytes() - before:.0f} MB above the inputs"
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.yaml"
        path.write_text(STRUCTURAL)
        plan = read_plan(str(path))
        start = time.perf_counter()
        done = sweep(plan, Path(folder) / "rows.csv")
        seconds = time.perf_counter() - start
    blocks_priced = plan.points // plan.block
    print(
        f"sweep of {done.rows:,} rows in {blocks_priced} blocks into CSV: {seconds:.2f} s, "
        f"{blocks_priced / seconds:,.0f} blocks/s, {done.rows / seconds:,.0f} rows/s"
    )
    return 0


def fused(peak: float, bandwidth: float) -> Any:
    """The operation floor of Llama 2 70B in bf16, written out for nothing else."""
    width, ff, layers, vocab, kv_width = 8192, 28672, 80, 32000, 1024
    shapes = ((width, width + 2 * kv_width), (width, width), (width, 2 * ff), (ff, width))

    def floor(batch: NDArray[np.float64], context: NDArray[np.float64]) -> NDArray[np.float64]:
        total = np.zeros(len(batch))
        for d_in, d_out in shapes:
            n, traffic = d_in * d_out, d_in + d_out
            total += layers * np.maximum(2 * batch * n / peak, (2 * n + 2 * batch * traffic) / bandwidth)
        head = 2 * vocab * width
        total += np.maximum(batch * head / peak, (head + 2 * batch * (width + vocab)) / bandwidth)
        total += layers * batch * 4 * kv_width * (context + 2) / bandwidth  # read; the step's own, written from there
        total += (2 * layers + 1) * (2 * width + 4 * batch * width) / bandwidth
        total += layers * batch * (72 * 128 * 4 + 12 * width + 6 * ff) / bandwidth  # rope, residuals, gate
        total += batch * (4 * width + 2 * vocab) / bandwidth  # embedding rows in and out; logits for the sampler
        return total

    return floor


if __name__ == "__main__":
    sys.exit(main())
