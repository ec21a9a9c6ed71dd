"""The program as a process: both ways to start it, a reader that leaves, a full disk, a poor terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.support import LLAMA_8B, WHY, flopmap

PROGRAM = (sys.executable, "-m", "flopmap")
SCRIPT = Path(sys.executable).with_name("flopmap")


def test_the_module_and_the_script_are_the_same_program() -> None:
    words = (*WHY, "--json")
    module = subprocess.run((*PROGRAM, *words), capture_output=True, text=True, check=True)
    script = subprocess.run((SCRIPT, *words), capture_output=True, text=True, check=True)
    assert module.stdout == script.stdout == flopmap(*words).out
    assert module.stderr == script.stderr == ""


def test_the_exit_code_of_the_process() -> None:
    wrong = subprocess.run((*PROGRAM, "why", LLAMA_8B, "--on", "zzzzzzzz"), capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert wrong.stdout == ""
    assert wrong.stderr == "flopmap why: error: unknown part 'zzzzzzzz' (all: flopmap parts)\n"


@pytest.mark.parametrize("words", [("models", "--json"), (*WHY, "--json"), (*WHY, "--markdown"), WHY], ids=" ".join)
def test_a_reader_that_leaves_is_no_error(words: tuple[str, ...]) -> None:
    with subprocess.Popen((*PROGRAM, *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode in (0, 1)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full disk to write to")
@pytest.mark.parametrize("words", [WHY, (*WHY, "--json")], ids=["report", "data"])
def test_a_full_disk_is_one_line(words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        process = subprocess.run((*PROGRAM, *words), stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert process.returncode == 1
    assert process.stderr == "flopmap why: error: cannot write: No space left on device\n"


@pytest.mark.parametrize(
    "flags", [("--explain", "mlp.down"), ("--markdown",), ()], ids=["explain", "markdown", "report"]
)
def test_a_terminal_of_ascii_is_served(flags: tuple[str, ...]) -> None:
    surroundings = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    process = subprocess.run((*PROGRAM, *WHY, *flags), capture_output=True, check=False, env=surroundings)
    assert process.stderr == b""
    assert process.returncode == 0
    assert process.stdout.isascii()
