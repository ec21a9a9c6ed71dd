"""A verdict as Markdown, to be pasted into an issue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopmap.report import content

if TYPE_CHECKING:
    from flopmap.diagnosis.verdict import Verdict


def render(verdict: Verdict) -> str:
    """The answer in bold, then tables."""
    parts = [f"**{escape(content.headline(verdict))}**", *(escape(line) for line in content.paragraphs(verdict))]
    parts += [render_table(table) for table in content.tables(verdict) if table.rows]
    parts.append("\n".join(f"- {escape(line)}" for line in content.footnotes(verdict)))
    return "\n\n".join(parts) + "\n"


def render_table(table: content.Table) -> str:
    """A table under its title."""
    head = f"| {' | '.join(table.columns)} |\n|{' --- |' * len(table.columns)}"
    body = "\n".join(f"| {' | '.join(escape(cell) for cell in row)} |" for row in table.rows)
    return f"### {table.title}\n\n{head}\n{body}"


def escape(text: str) -> str:
    """Text that keeps its characters in a Markdown table."""
    return text.replace("|", "\\|").replace("#", "\\#") if "|" in text or "#" in text else text
