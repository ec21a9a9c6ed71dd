"""Are the floors floors? Every public kernel timing held against ours; writes docs/soundness.md.

Downloads nothing: the timings are the tables of the package aiconfigurator-core (Apache-2.0), which the `validate`
extra installs. A table of end-to-end measurements may be given as well (columns as `flopmap audit` reads them).

    pip install 'flopmap[validate]'
    python benchmarks/soundness.py                                  # look
    python benchmarks/soundness.py --measurements TABLE.csv --write  # renew docs/soundness.md
"""

from __future__ import annotations

import argparse
import importlib.util
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from flopmap.audit.kernel_report import KernelAudit, Violation
from flopmap.audit.measurements import Audit
from flopmap.records.book import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopmap.records.book import Book

PAGE = Path(__file__).resolve().parent.parent / "docs" / "soundness.md"
LIMIT_SECONDS, LIMIT_BYTES = 180, 1 << 30
HEAD = """# Floors that no measurement beats

Made by `python benchmarks/soundness.py --write` from the tables of aiconfigurator-core {version}: kernel timings that
its publisher measured with TensorRT-LLM, vLLM and SGLang. Each row is an op class of the book bound to the row's
shapes and held against the law `kernel-floor`: what it must read and write less what on-chip memory can keep from the
call before, at peak bandwidth; its products at the highest clock, the fastest accumulation and the narrowest type that
operands are stored in. *Roofline* is the textbook figure: every operand over the bandwidth, products at the rated peak.

{rows:,} rows, {priced:,} priced; {beaten:,} beat the roofline, **{violations} beat our floor**, all of them explained
below. {kept:,} of those that beat the roofline have a working set that on-chip memory holds: what a roofline misses is
the cache. (Of the 15,290 bf16 GEMMs of the L40S that beat it, 14,936 fit into its L2 and none is bound by compute, so
neither clock nor accumulation explains them.) *Large* rows are those whose working set is more than 4 times the on-chip
memory, where a cache cannot help.
"""


class Explanation(NamedTuple):
    """Why rows beat the floor that cannot: which rows, and what is wrong with them."""

    part: str
    kernel: str
    dtype: str
    source: str
    why: str


EXPLAINED = (
    Explanation(
        "a100-sxm-80gb", "decode attention", "bf16", "TRTLLM 1.0.0",
        "The rows imply up to 3.45 TB/s from a memory of 2.04 TB/s, with caches of gigabytes that fit on no chip. "
        "Tables of the other engines on the same part imply no more than its bandwidth. The likeliest reading is that "
        "sequences of these runs shared pages of the cache, so that the rows state more bytes than were moved.",
    ),
    Explanation(
        "h100-sxm", "gemm", "int8_wo", "SGLang 0.5.6",
        "The rows are labelled as weights stored in 8 bits and multiplied in 16, and imply up to 1,176 TFLOP/s where "
        "16-bit math has 1,071 at the highest clock. They were multiplied in int8 (2,141): the label is wrong.",
    ),
)  # fmt: skip


def main() -> int:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measurements", type=Path, help="a table of end-to-end measurements")
    parser.add_argument("--write", action="store_true", help="write docs/soundness.md")
    options = parser.parse_args()
    found = importlib.util.find_spec("aiconfigurator_core")
    if found is None or found.origin is None:
        print("aiconfigurator-core is not installed: nothing to hold floors against (pip install 'flopmap[validate]')")
        return 0
    book, start = load(), time.perf_counter()
    audit = kernels(Path(found.origin).parent / "systems" / "data", book)
    took, memory = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"{audit.rows:,} kernel rows in {took:.1f} s with {memory / 1e6:.0f} MB", file=sys.stderr)
    text = page(audit, options.measurements, book)
    if options.write:
        PAGE.write_text(text)
    else:
        print(text)
    unexplained = [violation for violation in audit.violations if explanation(violation) is None]
    for violation in unexplained:
        print(f"NOT EXPLAINED: {violation}", file=sys.stderr)
    return int(bool(unexplained) or took > LIMIT_SECONDS or memory > LIMIT_BYTES)


def kernels(folder: Path, book: Book) -> KernelAudit:
    """Every table of a folder, held against the floors."""
    audit = KernelAudit(book)
    for path in sorted(folder.rglob("*.parquet")):
        audit.read(path)
    return audit


def explanation(violation: Violation) -> Explanation | None:
    """The explanation of a group of rows that beat their floor."""
    for known in EXPLAINED:
        rows = (violation.part, violation.kernel, violation.dtype)
        if known[:3] == rows and violation.source.startswith(known.source):
            return known
    return None


def page(audit: KernelAudit, measurements: Path | None, book: Book) -> str:
    """The document."""
    groups = audit.groups.values()
    from importlib.metadata import version

    head = HEAD.format(
        version=version("aiconfigurator-core"),
        rows=audit.rows,
        priced=audit.priced,
        beaten=sum(group.beats_roofline for group in groups),
        kept=sum(group.kept for group in groups),
        violations=sum(group.violations for group in groups),
    )
    lines = [head, *_groups(audit), "", "## The rows that beat the floor", ""]
    for violation in audit.violations:
        known = explanation(violation)
        lines.append(
            f"- **{violation.rows} rows**: {violation.kernel}, {violation.dtype}, {violation.part}, "
            f"{violation.source.strip()}; the furthest takes {violation.ratio:.3f} of its floor "
            f"({violation.shape}). {known.why if known else 'NOT EXPLAINED.'}"
        )
    lines += ["", *_assumptions(), "", *_unpriced(audit)]
    if measurements is not None:
        lines += ["", *_end_to_end(measurements, book)]
    return "\n".join(lines) + "\n"


def _groups(audit: KernelAudit) -> Iterator[str]:
    yield "| part | kernel | type | rows | beat roofline | beat floor | least | median | large rows | their median |"
    yield "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for key, group in sorted(audit.groups.items()):
        ratios, big = group.ratios, group.big
        middle = f"{big.quantile(0.5):.2f}" if big.rows else ""
        yield (
            f"| {key.part} | {key.kernel} | {key.dtype} | {ratios.rows:,} | {group.beats_roofline:,} "
            f"| {group.violations:,} | {ratios.least:.3f} | {ratios.quantile(0.5):.2f} | {big.rows:,} | {middle} |"
        )


def _assumptions() -> list[str]:
    return [
        "## What the floor assumes where a table is silent",
        "",
        "- Keys of 192 elements have values of 128, as in MLA and MiMo V2: the published models with such heads.",
        "- Experts have a gate, but those of Nemotron 3 (512 experts, 22 of them a token) and of kernels that say so.",
        "- A rank of expert parallelism does the mean of the ranks, and its tokens agree on their experts.",
        "- Attention over an 8-bit cache may multiply in 8 bits, whatever type the row gives for its queries.",
        "- A module (MLA with its projections) is held against its attention alone.",
        "- Scales and zero points count where a format has them; scales of whole tensors do not.",
    ]


def _unpriced(audit: KernelAudit) -> Iterator[str]:
    reasons = sorted(audit.unpriced.values(), key=lambda reason: -reason.rows)
    yield "## Rows without a floor"
    yield ""
    yield "| rows | why |"
    yield "| ---: | --- |"
    for reason in reasons:
        yield f"| {reason.rows:,} | {reason.why} |"


def _end_to_end(path: Path, book: Book) -> Iterator[str]:
    """A table of measurements: how many rows, and how near the floor they come by part."""
    audit = Audit(book)
    audit.read(path)
    yield "## End to end"
    yield ""
    yield (
        f"{audit.rows:,} public results of serving and batch runs: {audit.priced:,} priced, "
        f"**{len(audit.violations)} beat the device floor**. Several parts count as one with all their rates, which no "
        "plan over them beats. The rest name a part or a model that the book has not, or say too little."
    )
    yield ""
    yield "| part | rows | least | 1 of 10 | median | 9 of 10 |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for name, ratios in sorted(audit.by["part"].items(), key=lambda item: -item[1].rows):
        shown = " | ".join(f"{ratios.quantile(share):.2f}" for share in (0.1, 0.5, 0.9))
        yield f"| {name} | {ratios.rows:,} | {ratios.least:.2f} | {shown} |"


if __name__ == "__main__":
    sys.exit(main())
