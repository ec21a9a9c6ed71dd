"""What records say of kernels: the names that libraries give them, and what those of a part reach.

(No postponed annotations here either: see ``types.py``.)
"""

import msgspec

from flopmap.records.types import Positive, Record


class Errors(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a law is from measured times, |law / measured - 1|, over ``rows``: half, and 9 in 10, are below."""

    rows: int
    median: float
    nine_in_ten: float


class Fit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The figures of a law for one kernel: its ``family``, data types, engine and version, and its name in the tables.

    ``figures`` are the symbols that the law has beside shapes, formats and rates of the part, in their units. ``rows``
    went into the fit; ``kept_out`` are rows of other shapes, ``other_versions`` those of other versions of the engine.
    """

    family: str
    law: str
    dtype: str
    kv_dtype: str = ""
    variant: str = ""
    engine: str
    version: str
    kernel: str = ""
    rows: int
    figures: dict[str, Positive]
    kept_out: Errors
    other_versions: Errors | None = None


class Efficiency(Record, frozen=True, kw_only=True):
    """What the kernels of a part reach: laws with figures that were fitted to measured timings by ``method``."""

    part: str
    method: str
    fits: tuple[Fit, ...]


class KernelNames(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a library names its kernels: regular expressions, found anywhere in a name, and names that they must find."""

    library: str
    patterns: tuple[str, ...]
    examples: tuple[str, ...]
    source: str


class KernelWork(Record, frozen=True, kw_only=True):
    """A kind of work that kernels do, by their names. The record of the lowest ``order`` that knows a name has it.

    ``classes`` are the op classes whose work this is; none where the ledger does not count it.
    """

    order: int
    classes: tuple[str, ...] = ()
    kernels: tuple[KernelNames, ...]
