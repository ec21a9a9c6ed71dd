"""Fits the figures of the kernel-time laws to measured kernel timings: the book's `efficiency` records.

For each part, kernel, data types, engine and variant, the version of the engine with the most rows is fitted, and of the
kernels that its tables name the one with the most rows. One in four shapes is kept out of the fit, by (N, K) of a GEMM, batch
and context of attention, the experts' shape, message and ranks of a collective: never by row. The record holds the error on them,
and that on other versions of the engine.

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
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.fitting import Free, Problem, errors, fit
from flopmap.audit.kernel_names import WORDS
from flopmap.audit.kernels import Unpriced
from flopmap.audit.samples import LAWS, MESSAGE_TYPES, Kind, Samples, samples, timed
from flopmap.audit.tables import blocks
from flopmap.estimate.kernels import most_peak
from flopmap.machine.machine import on_chip_bytes
from flopmap.records.book import load
from flopmap.records.types import Errors, Fit, Part

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from flopmap.records.book import Book

    Array = NDArray[np.float64]

FOLDER = Path(__file__).resolve().parent.parent / "src" / "flopmap" / "book" / "efficiency"
TABLES = ("gemm", "context_attention", "generation_attention", "context_mla", "generation_mla", "moe", "nccl",
          "custom_allreduce")  # fmt: skip
LEAST_ROWS = {"collective": 20, "other": 150}
TYPES_OF = {"gemm": ("bf16", "fp8", "fp8_block", "nvfp4")}
ROUTINGS = ("balanced", "power_law_1.2", "")
# What a shape is, for what is kept out of a fit: one in four.
SHAPE = {"gemm": ("n", "k"), "experts": ("hidden", "inter", "experts", "expert_tp", "expert_parallel")}
SHAPE |= {name: ("batch", "new", "past") for name in LAWS if "attention" in name or "MLA" in name}
SHAPE |= {name: ("message", "ranks") for name in LAWS if name not in SHAPE}
KEPT_OUT = 4
METHOD = (
    "Figures that bring the law nearest to the measured times, in logarithms and robustly, on three of four shapes; kept_out "
    "is the error on the fourth, other_versions that on other versions of the engine. benchmarks/calibrate.py derives them."
)

# -- what is fitted: where each figure starts, and the range in which it makes sense ----------------------------------

TIME = Free((3e-9,), 1e-14, 1e-5)
COMMON = {
    "fixed_seconds": Free((6e-6,), 1e-7, 2e-3),
    "memory_fraction": Free((0.85,), 0.1, 1.0),
    "peak_fraction": Free((0.7,), 1e-2, 1.0),
    "hot_speed": Free((2.0,), 1.0, 100.0),
    "overlap": Free((2.5,), 1.0, 16.0),
    "quantisation": Free((0.3,), 1e-3, 1.0),
    "lead": Free((64.0,), 1e-2, 1e4),
}
FEED = Free((3.0,), 0.1, 50.0)
CONVERSION = Free((0.1,), 1e-3, 100.0)
FREE = {
    "gemm-time": {**COMMON, "feed": FEED, "split_length": Free((1000.0,), 16.0, 1e5), "row_seconds": Free((1e-11,), 1e-13, 1e-7),
                  "conversion_bytes": CONVERSION},
    "experts-time": {**COMMON, "fixed_seconds": Free((3e-5,), 1e-7, 2e-3), "feed": FEED, "row_seconds": TIME, "expert_seconds": TIME,
                     "conversion_bytes": CONVERSION, "evenness": Free((2.0,), 0.02, 50.0)},
    "decode-attention-time": {**COMMON, "feed": FEED, "split_length": Free((256.0,), 1.0, 1e5), "residents": Free((1.0,), 0.5, 16.0),
                              "row_seconds": TIME, "head_seconds": TIME, "combine_seconds": Free((1e-6,), 1e-8, 1e-4)},
    "prefill-attention-time": {**COMMON, "residents": Free((1.0,), 0.5, 8.0), "row_seconds": TIME, "head_seconds": TIME,
                               "softmax_flop": Free((100.0,), 0.1, 1e4), "kv_passes": Free((1.0,), 1.0, 10.0), "alone": Free((1.0,), 1.0, 8.0)},
    "collective-time": {"fixed_seconds": Free((4e-6,), 1e-7, 1e-3), "around_fixed_seconds": Free((1e-5,), 1e-7, 1e-2), "rank_seconds": Free((3e-7,), 1e-9, 1e-3),
                        "link_fraction": Free((0.7,), 1e-3, 2.0), "once_speed": Free((0.5, 0.1), 1e-3, 2.0), "crowding": Free((0.2,), 1e-3, 3.0)},
}  # fmt: skip
FREE["decode-latent-attention-time"] = FREE["decode-attention-time"]
FREE["prefill-latent-attention-time"] = FREE["prefill-attention-time"]
FREE["all-reduce-time"] = FREE["collective-time"]
TILES = ((16.0, 64.0), (64.0, 128.0), (128.0, 256.0), (16.0, 128.0), (64.0, 32.0), (64.0, 64.0), (64.0, 256.0), (128.0, 64.0),
         (128.0, 128.0), (256.0, 128.0), (256.0, 256.0))  # fmt: skip
HEADS = ((16.0,), (1.0,), (4.0,), (8.0,), (32.0,), (64.0,), (128.0,))
TOKENS = ((128.0,), (16.0,), (64.0,), (256.0,))
CHOICES = {
    "gemm-time": tuple(((f"tile{shape}_rows", f"tile{shape}_columns"), TILES) for shape in (1, 2, 3)),
    "experts-time": tuple(((f"tile{shape}_rows", f"tile{shape}_columns"), TILES) for shape in (1, 2)),
    "decode-attention-time": ((("tile_heads",), HEADS),),
    "decode-latent-attention-time": ((("tile_heads",), HEADS),),
    "prefill-attention-time": ((("tile_rows",), TOKENS),),
    "prefill-latent-attention-time": ((("tile_rows",), TOKENS),),
}
HOT_STARTS = (0.8, 0.15)  # of the on-chip memory


class Rows(NamedTuple):
    """The rows of one kind: those of the version and kernel that are fitted, and those of other versions."""

    kind: Kind
    version: str
    kernel: str
    columns: dict[str, Array]
    seconds: Array
    others: list[tuple[dict[str, Array], Array]]


def main(arguments: list[str] | None = None) -> int:
    """Print the errors, or write the records."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rows", type=Path, help="a folder of tables (Parquet or CSV) instead of aiconfigurator-core's"
    )
    parser.add_argument("--part", action="append", help="only this part; may be given again")
    parser.add_argument("--family", action="append", help="only this kernel; may be given again (only to look)")
    parser.add_argument("--write", action="store_true", help="write the records of the book")
    options = parser.parse_args(arguments)
    folder = options.rows or bundled()
    if folder is None:
        print("aiconfigurator-core is not installed: nothing to fit to (pip install 'flopmap[validate]')")
        return 0
    book = load()
    for system in systems(folder):
        by_part = read(system, book)
        for part in sorted(by_part):
            if options.part and part not in options.part:
                continue
            found = fitted(
                part, [rows for rows in by_part[part] if not options.family or rows.kind.family in options.family], book
            )
            if options.write and found and not options.family:
                FOLDER.mkdir(exist_ok=True)
                (FOLDER / f"{part}.yaml").write_text("\n".join(record(book.record(Part, part), found)) + "\n")
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{used:.2f} GB at most", file=sys.stderr)
    return 0


def bundled() -> Path | None:
    """The tables of aiconfigurator-core, where it is installed."""
    package = importlib.util.find_spec("aiconfigurator_core")
    return None if package is None or package.origin is None else Path(package.origin).parent / "systems" / "data"


def systems(folder: Path) -> list[Path]:
    """The folders below, each with the tables of one system, so that not all are held at once; or the folder itself."""
    below = sorted(path for path in folder.iterdir() if path.is_dir())
    return below or [folder]


# -- rows -------------------------------------------------------------------------------------------------------------


def read(folder: Path, book: Book) -> dict[str, list[Rows]]:
    """The rows of every part and kind of a folder's tables. Rows that have no law are told on standard error."""
    found: dict[tuple[str, Kind], dict[tuple[str, str], list[Samples]]] = defaultdict(lambda: defaultdict(list))
    refused: dict[str, int] = defaultdict(int)
    paths = [path for path in sorted(folder.rglob("*.*")) if path.suffix in (".parquet", ".csv")]
    for path in paths:
        if path.suffix == ".parquet" and path.name.removesuffix("_perf.parquet") not in TABLES:
            continue
        for block in blocks(path, (*WORDS, *MESSAGE_TYPES)):
            for line, wrong in block.faults:
                refused[f"{path.name}:{line}: {wrong}"] += 1
            for one in samples(block, book):
                if isinstance(one, Unpriced):
                    refused[f"{path.name}: {one.why}"] += len(one.rows)
                else:
                    found[one.part, one.kind][one.version, one.kernel].append(one)
    for why, count in refused.items():
        print(f"{count:,} rows of {why}", file=sys.stderr)
    by_part: dict[str, list[Rows]] = defaultdict(list)
    for (part, kind), versions in sorted(found.items()):
        if kind.dtype in TYPES_OF.get(kind.family, (kind.dtype,)) and (
            kind.family != "experts" or kind.variant in ROUTINGS
        ):
            by_part[part].append(_rows(kind, versions))
    return by_part


def _rows(kind: Kind, versions: dict[tuple[str, str], list[Samples]]) -> Rows:
    """The version and kernel with the most rows (of several, the last by name), and the other versions."""
    joined = {key: _joined(found) for key, found in versions.items()}
    version, kernel = max(joined, key=lambda key: (len(joined[key][1]), key))
    others = [rows for key, rows in sorted(joined.items()) if key[0] != version]
    return Rows(kind, version, kernel, *joined[version, kernel], others)


def _joined(found: list[Samples]) -> tuple[dict[str, Array], Array]:
    columns = {name: np.concatenate([one.columns[name] for one in found]) for name in found[0].columns}
    return columns, np.concatenate([one.seconds for one in found])


def kept_out(family: str, columns: dict[str, Array]) -> NDArray[np.bool_]:
    """The rows of one in four shapes: the same shapes in every table, and all rows of a shape."""
    mixed = np.zeros(len(next(iter(columns.values()))), dtype=np.uint64)
    for name in SHAPE[family]:
        if name in columns:
            mixed = (mixed * np.uint64(6364136223846793005) + (columns[name] * 64).astype(np.uint64)) * np.uint64(
                0x9E3779B97F4A7C15
            )
            mixed ^= mixed >> np.uint64(29)
    return np.asarray(mixed % np.uint64(KEPT_OUT) == 0)


# -- fits -------------------------------------------------------------------------------------------------------------


def fitted(part: str, kinds: list[Rows], book: Book) -> list[Fit]:
    """The fits of a part, with a bar of their progress."""
    found: list[Fit] = []
    for place, rows in enumerate(kinds, 1):
        began = time.perf_counter()
        one = fit_rows(part, rows, book)
        done = 20 * place // len(kinds)
        print(f"\r[{'#' * done}{'.' * (20 - done)}] {part} {place}/{len(kinds)} ", end="", file=sys.stderr, flush=True)
        if one is None:
            continue
        found.append(one)
        kept = one.kept_out
        names = " ".join(filter(None, (one.family, one.dtype, one.kv_dtype, one.variant, one.engine, one.version)))
        print(
            f"{part:14} {names:60} {one.rows:6} rows  {kept.median:6.1%} {kept.nine_in_ten:6.1%}  "
            f"{time.perf_counter() - began:.1f} s"
        )
    print(file=sys.stderr)
    return found


def fit_rows(part: str, rows: Rows, book: Book) -> Fit | None:
    """The fit of one kind; None where it has too few rows on either side of the split."""
    family = rows.kind.family
    law_id = LAWS[family]
    kept = kept_out(family, rows.columns)
    least = LEAST_ROWS["collective" if "collective" in law_id or "reduce" in law_id else "other"]
    if (~kept).sum() < least or kept.sum() < least / 4:
        return None
    function = (
        timed(part, family, rows.kind.dtype, rows.kind.kv_dtype or rows.kind.dtype, book) if family != "all" else None
    )
    assert function is not None
    result = fit(
        problem(law_id, part, function, book),
        {name: values[~kept] for name, values in rows.columns.items()},
        rows.seconds[~kept],
    )
    others = [errors(function(columns, result.figures), seconds) for columns, seconds in rows.others]
    held = errors(
        function({name: values[kept] for name, values in rows.columns.items()}, result.figures), rows.seconds[kept]
    )
    return Fit(
        family=family,
        law=law_id,
        dtype=rows.kind.dtype,
        kv_dtype=rows.kind.kv_dtype,
        variant=rows.kind.variant,
        engine=rows.kind.engine,
        version=rows.version,
        kernel=rows.kernel,
        rows=int((~kept).sum()),
        figures=result.figures,
        kept_out=summary(held),
        other_versions=summary(np.concatenate(others)) if others else None,
    )


def problem(law_id: str, part: str, function: object, book: Book) -> Problem:
    """What is fitted for a law on a part: its peak bounds how much of it is reached, its on-chip memory what is hot."""
    record = book.record(Part, part)
    free = dict(FREE[law_id])
    if "peak_fraction" in free:
        free["peak_fraction"] = free["peak_fraction"]._replace(high=most_peak(record))
        chip = float(on_chip_bytes(record))
        free["hot_bytes"] = Free(tuple(share * chip for share in HOT_STARTS), chip / 64, chip)
    return Problem(function, free, CHOICES.get(law_id, ()))  # type: ignore[arg-type]


def summary(found: Array) -> Errors:
    """The error that half of the rows are below, and nine in ten."""
    return Errors(
        rows=len(found), median=_short(float(np.median(found))), nine_in_ten=_short(float(np.quantile(found, 0.9)))
    )


def _short(value: float) -> float:
    return float(f"{value:.3g}")


# -- records ----------------------------------------------------------------------------------------------------------


def record(part: Part, found: Iterable[Fit]) -> Iterator[str]:
    """The record's lines."""
    yield f"title: Kernels of {part.title}"
    yield "status: verified"
    yield "confidence: 0.8"
    yield f"part: {part.id}"
    yield f"method: >-\n  {METHOD}"
    yield "fits:"
    for one in found:
        words = [
            (name, getattr(one, name))
            for name in ("family", "law", "dtype", "kv_dtype", "variant", "engine", "version", "kernel")
        ]
        yield "  - {" + ", ".join(f'{name}: "{word}"' for name, word in words if word) + f", rows: {one.rows},"
        yield f"     figures: {{{', '.join(f'{name}: {value:g}' for name, value in sorted(one.figures.items()))}}},"
        others = one.other_versions
        yield f"     kept_out: {_errors(one.kept_out)}" + (f", other_versions: {_errors(others)}}}" if others else "}")
    yield "sources: [aiconfigurator]"


def _errors(one: Errors) -> str:
    return f"{{rows: {one.rows}, median: {one.median:g}, nine_in_ten: {one.nine_in_ten:g}}}"


if __name__ == "__main__":
    sys.exit(main())
