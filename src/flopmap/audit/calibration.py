"""The figures of the kernel-time laws from measured timings: which rows make a fit, which are kept out, what is free.

For each part, kernel, data types, engine and variant, one version of the engine is fitted, and of the kernels that its
tables name the one with the most rows: the newest with at least half as many rows as any. One in four shapes is kept
out of the fit, never a row alone.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flopmap.audit.fitting import Free, Problem, errors, fit
from flopmap.audit.kernel_names import WORDS
from flopmap.audit.kernels import Unpriced
from flopmap.audit.samples import LAWS, MESSAGE_TYPES, Kind, Samples, samples, timed
from flopmap.audit.tables import blocks
from flopmap.machine.machine import clock_ratio, on_chip_bytes
from flopmap.records.kernels import Errors, Fit

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from flopmap.records.book import Book
    from flopmap.records.types import Part

    Array = NDArray[np.float64]
    Columns = dict[str, Array]

COLLECTIVE_LAWS = ("collective-time", "all-reduce-time")
LEAST_ROWS, LEAST_MESSAGES = 150, 20  # in a fit; a quarter of it kept out
KEPT_OUT = 4  # one in so many shapes
# What a shape is: all rows that share it are on one side.
SHAPE = {
    "gemm": ("n", "k"),
    "experts": ("hidden", "inter", "experts", "expert_tp", "expert_parallel"),
    **{name: ("batch", "new", "past") for name in LAWS if "attention" in name or "MLA" in name},
    **{name: ("message", "ranks") for name, law in LAWS.items() if law in COLLECTIVE_LAWS},
}
TYPES_OF = {"gemm": ("bf16", "fp8", "fp8_block", "nvfp4")}
ROUTINGS = ("balanced", "power_law_1.2", "")

# -- what is free: where a figure starts, and the range in which it makes sense ----------------------------------------

_TIME = Free((3e-9,), 1e-14, 1e-5)
_FEED = Free((3.0,), 0.1, 50.0)
_CONVERSION = Free((0.1,), 1e-3, 100.0)
_COMMON = {
    "fixed_seconds": Free((6e-6,), 1e-7, 2e-3),
    "memory_fraction": Free((0.85,), 0.1, 1.0),
    "peak_fraction": Free((0.7,), 1e-2, 1.0),
    "hot_speed": Free((2.0,), 1.0, 100.0),
    "overlap": Free((2.5,), 1.0, 16.0),
    "quantisation": Free((0.3,), 1e-3, 1.0),
    "lead": Free((64.0,), 1e-2, 1e4),
}
_GEMM = {
    **_COMMON,
    "feed": _FEED,
    "split_length": Free((1000.0,), 16.0, 1e5),
    "row_seconds": Free((1e-11,), 1e-13, 1e-7),
    "conversion_bytes": _CONVERSION,
}
_EXPERTS = {
    **_COMMON,
    "fixed_seconds": Free((3e-5,), 1e-7, 2e-3),
    "feed": _FEED,
    "row_seconds": _TIME,
    "expert_seconds": _TIME,
    "conversion_bytes": _CONVERSION,
    "evenness": Free((2.0,), 0.02, 50.0),
    "crowding": Free((0.05,), 1e-3, 2.0),
}
_DECODE = {
    **_COMMON,
    "feed": _FEED,
    "split_length": Free((256.0,), 1.0, 1e5),
    "residents": Free((1.0,), 0.5, 16.0),
    "row_seconds": _TIME,
    "head_seconds": _TIME,
    "combine_seconds": Free((1e-6,), 1e-8, 1e-4),
}
_PREFILL = {
    **_COMMON,
    "residents": Free((1.0,), 0.5, 8.0),
    "row_seconds": _TIME,
    "head_seconds": _TIME,
    "softmax_flop": Free((100.0,), 0.1, 1e4),
    "kv_passes": Free((1.0,), 1.0, 10.0),
    "alone": Free((1.0,), 1.0, 8.0),
}
_COLLECTIVE = {
    "fixed_seconds": Free((4e-6,), 1e-7, 1e-3),
    "around_fixed_seconds": Free((1e-5,), 1e-7, 1e-2),
    "rank_seconds": Free((3e-7,), 1e-9, 1e-3),
    "link_fraction": Free((0.7,), 1e-3, 2.0),
    "once_speed": Free((0.5, 0.1), 1e-3, 2.0),
    "crowding": Free((0.2,), 1e-3, 3.0),
}
FREE = {
    "gemm-time": _GEMM,
    "experts-time": _EXPERTS,
    "decode-attention-time": _DECODE,
    "decode-latent-attention-time": _DECODE,
    "prefill-attention-time": _PREFILL,
    "prefill-latent-attention-time": _PREFILL,
    "collective-time": _COLLECTIVE,
    "all-reduce-time": _COLLECTIVE,
}
_TILES = (
    (16.0, 64.0), (64.0, 128.0), (128.0, 256.0), (16.0, 128.0), (64.0, 32.0), (64.0, 64.0), (64.0, 256.0),
    (128.0, 64.0), (128.0, 128.0), (256.0, 128.0), (256.0, 256.0),
)  # fmt: skip
_HEADS = tuple((heads,) for heads in (16.0, 1.0, 4.0, 8.0, 32.0, 64.0, 128.0))
_TOKENS = tuple((tokens,) for tokens in (128.0, 16.0, 64.0, 256.0))
CHOICES = {
    "gemm-time": tuple(((f"tile{shape}_rows", f"tile{shape}_columns"), _TILES) for shape in (1, 2, 3)),
    "experts-time": tuple(((f"tile{shape}_rows", f"tile{shape}_columns"), _TILES) for shape in (1, 2)),
    "decode-attention-time": ((("tile_heads",), _HEADS),),
    "decode-latent-attention-time": ((("tile_heads",), _HEADS),),
    "prefill-attention-time": ((("tile_rows",), _TOKENS),),
    "prefill-latent-attention-time": ((("tile_rows",), _TOKENS),),
}
_HOT_STARTS = (0.8, 0.15)  # of the on-chip memory


# -- rows -------------------------------------------------------------------------------------------------------------


class Rows(NamedTuple):
    """The rows of one kind: those of the version and kernel that are fitted, and those of other versions. Seconds."""

    kind: Kind
    version: str
    kernel: str
    columns: Columns
    seconds: Array
    others: list[tuple[Columns, Array]]


class Read(NamedTuple):
    """Tables read: the kinds of each part, and where rows have no law and why, with their count."""

    kinds: dict[str, list[Rows]]
    refused: dict[str, int]


def read(paths: Iterable[Path], book: Book, parts: Collection[str] | None = None) -> Read:
    """The rows of tables, of all parts or of these."""
    found: dict[tuple[str, Kind], dict[tuple[str, str], list[Samples]]] = defaultdict(lambda: defaultdict(list))
    refused: dict[str, int] = defaultdict(int)
    for path in paths:
        for block in blocks(path, (*WORDS, *MESSAGE_TYPES)):
            for line, wrong in block.faults:
                refused[f"{path.name}:{line}: {wrong}"] += 1
            for one in samples(block, book, parts):
                if isinstance(one, Unpriced):
                    refused[f"{path.name}:{block.lines[one.rows[0]]}: {one.why}"] += len(one.rows)
                elif _wanted(one.kind):
                    found[one.part, one.kind][one.version, one.kernel].append(one)
    kinds: dict[str, list[Rows]] = defaultdict(list)
    for (part, kind), versions in sorted(found.items()):
        kinds[part].append(_rows(kind, versions))
    return Read(kinds, refused)


def _wanted(kind: Kind) -> bool:
    routed = kind.family != "experts" or kind.variant in ROUTINGS
    return routed and kind.dtype in TYPES_OF.get(kind.family, (kind.dtype,))


def _rows(kind: Kind, versions: Mapping[tuple[str, str], list[Samples]]) -> Rows:
    """The version and kernel to fit, the newest of those with at least half the most rows, and the other versions."""
    joined = {key: _joined(found) for key, found in versions.items()}
    most = max(len(seconds) for _, seconds in joined.values())
    many = [key for key, (_, seconds) in joined.items() if 2 * len(seconds) >= most]
    version, kernel = max(many, key=lambda key: (_numbers(key[0]), len(joined[key][1]), key))
    others = [rows for key, rows in sorted(joined.items()) if key[0] != version]
    return Rows(kind, version, kernel, *joined[version, kernel], others)


def _numbers(version: str) -> list[int]:
    """The numbers of a version, by which the newest is the largest: 1.3.0rc20 is 1, 3, 0, 20."""
    return [int(number) for number in re.findall(r"\d+", version)]


def _joined(found: list[Samples]) -> tuple[Columns, Array]:
    columns = {name: np.concatenate([one.columns[name] for one in found]) for name in found[0].columns}
    return columns, np.concatenate([one.seconds for one in found])


def kept_out(family: str, columns: Columns) -> NDArray[np.bool_]:
    """The rows of one in four shapes: the same shapes in every table."""
    mixed = np.zeros(len(next(iter(columns.values()))), dtype=np.uint64)
    for name in SHAPE[family]:
        if name in columns:
            whole = (columns[name] * 64).astype(np.uint64)
            mixed = (mixed * np.uint64(6364136223846793005) + whole) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
    return np.asarray(mixed % np.uint64(KEPT_OUT) == 0)


def where(columns: Columns, chosen: NDArray[np.bool_]) -> Columns:
    """Some rows of columns."""
    return {name: values[chosen] for name, values in columns.items()}


# -- fits -------------------------------------------------------------------------------------------------------------


def fit_rows(part: Part, rows: Rows, book: Book) -> Fit | None:
    """The fit of one kind; None where too few rows are on either side of the split."""
    kind = rows.kind
    law_id = LAWS[kind.family]
    kept = kept_out(kind.family, rows.columns)
    least = LEAST_MESSAGES if law_id in COLLECTIVE_LAWS else LEAST_ROWS
    if (~kept).sum() < least or kept.sum() < least / KEPT_OUT:
        return None
    law = timed(part.id, kind.family, kind.dtype, kind.kv_dtype or kind.dtype, book)
    problem = Problem(law, free(law_id, part), CHOICES.get(law_id, ()))
    figures = fit(problem, where(rows.columns, ~kept), rows.seconds[~kept]).figures
    others = [errors(law(columns, figures), seconds) for columns, seconds in rows.others]
    return Fit(
        family=kind.family,
        law=law_id,
        dtype=kind.dtype,
        kv_dtype=kind.kv_dtype,
        variant=kind.variant,
        engine=kind.engine,
        version=rows.version,
        kernel=rows.kernel,
        rows=int((~kept).sum()),
        figures=figures,
        kept_out=summary(errors(law(where(rows.columns, kept), figures), rows.seconds[kept])),
        other_versions=summary(np.concatenate(others)) if others else None,
    )


def free(law_id: str, part: Part) -> dict[str, Free]:
    """What is fitted for a law on a part. A peak is reached at most at its highest clock; hot is what fits on chip.

    So no fit goes below the kernel floor.
    """
    found = dict(FREE[law_id])
    if "peak_fraction" in found:
        chip = float(on_chip_bytes(part))
        found["peak_fraction"] = found["peak_fraction"]._replace(high=clock_ratio(part))
        found["hot_bytes"] = Free(tuple(share * chip for share in _HOT_STARTS), chip / 64, chip)
    return found


def summary(found: Array) -> Errors:
    """The error that half of the rows are below, and nine in ten."""
    median, nine_in_ten = (float(f"{np.quantile(found, share):.3g}") for share in (0.5, 0.9))
    return Errors(rows=len(found), median=median, nine_in_ten=nine_in_ten)
