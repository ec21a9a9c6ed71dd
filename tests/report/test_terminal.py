"""The report for people: the answer first, assumptions last, and no escape code where none belongs."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from tests.cli.support import LLAMA_8B, LLAMA_70B, WHY, data, flopmap, text, why, write_config

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SAID = {
    "phase": ("--phase", "decode"),
    "batch": ("--batch-size", "1"),
    "context": ("--context-len", "2048"),
    "engine": ("--engine", "ideal"),
}


class Screen(io.StringIO):
    """A terminal that takes colour."""

    def isatty(self) -> bool:
        return True


def on_screen(monkeypatch: pytest.MonkeyPatch, **environment: str) -> str:
    from flopmap.cli.main import main

    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    for name, setting in {"TERM": "xterm-256color", **environment}.items():
        monkeypatch.setenv(name, setting)
    screen = Screen()
    monkeypatch.setattr("sys.stdout", screen)
    assert main([*WHY]) == 0
    return screen.getvalue()


def words_of(flags: Iterable[tuple[str, ...]]) -> list[str]:
    return [word for pair in flags for word in pair]


def test_the_first_line_is_the_answer() -> None:
    first, second, *_ = text(*WHY, "--context-len", "2048").splitlines()
    assert first == (
        "4.564 ms a step at the floor on h100-sxm (219.1 tokens/s): memory bandwidth binds, 100% of the time"
    )
    assert second == "meta-llama/Llama-3.1-8B (bf16) on h100-sxm | decode, batch 1, context 2,048 | engine: ideal"


def test_the_first_line_of_a_measurement_is_its_distance() -> None:
    first = text(*WHY, "--context-len", "2048", "--tpot", "12.5ms").splitlines()[0]
    assert first.startswith("12.50 ms a step is 2.739x the floor of 4.564 ms; likeliest cause: ")


def test_faster_than_the_device_floor_is_impossible() -> None:
    first = text(*WHY, "--context-len", "2048", "--tpot", "1ms").splitlines()[0]
    assert first == "Impossible: 1.000 ms a step beats the device floor of 4.535 ms on h100-sxm"


def test_between_device_and_operation_floor_is_not_impossible() -> None:
    measured = why("--context-len", "2048", "--tpot", "4.55ms")
    assert measured["measured_over_floor"] < 1 < measured["measured_over_device_floor"]
    assert measured["cause"] != "impossible input"


def test_70b_on_80_gb_does_not_fit_and_the_floor_is_still_given() -> None:
    first = text("why", LLAMA_70B, "--on", "h100-sxm", "--context-len", "2048").splitlines()[0]
    assert first.startswith("Does not fit: 138.0 GB of weights and 671.1 MB of cache in 80.00 GB; ")
    assert " ms a step at the floor on h100-sxm (" in first
    assert "memory bandwidth binds" in first


def test_what_was_not_said_is_assumed_aloud() -> None:
    assumed = [line for line in text(*WHY).splitlines() if line.startswith("assumed: ")]
    assert [line.removeprefix("assumed: ") for line in assumed] == why()["assumptions"]
    for word in SAID:
        assert any(word in line for line in assumed), word


@pytest.mark.parametrize("word", SAID)
def test_what_was_said_is_not_assumed(word: str) -> None:
    others = words_of(flags for name, flags in SAID.items() if name != word)
    notes = why(*others)["assumptions"]
    assert len(notes) == 1
    assert word in notes[0]
    assert why(*words_of(SAID.values()))["assumptions"] == []


def test_a_config_without_data_type_is_assumed_bf16_aloud(tmp_path: Path) -> None:
    path = write_config(tmp_path, torch_dtype=None)
    answer = data("why", path, "--on", "h100", *words_of(SAID.values()))
    assert answer["assumptions"] == ["data type bf16: the config names none"]
    assert data("why", path, "--on", "h100", "--dtype", "bf16", *words_of(SAID.values()))["assumptions"] == []


def test_a_data_type_that_the_part_has_not_is_replaced_aloud() -> None:
    answer = data("why", "gpt2", "--on", "tpu-v5e", "--context-len", "512")
    assert answer["scenario"]["dtype"] == "bf16"
    assert "data type bf16: tpu-v5e does not compute in fp32, the config's" in answer["assumptions"]


def test_a_context_beyond_the_table_of_positions_is_said() -> None:
    note = "2048 tokens go beyond the model's table of 1024 positions"
    assert note in data("why", "gpt2", "--on", "l4")["assumptions"]
    assert note not in data("why", "gpt2", "--on", "l4", "--context-len", "1024")["assumptions"]


def test_input_and_output_length_set_the_mean_context() -> None:
    answer = why("--input-len", "1000", "--output-len", "200")
    assert answer["scenario"]["context_len"] == 1100
    assert any("context 1100 tokens: input length and half of the output" in note for note in answer["assumptions"])


def test_the_conventions_in_force_are_printed() -> None:
    line = next(
        line for line in text(*WHY, "--convention", "mask=full").splitlines() if line.startswith("conventions: ")
    )
    assert " mask=full " in line.replace("conventions:", " ").replace("  ", " ")
    assert line.endswith("; a multiply-add is 2 FLOP, GB is 1e9")


def test_no_escape_codes_where_it_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    assert "\x1b" not in text(*WHY)
    assert "\x1b" not in text(*WHY, "--markdown")


def test_a_terminal_gets_a_bold_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert on_screen(monkeypatch).startswith("\x1b[1m4.56")


@pytest.mark.parametrize(
    "environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}], ids=str
)
def test_no_escape_codes_where_they_are_not_wanted(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "\x1b" not in on_screen(monkeypatch, **environment)


@pytest.mark.parametrize("phase", ["decode", "prefill", "mixed"])
def test_tables_of_every_phase(phase: str) -> None:
    report = text(*WHY, "--phase", phase)
    for title in ("Time of a step", "Where the floor goes", "What governs it", "Account of the step"):
        assert f"\n{title}" in report
    for number in ("inf", "nan", "None"):
        assert f" {number} " not in report


def test_every_way_to_ask_prints_something_else() -> None:
    answers = {flopmap(*WHY, *flags).out for flags in ((), ("--json",), ("--markdown",), ("--explain", "lm_head"))}
    assert len(answers) == 4
    assert LLAMA_8B in flopmap(*WHY, "--json").out
