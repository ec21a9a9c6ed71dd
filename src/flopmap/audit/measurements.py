"""A table of measurements held against device floors: which rows are impossible, and how far the others lie above."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from flopmap.audit.distribution import Distribution
from flopmap.audit.rows import Piece, Reading, RowError, read
from flopmap.audit.tables import TableError, csv_rows
from flopmap.floor.roofline import Pricer
from flopmap.machine.machine import Machine, MachineError, together
from flopmap.model.config import ConfigError
from flopmap.records.book import UnknownRecordError
from flopmap.records.formula import FormulaError
from flopmap.scenario import Request, make
from flopmap.step import ScenarioError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from flopmap.floor.roofline import Pricing
    from flopmap.records.book import Book

NOT_PRICED = (RowError, UnknownRecordError, ScenarioError, MachineError, ConfigError, FormulaError)
COLUMNS = ("hardware", "model", "metric", "value")
MORE_PARTS = (2, 4, 8)
NARROWER = ("fp8", "int4-group")
ROUNDED = 1.01  # a size is stated with about 3 figures
PER_TOKEN = 8.0  # tokens that speculative decoding brings in a step at best


class Unpriced(NamedTuple):
    """A row without a floor, and why."""

    line: int
    why: str


class Held(NamedTuple):
    """A row with its device floor in seconds, over all its pieces."""

    reading: Reading
    floor: float
    pricings: tuple[tuple[Pricing, int], ...]

    @property
    def ratio(self) -> float:
        """Measured over floor."""
        return self.reading.seconds / self.floor


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """A row that no correct implementation could measure, and which of its inputs would explain it. Seconds."""

    line: int
    hardware: str
    devices: int
    engine: str
    model: str
    metric: str
    value: str
    measured_seconds: float
    floor_seconds: float
    ratio: float
    likely: tuple[str, ...]


class Auditor:
    """Prices rows; scenarios that rows share are made once."""

    def __init__(self, book: Book) -> None:
        self.book = book
        self._pricers: dict[tuple[Any, ...], Pricer | Exception] = {}

    def hold(self, line: int, cells: dict[str, str]) -> Held | Unpriced:
        """A row with its floor, or why it has none."""
        try:
            return self._held(read(line, cells, self.book))
        except NOT_PRICED as error:
            return Unpriced(line, str(error))

    def _held(self, reading: Reading) -> Held:
        pricings = tuple((self._pricer(reading, piece)(piece.step), piece.times) for piece in reading.pieces)
        times = [pricing.device_seconds * runs for pricing, runs in pricings]
        return Held(reading, max(times) if reading.together else sum(times), pricings)

    def _pricer(self, reading: Reading, piece: Piece) -> Pricer:
        key = (
            piece.phase,
            reading.part,
            reading.devices,
            reading.model,
            reading.dtype,
            reading.quantization,
            reading.kv,
        )
        if key not in self._pricers:
            try:
                self._pricers[key] = self._made(reading, piece.phase)
            except NOT_PRICED as error:
                self._pricers[key] = error
        found = self._pricers[key]
        if isinstance(found, Exception):
            raise found
        return found

    def _made(self, reading: Reading, phase: str) -> Pricer:
        request = Request(
            model=reading.model, on=reading.part, dtype=reading.dtype, quantization=reading.quantization,
            kv_cache_dtype=reading.kv, engine=self.book.find("engines", reading.cells.get("engine", "").lower()),
            phase=phase, input_len=1,
        )  # fmt: skip
        try:
            scenario = make(request, self.book)
        except ScenarioError:
            scenario = make(replace(request, dtype="auto"), self.book)
        machine = Machine(part=together(scenario.machine.part, reading.devices))
        return Pricer(replace(scenario, machine=machine), self.book)

    # -- why a row beats its floor ------------------------------------------------------------------------------------

    def likely(self, held: Held) -> tuple[str, ...]:
        """The inputs that, when they are otherwise than the row says, make it possible; the likeliest first."""
        return tuple(_meanings(held)) + tuple(self._changes(held)) or ("no single input explains it",)

    def _changes(self, held: Held) -> Iterator[str]:
        reading = held.reading
        if reading.quantization not in NARROWER:
            for narrow in NARROWER:
                if self._possible(reading._replace(quantization=narrow, dtype="auto", kv="fp8")):
                    yield f"dtype: possible with {narrow} weights and an 8-bit cache"
                    break
        for more in MORE_PARTS:
            if self._possible(reading._replace(devices=reading.devices * more)):
                yield f"tensor parallelism: possible on {reading.devices * more} parts, the row says {reading.devices}"
                break

    def _possible(self, reading: Reading) -> bool:
        try:
            return self._held(reading).ratio >= 1
        except NOT_PRICED:
            return False


def _meanings(held: Held) -> Iterator[str]:
    """Other meanings of the row's numbers."""
    reading, metric, ratio = held.reading, held.reading.cells["metric"], held.ratio
    if metric == "e2e_tok_s_total":
        yield f"early stop: no more than {ratio:.0%} of the output tokens fit into the time"
    if metric in ("ttft_ms", "prefill_tok_s", "e2e_tok_s_total"):
        yield "prefix cache: part of the input was not processed"
    if metric == "decode_tok_s_per_user" and reading.batch > 1 and ratio * reading.batch >= 1:
        yield f"aggregate: the value is of the batch of {reading.batch}, not of one user"
    if metric in ("tpot_ms", "itl_ms", "decode_tok_s_per_user", "decode_tok_s_total"):
        if reading.batch > 1 and reading.static:
            yield f"batch: {reading.batch} may not be the sequences that ran at once"
        if ratio * PER_TOKEN >= 1:
            yield f"speculative decoding or MTP: possible with {1 / ratio:.2f} tokens a step"


# -- a table ----------------------------------------------------------------------------------------------------------


class Audit:
    """A table, row by row: what is impossible, what could not be priced, and the distribution of the rest."""

    def __init__(self, book: Book) -> None:
        self.auditor = Auditor(book)
        self.rows = 0
        self.priced = 0
        self.violations: list[Violation] = []
        self.unpriced: list[Unpriced] = []
        self.remarks: list[Unpriced] = []
        self.by: dict[str, dict[str, Distribution]] = {"part": {}, "engine": {}, "model": {}}

    def read(self, path: Path, each: Callable[[dict[str, str], Held | Unpriced], None] | None = None) -> None:
        """Hold every row of a CSV file. Raises :class:`TableError` when it cannot be read as a table at all."""
        for line, cells in csv_rows(path):
            if self.rows == 0 and isinstance(cells, dict):
                _columns(path, cells)
            self.rows += 1
            found = Unpriced(line, cells) if isinstance(cells, str) else self.auditor.hold(line, cells)
            self._add(found)
            if each:
                each(cells if isinstance(cells, dict) else {}, found)

    def _add(self, found: Held | Unpriced) -> None:
        if isinstance(found, Unpriced):
            self.unpriced.append(found)
            return
        import numpy as np

        self.priced += 1
        reading = found.reading
        ratio = np.array([found.ratio])
        names = {
            "part": reading.part,
            "engine": reading.cells.get("engine", "") or "not stated",
            "model": reading.model,
        }
        for kind, name in names.items():
            self.by[kind].setdefault(name, Distribution()).add(ratio)
        remark = _file_size(found)
        if remark:
            self.remarks.append(Unpriced(reading.line, remark))
        if found.ratio < 1:
            self.violations.append(_violation(found, self.auditor.likely(found)))

    @property
    def worst(self) -> list[Violation]:
        """The violations, the furthest below the floor first."""
        return sorted(self.violations, key=lambda violation: violation.ratio)


def _violation(held: Held, likely: tuple[str, ...]) -> Violation:
    reading = held.reading
    return Violation(
        line=reading.line,
        hardware=reading.part,
        devices=reading.devices,
        engine=reading.cells.get("engine", ""),
        model=reading.model,
        metric=reading.cells["metric"],
        value=reading.cells["value"],
        measured_seconds=reading.seconds,
        floor_seconds=held.floor,
        ratio=held.ratio,
        likely=likely,
    )


def _columns(path: Path, cells: dict[str, str]) -> None:
    missing = [name for name in COLUMNS if name not in cells]
    if missing:
        raise TableError(f"{path}: column {missing[0]!r} is missing (a table has at least: {', '.join(COLUMNS)})")


def _file_size(held: Held) -> str:
    """A stated file size in GB that can only be right in GiB: it holds fewer bytes than the weights have."""
    import re

    stated = re.search(r"file_size_GB=([\d.]+)", held.reading.cells.get("notes", ""))
    if not stated:
        return ""
    size, ours = float(stated[1]), held.pricings[0][0].totals["resident"]
    if size * 1e9 * ROUNDED < ours <= size * 2**30 * ROUNDED:
        return f"{size:g} GB is less than the {ours / 1e9:.2f} GB of the weights: GiB is suspected"
    return ""
