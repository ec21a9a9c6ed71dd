"""How near the laws of kernel times come to measured kernels that no fit has seen; writes docs/accuracy.md.

Downloads nothing: the timings are the tables of the package aiconfigurator-core (Apache-2.0), which the `validate`
extra installs; the laws and their figures are those of the book.

    pip install 'flopmap[validate]'
    python benchmarks/accuracy.py            # look
    python benchmarks/accuracy.py --write    # renew docs/accuracy.md
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from calibrate import bundled, systems, tables

from flopmap.audit.calibration import kept_out, read, where
from flopmap.audit.fitting import errors
from flopmap.audit.samples import Kind, timed
from flopmap.estimate.kernels import fits
from flopmap.records.book import load
from flopmap.records.types import Part

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from flopmap.audit.calibration import Rows
    from flopmap.records.book import Book
    from flopmap.records.kernels import Fit

    Array = NDArray[np.float64]

PAGE = Path(__file__).resolve().parent.parent / "docs" / "accuracy.md"
AIMS = {"gemm": 0.05, "attention": 0.06, "MLA": 0.10, "experts": 0.10, "collective": 0.15}
HEAD = """# How near the laws of kernel times come

Made by `python benchmarks/accuracy.py --write` from the tables of aiconfigurator-core {version}: kernel timings that
its publisher measured with TensorRT-LLM, vLLM, SGLang and NCCL. Each line is the error |law / measured - 1| over shapes
that were **kept out of the fit**: one in four, by N and K of a GEMM, batch and context of attention, the shape of the
experts, message and ranks of a collective. All rows of a shape are on one side; of several kernels that a table names
for one kind, the one with the most rows counts. The laws are records (`gemm-time`,
`decode-attention-time`, `experts-time` ...), and so are their figures (`efficiency/<part>`): {fits} fits of 6 to 18
figures, which `python benchmarks/calibrate.py --write` derives. A line pools the engines and variants of a part, kernel
and its types (attention with a window, heads that share no keys, routing of experts); *other versions* are rows of
other versions of an engine than the one that was fitted.

{near} of {lines} lines have a median within the aim: 5% for GEMMs, 6% for attention, 10% for MLA and experts, 15% for
collectives.
"""
TAIL = """
## What the laws do not say

- Which kernel a library picks. Two or three shapes of tiles stand for many; where a library takes a poor one for a
  shape, the error is large: see the tenth of the rows that is farthest off.
- Why a kernel changes within its shapes. In these tables decode attention of TensorRT-LLM on Hopper is much slower at
  48 and more heads to a key head, attention of vLLM at heads of 512 is another kernel, and fused experts of SGLang are
  several times slower for some widths than for others. Each has one fit.
- What belongs to a kernel. `row_seconds` and `conversion_bytes` hold what an engine does to the operands, such as
  quantising the activations of an fp8 GEMM. Without captured graphs a time is that of the host: `fp8_block` GEMMs of
  vLLM, all-reduce `eager`.
- What a step finds in on-chip memory. A benchmark calls a kernel again and again, and a small working set stays there
  (`hot_bytes`); in a step it does not.
- Times below a floor. Decode attention of TensorRT-LLM 1.0.0 on the A100 implies more than the bandwidth of its memory
  (see [soundness](soundness.md)); no fit goes below the floor, so its error stays.
"""


class Line(NamedTuple):
    """A line of the table."""

    part: str
    family: str
    types: str


def main() -> int:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write docs/accuracy.md")
    options = parser.parse_args()
    folder = bundled()
    if folder is None:
        print("aiconfigurator-core is not installed: nothing to hold laws against (pip install 'flopmap[validate]')")
        return 0
    book = load()
    kept: dict[Line, list[Array]] = defaultdict(list)
    others: dict[Line, list[Array]] = defaultdict(list)
    for system in systems(folder):
        for part, kinds in read(tables(system), book, book.ids("efficiency")).kinds.items():
            for rows in kinds:
                measure(part, rows, kept, others, book)
    text = page(kept, others, sum(len(fits(book.record(Part, part), book)) for part in book.ids("efficiency")))
    if options.write:
        PAGE.write_text(text)
    else:
        print(text)
    return 0


def measure(part: str, rows: Rows, kept: dict[Line, list[Array]], others: dict[Line, list[Array]], book: Book) -> None:
    """The errors of the book's fit of these rows, on shapes kept out and on other versions."""
    kind = rows.kind
    fit = next((one for one in fits(book.record(Part, part), book) if is_of(one, rows)), None)
    if fit is None:
        return
    line = Line(part, kind.family, " ".join(filter(None, (kind.dtype, kind.kv_dtype and f"over {kind.kv_dtype}"))))
    law = timed(part, kind.family, kind.dtype, kind.kv_dtype or kind.dtype, book)
    out = kept_out(kind.family, rows.columns)
    kept[line].append(errors(law(where(rows.columns, out), fit.figures), rows.seconds[out]))
    others[line] += [errors(law(columns, fit.figures), seconds) for columns, seconds in rows.others]


def is_of(fit: Fit, rows: Rows) -> bool:
    """Whether a fit is that of the rows."""
    of = Kind(fit.family, fit.dtype, fit.kv_dtype, fit.variant, fit.engine)
    return (of, fit.version, fit.kernel) == (rows.kind, rows.version, rows.kernel)


def page(kept: dict[Line, list[Array]], others: dict[Line, list[Array]], count: int) -> str:
    """The document."""
    medians = {line: float(np.median(np.concatenate(found))) for line, found in kept.items()}
    near = sum(median <= aim(line.family) for line, median in medians.items())
    head = HEAD.format(version=version("aiconfigurator-core"), fits=count, near=near, lines=len(medians))
    return "\n".join([head, *table(kept, others), TAIL])


def aim(family: str) -> float:
    """The median error that we want at most."""
    return next((limit for word, limit in AIMS.items() if word in family), AIMS["collective"])


def table(kept: dict[Line, list[Array]], others: dict[Line, list[Array]]) -> Iterator[str]:
    """The table's lines."""
    yield "| part | kernel | types | rows kept out | median error | 9 of 10 | rows of other versions | their median |"
    yield "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |"
    for line, found in sorted(kept.items()):
        errors_ = np.concatenate(found)
        other = np.concatenate(others[line]) if others[line] else np.zeros(0)
        theirs = f"{np.median(other):.1%}" if len(other) else ""
        yield (
            f"| {line.part} | {line.family} | {line.types} | {len(errors_):,} | {np.median(errors_):.1%} "
            f"| {np.quantile(errors_, 0.9):.1%} | {len(other):,} | {theirs} |"
        )


if __name__ == "__main__":
    sys.exit(main())
