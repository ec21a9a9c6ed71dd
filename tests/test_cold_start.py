"""A cold command imports only what it needs: start-up is a budget."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# What costs milliseconds and no answer in data needs, unless the interpreter, argparse or msgspec import it themselves.
HEAVY = (
    "numpy",
    "ruamel",
    "ruamel.yaml",
    "rich",
    "dataclasses",
    "inspect",
    "ast",
    "difflib",
    "typing_extensions",
    "importlib.metadata",
    "pathlib",
    "asyncio",
    "multiprocessing",
    "concurrent.futures",
    "http",
    "urllib.request",
    "ssl",
    "sqlite3",
    "unittest",
    "pydantic",
    "yaml",
    "torch",
    "transformers",
)
SCRIPT = """
import contextlib, io, sys
from flopmap.cli.main import main
with contextlib.redirect_stdout(io.StringIO()):
    try:
        code = main(sys.argv[1:])
    except SystemExit as leave:
        code = leave.code
print(__import__("json").dumps({"code": code or 0, "modules": sorted(sys.modules)}))
"""
QUESTION = "why meta-llama/Llama-3.1-8B --on h100-sxm --batch-size 1 --context-len 2048"


def modules(*words: str) -> set[str]:
    """Every module that a fresh process has imported after one command."""
    process = subprocess.run((sys.executable, "-I", "-c", SCRIPT, *words), capture_output=True, text=True, check=True)
    assert process.stderr == ""
    answer = json.loads(process.stdout)
    assert answer["code"] == 0
    return set(answer["modules"])


def of_what_it_stands_on() -> set[str]:
    """What comes with the interpreter, its site hooks (an editable install has one), argparse and msgspec."""
    script = "import argparse, msgspec, sys; print(*sys.modules)"
    process = subprocess.run((sys.executable, "-I", "-c", script), capture_output=True, text=True, check=True)
    return set(process.stdout.split())


@pytest.fixture(scope="module")
def bare() -> set[str]:
    return of_what_it_stands_on()


@pytest.mark.parametrize(
    "command",
    [
        f"{QUESTION} --json",
        f"{QUESTION} --tpot 12.5ms --json",
        f"{QUESTION} --phase prefill --engine vllm --json",
        f"{QUESTION} --markdown",
        "--version",
        "--help",
        "parts h100-sxm --json",
        "parts --ridge --json",
        "parts bandwidth>3TB/s --json",
        "machines p5.48xlarge --json",
        "models --json",
    ],
)
def test_a_cold_command_imports_nothing_heavy(command: str, bare: set[str]) -> None:
    assert modules(*command.split()) & set(HEAVY) - bare == set()


def test_the_version_reads_no_book() -> None:
    loaded = modules("--version")
    assert "msgspec" not in loaded
    assert {name for name in loaded if name.startswith("flopmap")} == {"flopmap", "flopmap.cli", "flopmap.cli.main"}


def test_why_reads_no_readers() -> None:
    loaded = modules(*QUESTION.split(), "--json")
    readers = {name for name in loaded if name.startswith("flopmap.diagnosis")}
    assert readers == {"flopmap.diagnosis", "flopmap.diagnosis.errors", "flopmap.diagnosis.verdict"}


def test_only_the_report_for_people_imports_rich() -> None:
    assert "rich" in modules(*QUESTION.split())
    assert "numpy" not in modules(*QUESTION.split())
