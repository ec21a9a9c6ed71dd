"""What a record of the book may contain: one frozen type a kind.

Authors write these as YAML under ``book/<kind>/<id>.yaml``; programs read the built JSON. A record's ``id`` is its
path: authors never write it. SI base units everywhere; the unit is in the field's name. (No postponed annotations here:
msgspec would compile each of them again when it first decodes a record.)
"""

from typing import Annotated, Any, Literal

import msgspec

Status = Literal["verified", "draft", "contested"]
Positive = Annotated[float, msgspec.Meta(gt=0)]
Bound = Literal["memory", "compute", "interconnect", "launch_overhead", "both"]


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every record has. ``confidence`` is the probability that its figures are right."""

    title: str
    id: str = ""
    status: Status = "verified"
    confidence: float = 0.9
    aliases: tuple[str, ...] = ()
    summary: str = ""
    sources: tuple[str, ...] = ()
    see: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Source(Record, frozen=True, kw_only=True):
    """Where a figure comes from: a paper, a vendor document, a tool's table, or our own arithmetic."""

    publisher: str
    kind: Literal[
        "vendor", "paper", "tool", "press", "blog", "forum", "seed", "measurement", "arithmetic", "general-knowledge"
    ]
    url: str = ""
    date: str = ""
    licence: str = ""


class OtherValue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value that another source prints for the same figure; ``note`` says why it is not the default."""

    value: Positive
    source: str
    note: str


class Figure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One number with its source. The unit is in the name of the field that holds it."""

    value: Positive
    source: str
    note: str = ""
    others: tuple[OtherValue, ...] = ()


class Peak(Figure, frozen=True, kw_only=True):
    """A peak rate in FLOP/s (or OP/s), at the rated clock, under one full key."""

    unit: Literal["matrix", "vector"]
    dtype: Literal["fp64", "tf32", "fp32", "fp16", "bf16", "fp8", "int8", "fp6", "fp4", "int4"]
    accumulate: Literal["fp64", "fp32", "fp16", "int32", "unstated"] = "fp32"
    sparsity: Literal["dense", "2:4", "16:4"] = "dense"


class MemoryLevel(Figure, frozen=True, kw_only=True):
    """An on-chip memory: ``value`` is its total size in bytes over the whole part."""

    name: str
    bytes_per_second: Figure | None = None


class Clock(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``rated`` is the clock at which the peaks are stated, ``maximum`` the highest the part can reach."""

    rated: Figure
    maximum: Figure | None = None


class Link(Figure, frozen=True, kw_only=True):
    """A link: ``value`` in byte/s per direction and part; ``domain`` is how many parts it joins, 1 for any number."""

    name: str
    level: Literal["scale-up", "scale-out", "host"] = "scale-up"
    domain: Annotated[int, msgspec.Meta(ge=1)] = 1
    topology: str = ""
    latency_seconds: Figure | None = None


class Price(Figure, frozen=True, kw_only=True):
    """What a part or a machine costs in US dollars, to buy or by the hour, on a day or in a month."""

    per: Literal["hour", "unit"]
    date: str


class Part(Record, frozen=True, kw_only=True):
    """One accelerator or CPU."""

    vendor: str
    architecture: str
    kind: Literal["gpu", "tpu", "npu", "cpu", "apu"]
    isa: str = ""
    memory_type: str = ""
    capacity_bytes: Figure
    bandwidth_bytes_per_second: Figure
    peaks: tuple[Peak, ...]
    exp_per_second: Figure | None = None
    clock_hz: Clock | None = None
    on_chip: tuple[MemoryLevel, ...] = ()
    compute_units: Figure | None = None
    power_watts: Figure | None = None
    links: tuple[Link, ...] = ()
    host_link_bytes_per_second: Figure | None = None
    prices_usd: tuple[Price, ...] = ()


class MachineRecord(Record, frozen=True, kw_only=True):
    """What people rent or buy: ``count`` parts, ``node`` of them to a host. ``links`` stand in for the part's own."""

    part: str
    count: Annotated[int, msgspec.Meta(ge=1)]
    node: Annotated[int, msgspec.Meta(ge=1)]
    links: tuple[Link, ...] = ()
    host_cpu: str = ""
    host_memory_bytes: Figure | None = None
    prices_usd: tuple[Price, ...] = ()


class Model(Record, frozen=True, kw_only=True):
    """A published model: the fields of its ``config.json`` that decide its shape, under their own names."""

    config: dict[str, Any]
    nominal_parameters: float | None = None


class Format(Record, frozen=True, kw_only=True):
    """A number format: ``bits`` an element, plus a scale (and zero point) every ``group`` elements."""

    bits: Positive
    group: Annotated[int, msgspec.Meta(gt=0)] | None = None
    scale_bits: float = 0
    zero_bits: float = 0
    math: tuple[str, ...] = ()
    applies_to: tuple[Literal["weights", "kv", "activations"], ...] = ("weights",)
    config_methods: tuple[str, ...] = ()


class Engine(Record, frozen=True, kw_only=True):
    """What an engine adds to the operations: how it launches them, and what the host does between steps."""

    graphs: tuple[Literal["decode", "prefill", "mixed"], ...] = ()
    launch_seconds: Figure | None = None
    host_seconds_per_step: Figure | None = None
    defaults: dict[str, str | int | float | bool] = {}


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A published figure, held against ours: ``quantity`` is a formula over the record's names and ``given``."""

    quantity: str
    expect: float
    source: str
    given: dict[str, float] = {}
    part: str = ""
    dtype: str = "bf16"
    conventions: dict[str, str] = {}
    tolerance: float = 0.005
    note: str = ""


class Way(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A way of computing a figure. What is empty is taken from the statement, or from its file.

    ``quantity`` is a formula over the names of the record ``of``, the rates of ``part``, the sums over ``seqs`` equal
    sequences of ``new`` and ``past`` tokens, and ``given`` (numbers, or formulas over other names).
    """

    of: str = ""
    quantity: str = ""
    given: dict[str, float | str] = {}
    part: str = ""
    dtype: str = ""
    conventions: dict[str, str] = {}


class Statement(Way, frozen=True, kw_only=True):
    """What a document says, in our words, and how it is recomputed. Its verdict is computed; ``expected`` holds it.

    ``theirs`` is the figure as printed, with its unit; ``form`` the formula that the document writes in its place.
    ``over`` makes a ratio: the quantity over itself in another way. ``under`` are the conventions that it may hold
    under. ``cannot`` says why it cannot be checked.
    """

    says: str
    section: str = ""
    theirs: str = ""
    form: str = ""
    over: Way | None = None
    under: dict[str, Way] = {}
    expected: Literal["agrees", "disagrees", "convention"] = "agrees"
    why: str = ""
    cannot: str = ""
    sources: tuple[str, ...] = ()


class Claims(Record, frozen=True, kw_only=True):
    """The statements of one document, or of one section of it, by id.

    ``shared`` is what their ways have in common, ``units`` are those of names that are not in the glossary (a name
    without one is a pure number).
    """

    source: str
    section: str = ""
    shared: Way = Way()
    units: dict[str, str] = {}
    claims: dict[str, Statement]


class Answer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether something runs: the answer of the first condition that holds. Without ``when`` it always does."""

    when: str = ""
    answer: Literal["yes", "no", "emulated"]
    why: str


class OpClass(Record, frozen=True, kw_only=True):
    """A kind of work. ``cost`` maps a resource to its formula; ``conventions`` holds the other readings by name.

    ``least`` are the costs that luck can lower, at the lowest that they can be: device floors take those. A gate says
    where it is ``available``: the first answer whose condition holds.
    """

    kind: Literal["cost", "lever", "gate", "advice", "trap", "comparison"]
    bound_by: Bound
    define: dict[str, str] = {}
    cost: dict[str, str] = {}
    least: dict[str, str] = {}
    why: dict[str, str] = {}
    conventions: dict[str, dict[str, dict[str, str]]] = {}
    quantities: dict[str, str] = {}
    available: tuple[Answer, ...] = ()
    claims: tuple[Claim, ...] = ()


class Quantity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A named formula of a law, with its unit."""

    formula: str
    unit: str
    meaning: str
    conventions: dict[str, dict[str, str]] = {}


class Law(Record, frozen=True, kw_only=True):
    """How costs and rates become times, ratios and limits."""

    quantities: dict[str, Quantity]
    claims: tuple[Claim, ...] = ()


class Lever(Record, frozen=True, kw_only=True):
    """A change to the scenario: ``set`` names the scenario's fields and their new values.

    ``gates`` are those that must let it through on the part, each with the answers that do.
    """

    set: dict[str, str | int | float | bool]
    gates: dict[str, tuple[str, ...]] = {}
    needs: tuple[str, ...] = ()
    caveat: str = ""


class Band(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a measured time of at most ``up_to`` times the floor usually means; ``causes`` are shares of cases."""

    up_to: float
    meaning: str
    causes: dict[str, float]


class Reading(Record, frozen=True, kw_only=True):
    """How to read measured over floor: bands in rising order, and the check that would confirm each cause."""

    bands: tuple[Band, ...]
    eager_causes: dict[str, float]
    checks: dict[str, str]


class Spread(Record, frozen=True, kw_only=True):
    """How far above a floor public results lie, per phase: quantiles of measured over floor, from ``rows`` results."""

    phase: Literal["decode", "prefill", "mixed"]
    rows: int
    low: Figure
    middle: Figure
    high: Figure


class Crossing(Figure, frozen=True, kw_only=True):
    """The batch at which GEMMs in a data type leave the memory-bound plateau; ``low`` and ``high`` hold 8 in 10."""

    dtype: str
    low: Positive
    high: Positive
    shapes: int


class Crossover(Record, frozen=True, kw_only=True):
    """Where measured GEMM time of a part leaves memory for compute, derived from public kernel timings."""

    part: str
    method: str
    batches: tuple[Crossing, ...]


class Trap(Record, frozen=True, kw_only=True):
    """A known failure: what is seen, why (``summary``), and what to do. ``when`` is the condition that it is near."""

    symptom: str
    remedy: str
    when: str = ""


class Symbol(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A symbol of the formulas. ``sum`` (``windowed``, ``chunked``) make it a statistic: summed over sequences."""

    unit: str
    meaning: str
    value: float | None = None
    source: str = ""
    sum: str = ""
    windowed: str = ""
    chunked: str = ""
    conventions: dict[str, dict[str, str]] = {}


class Glossary(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``symbols.yaml``: the symbols, and the unit words that stand for a pure number."""

    counts: tuple[str, ...]
    symbols: dict[str, Symbol]


class Convention(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A choice between the field's ways of counting. The first value is the default."""

    values: dict[str, str]
    meaning: str
