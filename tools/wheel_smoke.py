"""The wheel alone: built, installed with its dependencies into an empty environment, and asked two things.

It shows what an editable install cannot: that the wheel holds the book, that the run-time dependencies are complete,
and that nothing reads the source tree.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BOOK = "flopmap/book/"
WHY = ("why", "meta-llama/Llama-3.1-8B", "--on", "h100-sxm", "--json")
SCHEMA_VERSION = 1
LIMIT_SECONDS = 600


class SmokeError(Exception):
    """The wheel does not do what it should; the text says what and why."""


def run(folder: Path, *command: str | Path) -> str:
    """Run a command in a folder and return what it printed.

    Raises:
        SmokeError: its exit code is not 0.
    """
    # No environment variable may lead back to the source tree.
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=folder, env=clean, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    if done.returncode:
        raise SmokeError(f"`{' '.join(words)}` ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def build(folder: Path, python: Path) -> Path:
    """Build the wheel and check that it carries the book, as YAML and as JSON.

    Raises:
        SmokeError: it cannot be built, or a file is missing.
    """
    run(folder, python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    (wheel,) = folder.glob("flopmap-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    if f"{BOOK}book.json" not in names:
        raise SmokeError(f"{wheel.name} has no {BOOK}book.json: the build hook did not write it")
    if not any(name.startswith(BOOK) and name.endswith(".yaml") for name in names):
        raise SmokeError(f"{wheel.name} has no YAML below {BOOK}")
    return wheel


def check_why(text: str) -> None:
    """Check the answer of ``why --json``.

    Raises:
        SmokeError: it is not JSON of the expected version.
    """
    try:
        answer = json.loads(text)
    except json.JSONDecodeError as error:
        raise SmokeError(f"`flopmap {' '.join(WHY)}` printed no JSON ({error}): {text[:200]!r}") from error
    found = answer.get("schema_version") if isinstance(answer, dict) else None
    if found != SCHEMA_VERSION:
        raise SmokeError(f"`flopmap {' '.join(WHY)}` has schema_version {found!r}, expected {SCHEMA_VERSION}")


def smoke(folder: Path) -> str:
    """Build, install and ask; return a sentence about it.

    Raises:
        SmokeError: one of the steps failed.
    """
    programs = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    venv.create(folder / "venv", with_pip=True)
    wheel = build(folder, programs / "python")
    run(folder, programs / "python", "-m", "pip", "install", "--quiet", wheel)
    version = run(folder, programs / "flopmap", "--version").strip()
    if wheel.name.split("-")[1] not in version:
        raise SmokeError(f"{wheel.name} answers --version with {version!r}")
    check_why(run(folder, programs / "flopmap", *WHY))
    return f"{wheel.name}, {wheel.stat().st_size / 1e3:.0f} kB: --version and why answer in an empty environment"


def main() -> int:
    """Run the smoke test; the exit code is 1 when it fails."""
    with tempfile.TemporaryDirectory(prefix="flopmap-wheel-") as name:
        try:
            print(f"wheel smoke test: {smoke(Path(name))}")
        except SmokeError as error:
            print(f"wheel smoke test failed: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
