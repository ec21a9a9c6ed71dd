"""The kinds of records: the folder of each, and its type."""

from __future__ import annotations

from flopmap.records.kernels import Efficiency, KernelWork
from flopmap.records.types import (
    Claims,
    Crossover,
    Engine,
    Format,
    Law,
    Lever,
    MachineRecord,
    Model,
    OpClass,
    Part,
    Reading,
    Record,
    Source,
    Spread,
    Trap,
)

KINDS: dict[str, type[Record]] = {
    "flops": OpClass,
    "laws": Law,
    "parts": Part,
    "machines": MachineRecord,
    "models": Model,
    "engines": Engine,
    "formats": Format,
    "levers": Lever,
    "readings": Reading,
    "measurements": Spread,
    "crossovers": Crossover,
    "efficiency": Efficiency,
    "traps": Trap,
    "kernels": KernelWork,
    "claims": Claims,
    "sources": Source,
}
AUTHORED = ("claims",)  # kinds that only `flopmap check` reads: no part of the built book
