"""Sweeps: each row is its scenario priced alone, no row is lost or doubled by a kill, invalid rows say why."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from flopmap.choices import sweep as module
from flopmap.choices.plan import CHUNK, Plan, read_plan
from flopmap.choices.sweep import SweepError, rows, sweep
from flopmap.floor.roofline import price
from flopmap.floor.summary import memory
from flopmap.records.faults import BookError
from flopmap.scenario import Request, make
from tests.cli.support import flopmap, refused

if TYPE_CHECKING:
    from pathlib import Path

    from flopmap.records.book import Book

PLAN = """
grid:
  model: [meta-llama/Llama-3.1-8B, gpt2]
  on: [h100-sxm, v100-sxm2]
  quantization: [null, fp8]
  batch_size: {from: 1, to: 100, factor: 3}
  context_len: [128, 1024]
"""
POINTS = 2 * 2 * 2 * 5 * 2  # 1, 3, 9, 27, 81


def written(folder: Path, text: str = PLAN) -> Plan:
    path = folder / "plan.yaml"
    path.write_text(text)
    return read_plan(str(path))


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return [*csv.DictReader(file)]


def every(plan: Plan) -> list[dict[str, Any]]:
    return [row for unit in plan.units() for row in rows(plan, unit)]


def test_each_row_is_its_scenario_priced_alone(tmp_path: Path, book: Book) -> None:
    found = every(written(tmp_path))
    assert len(found) == POINTS
    for row in found:
        fields = ("model", "on", "quantization", "batch_size", "context_len")
        pricing = price(make(Request(**{name: row[name] for name in fields}), book), book)
        assert row["error"] is None
        assert row["engine_seconds"] == pytest.approx(pricing.engine_seconds, rel=1e-12)
        assert row["device_seconds"] == pytest.approx(pricing.device_seconds, rel=1e-12)
        assert row["tokens_per_second"] == pytest.approx(row["batch_size"] / pricing.engine_seconds, rel=1e-12)
        fit = memory(pricing, book)
        assert row["memory_bytes"] == pytest.approx(fit.weight_bytes + fit.cache_bytes)
        assert row["fits"] is fit.fits


@pytest.mark.parametrize("extra", ["phase: prefill", "speculative_config: 'method=ngram,num_speculative_tokens=2'"])
def test_what_is_no_plain_decode_is_priced_point_by_point(extra: str, tmp_path: Path, book: Book) -> None:
    text = f"grid: {{model: gpt2, on: h100-sxm, batch_size: [1, 4], context_len: [64, 256], {extra}}}"
    found = every(written(tmp_path, text))
    assert [(row["batch_size"], row["context_len"]) for row in found] == [(1, 64), (1, 256), (4, 64), (4, 256)]
    for row in found:
        fields = {name: row[name] for name in row if name in Request.__struct_fields__}
        assert row["engine_seconds"] == price(make(Request(**fields), book), book).engine_seconds


def test_a_grid_of_more_points_than_a_unit_has_no_seam(tmp_path: Path) -> None:
    plan = written(
        tmp_path, "grid: {model: gpt2, on: l4, batch_size: {from: 1, to: 70000, step: 1}}\noutputs: [engine_seconds]"
    )
    units = [*plan.units()]
    assert [(unit.start, unit.stop) for unit in units] == [(0, CHUNK), (CHUNK, 70_000)]
    found = [row for unit in units for row in rows(plan, unit)]
    assert [row["batch_size"] for row in found] == [*range(1, 70_001)]
    times = [row["engine_seconds"] for row in found]
    assert times == sorted(times)


def test_rows_of_what_cannot_be_say_why_and_the_rest_completes(tmp_path: Path) -> None:
    plan = written(tmp_path, "grid: {model: [gpt2, nope], on: [h100-sxm, nowhere], batch_size: [1, 2]}")
    done = sweep(plan, tmp_path / "rows.csv")
    assert (done.rows, done.invalid) == (8, 6)
    errors = [row["error"] for row in table(tmp_path / "rows.csv")]
    assert errors[:2] == ["", ""]
    assert all("nowhere" in error for error in errors[2:4])
    assert all("nope" in error for error in errors[4:])


# -- killed and resumed -----------------------------------------------------------------------------------------------


class Stop(Exception):  # noqa: N818 - a test's way to kill a run
    pass


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_run_that_is_stopped_goes_on_without_loss_or_doubles(
    suffix: str, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = written(tmp_path)
    whole, path = tmp_path / f"whole{suffix}", tmp_path / f"rows{suffix}"
    sweep(plan, whole)
    monkeypatch.setattr(module, "EVERY_SECONDS", -1.0)
    monkeypatch.setattr(module, "TASK", 2)
    calls = 0

    def stop(_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == after:
            raise Stop

    with pytest.raises(Stop):
        sweep(plan, path, progress=stop)
    with path.open("ab") as file:
        file.write(b"half a ro")  # what was written after the progress was noted
    done = sweep(plan, path, resume=True)
    assert done.rows == POINTS
    assert path.read_bytes() == whole.read_bytes()
    assert not path.with_name(f"{path.name}.progress").exists()


def test_a_killed_process_is_resumed(tmp_path: Path) -> None:
    models = "[gpt2, meta-llama/Llama-3.1-8B, Qwen/Qwen3-8B, Qwen/Qwen3-30B-A3B]"
    batches = "{from: 1, to: 20000, step: 1}"
    text = f"grid: {{model: {models}, on: [h100-sxm, l4], batch_size: {batches}}}\noutputs: [engine_seconds]"
    plan, path = written(tmp_path, text), tmp_path / "rows.csv"
    words = ("-m", "flopmap", "sweep", str(tmp_path / "plan.yaml"), "--out", str(path), "--jobs", "1")
    process = subprocess.Popen((sys.executable, *words), stdout=subprocess.DEVNULL)
    beside = tmp_path / "rows.csv.progress"
    for _ in range(600):
        if beside.exists() and path.stat().st_size > 100:
            break
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert beside.exists()
    answer = flopmap("sweep", str(tmp_path / "plan.yaml"), "--out", str(path), "--jobs", "1", "--resume")
    assert (answer.code, answer.out) == (0, f"160,000 rows in {path}\n")
    found = table(path)
    keys = [(row["model"], row["on"], row["batch_size"]) for row in found]
    assert len(set(keys)) == len(keys) == plan.points == 160_000


def test_what_is_there_is_not_written_over(tmp_path: Path) -> None:
    plan, path = written(tmp_path), tmp_path / "rows.csv"
    sweep(plan, path)
    with pytest.raises(SweepError, match="is there already"):
        sweep(plan, path)
    with pytest.raises(SweepError, match="no unfinished sweep to go on with"):
        sweep(plan, path, resume=True)


def test_another_plan_does_not_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.csv"
    monkeypatch.setattr(module, "EVERY_SECONDS", -1.0)
    plan = written(tmp_path)
    with pytest.raises(Stop):
        sweep(plan, path, progress=_stop)
    with pytest.raises(SweepError, match="was begun with another plan"):
        sweep(written(tmp_path, PLAN.replace("128", "256")), path, resume=True)
    path.write_text("")
    with pytest.raises(SweepError, match="is shorter than when its progress was noted"):
        sweep(written(tmp_path), path, resume=True)


def _stop(_: Any) -> None:
    raise Stop


def test_an_executor_gives_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = written(tmp_path)
    monkeypatch.setattr(module, "TASK", 1)
    monkeypatch.setattr(module, "AHEAD", 3)
    sweep(plan, tmp_path / "one.csv")
    with ThreadPoolExecutor(2) as threads:
        sweep(plan, tmp_path / "two.csv", executor=threads)
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "two.csv").read_bytes()
    answer = flopmap("sweep", str(tmp_path / "plan.yaml"), "--out", str(tmp_path / "three.csv"), "--jobs", "2")
    assert answer.code == 0
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "three.csv").read_bytes()


# -- the command and bad plans ----------------------------------------------------------------------------------------


def test_invalid_rows_are_counted_and_make_exit_code_1(tmp_path: Path) -> None:
    written(tmp_path, "grid: {model: gpt2, on: [h100-sxm, nowhere], batch_size: [1, 2]}")
    out = tmp_path / "rows.jsonl"
    answer = flopmap("sweep", str(tmp_path / "plan.yaml"), "--out", str(out))
    assert answer.code == 1
    assert answer.out.startswith(f"4 rows in {out}, 2 of them invalid (the first: unknown part 'nowhere'")
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["error"] is None for line in lines] == [True, True, False, False]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("grid: {}", "1:1: a plan has a grid: of fields with their values"),
        ("- 1", "1:1: a plan has a grid: of fields with their values"),
        ("grid: {model: gpt2}", "1:7: grid: on is missing"),
        ("grid: {model: gpt2, on: l4, batch: 1}", "grid.batch: a scenario has no such field"),
        ("grid: {model: [], on: l4}", "grid.model: no values: the grid is empty"),
        ("grid: {model: [gpt2, gpt2], on: l4}", "grid.model: a value stands twice"),
        ("grid: {model: gpt2, on: l4, batch_size: [0, 1]}", "grid.batch_size: values are whole numbers from 1 to"),
        ("grid: {model: gpt2, on: l4, batch_size: {from: 1, to: 9}}", "grid.batch_size: a range is {from: 1, to: 64"),
        ("grid: {model: gpt2, on: l4, batch_size: {from: 1, to: 9, factor: 1}}", "a range begins at 1 or later"),
        ("grid: {model: gpt2, on: l4, batch_size: {from: 9, to: 1, step: 1}}", "grid.batch_size: no values"),
        ("grid: {model: gpt2, on: l4, batch_size: {from: 1, to: 9000000, step: 1}}", "more than 1,000,000 values"),
        ("grid: {model: gpt2, on: l4}\noutputs: [speed]", "2:10: outputs: no output 'speed'"),
        ("grid: {model: gpt2, on: l4}\nformat: csv", "2:9: format: no key of a plan"),
        ("grid: {model: gpt2", "not YAML"),
    ],
)
def test_a_bad_plan_is_refused_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BookError) as caught:
        written(tmp_path, text)
    assert message in str(caught.value)


def test_a_wrong_command_is_refused_in_a_line(tmp_path: Path) -> None:
    refused(2, "flopmap sweep: error: nowhere.yaml: no such file", "sweep", "nowhere.yaml", "--out", "rows.csv")
    kinds = "--out rows.txt: the kind of file is not known (accepted: .csv, .jsonl)"
    refused(2, f"flopmap sweep: error: {kinds}", "sweep", "plan.yaml", "--out", "rows.txt")
    written(tmp_path)
    path = tmp_path / "rows.csv"
    path.write_text("mine")
    message = f"{path}: is there already (accepted: --resume, or another name)"
    refused(2, f"flopmap sweep: error: {message}", "sweep", str(tmp_path / "plan.yaml"), "--out", str(path))
    assert path.read_text() == "mine"
