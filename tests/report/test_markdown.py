"""The report for an issue: the answer in bold, then tables that every Markdown reader draws."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.cli.support import LLAMA_70B, WHY, flopmap, text, write_config

if TYPE_CHECKING:
    from pathlib import Path

CASES = {
    "decode": WHY,
    "prefill": (*WHY, "--phase", "prefill", "--input-len", "4096"),
    "mixed": (*WHY, "--phase", "mixed", "--engine", "vllm"),
    "measured": (*WHY, "--tpot", "12.5ms"),
    "impossible": (*WHY, "--tpot", "1ms"),
    "too large": ("why", LLAMA_70B, "--on", "h100-sxm"),
    "windows": ("why", "google/gemma-2-2b", "--on", "rtx-4090", "--context-len", "8k"),
}
cases = pytest.mark.parametrize("case", CASES)
CELLS = re.compile(r"(?<!\\)\|")


@cases
def test_the_answer_comes_first_and_is_that_of_the_terminal(case: str) -> None:
    answer = text(*CASES[case]).splitlines()[0]
    assert text(*CASES[case], "--markdown").startswith(f"**{answer}**\n\n")


@cases
def test_every_table_has_equal_rows(case: str) -> None:
    blocks = [block for block in text(*CASES[case], "--markdown").split("\n\n") if block.startswith("|")]
    assert len(blocks) >= 4
    for block in blocks:
        head, rule, *rows = block.rstrip("\n").split("\n")
        width = len(CELLS.findall(head))
        assert rows
        assert re.fullmatch(r"\|( --- \|)+", rule)
        for row in (rule, *rows):
            assert row.startswith("|")
            assert row.endswith("|")
            assert len(CELLS.findall(row)) == width, row


@cases
def test_a_table_stands_under_its_title(case: str) -> None:
    report = text(*CASES[case], "--markdown")
    titles = re.findall(r"^### (.+)\n\n\|", report, re.MULTILINE)
    assert titles[:2] == ["Time of a step", "Where the floor goes"]
    assert titles[-1] == "Account of the step"
    assert report.count("\n### ") == len(titles)


def test_a_pipe_in_a_name_stays_in_its_cell(tmp_path: Path) -> None:
    folder = tmp_path / "a|b"
    folder.mkdir()
    report = flopmap("why", write_config(folder), "--on", "h100", "--markdown").out
    assert "a\\|b/config.json (bf16)" in report


def test_the_notes_are_a_list() -> None:
    last = text(*WHY, "--markdown").rstrip().split("\n\n")[-1].split("\n")
    assert len(last) >= 2
    assert all(line.startswith("- ") for line in last)
