"""A verdict for a terminal."""

from __future__ import annotations

import io
import os
import shutil
from typing import TYPE_CHECKING

from flopmap.report import content

if TYPE_CHECKING:
    from typing import TextIO

    from flopmap.diagnosis.verdict import Verdict


WIDTH = 132  # where there is no terminal to ask


def write(verdict: Verdict, out: TextIO) -> None:
    """The answer, then the evidence. Colour only where the terminal has it and NO_COLOR is not set."""
    _draw(out, verdict, answer=True)


def write_evidence(verdict: Verdict, out: TextIO) -> None:
    """The tables and footnotes, below an answer that is written already."""
    _draw(out, verdict, answer=False)


def _draw(out: TextIO, verdict: Verdict, *, answer: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    plain = bool(os.environ.get("NO_COLOR")) or not out.isatty()
    written = io.StringIO()
    console = Console(
        file=written,
        highlight=False,
        width=WIDTH if plain else shutil.get_terminal_size().columns,
        force_terminal=not plain,
        color_system=None if plain else "auto",
    )
    if answer:
        console.print(Text(content.headline(verdict), style="bold"), soft_wrap=True)
        for line in content.paragraphs(verdict):
            console.print(Text(line), soft_wrap=True)
    for table in content.tables(verdict):
        if not table.rows:
            continue
        drawn = Table(
            show_header=any(table.columns),
            title=table.title,
            title_justify="left",
            title_style="bold",
            box=None,
            pad_edge=False,
            padding=(0, 2, 0, 0),
        )
        for index, column in enumerate(table.columns):
            drawn.add_column(column, style="" if index else "cyan", justify="left", overflow="fold")
        for row in table.rows:
            drawn.add_row(*(Text(cell) for cell in row))
        console.print()
        console.print(drawn)
    console.print()
    for line in content.footnotes(verdict):
        console.print(Text(line, style="dim"), soft_wrap=True)
    out.writelines(f"{line.rstrip()}\n" for line in written.getvalue().splitlines())
