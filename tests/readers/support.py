"""What the tests of the readers share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flopmap.diagnosis.readers.read import read_bytes

if TYPE_CHECKING:
    from flopmap.diagnosis.readers.run import Measurement, Run

FIXTURES = Path(__file__).parent / "fixtures"
NAMES = sorted(path.name for path in FIXTURES.iterdir())


def content(name: str) -> bytes:
    """A fixture's bytes."""
    return (FIXTURES / name).read_bytes()


def runs(name: str) -> tuple[Run, ...]:
    """A fixture's runs."""
    return read_bytes(content(name))


def figures(data: bytes) -> set[tuple[str, Measurement]]:
    """Every figure with its tool."""
    return {(run.tool, figure) for run in read_bytes(data) for figure in run.measurements}
