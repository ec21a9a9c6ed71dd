"""The examples of the documents: the commands in their console blocks, and the output pasted below them.

A block of ``console`` holds commands (``$ flopmap ...``), each with its output below it or with none. A last line
``...`` says that the output goes on. ``python tests/docs/examples.py`` renews what is pasted.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from flopmap.cli.main import main

ROOT = Path(__file__).resolve().parent.parent.parent
DOCUMENTS = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
OVERLAY = "my-book"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 28,
    "num_attention_heads": 24,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}


class Example(NamedTuple):
    """One command of a document, the output lines pasted below it, and whether the output goes on."""

    document: str
    command: str
    shown: tuple[str, ...]
    goes_on: bool

    @property
    def words(self) -> list[str]:
        """The arguments of ``flopmap``."""
        return shlex.split(self.command, comments=True)[1:]


def blocks(document: Path, language: str) -> list[str]:
    """The bodies of a document's fenced blocks of a language."""
    return [match["body"] for match in BLOCK.finditer(document.read_text()) if match["language"] == language]


def examples(document: Path) -> list[Example]:
    """The commands of a document that call flopmap, in order."""
    found = []
    for block in blocks(document, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *lines = part.rstrip("\n").split("\n")
            goes_on = lines[-1:] == ["..."]
            shown = tuple(lines[:-1] if goes_on else lines)
            called = command.removeprefix("uv run ")
            if called.startswith("flopmap "):
                found.append(Example(document.name, called, shown, goes_on))
    return found


def all_examples() -> list[Example]:
    """The commands of all documents."""
    return [example for document in DOCUMENTS for example in examples(document)]


def overlay_files() -> dict[str, str]:
    """The YAML files that CONTRIBUTING.md shows, by the path in their first line."""
    shown = blocks(ROOT / "CONTRIBUTING.md", "yaml")
    return {block.split("\n", 1)[0].removeprefix("# "): block for block in shown}


def furnish(folder: Path) -> None:
    """Put what the examples need into a folder: a config.json, and the overlay of CONTRIBUTING.md."""
    (folder / "config.json").write_text(json.dumps(CONFIG))
    for name, text in overlay_files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def run(words: list[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of one command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as leave:
            code = int(leave.code or 0)
    return code, out.getvalue(), err.getvalue()


def output(example: Example) -> list[str]:
    """The lines that an example prints, without the spaces at their ends."""
    return [line.rstrip() for line in run(example.words)[1].rstrip("\n").split("\n")]


def renew(document: Path) -> None:
    """Put the present output below each command that has output pasted below it."""
    text = document.read_text()
    for example in examples(document):
        if not example.shown:
            continue
        lines = output(example)
        fresh = lines[: len(example.shown)] if example.goes_on else lines
        before, after = ("\n".join((f"$ {example.command}", *shown)) for shown in (example.shown, fresh))
        text = text.replace(before, after)
    document.write_text(text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        furnish(Path(scratch))
        os.chdir(scratch)
        for name in DOCUMENTS:
            renew(name)
    sys.exit(0)
