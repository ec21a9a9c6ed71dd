"""Which record names which: every mention of a record in another, both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from flopmap.floor.roofline import price
from flopmap.records.book import to_data
from flopmap.records.kinds import KINDS
from flopmap.scenario import PHASE_NAMES, Request, make
from flopmap.step import ScenarioError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopmap.records.book import Book

ANY_PART = "h100-sxm"  # which op classes a model runs does not depend on the part
KIND_OF_FIELD = {"source": "sources", "part": "parts", "quantization": "formats", "kv_cache_dtype": "formats"}


class Key(NamedTuple):
    """A record by kind and id."""

    kind: str
    id: str


class Links(NamedTuple):
    """``named_by[record]`` are the records that name it, in order, each once; ``phases`` those of an op class."""

    names: dict[Key, tuple[Key, ...]]
    named_by: dict[Key, tuple[Key, ...]]
    phases: dict[str, tuple[str, ...]]


def links(book: Book) -> Links:
    """All mentions. A model names the op classes that it runs, which pricing it in each phase tells."""
    names: dict[Key, dict[Key, None]] = {}
    for kind in KINDS:
        for record_id in book.ids(kind):
            found = _mentions(to_data(book.get(kind, record_id)), kind, book)
            names[Key(kind, record_id)] = dict.fromkeys(key for key in found if key != (kind, record_id))
    phases: dict[str, set[str]] = {}
    for model in book.ids("models"):
        for phase, op_class in _runs(model, book):
            phases.setdefault(op_class, set()).add(phase)
            names[Key("models", model)][Key("flops", op_class)] = None
    named_by: dict[Key, list[Key]] = {key: [] for key in names}
    for key, mentioned in names.items():
        for other in mentioned:
            named_by[other].append(key)
    return Links(
        names={key: tuple(found) for key, found in names.items()},
        named_by={key: tuple(found) for key, found in named_by.items()},
        phases={name: tuple(phase for phase in PHASE_NAMES if phase in of) for name, of in phases.items()},
    )


def _mentions(data: Any, kind: str, book: Book) -> Iterator[Key]:
    """The records that a record's fields name."""
    if isinstance(data, list | tuple):
        for item in data:
            yield from _mentions(item, kind, book)
    elif isinstance(data, dict):
        for field, value in data.items():
            if field == "config":
                continue
            if field in ("see", "sources"):
                yield from _known(kind if field == "see" else "sources", value, book)
            elif field in KIND_OF_FIELD and isinstance(value, str):
                yield from _known(KIND_OF_FIELD[field], [value], book)
            else:
                yield from _mentions(value, kind, book)


def _known(kind: str, names: list[str], book: Book) -> Iterator[Key]:
    for name in names:
        found = book.find(kind, name)
        if found is not None:
            yield Key(kind, found)


def _runs(model: str, book: Book) -> Iterator[tuple[str, str]]:
    """The op classes that a model runs in each phase that it has."""
    for phase in ("decode", "prefill", "encode"):
        try:
            pricing = price(make(Request(model=model, on=ANY_PART, phase=phase), book), book)
        except ScenarioError:  # an encoder has no decode, a drafter runs with another model only
            continue
        for line in pricing.lines:
            if not line.line.op.idle:
                yield phase, line.line.op.op_class
