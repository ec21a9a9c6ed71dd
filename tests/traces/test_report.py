"""`flopmap diagnose` of a trace: the answer first, then the evidence; against a floor where a step is known."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from flopmap.diagnosis.traces.chrome import TORCH, XLA
from flopmap.diagnosis.traces.nsys import TOOL
from flopmap.diagnosis.traces.tables import NCU, NSYS, ROCPROF
from flopmap.quantity import percent
from tests.cli.support import LLAMA_8B, data, refused, text
from tests.traces.support import GEMM, STRANGE, chrome, events, kernel, launch, mark, table

STEP = mark("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk65536sqsq32sqsk65536)", 0, 300)
H100 = ("--model", LLAMA_8B, "--on", "h100-sxm")


def written(folder: Path, found: list[dict[str, Any]], **beside: Any) -> str:
    path = folder / "trace.json"
    path.write_bytes(chrome(found, **beside))
    return str(path)


def test_the_first_line_is_what_took_the_time(tmp_path: Path) -> None:
    path = written(tmp_path, events())
    # 105 of 345 µs busy; launch 112, waiting 100, exposed 30, host 18; of 115 µs of kernels 40, 30, 20
    assert text("diagnose", path).splitlines()[0] == (
        "GPU busy 30% of 345.0 µs; launch gaps 32%, waiting 29%, host 5.2%, communication gaps 1.4%, "
        "idle for an unknown reason 1.4%, exposed communication 8.7%; of the time of kernels: "
        "communication between parts 35%, matrix products 26%, attention 17%"
    )


def test_a_busy_gpu_is_hardly_idle(tmp_path: Path) -> None:
    path = written(tmp_path, [kernel(GEMM, 0, 10_000)])
    first = text("diagnose", path).splitlines()[0]
    assert first == "GPU busy 100% of 10.00 ms; hardly idle; of the time of kernels: matrix products 100%"


def test_unmatched_kernels_are_listed_with_their_share(tmp_path: Path) -> None:
    lines = text("diagnose", written(tmp_path, events())).splitlines()
    assert f"  unmatched 4.3%: {STRANGE}" in lines  # 5 of 115 µs
    assert "  96% of the time of kernels is of a known kind of work; device 0" in lines


def test_without_marks_of_steps_there_is_no_floor_and_the_flag_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, events())
    (run,) = data("diagnose", path, *H100)
    assert run["not_judged"] == ["the trace marks no steps: give --steps to hold it against the floor of one"]
    (run,) = data("diagnose", path, *H100, "--steps", "3")
    assert run["not_judged"] == [
        "the trace does not mark what its steps are: give --phase, --batch-size and the length"
    ]
    flags = ("--steps", "3", "--phase", "prefill", "--batch-size", "2", "--input-len", "512")
    (run,) = data("diagnose", path, *H100, *flags)
    assert run["measured_seconds"] == pytest.approx(115e-6)  # 345 / 3
    assert run["verdicts"][0]["scenario"]["phase"] == "prefill"


def test_a_marked_step_is_held_against_the_floor_of_its_shape(tmp_path: Path) -> None:
    path = written(tmp_path, [*events(), STEP])
    (run,) = data("diagnose", path, "--model", LLAMA_8B)  # the part is in the trace
    scenario = run["verdicts"][0]["scenario"]
    assert (scenario["phase"], scenario["batch_size"], scenario["context_len"]) == ("decode", 32, 2048)
    words = ("--batch-size", "32", "--context-len", "2048", "--step-time", "345us")
    same = data("why", LLAMA_8B, "--on", "h100-sxm", *words)
    assert run["measured_over_floor"] == pytest.approx(same["measured_over_floor"])
    floors = {work["id"]: work["floor_seconds"] for work in run["profile"]["work"]}
    by_class: dict[str, float] = {}
    for op in same["ops"]:
        by_class[op["class"]] = by_class.get(op["class"], 0.0) + op["floor_seconds"]
    assert floors["matrix"] == pytest.approx(by_class["weight-gemm"] + by_class["lm-head"])
    assert floors["attention"] == pytest.approx(by_class["decode-attention"])
    assert floors["collective"] is None
    assert set(run["profile"]["floors_without_kernels"]) == set(by_class) - {
        "weight-gemm",
        "lm-head",
        "decode-attention",
        "rms-norm",
    }


def test_a_step_below_the_device_floor_is_impossible(tmp_path: Path) -> None:
    path = written(tmp_path, [*events(), STEP])  # 345 µs, where reading the weights once takes 4.8 ms
    (run,) = data("diagnose", path, *H100)
    assert run["cause"] == "impossible input"
    assert "; Impossible: 345.0 µs a step beats the device floor of " in text("diagnose", path, *H100).splitlines()[0]


def test_causes_are_shares_of_the_step_and_not_of_public_cases(tmp_path: Path) -> None:
    # 20 ms of kernels and 80 ms before each next launch: five steps of 100 ms
    found = [kernel(GEMM, index * 100_000, 20_000, 7, index) for index in range(5)]
    found += [launch(index * 100_000 - 4, 2, index) for index in range(5)]
    names = "execute_context_0(0)_generation_1(1)"
    found += [mark(names, index * 100_000, 20_000) for index in range(5)]
    path = written(tmp_path, found)
    (run,) = data("diagnose", path, *H100, "--context-len", "2048")
    causes = {cause["cause"]: cause["weight"] for cause in run["causes"]}
    wall = 4 * 100_000 + 20_000
    assert causes["launch-host"] == pytest.approx(4 * 80_000 / wall)
    floor = run["verdicts"][0]["floor_seconds"]["operation"] * 1e6
    assert causes["memory bandwidth"] == pytest.approx(5 * floor / wall)
    assert causes["slow kernels"] == pytest.approx((5 * 20_000 - 5 * floor) / wall)
    assert run["cause"] == "launch-host"
    first = text("diagnose", path, *H100, "--context-len", "2048").splitlines()[0]
    assert first.startswith("GPU busy 24% of 420.0 ms; host 76%")
    assert re.search(r"; 84\.00 ms a step is [\d.]+x the floor of [\d.]+ ms, 76% of it launch-host$", first)


def test_a_rank_of_several_is_not_priced_as_one_part(tmp_path: Path) -> None:
    path = written(tmp_path, [*events(), STEP], distributedInfo={"world_size": 4})
    (run,) = data("diagnose", path, *H100)
    assert run["not_judged"] == ["the trace is of one of 4 parts: plans over several parts are not counted yet"]


def test_durations_without_times_have_no_share_of_idle_time(tmp_path: Path) -> None:
    (tmp_path / "details.csv").write_bytes(table("ncu-details"))
    first = text("diagnose", str(tmp_path / "details.csv")).splitlines()[0]
    assert first == "18.00 µs of kernels, without the time between them: matrix products 75%, norms 25%"


def test_markdown_and_json_say_the_same(tmp_path: Path) -> None:
    path = written(tmp_path, [*events(), STEP])
    first = text("diagnose", path, *H100).splitlines()[0]
    markdown = text("diagnose", path, *H100, "--markdown")
    assert markdown.startswith(f"**{first}**\n")
    assert "### A step against its floor" in markdown
    assert "| Matrix products | 30.00 µs | 26% |" in markdown
    (run,) = data("diagnose", path, *H100)
    profile = run["profile"]
    assert sum(work["share"] for work in profile["work"]) == pytest.approx(profile["matched_share"])
    assert {each["name"] for each in profile["kernels"]} == {name for name, *_ in map(tuple, _kernel_names())}
    json.dumps(run, allow_nan=False)


def _kernel_names() -> set[tuple[str]]:
    return {(event["name"],) for event in events() if event.get("cat") == "kernel"}


def test_two_traces_are_compared(tmp_path: Path) -> None:
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    one.write_bytes(chrome([kernel(GEMM, 0, 40_000), STEP]))
    two.write_bytes(chrome([kernel(GEMM, 0, 20_000), STEP]))
    answer = text("diagnose", str(one), str(two), *H100)
    assert answer.startswith("2 traces, the first: GPU busy 100% of 40.00 ms")
    assert re.search(
        r"change: \S+two.json:1 against \S+one.json:1 \(the same scenario\): step 0.5x, its floor 1x", answer
    )


def test_a_wrong_number_of_steps_is_of_the_command_line(tmp_path: Path) -> None:
    path = written(tmp_path, events())
    message = "flopmap diagnose: error: --steps 0: a trace holds at least one step"
    refused(2, message, "diagnose", path, "--steps", "0")


REAL = os.environ.get("FLOPMAP_REAL_FILES", "")  # folders of files that people have, kept outside of this repository
# what the reader made of three public traces: the table of docs/traces.md
TRACES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "real.json").read_text())


@pytest.mark.skipif(not REAL, reason="FLOPMAP_REAL_FILES names no folder")
@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace["file"])
def test_real_traces_are_known_to_nine_tenths(trace: dict[str, Any]) -> None:
    places = [Path(folder) / trace["file"] for folder in REAL.split(":")]
    path = next((place for place in places if place.exists()), None)
    if path is None:
        pytest.skip(f"no {trace['file']}")
    (run,) = data("diagnose", str(path))
    profile = run["profile"]
    assert profile["matched_share"] > 0.9
    assert profile["wall"] == pytest.approx(trace["wall_seconds"])
    assert profile["busy"] / profile["wall"] == pytest.approx(trace["busy"], abs=0.001)
    for name in ("host", "launch", "waiting"):
        assert profile["idle"][name] / profile["wall"] == pytest.approx(trace[name], abs=0.001)
    assert {work["id"]: work["share"] for work in profile["work"]} == pytest.approx(trace["work"], abs=0.0001)


def test_the_table_of_the_document_is_of_the_figures() -> None:
    document = (Path(__file__).parents[2] / "docs" / "traces.md").read_text()
    for trace in TRACES:
        shares = [percent(trace[name]) for name in ("busy", "host", "launch", "waiting")]
        work = ", ".join(f"{name} {percent(share)}" for name, share in list(trace["work"].items())[:4])
        wall = f"{trace['wall_seconds'] * 1e3:.1f} ms"
        assert f"| {' | '.join((trace['what'], wall, *shares, work))} |" in document


def test_the_document_has_a_row_for_every_tool() -> None:
    document = (Path(__file__).parents[2] / "docs" / "traces.md").read_text()
    for word in (TORCH, XLA, TOOL, ROCPROF, NCU, NSYS):
        assert word.removesuffix(" trace").removesuffix(" export").removesuffix(" statistics").split("/")[0] in document
