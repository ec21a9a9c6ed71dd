"""Fits the figures of the kernel-time laws to measured kernel timings: the book's `efficiency` records.

Downloads nothing: the timings are the tables of the package aiconfigurator-core (Apache-2.0), which the `validate`
extra installs, or tables of one's own with the columns that `flopmap audit --kernels` reads. Only the figures are kept.

    pip install 'flopmap[validate]'
    python benchmarks/calibrate.py --part h100-sxm            # look
    python benchmarks/calibrate.py --write                    # renew src/flopmap/book/efficiency
    python benchmarks/calibrate.py --rows FOLDER --write      # from tables of one's own
"""

from __future__ import annotations

import argparse
import importlib.util
import resource
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from flopmap.audit.calibration import fit_rows, read
from flopmap.records.book import load
from flopmap.records.types import Part

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from flopmap.audit.calibration import Rows
    from flopmap.records.book import Book
    from flopmap.records.kernels import Errors, Fit

FOLDER = Path(__file__).resolve().parent.parent / "src" / "flopmap" / "book" / "efficiency"
PARTS = ("a100-sxm-80gb", "b200-sxm", "h100-sxm", "h200-sxm", "l40s")
TABLES = (
    "gemm", "context_attention", "generation_attention", "context_mla", "generation_mla", "moe", "nccl",
    "custom_allreduce",
)  # fmt: skip
METHOD = (
    "Figures that bring the law nearest to the measured times, in logarithms and robustly, on three of four shapes. "
    "kept_out is the error on the fourth, other_versions that on other versions of the engine. A figure that the rows "
    "do not determine stays where the fit starts. benchmarks/calibrate.py derives them."
)
NAMED = ("family", "law", "dtype", "kv_dtype", "variant", "engine", "version", "kernel")
LIMIT_BYTES = 2 << 30
WIDTH = 118


def main(arguments: list[str] | None = None) -> int:
    """Print the errors, or write the records."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=Path, help="a folder of tables instead of aiconfigurator-core's")
    parser.add_argument("--part", action="append", help=f"this part; may be given again (else: {', '.join(PARTS)})")
    parser.add_argument("--write", type=Path, nargs="?", const=FOLDER, help="write the records, of the book or here")
    options = parser.parse_args(arguments)
    folder = options.rows or bundled()
    if folder is None:
        print("aiconfigurator-core is not installed: nothing to fit to (pip install 'flopmap[validate]')")
        return 0
    book = load()
    parts = [book.record(Part, name).id for name in options.part or PARTS]
    for system in systems(folder):
        rows = read(tables(system), book, parts)
        for why, count in rows.refused.items():
            print(f"{why} ({count:,} rows)", file=sys.stderr)
        for part, kinds in sorted(rows.kinds.items()):
            record = book.record(Part, part)
            found = fitted(record, kinds, book)
            if options.write and found:
                options.write.mkdir(exist_ok=True)
                (options.write / f"{part}.yaml").write_text("\n".join(lines(record, found)) + "\n")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"{memory / 1e6:.0f} MB at most", file=sys.stderr)
    return int(memory > LIMIT_BYTES)


def bundled() -> Path | None:
    """The tables of aiconfigurator-core, where it is installed."""
    package = importlib.util.find_spec("aiconfigurator_core")
    return None if package is None or package.origin is None else Path(package.origin).parent / "systems" / "data"


def systems(folder: Path) -> list[Path]:
    """The folders below, each with the tables of one system, so that not all are held at once; or the folder itself."""
    return sorted(path for path in folder.iterdir() if path.is_dir()) or [folder]


def tables(folder: Path) -> list[Path]:
    """The tables of a folder that hold kernels with a law: any CSV, and Parquet by its name."""
    parquet = [path for path in folder.rglob("*.parquet") if path.name.removesuffix("_perf.parquet") in TABLES]
    return sorted([*parquet, *folder.rglob("*.csv")])


def fitted(part: Part, kinds: list[Rows], book: Book) -> list[Fit]:
    """The fits of a part, with a bar of their progress."""
    found: list[Fit] = []
    for place, rows in enumerate(kinds, 1):
        one = fit_rows(part, rows, book)
        done = 20 * place // len(kinds)
        print(f"\r[{'#' * done:.<20}] {part.id} {place}/{len(kinds)} ", end="", file=sys.stderr, flush=True)
        if one is not None:
            found.append(one)
            names = " ".join(
                getattr(one, name) for name in NAMED if name not in ("law", "kernel") and getattr(one, name)
            )
            print(f"{part.id:14} {names:60} {one.kept_out.median:6.1%} {one.kept_out.nine_in_ten:6.1%}")
    print(file=sys.stderr)
    return found


def lines(part: Part, found: Iterable[Fit]) -> Iterator[str]:
    """The record's lines."""
    yield f"title: Kernels of {part.title}"
    yield "status: verified"
    yield "confidence: 0.8"
    yield f"part: {part.id}"
    yield "method: >-"
    yield textwrap.fill(METHOD, WIDTH, initial_indent="  ", subsequent_indent="  ")
    yield "fits:"
    for one in found:
        words = [(name, getattr(one, name)) for name in NAMED]
        yield _wrapped("  - {", [f'{name}: "{word}"' for name, word in words if word] + [f"rows: {one.rows}"])
        yield _wrapped("     figures: {", [f"{name}: {value:g}" for name, value in sorted(one.figures.items())], "},")
        others = one.other_versions
        yield f"     kept_out: {_errors(one.kept_out)}" + (f", other_versions: {_errors(others)}}}" if others else "}")
    yield "sources: [aiconfigurator]"


def _wrapped(head: str, items: list[str], tail: str = ",") -> str:
    """Items after a head, broken into lines between them and nowhere else."""
    text = " ".join(f"{item.replace(' ', chr(0))}," for item in items).removesuffix(",") + tail
    rows = textwrap.wrap(text, WIDTH - len(head), break_long_words=False, break_on_hyphens=False)
    return head + f"\n{' ' * len(head)}".join(rows).replace(chr(0), " ")


def _errors(one: Errors) -> str:
    return f"{{rows: {one.rows}, median: {one.median:g}, nine_in_ten: {one.nine_in_ten:g}}}"


if __name__ == "__main__":
    sys.exit(main())
