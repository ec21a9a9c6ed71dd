"""A step reduced to its sums: one forward pass over a batch of any composition.

A step is a few groups of like sequences. Its statistics (tokens, query-key pairs, cached tokens read ...) are formulas
of the glossary, summed over the groups; every cost is written in them. Numbers may be NumPy arrays: then one step
stands for as many scenarios as the arrays have elements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import msgspec

from flopmap.records.formula import SCALAR, bind, code, compiled, operate
from flopmap.records.resolve import parse_once

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from flopmap.records.notation import Expr
    from flopmap.records.types import Glossary

Phase: TypeAlias = Literal["encode", "prefill", "decode"]
Level: TypeAlias = Literal["scale-up", "scale-out"]
PHASES: tuple[Phase, ...] = ("encode", "prefill", "decode")
MAIN = ""  # the stack of layers that has no name: the language model's, or the only one
CROSSED = "(crossed)"  # in place of a stack: layers that only attend to another stack run
Number: TypeAlias = Any  # int, float, or a NumPy array of either


class ScenarioError(ValueError):
    """A scenario that makes no sense. One line that names the flag, its value and what is accepted."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """``count`` sequences that each process ``new`` tokens after ``past`` cached ones; ``positions`` want logits.

    ``stack`` names the layers that they go through; they attend to ``memory`` tokens that another stack encoded.
    """

    count: Number
    new: Number
    past: Number
    positions: Number = 1
    memory: Number = 0
    phase: Phase
    stack: str = MAIN


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One forward pass."""

    groups: tuple[Group, ...]

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases of the main stack, in the order of a sequence's life."""
        present = {group.phase for group in self.groups if group.stack == MAIN}
        return tuple(phase for phase in PHASES if phase in present)

    @property
    def stacks(self) -> frozenset[str]:
        """The stacks that run, and whether the main layers have encoded tokens to attend to."""
        crossed = any(
            group.stack == MAIN and not (isinstance(group.memory, int) and group.memory == 0) for group in self.groups
        )
        return frozenset((*(group.stack for group in self.groups), *((CROSSED,) if crossed else ())))


class Statistic(NamedTuple):
    """A sum over the step: a glossary symbol, over one phase or all, under a layer's window (or chunk) or none.

    It is the sum over one stack's groups.
    """

    symbol: str
    phase: Phase | None = None
    window: int | None = None
    chunked: bool = False
    stack: str = MAIN

    @property
    def name(self) -> str:
        """The name of the sum as an argument of compiled formulas."""
        return "_".join(
            str(part)
            for part in (self.symbol, self.stack, self.phase, self.window, "chunk" if self.chunked else None)
            if part not in (None, MAIN)
        )


def decode_step(batch: Number, context: Number) -> Step:
    """``batch`` sequences that each produce a token and attend to ``context`` tokens, the new one included."""
    return Step(groups=(Group(count=batch, new=1, past=context - 1, phase="decode"),))


def prefill_step(batch: Number, tokens: Number, cached: Number = 0) -> Step:
    """``batch`` prompts of which ``tokens`` tokens are processed after ``cached`` ones that the cache already holds."""
    return Step(groups=(Group(count=batch, new=tokens, past=cached, phase="prefill"),))


def mixed_step(batch: Number, context: Number, tokens: Number, cached: Number = 0) -> Step:
    """A decode batch and one prompt chunk in the same pass, as chunked prefill runs them."""
    return Step(groups=(*prefill_step(1, tokens, cached).groups, *decode_step(batch, context).groups))


def encode_step(batch: Number, tokens: Number, positions: Number = 1) -> Step:
    """``batch`` sequences through an encoder, with no cache before or after."""
    return Step(groups=(Group(count=batch, new=tokens, past=0, positions=positions, phase="encode"),))


def formula(statistic: Statistic, glossary: Glossary, conventions: Mapping[str, str]) -> Expr:
    """The statistic of one sequence, as a formula of ``new``, ``past``, ``positions`` and ``memory``."""
    symbol = glossary.symbols[statistic.symbol]
    written = symbol.sum
    for convention, readings in symbol.conventions.items():
        written = readings.get(conventions.get(convention, ""), written)
    if statistic.window is None or not symbol.windowed or (written != symbol.sum):
        return parse_once(written)
    within = symbol.chunked if statistic.chunked and symbol.chunked else symbol.windowed
    return bind(parse_once(within), {"window": statistic.window})


def statistics_function(
    wanted: Sequence[Statistic],
    glossary: Glossary,
    conventions: Mapping[str, str],
    namespace: Mapping[str, Any] = SCALAR,
) -> Callable[[Step], list[Number]]:
    """A function from a step to its sums, in the order wanted. ``namespace``: :func:`array_namespace` for arrays."""
    outputs = [operate("*", "count", formula(statistic, glossary, conventions)) for statistic in wanted]
    function = compiled(code(outputs, ("count", "new", "past", "positions", "memory")), namespace)

    def sums(step: Step) -> list[Number]:
        added: list[Number] = [0] * len(wanted)
        for group in step.groups:
            values = function(group.count, group.new, group.past, group.positions, group.memory)
            for index, statistic in enumerate(wanted):
                if statistic.stack == group.stack and statistic.phase in (None, group.phase):
                    added[index] = added[index] + values[index]
        return added

    return sums
