"""Build hook: turns the YAML that authors write into the one JSON that programs read."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BookBuildHook(BuildHookInterface[Any]):
    """Writes ``book.json`` beside the YAML, for a wheel and for an editable install alike."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002  hatchling's signature
        """Build the book before the files of the wheel are collected."""
        source = Path(self.root, "src")
        sys.path.insert(0, str(source))
        try:
            author = importlib.import_module("flopmap.records.author")
        finally:
            sys.path.remove(str(source))
        book = source / "flopmap" / "book"
        replace(book / "book.json", author.build(book))


def replace(path: Path, content: bytes) -> None:
    """Write a file in one step, so that a process that reads it at the same time sees the old one or the new one."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(content)
    part.replace(path)
