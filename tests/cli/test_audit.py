"""``flopmap audit``: what it prints, writes and answers with."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING

import pytest

from tests.cli.support import LLAMA_8B, data, flopmap, refused, text

if TYPE_CHECKING:
    from pathlib import Path

HEADER = (
    "hardware,num_devices,engine,model,weight_dtype,batch_or_concurrency,input_len,output_len,metric,value,unit,notes"
)
FINE = f"h100-sxm,1,vLLM,{LLAMA_8B},BF16,1,1024,512,tpot_ms,12,ms,batch_kind=static"
FAST = f"h100-sxm,1,vLLM,{LLAMA_8B},BF16,1,1024,512,tpot_ms,1.2,ms,batch_kind=static"
KERNELS = "hardware,kernel,dtype,m,n,k,latency_us\nh100-sxm,gemm,bf16,1,8192,8192,{time}\n"


@pytest.fixture
def measurements(tmp_path: Path) -> str:
    path = tmp_path / "measurements.csv"
    path.write_text("\n".join([HEADER, FINE, FAST, FINE.replace("h100-sxm", "h1000"), "too,few"]) + "\n")
    return str(path)


def test_violations_come_first_then_what_is_not_priced_then_the_distribution(measurements: str) -> None:
    lines = text("audit", measurements).splitlines()
    assert lines[0] == "4 rows, 2 priced, 1 beat the device floor"
    assert lines[1].startswith(
        f"line 3: {LLAMA_8B} on 1 x h100-sxm, vLLM: tpot_ms 1.2 is 1.200 ms, 0.266 of the floor 4.505 ms"
    )
    assert lines[2] == "    speculative decoding or MTP: possible with 3.75 tokens a step"
    assert "not priced: 2 rows" in lines
    assert any("(line 4)" in line and "h1000" in line for line in lines)
    assert any("(line 5)" in line and "2 cells where the header has 12 columns" in line for line in lines)
    assert [line for line in lines if line.startswith("measured / ")] == [
        f"measured / device floor by {kind}" for kind in ("part", "engine", "model")
    ]


def test_the_data_have_the_rows_and_their_reasons(measurements: str) -> None:
    found = data("audit", measurements)
    assert (found["rows"], found["priced"]) == (4, 2)
    (violation,) = found["violations"]
    assert (violation["line"], violation["metric"], violation["value"]) == (3, "tpot_ms", "1.2")
    assert violation["ratio"] == pytest.approx(violation["measured_seconds"] / violation["floor_seconds"])
    assert [row["line"] for row in found["unpriced"]] == [4, 5]
    assert found["distribution"]["part"]["h100-sxm"]["rows"] == 2


def test_every_row_is_written_with_its_floor_or_the_reason(measurements: str, tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    text("audit", measurements, "--out", str(out))
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [bool(row["floor"]) for row in rows[:3]] == [True, True, False]
    assert float(rows[0]["floor"]) == pytest.approx(4.505, abs=0.001)  # ms: 15.1 GB over 3.35 TB/s
    assert rows[0]["not_priced"] == ""
    assert "h1000" in rows[2]["not_priced"]


def test_a_violation_fails_only_when_asked(measurements: str) -> None:
    assert flopmap("audit", measurements).code == 0
    assert flopmap("audit", measurements, "--fail").code == 1


def test_kernels_are_held_against_their_floor(tmp_path: Path) -> None:
    path = tmp_path / "kernels.csv"
    path.write_text(KERNELS.format(time=7.0))
    lines = text("audit", "--kernels", str(path)).splitlines()
    assert lines[0] == "1 rows, 1 priced, 1 beat the kernel floor"
    assert lines[1].startswith("kernels.csv:2: gemm bf16 on h100-sxm: 7.000 µs is 0.497 of the floor 14.10 µs")
    assert flopmap("audit", "--kernels", str(tmp_path), "--fail").code == 1
    path.write_text(KERNELS.format(time=70.0))
    found = json.loads(text("audit", "--kernels", str(path), "--json"))
    assert (found["rows"], found["violations"], found["groups"][0]["violations"]) == (1, [], 0)


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    missing = tmp_path / "none.csv"
    refused(2, f"flopmap audit: error: {missing}: no such file", "audit", str(missing))
    refused(2, f"flopmap audit: error: {tmp_path}: a folder, and no table", "audit", str(tmp_path))
    refused(1, f"flopmap audit: error: {tmp_path}: no CSV or Parquet file in it", "audit", "--kernels", str(tmp_path))
    (tmp_path / "empty.csv").write_text("")
    line = f"flopmap audit: error: {tmp_path}/empty.csv: an empty file, without a line of column names"
    refused(1, line, "audit", f"{tmp_path}/empty.csv")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    line = (
        f"flopmap audit: error: {tmp_path}/other.csv: column 'hardware' is missing "
        "(a table has at least: hardware, model, metric, value)"
    )
    refused(1, line, "audit", f"{tmp_path}/other.csv")
