"""``flopmap classes``: lists, filters, and the gates of a part."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from flopmap.cli.main import main
from flopmap.facts import availability, part_facts
from flopmap.records.types import Answer, OpClass, Part

if TYPE_CHECKING:
    from flopmap.records.book import Book

ATTENTION, MARLIN, MACHETE = "ctx-long-context-attention-kernel-matrix", "marlin-availability", "machete-availability"
SM100, FP8 = "sm120-vs-sm100a-kernel-binary-incompatibility", "block-scaled-tensor-core-fp8"
FP4, AMD_FP4 = "bw-nvfp4-mxfp4-block-scaled-formats", "amd-fp4-mxfp4-support"


@pytest.mark.parametrize(
    ("gate", "part", "answer"),
    [
        (ATTENTION, "h100-sxm", "yes"),
        (ATTENTION, "b200-sxm", "yes"),
        (ATTENTION, "a100-sxm-80gb", "yes"),
        (ATTENTION, "rtx-5090", "emulated"),  # no tensor memory
        (ATTENTION, "t4", "emulated"),
        (ATTENTION, "v100-sxm2", "no"),
        (ATTENTION, "mi300x", "yes"),
        (ATTENTION, "tpu-v5e", "no"),
        (MARLIN, "a100-sxm-80gb", "yes"),
        (MARLIN, "t4", "emulated"),
        (MARLIN, "mi300x", "no"),
        (MACHETE, "h200-sxm", "yes"),
        (MACHETE, "l40s", "emulated"),
        (MACHETE, "b200-sxm", "emulated"),
        (SM100, "b200-sxm", "yes"),
        (SM100, "rtx-5090", "no"),
        (SM100, "h100-sxm", "no"),
        (FP8, "h100-sxm", "yes"),
        (FP8, "a100-sxm-80gb", "emulated"),  # weights only
        (FP8, "m4-max", "no"),
        (FP4, "b200-sxm", "yes"),
        (FP4, "h100-sxm", "emulated"),
        (FP4, "mi355x", "no"),
        (AMD_FP4, "mi355x", "yes"),
        (AMD_FP4, "mi300x", "emulated"),
        ("amd-rocm-aiter-kernels", "mi300x", "yes"),
        ("amd-rocm-aiter-kernels", "mi210", "no"),
        ("alt-tpu-xla-static-shapes", "tpu-v6e", "yes"),
        ("alt-tpu-xla-static-shapes", "h100-sxm", "no"),
    ],
)
def test_a_gate_is_open_where_the_part_has_what_it_needs(gate: str, part: str, answer: str, book: Book) -> None:
    assert availability(book.record(OpClass, gate), part_facts(book.record(Part, part))).answer == answer


def test_a_gate_that_hangs_on_what_nobody_said_is_unknown(book: Book) -> None:
    found = availability(book.record(OpClass, "attn-low-rank-kv-compression-status"), {})
    assert found == ("unknown", "depends on latent_attention")
    silent = OpClass(
        title="x", kind="gate", bound_by="memory", available=(Answer(when="eager", answer="yes", why="x"),)
    )
    assert availability(silent, {"eager": False}) == ("unknown", "no answer on record")


def test_every_gate_gives_an_answer_for_every_part_or_names_what_it_hangs_on(book: Book) -> None:
    gates = [record for record in (book.record(OpClass, name) for name in book.ids("flops")) if record.kind == "gate"]
    assert len(gates) >= 22
    for gate in gates:
        assert gate.available
        answers = {availability(gate, part_facts(book.record(Part, part))).answer for part in book.ids("parts")}
        assert len(answers) > 1 or "unknown" in answers, f"{gate.id} says the same of every part"


# -- the command ------------------------------------------------------------------------------------------------------


def test_the_gates_of_a_part_under_an_engine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["classes", "--available-on", "rtx-5090", "--engine", "vllm"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("24 gates on rtx-5090 under vllm: ")
    answers = [line.split()[0] for line in lines[1:]]
    assert answers == sorted(answers, key=["yes", "emulated", "no", "unknown"].index)
    assert any("FlashInfer" in line and line.split()[0] == "yes" for line in lines)


def test_a_model_decides_what_hangs_on_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["classes", "--available-on", "h100-sxm", "--model", "deepseek-ai/DeepSeek-V3.2", "--json"]) == 0
    found = {gate["id"]: gate["answer"] for gate in json.loads(capsys.readouterr().out)}
    assert found["attn-low-rank-kv-compression-status"] == "yes"
    assert found["attn-sparse-structured-attention-status"] == "yes"


def test_classes_are_filtered_by_kind_and_bound(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["classes", "--kind", "gate", "--json"]) == 0
    gates = json.loads(capsys.readouterr().out)
    assert {gate["kind"] for gate in gates} == {"gate"}
    assert main(["classes", "--kind", "cost", "--bound-by", "compute"]) == 0
    assert "prefill-attention" in capsys.readouterr().out
    assert main(["classes", "--kind", "gate", "mxfp4", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) < len(gates)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--available-on", "h1000"], "unknown part 'h1000'"),
        (["--available-on", "h100-sxm", "--engine", "vlm"], "unknown engine 'vlm'"),
        (["--kind", "gates"], "invalid choice: 'gates'"),
    ],
)
def test_wrong_words_are_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["classes", *arguments])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
