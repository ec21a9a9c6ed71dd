"""Plans by the command line: the answer of each of these is plausible, and says what it assumes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.support import LLAMA_8B, data, flopmap

DEEPSEEK = "deepseek-ai/DeepSeek-V3"


def why(*words: str) -> dict[str, Any]:
    found: dict[str, Any] = data("why", *words)
    return found


def test_deepseek_v3_on_eight_h200() -> None:
    answer = why(DEEPSEEK, "--on", "h200-sxm:8", "-tp", "8", "-ep", "8", "--batch-size", "64")
    plan = answer["plan"]
    assert (plan["tensor"], plan["expert"], plan["parts"]) == (8, 8, 8)
    source = "ml-engineering-network"
    assert plan["wires"] == [
        {"level": "scale-up", "name": "NVLink 4", "bytes_per_second": 450e9, "latency_seconds": None, "source": source}
    ]
    assert answer["parameters"]["total"] == 671_026_404_352
    # an eighth of the routed experts; the rest of attention by heads, with what leads to the latent on each
    assert plan["parameters_per_part"] == 84_780_342_272
    assert answer["memory"]["kv_bytes_per_token"] == 70_272
    assert answer["memory"]["fits"]
    assert answer["bound_by"] == "memory_bandwidth"
    reduced = [op for op in answer["ops"] if op["class"] == "all-reduce"]
    assert [op["count"] for op in reduced] == [61, 61]
    assert all(op["bound_by"] == "link_bandwidth" for op in reduced)
    assert 0.01 < answer["elasticity"]["link_bandwidth"] < 0.1
    assert "latency of links: the part has none on record" in answer["not_counted"]
    # 8 parts of 4.8 TB/s: its weights and cache would take that long if each byte were read once
    assert answer["floor_seconds"]["operation"] > answer["totals"]["device_bytes"]["weights"] / 4.8e12


def test_llama_405b_on_two_hosts_of_h100() -> None:
    answer = why("meta-llama/Llama-3.1-405B", "--on", "h100-sxm:16", "-tp", "8", "-pp", "2")
    assert answer["plan"]["stages"] == [63, 63]
    assert answer["memory"]["weight_bytes"] == pytest.approx(811.7e9 / 16, rel=0.01)
    assert answer["floor_seconds"]["operation"] == pytest.approx(811.7e9 / 8 / 3.35e12, rel=0.02)
    assert any(note.startswith("one micro-batch: a step passes 2 stages of 63") for note in answer["assumptions"])
    used = answer["utilisation"]["floor"]["mbu"]
    assert used == pytest.approx(0.5, abs=0.01)  # each host waits for the other


@pytest.mark.parametrize("parts", [1, 2])
def test_mixtral_on_mi300x(parts: int) -> None:
    answer = why("mistralai/Mixtral-8x7B-v0.1", "--on", f"mi300x:{parts}" if parts > 1 else "mi300x")
    assert answer["memory"]["fits"]
    assert answer["scenario"]["count"] == parts
    # a token takes 2 of 8 experts: 12.75e9 of 46.7e9 parameters are read, at 5.3 TB/s a part
    assert answer["floor_seconds"]["operation"] == pytest.approx(12.75e9 * 2 / 5.3e12 / parts, rel=0.03)


def test_a_70b_in_four_bits_on_two_rtx_3090_is_split_by_layers() -> None:
    flags = ("meta-llama/Llama-2-70b-hf", "--on", "rtx-3090:2", "-q", "q4_k", "--engine", "llama-cpp")
    answer = why(*flags)
    assert (answer["plan"]["tensor"], answer["plan"]["pipeline"]) == (1, 2)
    assert "llama.cpp splits by layers: PP 2, one part after another" in answer["assumptions"]
    assert answer["memory"]["fits"]
    # 4.5 bits a parameter through one card's 936 GB/s at a time
    assert answer["floor_seconds"]["operation"] == pytest.approx(68.7e9 * 4.5 / 8 / 936e9, rel=0.05)
    assert any(trap["id"] == "layer-split-is-not-tensor-parallel" for trap in answer["traps"])


def test_an_8b_on_eight_tpu_v5e() -> None:
    answer = why(LLAMA_8B, "--on", "tpu-v5e:8")
    assert answer["plan"]["tensor"] == 8
    assert "plan TP 8: none is given" in answer["assumptions"]
    assert answer["floor_seconds"]["operation"] == pytest.approx(7.5e9 * 2 / 8 / 819e9, rel=0.05)


def test_an_8b_needs_many_groq_chips() -> None:
    alone = flopmap("why", LLAMA_8B, "--on", "groq-lpu").out
    assert "does not fit; the weights need 70 parts or more" in alone  # 16.06 GB over 230 MB is 69.8
    refused = flopmap("why", LLAMA_8B, "--on", "groq-lpu:8")
    assert refused.code == 2
    assert refused.err == (
        "flopmap why: error: TP 8: 2.008 GB of weights on a part do not fit in the 230.0 MB of groq-lpu; "
        "16.06 GB of them need at least 70 parts (nearest: --on groq-lpu:96 -tp 32 -pp 3)\n"
    )
    answer = why(LLAMA_8B, "--on", "groq-lpu:96", "-tp", "32", "-pp", "3")
    assert answer["memory"]["weight_bytes"] < 230e6
    assert answer["memory"]["weight_bytes"] > 16.06e9 / 96


def test_a_machine_is_its_parts_with_the_usual_plan() -> None:
    answer = why(LLAMA_8B, "--on", "p5.48xlarge")
    assert (answer["scenario"]["part"], answer["scenario"]["count"]) == ("h100-sxm", 8)
    assert answer["plan"]["tensor"] == 8


def test_parts_that_the_plan_leaves_alone_are_said() -> None:
    answer = why(LLAMA_8B, "--on", "p5.48xlarge", "-tp", "4")
    assert "4 of 8 parts work: the plan takes no more" in answer["assumptions"]
    assert answer["plan"]["parts"] == 4


def test_the_report_names_the_plan_and_its_collectives() -> None:
    text = flopmap("why", LLAMA_8B, "--on", "h100-sxm:8", "--batch-size", "64").out
    assert "on 8 x h100-sxm, TP 8" in text
    assert "attention.all_reduce x32" in text
    assert "link bandwidth" in text
    assert "NVLink 4 450.0 GB/s" in text


def test_an_explained_collective_shows_its_bytes_and_its_link() -> None:
    text = flopmap("why", LLAMA_8B, "--on", "h100-sxm:8", "--explain", "mlp.all_reduce").out
    assert "link = 2 × (ranks - 1) / ranks × payload" in text
    assert "link_seconds = link / link_bandwidth = 458,752 / 450,000,000,000" in text  # 32 x 1.75 x 4096 x 2
    assert "NVLink 4 4.5e+11 (ml-engineering-network)" in text


def test_a_served_command_brings_its_plan() -> None:
    command = f"vllm serve {DEEPSEEK} --tensor-parallel-size 8 --enable-expert-parallel"
    answer = why("--from-command", command, "--on", "h200-sxm", "--batch-size", "64")
    assert answer["scenario"]["engine"] == "vllm"
    assert (answer["plan"]["tensor"], answer["plan"]["expert"]) == (8, 8)


def test_a_plan_without_parts_on_record_is_that_of_one_part() -> None:
    answer = why(LLAMA_8B, "--on", "h100-sxm", "-tp", "1")
    assert answer["plan"] is None
    assert not any(op["link_bytes"] for op in answer["ops"])
