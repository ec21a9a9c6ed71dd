"""How well claims and tests hold the book's formulas: break each formula in every small way, and see who notices.

A mutant is the book with one formula changed: a number replaced, a symbol swapped for another of the same formula, a
term or a factor dropped, an operator turned round. It is an overlay, as a user would write one, put on the book. It is
caught when a claim no longer agrees, or when a test that takes nothing but the book fails.

    python tools/mutants.py                 every mutant, survivors listed; exit code 1 when less than 95% are caught
    python tools/mutants.py weight-gemm     only the formulas of records whose name has this in it
"""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from flopmap.checks import claims
from flopmap.records.book import BUILT, Book, Built, load
from flopmap.records.formula import FormulaError, parse
from flopmap.records.types import Glossary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flopmap.records.notation import Expr

ROOT = Path(__file__).resolve().parent.parent
ENOUGH = 0.95
# Modules whose tests of the form test_...(book) are run, those nearest to single formulas first.
SUITE = (
    "tests.physics.test_ops",
    "tests.physics.test_ops_of_mixtures",
    "tests.physics.test_ops_of_sparse_attention",
    "tests.physics.test_ops_of_encoders",
    "tests.physics.test_ops_of_drafts",
    "tests.physics.test_ops_of_plans",
    "tests.physics.test_laws",
    "tests.physics.test_kernel_time_reference",
    "tests.physics.test_kernel_times",
    "tests.physics.test_steps",
    "tests.physics.test_goldens",
    "tests.physics.test_levers",
    "tests.physics.test_floors",
    "tests.physics.test_least",
    "tests.physics.test_sensitivity",
    "tests.physics.test_peers",
    "tests.seed.test_floor_document",
)
ORACLES = ("meta-llama/Llama-3.2-1B", "google/gemma-2-2b", "openai-community/gpt2", "facebook/opt-350m")
OPPOSITE: dict[type[ast.operator], ast.operator] = {
    ast.Mult: ast.Div(),
    ast.Div: ast.Mult(),
    ast.Add: ast.Sub(),
    ast.Sub: ast.Add(),
    ast.FloorDiv: ast.Mult(),
    ast.Mod: ast.Mult(),
    ast.Pow: ast.Mult(),
}

Path_ = tuple[str, ...]
Check = tuple[str, "Callable[[Book], object]"]


class Mutant(NamedTuple):
    """One formula of one record (or of the glossary: kind ``symbols``, record ``""``) and what it is changed to."""

    kind: str
    record: str
    path: Path_
    before: str
    after: str

    @property
    def place(self) -> str:
        """The record, as a person would name it."""
        return f"{self.kind}/{self.record}" if self.record else f"{self.kind}/{self.path[1]}"

    def __str__(self) -> str:
        return f"{self.place}: {'.'.join(self.path)}: {self.before}  ->  {self.after}"


# -- changes of one formula -------------------------------------------------------------------------------------------


def mutations(text: str) -> list[str]:
    """Every small change of a formula, without those that read the same."""
    tree = ast.parse(text.strip(), mode="eval")
    nodes = list(ast.walk(tree.body))
    names = sorted({node.id for node in nodes if isinstance(node, ast.Name) and not _is_function(node, nodes)})
    found = [f"2 * {text}"] if isinstance(tree.body, ast.Name) else []
    for index, node in enumerate(nodes):
        if isinstance(node, ast.expr) and not _is_function(node, nodes):
            found += [_with(tree, index, other) for other in _others(node, names)]
    original = parse(text)
    return [change for change in dict.fromkeys(found) if _differs(change, original)]


def _differs(change: str, original: Expr) -> bool:
    """Whether a change is another formula; what the language does not take, such as an exponent of 17, is none."""
    try:
        return parse(change) != original
    except FormulaError:
        return False


def _is_function(node: ast.AST, nodes: list[ast.AST]) -> bool:
    return any(isinstance(other, ast.Call) and other.func is node for other in nodes)


def _others(node: ast.expr, names: list[str]) -> Iterator[ast.expr]:
    """What may stand in the place of a part of a formula."""
    match node:
        case ast.Constant(value=int() | float() as number):
            for other in (number + 1, number - 1):
                if other > 0:
                    yield ast.Constant(other)
        case ast.Name(id=name):
            yield from (ast.Name(other) for other in names if other != name)
        case ast.BinOp(left=left, op=operator, right=right):
            yield left
            yield right
            yield ast.BinOp(left, OPPOSITE[type(operator)], right)
        case ast.Call(func=ast.Name(id=function), args=arguments):
            yield from arguments
            if function in ("min", "max"):
                yield ast.Call(ast.Name("max" if function == "min" else "min"), arguments, [])


def _with(tree: ast.Expression, index: int, other: ast.expr) -> str:
    """The formula with its ``index``-th part (in the order of ``ast.walk``) replaced."""
    changed = copy.deepcopy(tree)
    old = list(ast.walk(changed.body))[index]

    class Put(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> Any:
            return other if node is old else self.generic_visit(node)

    return ast.unparse(ast.fix_missing_locations(Put().visit(changed)))


# -- all formulas of the book -----------------------------------------------------------------------------------------


def built_book() -> Built:
    """The built book of this checkout."""
    load()  # builds it again where the YAML is newer
    return msgspec.json.decode(Path(BUILT).read_bytes(), type=Built)


def mutants(built: Built) -> list[Mutant]:
    """Every mutant of every formula, in the order of the book."""
    return [
        Mutant(kind, record, path, text, after)
        for kind, record, path, text in formulas(built)
        for after in mutations(text)
    ]


def formulas(built: Built) -> Iterator[tuple[str, str, Path_, str]]:
    """Kind, record, path within the record and text of every formula that the program evaluates."""
    for record_id, raw in sorted(built.records["flops"].items()):
        data = msgspec.json.decode(raw)
        for table in ("define", "cost", "least", "conventions", "quantities"):
            for path, text in _texts(data.get(table, {}), (table,)):
                yield "flops", record_id, path, text
    for record_id, raw in sorted(built.records["laws"].items()):
        for name, quantity in msgspec.json.decode(raw)["quantities"].items():
            own = {key: quantity[key] for key in ("formula", "conventions") if key in quantity}
            for path, text in _texts(own, ("quantities", name)):
                yield "laws", record_id, path, text
    for name, symbol in built.glossary.symbols.items():
        own = {"sum": symbol.sum, "windowed": symbol.windowed, "conventions": symbol.conventions}
        for path, text in _texts(own, ("symbols", name)):
            yield "symbols", "", path, text


def _texts(value: Any, path: Path_) -> Iterator[tuple[Path_, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(item, (*path, key))
    elif value:
        yield path, str(value)


# -- one mutant -------------------------------------------------------------------------------------------------------


def changed(mutant: Mutant, built: Built) -> dict[str, Any]:
    """The mutant's record (or symbol), whole."""
    if mutant.kind == "symbols":
        data: dict[str, Any] = {
            "symbols": {mutant.path[1]: msgspec.to_builtins(built.glossary.symbols[mutant.path[1]])}
        }
    else:
        data = msgspec.json.decode(built.records[mutant.kind][mutant.record])
        del data["id"]
    table = data
    for key in mutant.path[:-1]:
        table = table[key]
    table[mutant.path[-1]] = mutant.after
    return data


def overlay(mutant: Mutant, built: Built, folder: Path) -> Path:
    """Write the folder that a user would give to ``--book`` to have this mutant. JSON is YAML."""
    place = f"{mutant.kind}/{mutant.record}" if mutant.record else mutant.kind
    file = folder / f"{place}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(changed(mutant, built), indent=1), "utf-8")
    return folder


def put_on(built: Built, mutant: Mutant) -> Book:
    """The book with the mutant: what ``load((overlay(...),))`` gives, which would read every file of the book again."""
    data = changed(mutant, built)
    if mutant.kind == "symbols":
        glossary = msgspec.to_builtins(built.glossary)
        glossary["symbols"].update(data["symbols"])
        return Book(msgspec.structs.replace(built, glossary=msgspec.convert(glossary, Glossary)))
    raw = msgspec.Raw(msgspec.json.encode({**data, "id": mutant.record}))
    records = {**built.records, mutant.kind: {**built.records[mutant.kind], mutant.record: raw}}
    return Book(msgspec.structs.replace(built, records=records))


def checks() -> list[Check]:
    """The checks that may catch a mutant: the claims, the tests that take nothing but the book, and torch's counts.

    Tests over random input are left out: a mutant is to be caught the same way each time, and soon.
    """
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    found: list[Check] = [("claims", _claims)]
    for name in SUITE:
        for title, function in inspect.getmembers(importlib.import_module(name), inspect.isfunction):
            own = function.__module__ == name and title.startswith("test_")
            if own and not hasattr(function, "hypothesis") and list(inspect.signature(function).parameters) == ["book"]:
                found.append((title, function))
    found += [(model, _held_against_torch(model)) for model in ORACLES]
    return found


def _held_against_torch(model: str) -> Callable[[Book], object]:
    """The check that a model counts as torch counts it, from the oracle's table of truths."""
    oracle = importlib.import_module("tests.test_oracle")
    truth = next(entry.values[0] for entry in oracle.entries("dense.json") if entry.id == model)

    def check(book: Book) -> object:
        return oracle.held_against(truth, model, book)

    return check


def _claims(book: Book) -> None:
    wrong = [judgement.id for judgement in claims.judge(book) if judgement.verdict != "agrees"]
    if wrong:
        raise AssertionError(wrong)


def caught(book: Book, suite: list[Check]) -> str:
    """The first check that fails on a book, or an empty string."""
    for name, check in suite:
        try:
            check(book)
        except Exception:  # noqa: BLE001 - a mutant may fail in any way: a wrong number, a division by zero ...
            return name
    return ""


def main(words: list[str]) -> int:
    """Run every mutant whose record has one of the words in its name."""
    began = time.perf_counter()
    built, suite = built_book(), checks()
    untouched = caught(Book(built), suite)
    if untouched:
        print(f"the book itself fails: {untouched}")
        return 1
    everyone = [mutant for mutant in mutants(built) if not words or any(word in mutant.place for word in words)]
    survivors, totals, dead, by_claims = [], Counter[str](), Counter[str](), 0
    for mutant in everyone:
        by = caught(put_on(built, mutant), suite)
        if by:  # what caught this one is likely to catch the next: it changes the same formula
            suite.insert(1, suite.pop(max(1, [name for name, _ in suite].index(by))))
        else:
            survivors.append(mutant)
        totals[mutant.place] += 1
        dead[mutant.place] += bool(by)
        by_claims += by == "claims"
    for place, total in totals.items():
        print(f"{place:32} {dead[place]:4} of {total:4} caught")
    print(*(["", "survivors:", *map(str, survivors)] if survivors else []), sep="\n")
    share = sum(dead.values()) / max(1, len(everyone))
    print(
        f"{sum(dead.values())} of {len(everyone)} mutants caught ({share:.1%}), {by_claims} of them by claims, "
        f"the others by {len(suite) - 1} tests, in {time.perf_counter() - began:.0f} s"
    )
    return 0 if share >= ENOUGH else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
