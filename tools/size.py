"""The size budgets: what the code measures, beside what it is allowed.

Two of them fail the run, because they never mend by themselves: a function of more than 60 lines and a module of more
than 400. The others are printed to be looked at. A function's docstring is not counted, so that nobody saves on it.
"""

from __future__ import annotations

import ast
import io
import statistics
import sys
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent
LONGEST_FUNCTION = 60
LONGEST_MODULE = 400
LONGEST_RECORD = 80

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


@dataclass(frozen=True, order=True)
class Sized:
    """Something with a number of lines, and where it is."""

    lines: int
    where: str


@dataclass(frozen=True)
class Module:
    """One Python file: its path, its text and its syntax tree."""

    path: str
    text: str
    tree: ast.Module


def modules(folder: str) -> list[Module]:
    """Every Python file below a folder that is not empty."""
    files = ((path, path.read_text("utf-8")) for path in sorted((ROOT / folder).rglob("*.py")))
    return [Module(str(path.relative_to(ROOT)), text, ast.parse(text, path)) for path, text in files if text.strip()]


def functions(module: Module) -> Iterator[Sized]:
    """Every function and method of a module, without its docstring."""
    for node in ast.walk(module.tree):
        if isinstance(node, Function):
            docstring = node.body[0] if ast.get_docstring(node) else None
            lines = span(node) - (span(docstring) if docstring else 0)
            yield Sized(lines, f"{module.path}:{node.lineno} {node.name}")


def span(node: ast.stmt) -> int:
    """The lines that a statement takes."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def documented(module: Module) -> Iterator[tuple[str, bool]]:
    """Every public name of a module, methods of public classes included, and whether it has a docstring."""
    yield module.path, bool(ast.get_docstring(module.tree))
    for node in public(module.tree.body):
        for each in (node, *(public(node.body) if isinstance(node, ast.ClassDef) else ())):
            yield f"{module.path}:{each.lineno} {each.name}", bool(ast.get_docstring(each))


def public(body: Iterable[ast.stmt]) -> Iterator[Definition]:
    """The functions and classes of a body whose names do not start with an underscore."""
    return (node for node in body if isinstance(node, Definition) and not node.name.startswith("_"))


def records() -> list[Sized]:
    """Every record file of the book: those in the folders of the kinds."""
    files = sorted((ROOT / "src" / "flopmap" / "book").glob("*/**/*.yaml"))
    return [Sized(len(path.read_text("utf-8").splitlines()), str(path.relative_to(ROOT))) for path in files]


def filled(parts: Sequence[Module]) -> int:
    """The lines that are not blank."""
    return sum(bool(line.strip()) for module in parts for line in module.text.splitlines())


def comments(parts: Sequence[Module]) -> int:
    """The comments."""
    readers = (io.StringIO(module.text).readline for module in parts)
    return sum(token.type == tokenize.COMMENT for reader in readers for token in tokenize.generate_tokens(reader))


def row(what: str, found: str, budget: str) -> None:
    """Print one row: what it is, what is allowed, what was found."""
    print(f"  {what:<11}{budget:<40}{found}")


def sizes(what: str, sized: Sequence[Sized], budget: str) -> None:
    """Print the number, the median and the largest of some sizes."""
    if sized:
        median, largest = statistics.median(each.lines for each in sized), max(sized)
        row(what, f"{len(sized)}, median {median:g}, largest {largest.lines}: {largest.where}", budget)


def main() -> int:
    """Print the budgets; the exit code is 1 when a function or a module is too long."""
    code, tests = modules("src"), modules("tests")
    lengths = [each for module in code for each in functions(module)]
    pages = [Sized(len(module.text.splitlines()), module.path) for module in code]
    names = [each for module in code for each in documented(module)]
    bare = [where for where, has_docstring in names if not has_docstring]
    lines = filled(code)

    print("size budgets")
    sizes("functions", lengths, f"median <= 10, none > {LONGEST_FUNCTION}")
    sizes("modules", pages, f"median 100-200, none > {LONGEST_MODULE}")
    sizes("records", records(), f"<= {LONGEST_RECORD}, more where sources disagree")
    missing = f", missing: {', '.join(bare[:5])}" if bare else ""
    row("docstrings", f"{len(names) - len(bare)} of {len(names)}{missing}", "one a public name")
    row("tests", f"{filled(tests)} lines to {lines} of code", "at least as many lines as code")
    row("comments", f"{comments(code) / max(lines, 1):.1%}", "about 5% of the lines")

    too_long = [each for each in lengths if each.lines > LONGEST_FUNCTION]
    too_long += [each for each in pages if each.lines > LONGEST_MODULE]
    for each in too_long:
        print(f"too long: {each.lines} lines: {each.where}", file=sys.stderr)
    return 1 if too_long else 0


if __name__ == "__main__":
    sys.exit(main())
