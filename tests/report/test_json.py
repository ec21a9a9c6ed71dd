"""The data of ``why``: every key that programs rely on, numbers that add up, SI units, one answer a scenario."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from flopmap.records.types import Model
from tests.cli.support import LLAMA_8B, LLAMA_70B, WHY, data, text, why

if TYPE_CHECKING:
    from pathlib import Path

    from flopmap.records.book import Book

NUMBER = (int, float)
WHOLE = int
OPTIONAL = (int, float, type(None))
NAME = str
PROPERTIES = (
    "memory_bandwidth",
    "matrix_peak",
    "vector_peak",
    "exp_rate",
    "link_bandwidth",
    "link_latency",
    "launch",
    "host",
)
CAUSES = (
    "memory bandwidth",
    "compute",
    "interconnect",
    "launch-host",
    "scheduler",
    "capacity",
    "software bug",
    "impossible input",
)
# section 10 of the design, with the type of every value
KEYS: dict[str, Any] = {
    "schema_version": WHOLE,
    "scenario": dict,
    "parameters": {"total": WHOLE, "active": WHOLE, "embedding": WHOLE},
    "memory": {
        "weight_bytes": NUMBER,
        "kv_bytes_per_token": NUMBER,
        "state_bytes_per_sequence": NUMBER,
        "capacity_bytes": NUMBER,
        "fits": bool,
        "max_sequences": (int, type(None)),
    },
    "step": {"tokens": WHOLE, "sequences": WHOLE, "pairs": NUMBER, "kv_tokens": WHOLE, "logits": WHOLE},
    "totals": {
        "matrix_flop": NUMBER,
        "vector_flop": NUMBER,
        "exp_op": NUMBER,
        "launches": WHOLE,
        "link_bytes": NUMBER,
        "device_bytes": dict.fromkeys(("weights", "kv", "state", "activations", "logits"), NUMBER),
    },
    "floor_seconds": {"device": NUMBER, "operation": NUMBER, "engine": NUMBER, "towers": NUMBER},
    "estimate_seconds": {"value": OPTIONAL, "low": OPTIONAL, "high": OPTIONAL},
    "measured_seconds": OPTIONAL,
    "measured_over_floor": OPTIONAL,
    "cause": (str, type(None)),
    "causes": list,
    "bound_by": NAME,
    "elasticity": dict.fromkeys(PROPERTIES, NUMBER),
    "ops": list,
    "levers": list,
    "assumptions": list,
    "not_counted": list,
    "conventions": dict,
}
OP = {
    "class": NAME,
    "name": NAME,
    "count": WHOLE,
    "matrix_flop": NUMBER,
    "device_bytes": NUMBER,
    "link_bytes": NUMBER,
    "floor_seconds": NUMBER,
    "share": NUMBER,
    "bound_by": NAME,
    "formula": NAME,
    "source": NAME,
}
LEVER = {"id": NAME, "step_seconds": NUMBER, "gain": NUMBER, "gates": list, "traps": list}
CAUSE = {"cause": NAME, "weight": NUMBER, "check": NAME}
CASES = {
    "decode": WHY,
    "prefill": (*WHY, "--phase", "prefill", "--batch-size", "4"),
    "mixed": (*WHY, "--phase", "mixed", "--batch-size", "32", "--input-len", "512"),
    "cached": (*WHY, "--phase", "prefill", "--input-len", "512", "--cached-len", "4096"),
    "measured": (*WHY, "--tpot", "12.5ms"),
    "eager": (*WHY, "--engine", "vllm", "--enforce-eager", "--batch-size", "8"),
    "quantized": (*WHY, "--quantization", "awq", "--kv-cache-dtype", "fp8", "--context-len", "32k"),
    "too large": ("why", LLAMA_70B, "--on", "rtx-4090"),
    "windows": ("why", "google/gemma-2-9b", "--on", "mi300x", "--context-len", "16k"),
    "unknown rates": ("why", "Qwen/Qwen3-8B", "--on", "tpu-v5e"),
    "conventions": (
        *WHY,
        *(f"--convention={choice}" for choice in ("mask=full", "attention-bytes=naive", "logits=all")),
    ),
    "nominal": ("why", LLAMA_70B, "--on", "h100-sxm", "--convention", "parameters=nominal"),
}
cases = pytest.mark.parametrize("case", CASES)


def has(answer: dict[str, Any], keys: dict[str, Any], where: str = "") -> None:
    for key, kind in keys.items():
        assert key in answer, f"{where}{key}"
        if isinstance(kind, dict):
            has(answer[key], kind, f"{where}{key}.")
            continue
        assert isinstance(answer[key], kind), f"{where}{key} is {answer[key]!r}"
        assert kind is bool or not isinstance(answer[key], bool), f"{where}{key} is {answer[key]!r}"


def numbers_only(answer: Any) -> Any:
    """An answer without the names that people gave the model."""
    return {**answer, "scenario": {**answer["scenario"], "model": ""}}


@cases
def test_every_key_of_the_design_is_there_with_its_type(case: str) -> None:
    answer = data(*CASES[case])
    has(answer, KEYS)
    assert answer["schema_version"] == 1
    assert answer["bound_by"] in PROPERTIES
    for op in answer["ops"]:
        has(op, OP, "ops.")
        assert op["bound_by"] in PROPERTIES
    for lever in answer["levers"]:
        has(lever, LEVER, "levers.")
    for cause in answer["causes"]:
        has(cause, CAUSE, "causes.")
        assert cause["cause"] in CAUSES
    for notes in ("assumptions", "not_counted"):
        assert all(isinstance(note, str) for note in answer[notes])


@cases
def test_the_totals_are_the_sums_of_the_ops(case: str) -> None:
    answer = data(*CASES[case])
    totals, ops = answer["totals"], answer["ops"]
    assert sum(op["matrix_flop"] for op in ops) == totals["matrix_flop"]
    assert sum(op["vector_flop"] for op in ops) == totals["vector_flop"]
    assert sum(op["exp_op"] for op in ops) == totals["exp_op"]
    assert sum(op["launches"] for op in ops) == totals["launches"]
    assert sum(op["link_bytes"] for op in ops) == totals["link_bytes"]
    moved = sum(totals["device_bytes"].values())
    assert sum(op["device_bytes"] for op in ops) == pytest.approx(moved, rel=1e-12)


@cases
def test_shares_and_elasticities_add_up_to_one(case: str) -> None:
    answer = data(*CASES[case])
    assert sum(op["share"] for op in answer["ops"]) == pytest.approx(1, abs=1e-9)
    assert sum(op["floor_seconds"] for op in answer["ops"]) == pytest.approx(answer["floor_seconds"]["operation"])
    assert sum(answer["elasticity"].values()) == pytest.approx(1, abs=1e-9)
    assert all(0 <= share <= 1 for share in answer["elasticity"].values())
    assert answer["elasticity"][answer["bound_by"]] == max(answer["elasticity"].values())
    if answer["causes"]:
        assert sum(cause["weight"] for cause in answer["causes"]) == pytest.approx(1)


@cases
def test_the_floors_are_in_order(case: str) -> None:
    floors = data(*CASES[case])["floor_seconds"]
    assert 0 < floors["device"] <= floors["operation"] <= floors["engine"]


@cases
def test_levers_come_best_first_and_their_gain_is_the_time_they_save(case: str) -> None:
    answer = data(*CASES[case])
    times = [lever["step_seconds"] for lever in answer["levers"]]
    assert times == sorted(times)
    for lever in answer["levers"]:
        assert lever["gain"] == pytest.approx(1 - lever["step_seconds"] / answer["floor_seconds"]["engine"], abs=1e-12)


def test_numbers_are_si() -> None:
    answer = why("--context-len", "2048")
    assert answer["parameters"] == {"total": 8_030_261_248, "active": 7_504_658_432, "embedding": 525_336_576}
    assert answer["memory"]["weight_bytes"] == 2 * 8_030_261_248
    assert answer["memory"]["kv_bytes_per_token"] == 131_072
    assert answer["memory"]["capacity_bytes"] == 80e9
    assert answer["step"] == {"tokens": 1, "sequences": 1, "pairs": 2048, "kv_tokens": 2047, "logits": 1}
    assert answer["floor_seconds"]["operation"] == pytest.approx(4.564e-3, rel=1e-3)
    moved = sum(answer["totals"]["device_bytes"].values())
    assert answer["floor_seconds"]["operation"] == pytest.approx(moved / 3.35e12, rel=1e-3)


def test_the_scenario_says_what_was_priced() -> None:
    flags = ("--engine", "vllm", "--enforce-eager", "--batch-size", "8", "--context-len", "1k", "--dtype", "fp16")
    scenario = why(*flags, "--quantization", "awq", "--kv-cache-dtype", "fp8")["scenario"]
    expected = {
        "model": LLAMA_8B,
        "part": "h100-sxm",
        "count": 1,
        "engine": "vllm",
        "enforce_eager": True,
        "dtype": "fp16",
        "quantization": "awq",
        "kv_cache_dtype": "fp8",
        "phase": "decode",
        "batch_size": 8,
        "context_len": 1024,
    }
    assert {key: scenario[key] for key in expected} == expected


def test_an_alias_an_id_a_folder_and_a_file_give_the_same_numbers(book: Book, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(book.record(Model, LLAMA_8B).config))
    answers = [
        numbers_only(data("why", model, "--on", part, "--batch-size", "4"))
        for model, part in (
            (LLAMA_8B, "h100-sxm"),
            (LLAMA_8B.lower(), "H100-SXM"),
            ("llama3.1:8b", "h100"),
            ("meta-llama/Llama-3.1-8B-Instruct", "NVIDIA H100 80GB HBM3"),
            (str(path), "h100:1"),
            (str(tmp_path), "h100-sxm5"),
        )
    ]
    assert all(answer == answers[0] for answer in answers[1:])


def test_a_bundled_model_is_named_by_its_id_and_a_file_by_its_path(book: Book, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(book.record(Model, LLAMA_8B).config))
    assert data("why", "llama3.1:8b", "--on", "h100")["scenario"]["model"] == LLAMA_8B
    assert data("why", str(tmp_path), "--on", "h100")["scenario"]["model"] == str(path)


@pytest.mark.parametrize(
    ("flags", "seconds"),
    [
        (("--tpot", "12.5ms"), 0.0125),
        (("--itl", "12.5ms"), 0.0125),
        (("--step-time", "12.5ms"), 0.0125),
        (("--throughput", "640", "--batch-size", "8"), 0.0125),  # 8 tokens a step
        (("--ttft", "1.4s"), 1.4),
        (("--ttft", "1.4s", "--phase", "mixed"), 1.4),
        (
            ("--throughput", "81920", "--phase", "prefill", "--input-len", "1k", "--batch-size", "8"),
            0.1,
        ),  # 8 x 1024 tokens
        (("--step-time", "1s", "--phase", "prefill"), 1.0),
    ],
    ids=["tpot", "itl", "step", "decode throughput", "ttft", "ttft mixed", "prefill throughput", "step prefill"],
)
def test_a_measurement_is_a_time_of_the_step(flags: tuple[str, ...], seconds: float) -> None:
    answer = why(*flags)
    assert answer["measured_seconds"] == pytest.approx(seconds, rel=1e-12)
    assert answer["measured_over_floor"] == pytest.approx(seconds / answer["floor_seconds"]["operation"], rel=1e-12)
    assert answer["cause"] == answer["causes"][0]["cause"]
    assert answer["cause"] in CAUSES
    weights = [cause["weight"] for cause in answer["causes"]]
    assert weights == sorted(weights, reverse=True)


def test_time_to_first_token_implies_prefill() -> None:
    assert why("--ttft", "1.4s")["scenario"]["phase"] == "prefill"
    assert why("--tpot", "28ms")["scenario"]["phase"] == "decode"
    assert why("--step-time", "28ms")["scenario"]["phase"] == "decode"


def test_without_a_measurement_nothing_is_blamed() -> None:
    answer = why()
    assert answer["measured_seconds"] is None
    assert answer["measured_over_floor"] is None
    assert answer["cause"] is None
    assert answer["causes"] == []


def test_faster_than_the_device_floor_is_named_impossible() -> None:
    answer = why("--tpot", "1ms")
    assert answer["cause"] == "impossible input"
    assert [cause["cause"] for cause in answer["causes"]] == ["impossible input"]
    assert answer["measured_over_floor"] < 1


def test_an_eager_engine_far_above_the_floor_is_blamed_on_launches() -> None:
    answer = why("--engine", "vllm", "--enforce-eager", "--tpot", "60ms")
    assert answer["cause"] == "launch-host"


def test_70b_on_80_gb_does_not_fit_and_the_floor_is_given() -> None:
    answer = data("why", LLAMA_70B, "--on", "h100-sxm")
    assert answer["memory"]["fits"] is False
    assert answer["memory"]["max_sequences"] == 0
    assert answer["floor_seconds"]["operation"] == pytest.approx(138e9 / 3.35e12, rel=0.02)
    assert data("why", LLAMA_70B, "--on", "h200-sxm", "--quantization", "fp8")["memory"]["fits"] is True


def test_what_has_no_rate_on_record_is_said_not_to_be_counted() -> None:
    answer = data("why", "Qwen/Qwen3-8B", "--on", "tpu-v5e")
    assert any("no vector peak on record" in note for note in answer["not_counted"])


def test_a_vision_tower_is_held_while_text_is_decoded_and_runs_where_an_image_is_read() -> None:
    decode = data("why", "google/gemma-3-4b-it", "--on", "h100")
    assert decode["not_counted"] == []
    towers = [op for op in decode["ops"] if op["name"].startswith(("vision.", "connector."))]
    assert towers
    assert all(op["idle"] and op["matrix_flop"] == op["device_bytes"] == op["launches"] == 0 for op in towers)
    prefill = data(
        "why", "google/gemma-3-4b-it", "--on", "h100", "--phase", "prefill", "--input-len", "100", "--images", "2"
    )
    # 256 tokens an image between a begin, an end and two blank lines
    assert prefill["scenario"]["images"] == 2
    assert prefill["scenario"]["image_tokens"] == 2 * 260
    assert prefill["scenario"]["input_len"] == 100 + 2 * 260
    # up, two images of 64 x 64 patches, 27 layers
    up = next(op for op in prefill["ops"] if op["name"] == "vision.mlp.up")
    assert up["matrix_flop"] == 2 * 2 * 4096 * 1152 * 4304 * 27


def test_every_source_of_an_op_is_on_record(book: Book) -> None:
    for op in why()["ops"]:
        assert book.find("sources", op["source"])
        assert " = " in op["formula"]


def test_the_conventions_in_force_are_all_named(book: Book) -> None:
    answer = why("--convention", "mask=full")
    defaults = {name: next(iter(convention.values)) for name, convention in book.conventions.items()}
    assert answer["conventions"] == {**defaults, "mask": "full"}


def test_data_ends_in_one_line_break_and_is_utf_8() -> None:
    answer = text(*WHY, "--json")
    assert answer.startswith("{")
    assert answer.endswith("}\n")
