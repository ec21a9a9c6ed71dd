"""From tables of kernel timings to fits: what a row is, which rows make a fit, which are kept out, what is refused."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
from ruamel.yaml import YAML

from flopmap.audit.calibration import KEPT_OUT, SHAPE, fit_rows, free, kept_out, read
from flopmap.audit.samples import LAWS, timed
from flopmap.machine.machine import on_chip_bytes
from flopmap.records.kernels import Efficiency
from flopmap.records.types import Law, Part

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flopmap.audit.calibration import Read
    from flopmap.records.book import Book
    from flopmap.records.kernels import Fit

CALIBRATE = Path(__file__).parents[2] / "benchmarks" / "calibrate.py"
H100 = "NVIDIA H100 80GB HBM3"
GEMM = {
    "framework": "VLLM", "version": "0.24.0", "device": H100, "op_name": "gemm", "kernel_source": "linear",
    "gemm_dtype": "bfloat16", "m": 16, "n": 4096, "k": 4096, "latency": 0.01,
}  # fmt: skip
PREFILL = {
    "framework": "SGLang", "version": "0.5.14", "device": H100, "op_name": "context_attention", "kernel_source": "fa3",
    "batch_size": 4, "isl": 512, "num_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "attn_dtype": "bfloat16",
    "kv_cache_dtype": "fp8", "step": 0, "window_size": 0, "latency": 0.1,
}  # fmt: skip
DECODE = {**PREFILL, "op_name": "generation_attention", "isl": 1, "step": 511}
REDUCE = {
    "framework": "vLLM", "version": "0.24.0", "device": H100, "op_name": "all_reduce",
    "kernel_source": "vLLM_custom_graph",
    "allreduce_dtype": "bfloat16", "num_gpus": 8, "message_size": 4096, "latency": 0.005,
}  # fmt: skip


def table(folder: Path, *rows: dict[str, Any], name: str = "rows.csv") -> Path:
    path = folder / name
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)
    return path


def reading(folder: Path, book: Book, *rows: dict[str, Any], parts: list[str] | None = None) -> Read:
    return read([table(folder, *rows)], book, parts)


# -- rows -------------------------------------------------------------------------------------------------------------


def test_a_row_is_its_kernel_at_its_shape(tmp_path: Path, book: Book) -> None:
    found = reading(tmp_path, book, GEMM).kinds["h100-sxm"]
    assert [rows.kind for rows in found] == [("gemm", "bf16", "", "", "vllm")]
    assert {name: column.tolist() for name, column in found[0].columns.items()} == {"k": [4096], "m": [16], "n": [4096]}
    assert found[0].seconds.tolist() == [1e-5]  # the table's milliseconds


def test_a_message_is_in_bytes(tmp_path: Path, book: Book) -> None:
    nccl = {**REDUCE, "kernel_source": "NCCL", "framework": "TRTLLM", "allreduce_dtype": "", "nccl_dtype": "int8"}
    del nccl["allreduce_dtype"]
    (ours,) = reading(tmp_path, book, REDUCE).kinds["h100-sxm"]
    (theirs,) = reading(tmp_path, book, nccl).kinds["h100-sxm"]
    assert (ours.kind.engine, ours.kind.variant) == ("vllm", "graph")
    assert (theirs.kind.engine, theirs.kind.variant) == ("nccl", "")
    # 4,096 elements of 2 bytes, and of 1
    assert (ours.columns["message"].tolist(), theirs.columns["message"].tolist()) == ([8192], [4096])


def test_a_column_that_is_not_there_is_named(tmp_path: Path, book: Book) -> None:
    without = {name: value for name, value in GEMM.items() if name != "n"}
    assert reading(tmp_path, book, without).refused == {"rows.csv:2: column 'n' is missing or empty": 1}


def test_windows_and_heads_that_share_no_keys_are_kernels_of_their_own(tmp_path: Path, book: Book) -> None:
    variants = [{"num_key_value_heads": kv_heads, "window_size": window} for kv_heads in (8, 32) for window in (0, 128)]
    found = reading(tmp_path, book, *[{**DECODE, **variant} for variant in variants]).kinds["h100-sxm"]
    assert [rows.kind.variant for rows in found] == ["", "ungrouped", "windowed", "windowed ungrouped"]
    found = reading(tmp_path, book, *[{**PREFILL, **variant} for variant in variants]).kinds["h100-sxm"]
    assert [rows.kind.variant for rows in found] == ["", "windowed"]


def test_only_wanted_parts_are_read(tmp_path: Path, book: Book) -> None:
    rows = [GEMM, {**GEMM, "device": "NVIDIA L40S"}]
    assert set(reading(tmp_path, book, *rows).kinds) == {"h100-sxm", "l40s"}
    assert set(reading(tmp_path, book, *rows, parts=["l40s"]).kinds) == {"l40s"}


@pytest.mark.parametrize(
    ("row", "changed", "why"),
    [
        (GEMM, {"latency": 0}, "latency is no positive number"),
        (GEMM, {"latency": "fast"}, "latency is no positive number"),
        (GEMM, {"device": "H1000"}, "hardware: unknown part 'H1000'"),
        (GEMM, {"op_name": "mamba2"}, "kernel 'mamba2': no law of its time"),
        (GEMM, {"op_name": "mla_context_module"}, "kernel 'mla_context_module': no law of its time"),
        (GEMM, {"gemm_dtype": "fp7"}, "dtype 'fp7', cache '': unknown"),
        (GEMM, {"m": ""}, "a shape is missing or not positive"),
        (GEMM, {"m": -1}, "a shape is missing or not positive"),
        (GEMM, {"gemm_dtype": "nvfp4"}, "parts/h100-sxm has no peak of fp4"),
        (GEMM, {"device": "arc-pro-b60"}, "parts/arc-pro-b60 has no compute_units"),
        (PREFILL, {"isl": 1}, "a prompt of one token: a decode step"),
        (PREFILL, {"kv_cache_dtype": "fp3"}, "cache 'fp3': unknown"),
        (REDUCE, {"allreduce_dtype": "fp64"}, "dtype 'fp64' of a message: unknown (accepted: bfloat16, half, int8)"),
        (REDUCE, {"num_gpus": 0}, "a shape is missing or not positive"),
        (REDUCE, {"num_gpus": "inf"}, "a shape is missing or not positive"),
    ],
)
def test_a_malformed_row_is_named_with_its_line(
    row: dict[str, Any], changed: dict[str, Any], why: str, tmp_path: Path, book: Book
) -> None:
    found = reading(tmp_path, book, row, {**row, **changed})
    ((place, count),) = found.refused.items()
    assert place.startswith("rows.csv:3: ")
    assert why in place
    assert count == 1
    assert sum(len(rows.seconds) for kinds in found.kinds.values() for rows in kinds) == 1


def test_a_broken_line_is_named(tmp_path: Path, book: Book) -> None:
    path = table(tmp_path, GEMM)
    path.write_text(path.read_text() + "only,three,cells\n")
    assert read([path], book).refused == {"rows.csv:3: 3 cells where the header has 10 columns": 1}


def test_a_table_without_rows_or_without_times_is_no_table_of_kernels(tmp_path: Path, book: Book) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(",".join(GEMM) + "\n")
    assert read([path], book) == ({}, {})
    without = {name: value for name, value in GEMM.items() if name != "latency"}
    assert reading(tmp_path, book, without).refused == {"rows.csv:2: latency is no positive number": 1}
    message = {name: value for name, value in REDUCE.items() if name != "num_gpus"}
    assert reading(tmp_path, book, message).refused == {"rows.csv:2: column 'num_gpus' is missing": 1}


def test_the_newest_version_with_enough_rows_is_fitted(tmp_path: Path, book: Book) -> None:
    def of(version: str, count: int, kernel: str = "linear") -> list[dict[str, Any]]:
        return [{**GEMM, "version": version, "kernel_source": kernel, "m": m + 1} for m in range(count)]

    # 0.9.1 has the most rows; 0.24.0 is newer and has half as many; 0.30.0 has fewer
    found = reading(tmp_path, book, *of("0.9.1", 8), *of("0.24.0", 4), *of("0.24.0", 5, "other"), *of("0.30.0", 3))
    (rows,) = found.kinds["h100-sxm"]
    assert (rows.version, rows.kernel, len(rows.seconds)) == ("0.24.0", "other", 5)
    assert sorted(len(seconds) for _, seconds in rows.others) == [3, 8]


# -- what is kept out -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", LAWS)
def test_one_in_four_shapes_is_kept_out_with_all_its_rows(family: str) -> None:
    # 900 shapes with 7 rows each that differ in another column
    names = SHAPE[family]
    shapes = np.repeat(np.arange(900), 7)
    sides = (32.0 * (1 + shapes // 30), 1.0 + shapes % 30)
    columns = {name: np.asarray(sides[min(place, 1)], dtype=np.float64) for place, name in enumerate(names)}
    columns["beside"] = np.tile(np.arange(7.0), 900)
    out = kept_out(family, columns).reshape(900, 7)
    assert (out.all(axis=1) | ~out.any(axis=1)).all()
    assert out[:, 0].mean() == pytest.approx(1 / KEPT_OUT, abs=0.06)


# -- fits -------------------------------------------------------------------------------------------------------------

KNOWN = {
    "fixed_seconds": 4e-6, "row_seconds": 1e-11, "conversion_bytes": 0.01, "memory_fraction": 0.8, "peak_fraction": 0.6,
    "hot_bytes": 2e7, "hot_speed": 3.0, "feed": 5.0, "overlap": 2.0, "quantisation": 0.4, "lead": 100.0,
    "split_length": 2000.0, "tile1_rows": 16.0, "tile1_columns": 64.0, "tile2_rows": 64.0, "tile2_columns": 128.0,
    "tile3_rows": 128.0, "tile3_columns": 256.0,
}  # fmt: skip


def synthetic(book: Book, noise: float = 0.0) -> Iterable[dict[str, Any]]:
    """Rows that the GEMM law makes with known figures."""
    law = timed("h100-sxm", "gemm", "bf16", "bf16", book)
    sides = [64.0, 256.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0]
    grid = np.meshgrid([1.0, 2, 8, 16, 17, 64, 65, 128, 129, 256, 512, 1024, 2048, 4096, 8192], sides, sides)
    columns = dict(zip(("m", "n", "k"), (axis.ravel() for axis in grid), strict=True))
    seconds = law(columns, KNOWN) * (1 + noise * np.sin(np.arange(len(columns["m"])) * 7.1))
    for m, n, k, latency in zip(*(columns[name] for name in ("m", "n", "k")), seconds, strict=True):
        yield {**GEMM, "m": m, "n": n, "k": k, "latency": repr(float(latency * 1e3))}


def fitted(folder: Path, book: Book, noise: float = 0.0) -> Fit:
    (rows,) = reading(folder, book, *synthetic(book, noise)).kinds["h100-sxm"]
    found = fit_rows(book.record(Part, "h100-sxm"), rows, book)
    assert found is not None
    return found


def test_the_fit_recovers_the_figures_of_synthetic_rows(tmp_path: Path, book: Book) -> None:
    found = fitted(tmp_path, book)
    assert found.kept_out.median < 0.005
    assert (found.family, found.law, found.dtype, found.engine, found.version) == (
        "gemm",
        "gemm-time",
        "bf16",
        "vllm",
        "0.24.0",
    )
    assert found.rows + found.kept_out.rows == 15 * 7 * 7
    for name in ("fixed_seconds", "memory_fraction", "peak_fraction", "feed"):
        assert found.figures[name] == pytest.approx(KNOWN[name], rel=0.05), name
    assert {found.figures[f"tile{shape}_{side}"] for shape in (1, 2, 3) for side in ("rows", "columns")} == {
        16,
        64,
        128,
        256,
    }


def test_noise_of_the_rows_is_the_error_that_is_kept(tmp_path: Path, book: Book) -> None:
    # 0.1 times the sine of a phase: half of its values are below 0.1 * sin(45 degrees) in size
    assert fitted(tmp_path, book, noise=0.1).kept_out.median == pytest.approx(0.0707, rel=0.2)


def test_a_fit_needs_rows_on_both_sides(tmp_path: Path, book: Book) -> None:
    (rows,) = reading(tmp_path, book, *[{**GEMM, "m": m + 1} for m in range(300)]).kinds["h100-sxm"]
    assert fit_rows(book.record(Part, "h100-sxm"), rows, book) is None  # one shape: all fitted or all kept out


@pytest.mark.parametrize("law_id", sorted(set(LAWS.values())))
def test_what_is_free_are_the_figures_of_the_law_and_starts_are_in_range(law_id: str, book: Book) -> None:
    part = book.record(Part, "h100-sxm")
    found = free(law_id, part)
    for name, one in found.items():
        assert all(one.low <= start <= one.high for start in one.starts), name
        assert name in book.glossary.symbols
    assert book.record(Law, law_id).quantities["seconds"].unit == "s"
    if "peak_fraction" in found:
        assert found["memory_fraction"].high == 1
        assert found["peak_fraction"].high == pytest.approx(1.98 / 1.83)  # the clock that is highest over the rated one
        assert found["hot_bytes"].high == on_chip_bytes(part)


# -- the command ------------------------------------------------------------------------------------------------------


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(CALIBRATE), *words], capture_output=True, text=True, check=True)


def test_a_refit_from_fresh_rows_is_one_command_and_gives_the_same_record(tmp_path: Path, book: Book) -> None:
    rows = list(synthetic(book))
    for name, order in (("first", rows), ("second", rows[::-1])):
        (tmp_path / name / "system").mkdir(parents=True)
        table(tmp_path / name / "system", *order, {**GEMM, "m": "many"})
        ran = run("--rows", str(tmp_path / name), "--part", "h100", "--write", str(tmp_path / f"{name}-book"))
        assert f"rows.csv:{len(rows) + 2}: a shape is missing or not positive (1 rows)" in ran.stderr
        assert "[####################] h100-sxm 1/1" in ran.stderr
        assert "gemm bf16 vllm 0.24.0" in ran.stdout
    first, second = (tmp_path / f"{name}-book" / "h100-sxm.yaml" for name in ("first", "second"))
    assert first.read_text() == second.read_text()
    record = msgspec.convert(YAML(typ="safe").load(first), Efficiency)
    assert (record.part, record.sources, len(record.fits)) == ("h100-sxm", ("aiconfigurator",), 1)
    assert record.fits[0].figures == fitted(tmp_path, book).figures
