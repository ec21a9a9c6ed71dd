"""Tables of kernel timings held against the kernel floor: each row becomes an op class bound to the row's shapes.

Which columns of a table are which symbols of an op class is said in kernel_names.py. The costs are the record of the op
class, the floor is the law ``kernel-floor``; both become one function of arrays for each part, which prices a block.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

from flopmap.audit.kernel_names import (
    AVERAGED,
    COLUMNS,
    DEFAULTS,
    KERNELS,
    NAMES,
    TYPE_COLUMNS,
    TYPE_NAMES,
    TYPES,
    Kernel,
)
from flopmap.audit.names import part_id
from flopmap.audit.tables import Labels
from flopmap.floor.roofline import part_rates
from flopmap.ledger.ledger import STEP_RESOURCES
from flopmap.machine.machine import fastest_peak, matrix_peak
from flopmap.precision import element_bytes
from flopmap.records.book import UnknownRecordError
from flopmap.records.formula import array_namespace, bind, code, compiled, operate, symbols
from flopmap.records.resolve import costs, law, parse_once
from flopmap.records.types import Format, Law, OpClass, Part

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from flopmap.audit.tables import Block
    from flopmap.records.book import Book
    from flopmap.records.notation import Expr

    Array = NDArray[np.float64]

UNGATED = (512, 22)  # experts of Nemotron 3, and those of a token
BIG = 4  # times the on-chip memory: a working set beyond it mostly comes from device memory
NO_WINDOW = 2.0**40  # tokens


class Priced(NamedTuple):
    """Rows of one part and kernel with their floors. Seconds and bytes; ``rows`` are places in the block."""

    part: Part
    kernel: str
    rows: NDArray[np.int64]
    dtype: str
    measured: Array
    floor: Array
    naive: Array
    working_set: Array


class Unpriced(NamedTuple):
    """Rows that cannot be priced, and why."""

    why: str
    rows: NDArray[np.int64]


def price(block: Block, book: Book) -> list[Priced | Unpriced]:
    """Every row of a block either with its floors or with the reason why it has none."""
    import numpy as np

    if not block.rows:
        return []
    measured = measured_seconds(block)
    found: list[Priced | Unpriced] = []
    left = np.isfinite(measured) & (measured > 0)
    if not left.all():
        found.append(Unpriced("latency is no positive number", np.flatnonzero(~left)))
    part_of, kernel_of, type_of = (
        labels(block, names) for names in (("hardware", "device"), ("kernel", "op_name"), TYPE_COLUMNS)
    )
    for part_code, part_name in enumerate(part_of.names):
        of_part = left & (part_of.codes == part_code)
        for kernel_code, kernel_name in enumerate(kernel_of.names):
            for type_code, type_name in enumerate(type_of.names):
                rows = np.flatnonzero(of_part & (kernel_of.codes == kernel_code) & (type_of.codes == type_code))
                if len(rows):
                    found += _price(block, rows, (part_name, kernel_name, type_name), measured, book)
    return found


def _price(
    block: Block, rows: NDArray[np.int64], names: tuple[str, str, str], measured: Array, book: Book
) -> list[Priced | Unpriced]:
    """Rows of one part, kernel and type, by the type of their cache."""
    import numpy as np

    part_name, kernel_name, type_name = names
    try:
        part = book.record(Part, part_id(part_name, book))
    except UnknownRecordError as error:
        return [Unpriced(f"hardware: {error}", rows)]
    kernel, dtype = NAMES.get(kernel_name), TYPE_NAMES.get(type_name, type_name)
    if kernel_name in AVERAGED:
        return [Unpriced(f"kernel {kernel_name!r}: m is an average over experts, and not that of a run", rows)]
    if kernel is None:
        return [Unpriced(f"kernel {kernel_name!r}: no op class for it", rows)]
    if dtype not in TYPES:
        return [Unpriced(f"dtype {type_name!r}: unknown (accepted: {', '.join((*TYPES, *TYPE_NAMES))})", rows)]
    caches = labels(block, ("kv_dtype", "kv_cache_dtype"))
    found: list[Priced | Unpriced] = []
    for cache in np.unique(caches.codes[rows]):
        cached = TYPE_NAMES.get(caches.names[cache], caches.names[cache]) or dtype
        if cached not in TYPES:
            found.append(Unpriced(f"kv_dtype {cached!r}: unknown", rows[caches.codes[rows] == cache]))
            continue
        where = rows[caches.codes[rows] == cache]
        function = kernel_floor(kernel, part, dtype, cached, book)
        if function is None:
            found.append(Unpriced(f"{part.id} has no peak on record for {dtype}", where))
            continue
        columns, absent = shape_columns(block, where, kernel, function.columns)
        if absent:
            found.append(Unpriced(f"column {absent!r} is missing or empty", where))
            continue
        floor, naive, working_set = function(columns)
        good = np.isfinite(floor) & (floor > 0) & np.all([column >= 0 for column in columns.values()], axis=0)
        if not good.all():
            found.append(Unpriced("a shape is missing or not positive", where[~good]))
        times = measured[where]
        found.append(Priced(part, kernel, where[good], dtype, times[good], floor[good], naive[good], working_set[good]))
    return found


def measured_seconds(block: Block) -> Array:
    """The measured times; tables give microseconds (``latency_us``) or milliseconds (``latency``)."""
    import numpy as np

    if "latency_us" in block.numbers:
        return block.numbers["latency_us"] / 1e6
    if "latency" in block.numbers:
        return block.numbers["latency"] / 1e3
    return np.full(block.rows, np.nan)


def labels(block: Block, names: tuple[str, ...]) -> Labels:
    """The first of these columns of words that the block has; empty words where it has none."""
    import numpy as np

    for name in names:
        if name in block.words:
            return block.words[name]
    return Labels(np.zeros(block.rows, dtype=np.int64), [""])


def shape_columns(
    block: Block, rows: NDArray[np.int64], kernel: str, wanted: list[str]
) -> tuple[dict[str, Array], str]:
    """The canonical columns that a kernel's formulas need, or the name of one that is not there."""
    import numpy as np

    columns: dict[str, Array] = {}
    for name in wanted:
        if name in ("new", "past"):
            values = _lengths(block, kernel)[name]
        elif name == "gated" and "gated" not in block.numbers:
            values = _gated(block)
        elif name == "value_dim" and "value_dim" not in block.numbers:
            values = _value_dim(block)
        else:
            column = next((other for other in (name, *COLUMNS.get(name, ())) if other in block.numbers), None)
            values = block.numbers[column] if column else None
            if values is None and name in DEFAULTS:
                values = np.full(block.rows, DEFAULTS[name])
            elif values is not None and name in DEFAULTS:
                values = np.where(np.isnan(values), DEFAULTS[name], values)
        if values is None or np.isnan(values[rows]).all():
            return {}, name
        columns[name] = values[rows]
    if "window" in columns:
        columns["window"] = np.where(columns["window"] > 0, columns["window"], NO_WINDOW)
    return columns, ""


def _lengths(block: Block, kernel: str) -> dict[str, Array | None]:
    """New and cached tokens, from ``q_len`` and ``kv_len``, or from ``isl`` and ``step``."""
    import numpy as np

    numbers = block.numbers
    if "kv_len" in numbers:
        new = np.where(np.isnan(numbers["q_len"]), 1.0, numbers["q_len"])
        return {"new": new, "past": numbers["kv_len"] - new}
    if "isl" in numbers:
        step = numbers.get("step", np.zeros(block.rows))
        if kernel.endswith("decode") or kernel.startswith("decode"):
            return {"new": np.ones(block.rows), "past": np.maximum(numbers["isl"] + step - 1, 0)}
        return {"new": numbers["isl"], "past": step}
    return {"new": None, "past": None}


def _gated(block: Block) -> Array:
    """Experts have a gate, but where their kernel's name denies it and in Nemotron 3, which is known by its numbers."""
    import numpy as np

    sources = labels(block, ("kernel_source", "backend"))
    gated = np.array(["nongated" not in name for name in sources.names], dtype=np.float64)[sources.codes]
    experts, top_k = (
        next(
            (block.numbers[name] for name in (column, *COLUMNS[column]) if name in block.numbers), np.zeros(block.rows)
        )
        for column in ("experts", "top_k")
    )
    return np.where((experts == UNGATED[0]) & (top_k == UNGATED[1]), 0.0, gated)


def _value_dim(block: Block) -> Array | None:
    """Values are as wide as keys; but where those are 192 wide, published models (MLA, MiMo V2) have values of 128."""
    import numpy as np

    width = block.numbers.get("head_dim")
    return None if width is None else np.where(width == 192, 128.0, width)  # noqa: PLR2004


class KernelFloor:
    """A kernel on a part in a data type: floors of arrays of shapes. ``columns`` are what it needs to be given."""

    def __init__(self, columns: list[str], function: Callable[..., tuple[Any, ...]]) -> None:
        self.columns = columns
        self._function = function

    def __call__(self, columns: Mapping[str, Array]) -> tuple[Array, Array, Array]:
        """Kernel floor and plain roofline in seconds, and the working set in bytes."""
        import numpy as np

        some = columns[self.columns[0]]
        results = self._function(*[columns[name] for name in self.columns])
        return tuple(np.broadcast_to(np.asarray(result, dtype=np.float64), some.shape) for result in results)  # type: ignore[return-value]


@functools.lru_cache(maxsize=512)
def _cached_floor(kernel: str, part_id: str, dtype: str, cache: str, book: Book) -> KernelFloor | None:
    part = book.record(Part, part_id)
    stored, activations, maths = TYPES[dtype]
    math = next((math for math in maths if matrix_peak(part, math)), None)
    if math is None:
        return None
    wide = matrix_peak(part, math)
    cached = book.record(Format, TYPES[cache][1])
    # attention over a narrow cache may multiply it as it is stored
    types = (math, *cached.math) if "attention" in KERNELS[kernel].op_class else (math,)
    formats: dict[str, Expr] = {
        "weight_bytes": element_bytes(book.record(Format, stored), book),
        "act_bytes": element_bytes(book.record(Format, activations), book),
        "kv_bytes": element_bytes(cached, book),
    }
    amounts = kernel_costs(KERNELS[kernel], formats, book)
    rates = part_rates(part, book)
    conventions = _conventions(book)
    trees = []
    fastest = max(fastest_peak(part, dtype) for dtype in types)
    for name, peak in (("kernel-floor", fastest), ("roofline", wide.value if wide else fastest)):
        formula = law(book.record(Law, name), conventions)["seconds"]
        trees.append(bind(formula, {**rates, **amounts, "matrix_peak": peak}))
    trees.append(bind(law(book.record(Law, "roofline"), conventions)["device_bytes"], amounts))
    names = sorted(set().union(*map(symbols, trees)))
    return KernelFloor(names, compiled(code(trees, names), array_namespace()))


def kernel_floor(kernel: str, part: Part, dtype: str, cache: str, book: Book) -> KernelFloor | None:
    """The floors of a kernel on a part, compiled once; None when the part has no math for the data type."""
    return _cached_floor(kernel, part.id, dtype, cache, book)


def _conventions(book: Book) -> dict[str, str]:
    """The defaults, but with every operand of attention in device memory, as in a kernel that runs alone."""
    defaults = {name: next(iter(convention.values)) for name, convention in book.conventions.items()}
    return {**defaults, "attention-bytes": "qkvo"}


def kernel_symbols(kernel: Kernel, formats: Mapping[str, Expr], book: Book) -> dict[str, Expr]:
    """What formulas of an op class may name: formats, and shapes and sums of a kernel as formulas of the columns."""
    group: dict[str, Expr] = {
        "new": parse_once(kernel.new),
        "past": parse_once(kernel.past),
        "positions": 0,
        "memory": 0,
    }
    shapes: dict[str, Expr] = {name: parse_once(text) for name, text in kernel.shapes.items()}
    known = {**shapes, **formats}
    for name, symbol in book.glossary.symbols.items():
        if symbol.sum:
            known[name] = operate(
                "*", parse_once(kernel.sequences), bind(parse_once(symbol.windowed or symbol.sum), group)
            )
    return known


def kernel_costs(kernel: Kernel, formats: Mapping[str, Expr], book: Book) -> dict[str, Expr]:
    """The least costs of a kernel by resource, as formulas of the columns."""
    known = kernel_symbols(kernel, formats, book)
    found: dict[str, Expr] = {}
    by_resource = costs(book.record(OpClass, kernel.op_class), _conventions(book), least=True)
    for resource in STEP_RESOURCES:
        found[resource] = operate("*", parse_once(kernel.times), bind(by_resource.get(resource, 0), known))
    return found
