"""Tables of kernel timings sorted by kernel: for each the columns that its law needs, and the measured times."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from flopmap.audit.kernel_names import KERNELS, NAMES, TYPE_COLUMNS, TYPE_NAMES, TYPES
from flopmap.audit.kernels import NO_WINDOW, Unpriced, kernel_symbols, labels, measured_seconds, shape_columns
from flopmap.audit.names import part_id
from flopmap.estimate.kernels import NoFigureError, kernel_rates, kernel_seconds, link_rates
from flopmap.precision import element_bytes
from flopmap.records.book import UnknownRecordError
from flopmap.records.formula import array_namespace, code, compiled, symbols
from flopmap.records.types import Format, Part

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from flopmap.audit.tables import Block
    from flopmap.records.book import Book
    from flopmap.records.notation import Expr

    Array = NDArray[np.float64]

LAWS = {
    "gemm": "gemm-time",
    "decode attention": "decode-attention-time",
    "prefill attention": "prefill-attention-time",
    "MLA decode": "decode-latent-attention-time",
    "MLA prefill": "prefill-latent-attention-time",
    "experts": "experts-time",
    "all-reduce": "all-reduce-time",
    "all-gather": "collective-time",
    "reduce-scatter": "collective-time",
    "all-to-all": "collective-time",
}
# Kernels whose timings hold more than the op: projections around attention, all-to-all within experts.
MODULES = ("mla_context_module", "mla_generation_module", "wideep_moe", "wideep_moe_eplb")
COLLECTIVES = {name.replace("-", "_"): name for name in ("all-reduce", "all-gather", "reduce-scatter")} | {
    "alltoall": "all-to-all"
}
MESSAGE_BYTES = {"bfloat16": 2.0, "half": 2.0, "int8": 1.0}  # of an element
MESSAGE_TYPES = ("allreduce_dtype", "nccl_dtype")
ENGINES = {"trtllm": "tensorrt-llm", "vllm": "vllm", "sglang": "sglang"}
ATTENTION = ("decode attention", "prefill attention")
LEAST_PROMPT = 2  # tokens: a prefill of one token is a decode step, and engines run it as one


class Kind(NamedTuple):
    """What the rows of one fit have in common. ``variant`` is the routing of experts, or a window of attention."""

    family: str
    dtype: str
    kv_dtype: str
    variant: str
    engine: str


class Samples(NamedTuple):
    """Rows of one part and kind, of one version of the engine and one kernel of the tables. Seconds."""

    part: str
    kind: Kind
    version: str
    kernel: str
    columns: dict[str, Array]
    seconds: Array


class Timed:
    """The law of a kernel on a part: a function of ``columns`` and of ``figures``, in these orders."""

    def __init__(self, tree: Expr, columns: list[str]) -> None:
        self.columns = columns
        self.figures = sorted(symbols(tree) - set(columns))
        self._function: Callable[..., tuple[Array, ...]] = compiled(
            code([tree], [*columns, *self.figures]), array_namespace()
        )

    def __call__(self, columns: dict[str, Array], figures: dict[str, float]) -> Array:
        """The times of rows, in seconds."""
        shapes = [columns[name] for name in self.columns]
        return self._function(*shapes, *[figures[name] for name in self.figures])[0]


@functools.lru_cache(maxsize=512)
def timed(part: str, family: str, dtype: str, cache: str, book: Book) -> Timed:
    """The law of a kernel on a part in its data types. Raises :class:`NoFigureError` where the part lacks a rate."""
    record = book.record(Part, part)
    if family in COLLECTIVES.values():
        return Timed(kernel_seconds(LAWS[family], dict(link_rates(record)), book), ["message", "ranks"])
    stored, activations, maths = TYPES[dtype]
    cached = book.record(Format, TYPES[cache][1])
    types = (*maths[:1], *cached.math) if family in ATTENTION or "MLA" in family else maths[:1]
    formats: dict[str, Expr] = {
        "weight_bytes": element_bytes(book.record(Format, stored), book),
        "act_bytes": element_bytes(book.record(Format, activations), book),
        "kv_bytes": element_bytes(cached, book),
    }
    known = kernel_symbols(KERNELS[family], formats, book)
    tree = kernel_seconds(LAWS[family], {**known, **kernel_rates(record, types)}, book)
    inputs = set().union(*(symbols(value) for value in known.values()))
    return Timed(tree, sorted(symbols(tree) & inputs))


def samples(block: Block, book: Book, parts: Collection[str] | None = None) -> Iterator[Samples | Unpriced]:
    """The rows of a block by part (all, or these), kernel, data types, engine and version; or why they have no law."""
    import numpy as np

    if not block.rows:
        return
    measured = measured_seconds(block)
    left = np.isfinite(measured) & (measured > 0)
    if not left.all():
        yield Unpriced("latency is no positive number", np.flatnonzero(~left))
    names = (
        ("hardware", "device"), ("kernel", "op_name"), (*TYPE_COLUMNS, *MESSAGE_TYPES), ("kv_dtype", "kv_cache_dtype"),
        ("framework",), ("version",), ("kernel_source",), ("distribution",),
    )  # fmt: skip
    columns = [labels(block, name) for name in names]
    codes = np.stack([column.codes for column in columns])[:, left]
    groups, group_of = np.unique(codes, axis=1, return_inverse=True)
    rows = np.flatnonzero(left)
    for index, group in enumerate(groups.T):
        words = [column.names[code] for column, code in zip(columns, group, strict=True)]
        try:
            part = part_id(words[0], book)
        except UnknownRecordError as error:
            yield Unpriced(f"hardware: {error}", rows[group_of.ravel() == index])
            continue
        if parts is None or part in parts:
            yield from _of_group(block, rows[group_of.ravel() == index], [part, *words[1:]], measured, book)


def _of_group(
    block: Block, rows: NDArray[np.int64], words: list[str], measured: Array, book: Book
) -> Iterator[Samples | Unpriced]:
    """The rows of one part, kernel, types, engine and version."""
    part, kernel, dtype, cache, framework, version, source, routing = words
    engine = ENGINES.get(framework.lower(), framework.lower())
    if kernel in COLLECTIVES:
        yield from _collective(block, rows, (part, COLLECTIVES[kernel], dtype, engine, version, source), measured)
        return
    family, dtype = NAMES.get(kernel, ""), TYPE_NAMES.get(dtype, dtype)
    cached = (TYPE_NAMES.get(cache, cache) or dtype) if "attention" in family or "MLA" in family else ""
    if family not in LAWS or kernel in MODULES:
        yield Unpriced(f"kernel {kernel!r}: no law of its time", rows)
        return
    if dtype not in TYPES or (cached or dtype) not in TYPES:
        yield Unpriced(f"dtype {dtype!r}, cache {cached!r}: unknown (accepted: {', '.join(TYPES)})", rows)
        return
    try:
        function = timed(part, family, dtype, cached or dtype, book)
    except NoFigureError as error:
        yield Unpriced(str(error), rows)
        return
    columns, absent = shape_columns(block, rows, family, function.columns)
    if absent:
        yield Unpriced(f"column {absent!r} is missing or empty", rows)
        return
    kind = Kind(family, dtype, cached, routing, engine)
    yield from _good(Samples(part, kind, version, source, columns, measured[rows]), rows)


def _collective(
    block: Block, rows: NDArray[np.int64], names: tuple[str, ...], measured: Array
) -> Iterator[Samples | Unpriced]:
    part, family, dtype, engine, version, source = names
    missing = next((name for name in ("message_size", "num_gpus") if name not in block.numbers), None)
    if dtype not in MESSAGE_BYTES or missing:
        unknown = f"dtype {dtype!r} of a message: unknown (accepted: {', '.join(MESSAGE_BYTES)})"
        yield Unpriced(f"column {missing!r} is missing" if missing else unknown, rows)
        return
    columns = {
        "message": block.numbers["message_size"][rows] * MESSAGE_BYTES[dtype],
        "ranks": block.numbers["num_gpus"][rows],
    }
    library = "nccl" if source == "NCCL" else engine
    variant = "eager" if source.endswith("eager") else "graph"
    kind = Kind(family, "any", "", "" if library == "nccl" else variant, library)
    yield from _good(Samples(part, kind, version, source, columns, measured[rows]), rows)


def _good(found: Samples, rows: NDArray[np.int64]) -> Iterator[Samples | Unpriced]:
    """The rows with all their shapes, by the variants of their kernel; the others are named."""
    import numpy as np

    columns = found.columns
    may_be_none = ("past", "gated")
    signs = [(column >= 0) if name in may_be_none else (column > 0) for name, column in columns.items()]
    good = np.all([*signs, *map(np.isfinite, columns.values())], axis=0)
    if not good.all():
        yield Unpriced("a shape is missing or not positive", rows[~good])
    if "prefill" in found.kind.family and "new" in columns:
        short = good & (columns["new"] < LEAST_PROMPT)
        if short.any():
            yield Unpriced("a prompt of one token: a decode step", rows[short])
        good &= ~short
    for variant, where in _variants(found.kind.family, columns, good):
        if where.any():
            kind = found.kind._replace(variant=" ".join(filter(None, (found.kind.variant, variant))))
            part_of = {name: column[where] for name, column in columns.items()}
            yield found._replace(kind=kind, columns=part_of, seconds=found.seconds[where])


def _variants(
    family: str, columns: dict[str, Array], good: NDArray[np.bool_]
) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Attention with a window apart, and decode attention whose heads share no keys: engines have kernels for them."""
    if family not in ATTENTION:
        yield "", good
        return
    windowed = columns["window"] < NO_WINDOW
    alone = columns["heads"] == columns["kv_heads"]
    if family == "prefill attention":
        alone = alone & False
    yield "", good & ~windowed & ~alone
    yield "windowed", good & windowed & ~alone
    yield "ungrouped", good & ~windowed & alone
    yield "windowed ungrouped", good & windowed & alone
