"""Every model's config can be read, and every lever sets fields that a scenario has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from flopmap.model.config import ConfigError
from flopmap.model.reading import from_config
from flopmap.records.types import Lever, Model, OpClass
from flopmap.scenario import Request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopmap.records.author import Source
    from flopmap.records.book import Book
    from flopmap.records.yaml_file import Problem


def check(book: Book, source: Source) -> Iterator[Problem]:
    """The faults of all models and levers."""
    for record_id, file in source.records["models"].items():
        try:
            from_config(book.record(Model, record_id).config, record_id)
        except ConfigError as error:
            field, _, message = str(error).removeprefix(f"{record_id}: ").partition(": ")
            yield file.problem(("config", field), message)
    for record_id, file in source.records["levers"].items():
        for gate in book.record(Lever, record_id).gates:
            if book.find("flops", gate) != gate or book.record(OpClass, gate).kind != "gate":
                yield file.problem(("gates", gate), f"no gate {gate!r}", "use a flops record of kind gate")
        for field, value in book.record(Lever, record_id).set.items():
            try:
                msgspec.convert(
                    {"model": "any", "on": "any", field: value}, Request, strict=True, from_attributes=False
                )
            except msgspec.ValidationError as error:
                yield file.problem(("set", field), str(error).partition(" - at")[0])
                continue
            if field not in Request.__struct_fields__:
                fix = f"use one of {', '.join(sorted(Request.__struct_fields__))}"
                yield file.problem(("set", field), "a scenario has no such field", fix)
