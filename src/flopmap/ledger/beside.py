"""The ops of what runs beside a model: the passes of a drafter, and adapters on its matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from flopmap.decoding import FIRST, LATER
from flopmap.ledger.op import Op
from flopmap.ledger.ops import operations
from flopmap.step import MAIN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopmap.adapters import Adapters
    from flopmap.decoding import Speculation
    from flopmap.model.architecture import Architecture
    from flopmap.step import Phase


def drafting(speculation: Speculation, phases: tuple[Phase, ...]) -> Iterator[Op]:
    """The drafter's ops: those of its first pass, which hold its weights and cache, and those of all later passes."""
    if speculation.drafter is None:
        return
    architecture = speculation.drafter.architecture
    heads = architecture.layers
    if speculation.method == "medusa":
        architecture = replace(architecture, layers=heads[: speculation.tokens])
    yield from _pass(architecture, phases)
    if speculation.method == "medusa":
        for op in operations(replace(architecture, layers=heads[speculation.tokens :]), phases):
            yield replace(op, name=f"{FIRST}.{op.name}", stack=FIRST, idle=True)
    if speculation.passes > 1:
        for op in operations(replace(architecture, stacks=()), ("decode",)):
            again = op.count * (speculation.passes - 1)
            yield replace(op, name=f"{LATER}.{op.name}", stack=LATER, count=again, again=True)


def _pass(architecture: Architecture, phases: tuple[Phase, ...]) -> Iterator[Op]:
    stacks = {MAIN, *(stack.name for stack in architecture.stacks)}
    for op in operations(architecture, phases, stacks):
        yield replace(op, name=f"{FIRST}.{op.name}", stack=FIRST)


def adapting(adapters: Adapters) -> Iterator[Op]:
    """A narrow pair beside every matrix that has adapters."""
    for adapted in adapters.adapted:
        shapes = (("d_in", adapted.d_in), ("d_out", adapted.d_out), ("rank", adapters.rank), ("loras", adapters.loaded))
        yield Op(name=f"lora.{adapted.name}", op_class="lora", shapes=shapes, count=adapted.count)
