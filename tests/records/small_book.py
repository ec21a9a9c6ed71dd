"""A book of a few records, and overlays on it: read in milliseconds, and unchanged when the bundled book grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FILES = {
    "symbols.yaml": """\
counts: [token, element, FLOP, launch]
symbols:
  new: {unit: token, meaning: tokens of a sequence}
  t: {unit: token, meaning: tokens of the step, sum: new, conventions: {mask: {full: 2 * new}}}
  n: {unit: element, meaning: weights of one GEMM}
  weight_bytes: {unit: byte/element, meaning: bytes of a weight}
  matrix: {unit: FLOP, meaning: FLOP on matrix units}
  weights: {unit: byte, meaning: bytes of weights}
  launches: {unit: launch, meaning: kernel launches}
  matrix_peak: {unit: FLOP/s, meaning: peak}
  bandwidth: {unit: byte/s, meaning: bandwidth}
  seconds: {unit: s, meaning: time}
  word_bytes: {unit: byte/element, meaning: bytes of a 16-bit weight, value: 2, source: paper}
""",
    "conventions.yaml": """\
mask: {meaning: which pairs, values: {exact: causal, full: the square}}
peak: {meaning: which peak of the matrix units, values: {dense: dense operands, sheet: as printed}}
""",
    "sources/paper.yaml": "title: A paper\nkind: paper\npublisher: somebody\n",
    "sources/sheet.yaml": "title: A data sheet\nkind: vendor\npublisher: somebody\n",
    "engines/ideal.yaml": "title: Nothing added\nconfidence: 1\n",
    "parts/h100.yaml": """\
title: A part
aliases: [h100-sxm, NVIDIA H100]
vendor: V
architecture: A
kind: gpu
capacity_bytes: {value: 80e9, source: sheet}
bandwidth_bytes_per_second: {value: 3.35e12, source: sheet}
peaks:
  - {unit: matrix, dtype: bf16, value: 989.5e12, source: sheet}
  - {unit: matrix, dtype: fp8, value: 1979e12, source: sheet}
sources: [sheet]
""",
    "flops/gemm.yaml": """\
title: Weight GEMM
kind: cost
bound_by: memory
cost: {matrix: 2 * t * n, weights: n * weight_bytes}
claims:
  - {quantity: matrix / weights, given: {t: 1, n: 64, weight_bytes: 2}, expect: 1, source: paper}
sources: [paper]
""",
    "laws/ridge.yaml": """\
title: Ridge
quantities:
  ridge: {formula: matrix_peak / bandwidth, unit: FLOP/byte, meaning: peak over bandwidth}
claims:
  - {quantity: ridge, part: h100, expect: 295.4, source: paper, tolerance: 0.0002, note: as printed}
sources: [paper]
""",
}

ENGINE = "title: An engine\nsources: [paper]\n"
OP_CLASS = "title: An op\nkind: cost\nbound_by: memory\nsources: [paper]\n"
LAW = "title: A law\nsources: [paper]\n"


def write(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """The files of a book under a folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def small_book(folder: Path) -> Path:
    """The small book, written under a folder."""
    return write(folder, FILES)
