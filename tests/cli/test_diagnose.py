"""``flopmap diagnose`` and ``why --from-command``: what was measured becomes the time of a step, or of none."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from flopmap.diagnosis.serve_command import read_command
from flopmap.step import ScenarioError
from tests.cli.support import LLAMA_8B, data, flopmap, refused, text

FIXTURES = Path(__file__).parent.parent / "readers" / "fixtures"
H100 = ("--model", LLAMA_8B, "--on", "h100-sxm")


def diagnosed(name: str, *words: str) -> Any:
    return data("diagnose", str(FIXTURES / name), *words)


def test_a_served_run_is_judged_at_the_batch_of_littles_law_and_the_mean_context() -> None:
    (run,) = diagnosed("vllm-serve-old.txt", *H100)
    (verdict,) = run["verdicts"]
    # 512 tokens/s x 31.25 ms a token = 16 sequences; 1024 prompt tokens and half of 256
    assert verdict["scenario"]["batch_size"] == 16
    assert verdict["scenario"]["context_len"] == 1152
    assert run["measured_seconds"] == 0.03125
    assert run["missing"] == {}
    assert "ttft" in run["not_judged"][0]


def test_the_verdict_is_that_of_why_for_the_same_step() -> None:
    (run,) = diagnosed("vllm-serve-old.txt", *H100, "--engine", "vllm")
    words = ("--engine", "vllm", "--batch-size", "16", "--context-len", "1152", "--tpot", "31.25ms")
    same = data("why", LLAMA_8B, "--on", "h100-sxm", *words)
    for key in ("measured_over_floor", "bound_by", "cause", "causes", "levers", "assumptions"):
        assert run[key] == same[key]


def test_the_first_line_is_the_answer() -> None:
    first = text("diagnose", str(FIXTURES / "vllm-serve-old.txt"), *H100).splitlines()[0]
    assert first.startswith("31.25 ms a step is ")
    assert "x the floor of " in first
    assert "likeliest cause: " in first


def test_one_stream_at_a_time_has_a_ttft_without_queueing() -> None:
    (run,) = diagnosed("vllm-serve.json", "--on", "h100-sxm")  # the model is in the file
    decode, prefill = run["verdicts"]
    assert (decode["figure"], decode["scenario"]["phase"], decode["scenario"]["batch_size"]) == (
        "mean tpot",
        "decode",
        1,
    )
    assert (prefill["figure"], prefill["scenario"]["phase"], prefill["scenario"]["input_len"]) == (
        "mean ttft",
        "prefill",
        1024,
    )
    assert prefill["measured_seconds"] == 0.0505
    assert decode["scenario"]["model"] == "Qwen/Qwen3-8B"


def test_with_drafts_a_step_takes_as_many_token_times_as_it_yields_tokens() -> None:
    (run,) = diagnosed("vllm-serve-new.txt", *H100)
    # 11.81 ms a token, 2.51 tokens a step
    assert run["measured_seconds"] == pytest.approx(0.01181 * 2.51)
    assert "yields 2.51 tokens" in " ".join(run["verdicts"][0]["derived"])


def test_a_log_is_judged_by_the_line_without_prompts() -> None:
    runs = diagnosed("vllm-log.txt", "--on", "a100-sxm-80gb")
    judged = [run for run in runs if run["verdicts"]]
    assert [run["batch_size"] for run in judged] == [8, 1]
    assert judged[0]["measured_seconds"] == pytest.approx(8 / 227.5)
    assert judged[0]["verdicts"][0]["scenario"]["enforce_eager"] is True


def test_rows_of_llama_bench_are_prefill_and_decode_at_their_depth() -> None:
    runs = diagnosed("llama-bench.md", "--model", LLAMA_8B)  # the part is in the text
    scenarios = [run["verdicts"][0]["scenario"] for run in runs if run["verdicts"]]
    assert [(each["phase"], each["part"], each["quantization"]) for each in scenarios] == [
        ("prefill", "rtx-4090", "q4_k"),
        ("decode", "rtx-4090", "q4_k"),
        ("decode", "rtx-4090", "q4_k"),
    ]
    assert [each["context_len"] for each in scenarios[1:]] == [64, 4160]  # 128 / 2, and after 4096


def test_what_is_missing_is_listed_with_its_flag() -> None:
    (run,) = diagnosed("vllm-serve-old.txt")
    assert run["missing"] == {"model": "give --model", "part": "give --on"}
    assert run["verdicts"] == []
    assert run["measured_over_floor"] is None
    first = text("diagnose", str(FIXTURES / "vllm-serve-old.txt")).splitlines()[0]
    assert first == "16 figures read, no verdict; missing: model (give --model), part (give --on)"


def test_flags_win_over_the_file() -> None:
    (run,) = diagnosed("vllm-serve.json", *H100, "--batch-size", "2", "--context-len", "512")
    scenario = run["verdicts"][0]["scenario"]
    assert (scenario["model"], scenario["batch_size"], scenario["context_len"]) == (LLAMA_8B, 2, 512)


def test_a_throughput_of_unknown_batch_is_no_step() -> None:
    runs = diagnosed("vllm-latency.txt", *H100)
    assert all(run["verdicts"] == [] for run in runs)
    assert any("--batch-size" in reason for run in runs for reason in run["not_judged"])
    judged = diagnosed("vllm-latency.txt", *H100, "--batch-size", "64")[1]["verdicts"]
    assert judged[0]["measured_seconds"] == pytest.approx(64 / 3136.05)


def test_a_plan_of_the_log_is_that_of_its_step(tmp_path: Path) -> None:
    log = (FIXTURES / "vllm-log.txt").read_text()
    (tmp_path / "log.txt").write_text(log.replace("tensor_parallel_size=1", "tensor_parallel_size=2"))
    one, two = (data("diagnose", path, *H100) for path in (str(FIXTURES / "vllm-log.txt"), str(tmp_path / "log.txt")))
    for alone, shared in zip(one, two, strict=True):
        for before, after in zip(alone["verdicts"], shared["verdicts"], strict=True):
            assert (before["plan"], after["plan"]["tensor"]) == (None, 2)
            assert after["measured_over_floor"] > before["measured_over_floor"]
    assert any(run["verdicts"] for run in two)


def test_two_files_say_what_changed(tmp_path: Path) -> None:
    slower = (FIXTURES / "vllm-serve-old.txt").read_text().replace("31.25", "62.50").replace("512.00", "256.00")
    path = tmp_path / "slower.txt"
    path.write_text(slower)
    before, after = data("diagnose", str(FIXTURES / "vllm-serve-old.txt"), str(path), *H100)
    assert before["changes"] == []
    (change,) = after["changes"]
    assert "(the same scenario): step 2x, its floor 1x" in change  # 256 x 62.5 ms are 16 sequences too


def test_stdin_and_markdown(monkeypatch: pytest.MonkeyPatch) -> None:
    pasted = io.TextIOWrapper(io.BytesIO((FIXTURES / "vllm-serve-old.txt").read_bytes()))
    monkeypatch.setattr(sys, "stdin", pasted)
    answer = flopmap("diagnose", "-", *H100, "--markdown")
    assert answer.code == 0
    assert answer.out.startswith("**31.25 ms a step is ")
    assert "- -:1 vllm bench serve: " in answer.out


def test_bad_input_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear all,\n")
    answer = flopmap("diagnose", str(path))
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith(f"flopmap diagnose: error: {path}: no result in it that is known (known: vllm bench")
    refused(2, "flopmap diagnose: error: none.txt: no such file", "diagnose", "none.txt")
    refused(
        2,
        "flopmap diagnose: error: --dtype int3: not a format of activations (accepted: bf16, fp16, fp32)",
        *("diagnose", str(FIXTURES / "vllm-serve-old.txt"), *H100, "--dtype", "int3"),
    )


# -- why --from-command -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "fields", "unknown"),
    [
        (
            (
                "VLLM_USE_V1=1 vllm serve Qwen/Qwen3-8B "
                "--tensor-parallel-size 2 --enforce-eager --kv-cache-dtype fp8_e5m2 "
                "--max-model-len 8192 --port 8000"
            ),
            {
                "engine": "vllm",
                "model": "Qwen/Qwen3-8B",
                "tensor_parallel_size": 2,
                "enforce_eager": True,
                "kv_cache_dtype": "fp8",
            },
            (),
        ),
        (
            "python -m vllm.entrypoints.openai.api_server --model=gpt2 \\\n -tp 4 --dtype half --frobnicate 7 --chatty",
            {"engine": "vllm", "model": "gpt2", "tensor_parallel_size": 4, "dtype": "fp16"},
            ("--frobnicate 7", "--chatty"),
        ),
        (
            "python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp 8 --disable-cuda-graph --quantization fp8",
            {
                "engine": "sglang",
                "model": "Qwen/Qwen3-8B",
                "tensor_parallel_size": 8,
                "enforce_eager": True,
                "quantization": "fp8",
            },
            (),
        ),
        (
            "trtllm-serve Qwen/Qwen3-8B --tp_size 2 --max_batch_size 64",
            {"engine": "tensorrt-llm", "model": "Qwen/Qwen3-8B", "tensor_parallel_size": 2},
            (),
        ),
        (
            "./llama-server -m model.gguf -ngl 99 -c 4096 -ctk f16 --mlock",
            {"engine": "llama.cpp", "model": "model.gguf", "kv_cache_dtype": "fp16"},
            ("--mlock",),
        ),
    ],
)
def test_a_servers_command_becomes_fields(command: str, fields: dict[str, Any], unknown: tuple[str, ...]) -> None:
    served = read_command(command)
    assert (served.fields, served.not_understood) == (fields, unknown)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("ls -l", "no server that is known"),
        ("vllm serve gpt2 --quantization", "--quantization has no value"),
        ("vllm serve gpt2 -tp two", "'two' is not a size"),
        ("vllm serve 'gpt2", "no closing quotation"),
    ],
)
def test_a_command_that_makes_no_sense_is_refused(command: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        read_command(command)


def test_why_takes_a_command_and_lists_what_it_does_not_understand() -> None:
    served = "vllm serve Qwen/Qwen3-8B --enforce-eager --frobnicate"
    answer = flopmap("why", "--from-command", served, "--on", "a100-sxm-80gb", "--json")
    assert answer.code == 0
    assert answer.err == "flopmap why: --from-command: not understood: --frobnicate\n"
    scenario = json.loads(answer.out)["scenario"]
    assert (scenario["model"], scenario["engine"], scenario["enforce_eager"]) == ("Qwen/Qwen3-8B", "vllm", True)


def test_a_flag_wins_over_the_command() -> None:
    served = "vllm serve Qwen/Qwen3-8B --dtype float16"
    words = ("--on", "a100-sxm-80gb", "--dtype", "bf16", "--from-command", served)
    assert data("why", LLAMA_8B, *words)["scenario"]["dtype"] == "bf16"
    assert data("why", LLAMA_8B, *words)["scenario"]["model"] == LLAMA_8B
