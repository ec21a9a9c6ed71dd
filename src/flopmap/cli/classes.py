"""``flopmap classes``: operation classes by kind and bound, and which of them run on a part under an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from flopmap.cli import records
from flopmap.records.book import Book, load, to_data, to_json
from flopmap.records.types import Bound, OpClass

if TYPE_CHECKING:
    import argparse

    from flopmap.cli.main import Parser
    from flopmap.records.condition import Fact

CLASS_KINDS = ("cost", "lever", "gate", "advice", "trap", "comparison")
EXAMPLES = """\
examples:
  flopmap classes decode-attention
  flopmap classes --kind gate
  flopmap classes --available-on rtx-5090 --engine vllm
"""


def add_arguments(parser: Parser, name: str) -> None:
    """An id or a word, filters, and the part and engine to ask for."""
    records.add_arguments(parser, name)
    parser.epilog = EXAMPLES
    parser.add_argument("--kind", dest="of_kind", choices=CLASS_KINDS, help="only this kind")
    parser.add_argument("--bound-by", choices=get_args(Bound), help="only those that this binds")
    parser.add_argument("--available-on", metavar="PART", help="which gates are open on a part, and why")
    parser.add_argument("--engine", help="with --available-on: the engine")
    parser.add_argument("--model", help="with --available-on: the model")


def run(options: argparse.Namespace) -> int:
    """One record, a list, or the gates of a part."""
    if options.available_on or options.engine or options.model:
        return _gates(options)
    if not (options.of_kind or options.bound_by):
        return records.run(options)
    book = load(tuple(options.book))
    found = [
        to_data(record)
        for record in (book.record(OpClass, name) for name in book.ids("flops"))
        if options.of_kind in (None, record.kind) and options.bound_by in (None, record.bound_by)
    ]
    if options.id:
        found = [record for record in found if options.id.lower() in to_json(record).lower()]
    if options.json:
        print(to_json(found))
    else:
        records.listed(found)
    return 0


def _gates(options: argparse.Namespace) -> int:
    """Every gate's answer for a part, those that are open first."""
    from flopmap.facts import availability

    book = load(tuple(options.book))
    known = _known(options, book)
    gates = [record for record in (book.record(OpClass, name) for name in book.ids("flops")) if record.available]
    answers = [(record, availability(record, known)) for record in gates]
    order = ("yes", "emulated", "no", "unknown")
    answers.sort(key=lambda pair: order.index(pair[1].answer))
    if options.json:
        data = [{"id": gate.id, "title": gate.title, "answer": it.answer, "why": it.why} for gate, it in answers]
        print(to_json(data))
        return 0
    counts = ", ".join(f"{sum(it.answer == word for _, it in answers)} {word}" for word in order)
    where = " ".join(filter(None, (options.available_on, options.engine and f"under {options.engine}")))
    print(f"{len(answers)} gates{f' on {where}' if where else ''}: {counts}")
    width = max(len(gate.title) for gate, _ in answers)
    for gate, it in answers:
        print(f"  {it.answer:8}  {gate.title:{width}}  {it.why}  [{gate.id}]")
    return 0


def _known(options: argparse.Namespace, book: Book) -> dict[str, Fact]:
    from flopmap.facts import model_facts, part_facts
    from flopmap.records.types import Engine, Part

    known: dict[str, Fact] = {}
    if options.available_on:
        known |= part_facts(book.record(Part, options.available_on))
    if options.engine:
        known["engine"] = book.record(Engine, options.engine).id
    if options.model:
        from flopmap.model.reading import read_model

        known |= model_facts(read_model(options.model, book).architecture)
    return known
