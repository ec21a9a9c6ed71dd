"""What a table of kernels comes to: rows and ratios by part, kernel and type, and every row that beats its floor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from flopmap.audit.distribution import Distribution
from flopmap.audit.kernel_names import WORDS
from flopmap.audit.kernels import BIG, Priced, price
from flopmap.audit.tables import Labels, blocks
from flopmap.machine.machine import on_chip_bytes

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from flopmap.audit.tables import Block
    from flopmap.records.book import Book

SHOWN = ("batch", "batch_size", "heads", "num_heads", "kv_heads", "num_key_value_heads", "head_dim", "m", "n", "k",
         "groups", "q_len", "kv_len", "isl", "step", "num_tokens", "hidden_size", "inter_size", "num_experts", "topk",
         "moe_tp_size", "moe_ep_size")  # fmt: skip
MAX_PLACES = 20  # of one reason


class Key(NamedTuple):
    """Rows of one kind."""

    part: str
    kernel: str
    dtype: str


class Group:
    """Rows of one kind: how many, how many beat a floor, and measured time over the kernel floor."""

    def __init__(self) -> None:
        self.ratios = Distribution()
        self.big = Distribution()  # working sets of more than BIG times the on-chip memory
        self.violations = 0
        self.beats_roofline = 0
        self.kept = 0  # of those, rows whose working set on-chip memory holds

    def add(self, priced: Priced) -> None:
        """Count rows."""
        ratios = priced.measured / priced.floor
        self.ratios.add(ratios)
        on_chip = on_chip_bytes(priced.part)
        self.big.add(ratios[priced.working_set > BIG * on_chip])
        self.violations += int((ratios < 1).sum())
        beats = priced.measured < priced.naive
        self.beats_roofline += int(beats.sum())
        self.kept += int((beats & (priced.working_set <= on_chip)).sum())


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """The row of a group of like rows that is furthest below its floor, and how many of the group are. Seconds."""

    part: str
    kernel: str
    dtype: str
    source: str
    rows: int
    file: str
    line: int
    shape: str
    measured: float
    floor: float

    @property
    def ratio(self) -> float:
        """Measured over floor, below 1."""
        return self.measured / self.floor


class Reason(msgspec.Struct):
    """Why rows were not priced: how many, and where the first of them stand."""

    why: str
    rows: int = 0
    places: list[str] = []


class KernelAudit:
    """Tables of kernels, block by block. Memory grows with the kinds of rows and not with the rows."""

    def __init__(self, book: Book) -> None:
        self.book = book
        self.rows = 0
        self.groups: dict[Key, Group] = {}
        self.unpriced: dict[str, Reason] = {}
        self._violations: dict[tuple[Key, str], Violation] = {}

    @property
    def priced(self) -> int:
        """How many rows have a floor."""
        return sum(group.ratios.rows for group in self.groups.values())

    @property
    def violations(self) -> list[Violation]:
        """The groups of rows that beat their floor, the furthest below it first."""
        return sorted(self._violations.values(), key=lambda violation: violation.ratio)

    def read(self, path: Path) -> None:
        """Hold a table against the floors. Raises :class:`TableError` when it cannot be read at all."""
        for block in blocks(path, WORDS):
            self._add(path, block)

    def _add(self, path: Path, block: Block) -> None:
        self.rows += block.rows + len(block.faults)
        for line, fault in block.faults:
            self._reason(fault, [f"{path.name}:{line}"], 1)
        for found in price(block, self.book):
            if not isinstance(found, Priced):
                self._reason(
                    found.why, [f"{path.name}:{block.lines[row]}" for row in found.rows[:MAX_PLACES]], len(found.rows)
                )
                continue
            key = Key(found.part.id, found.kernel, found.dtype)
            self.groups.setdefault(key, Group()).add(found)
            beaten = (found.measured < found.floor).nonzero()[0]
            if len(beaten):
                self._note(path, block, found, key, beaten)

    def _reason(self, why: str, places: list[str], rows: int) -> None:
        reason = self.unpriced.setdefault(why, Reason(why, 0, []))
        reason.rows += rows
        reason.places += places[: MAX_PLACES - len(reason.places)]

    def _note(self, path: Path, block: Block, found: Priced, key: Key, beaten: NDArray[np.int64]) -> None:
        """Keep the worst row of each group of rows of one kind and source."""
        for place in beaten:
            row = int(found.rows[place])
            source = " ".join(
                filter(None, (_word(block, name, row) for name in ("framework", "backend", "version", "kernel_source")))
            )
            before = self._violations.get((key, source))
            rows = before.rows + 1 if before else 1
            measured, floor = float(found.measured[place]), float(found.floor[place])
            if before and before.ratio <= measured / floor:
                self._violations[key, source] = msgspec.structs.replace(before, rows=rows)
                continue
            self._violations[key, source] = Violation(
                **key._asdict(),
                source=source,
                rows=rows,
                file=path.name,
                line=int(block.lines[row]),
                shape=_shape(block, row),
                measured=measured,
                floor=floor,
            )


def _word(block: Block, name: str, row: int) -> str:
    column: Labels | None = block.words.get(name)
    return column.names[column.codes[row]] if column else ""


def _shape(block: Block, row: int) -> str:
    cells: dict[str, Any] = {name: block.numbers[name][row] for name in SHOWN if name in block.numbers}
    return " ".join(f"{name}={value:g}" for name, value in cells.items() if value == value)  # noqa: PLR0124 - not NaN
