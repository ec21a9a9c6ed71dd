"""Every condition can be read, asks for facts that there are, and compares them with values of their type."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from flopmap.facts import FACTS
from flopmap.records.condition import Combination, ConditionError, parse
from flopmap.records.types import OpClass, Trap

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopmap.records.author import Source
    from flopmap.records.book import Book
    from flopmap.records.condition import Comparison, Condition
    from flopmap.records.yaml_file import Problem

ORDERED = ("<", "<=", ">", ">=")
WORDS = {str: 'a "word"', float: "a number", bool: "true or false"}


def check(book: Book, source: Source) -> Iterator[Problem]:
    """The faults of all conditions."""
    for record_id, file in source.records["traps"].items():
        text = book.record(Trap, record_id).when
        if text:
            for message, fix in faults(text):
                yield file.problem(("when",), message, fix)
    for record_id, file in source.records["flops"].items():
        answers = book.record(OpClass, record_id).available
        for index, answer in enumerate(answers):
            for message, fix in faults(answer.when) if answer.when else ():
                yield file.problem(("available", index, "when"), message, fix)
            if not answer.when and index < len(answers) - 1:
                yield file.problem(("available", index), "the answers below it are never reached", "put it last")


def faults(text: str) -> Iterator[tuple[str, str]]:
    """What is wrong with one condition, and what would mend it."""
    try:
        condition = parse(text)
    except ConditionError as error:
        yield str(error), ""
        return
    for comparison in _comparisons(condition):
        known = FACTS.get(comparison.fact)
        if known is None:
            near = difflib.get_close_matches(comparison.fact, FACTS, n=1)
            yield f"no fact {comparison.fact!r}", f"use {near[0]}" if near else f"use one of {', '.join(FACTS)}"
            continue
        values = comparison.constant if isinstance(comparison.constant, tuple) else (comparison.constant,)
        for value in values:
            kind = float if type(value) is int else type(value)
            if kind is not known.kind or (comparison.symbol in ORDERED and kind is not float):
                yield (
                    f"{comparison.fact} {comparison.symbol} {value!r} compares {WORDS[known.kind]} with another kind",
                    f"give {WORDS[known.kind]}",
                )


def _comparisons(condition: Condition) -> Iterator[Comparison]:
    if isinstance(condition, Combination):
        for part in condition.parts:
            yield from _comparisons(part)
    else:
        yield condition
