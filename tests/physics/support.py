"""What the tests of the physics share: the public path to a priced step, and machines with other rates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from flopmap.floor.roofline import Pricing, price
from flopmap.model.reading import from_config
from flopmap.records.book import BUILT, Book, Built, load
from flopmap.records.formula import value
from flopmap.records.resolve import costs, law, named
from flopmap.records.types import Engine, Figure, Law, MemoryLevel, OpClass, Part, Peak
from flopmap.scenario import Request, Scenario, make
from flopmap.step import Group, Statistic, Step, statistics_function

LLAMA_8B = "meta-llama/Llama-3.1-8B"
LLAMA_70B = "meta-llama/Llama-2-70b-hf"
REFERENCE_CODE = (("mask", "full"), ("logits", "all"))  # the square of the prompt and every position's logits


def scenario_of(book: Book, model: str = LLAMA_8B, on: str = "h100-sxm", **flags: Any) -> Scenario:
    return make(Request(model=model, on=on, **flags), book)


def priced(book: Book, model: str = LLAMA_8B, on: str = "h100-sxm", **flags: Any) -> Pricing:
    return price(scenario_of(book, model, on, **flags), book)


def priced_groups(scenario: Scenario, groups: list[Group], book: Book) -> Pricing:
    """Any composition of sequences, also those that no flag of the command line can say."""
    return price(replace(scenario, step=Step(groups=tuple(groups))), book)


def with_config(scenario: Scenario, config: dict[str, Any]) -> Scenario:
    """The scenario with a model of this config."""
    return replace(scenario, model=from_config(config, "config.json"))


def with_part(scenario: Scenario, part: Part) -> Scenario:
    return replace(scenario, machine=replace(scenario.machine, part=part))


def with_launches(scenario: Scenario, seconds: float, *, graphs: bool = False, host: float = 0.0) -> Scenario:
    """The scenario on an engine whose host takes so long for a launch, and so long between steps."""
    engine = Engine(
        title="test",
        id="test",
        graphs=("decode", "prefill", "mixed") if graphs else (),
        launch_seconds=Figure(value=seconds, source="arithmetic"),
        host_seconds_per_step=Figure(value=host, source="arithmetic"),
    )
    return replace(scenario, engine=engine)


# -- machines with other rates ----------------------------------------------------------------------------------------


def scaled(
    part: Part, *, bandwidth: float = 1, matrix: float = 1, vector: float = 1, exp: float = 1, on_chip: float = 1
) -> Part:
    """The part with its rates multiplied. ``matrix`` is every peak that a GEMM may run at, ``vector`` the fp32 one."""
    rate = part.bandwidth_bytes_per_second
    return replace(
        part,
        bandwidth_bytes_per_second=replace(rate, value=rate.value * bandwidth),
        peaks=tuple(_scaled_peak(peak, matrix, vector) for peak in part.peaks),
        exp_per_second=part.exp_per_second and replace(part.exp_per_second, value=part.exp_per_second.value * exp),
        on_chip=tuple(_scaled_level(level, on_chip) for level in part.on_chip),
    )


def _scaled_peak(peak: Peak, matrix: float, vector: float) -> Peak:
    is_vector = peak.unit == "vector" and peak.dtype == "fp32"
    return replace(peak, value=peak.value * (vector if is_vector else matrix))


def _scaled_level(level: MemoryLevel, factor: float) -> MemoryLevel:
    return replace(level, value=level.value * factor)


# -- single formulas --------------------------------------------------------------------------------------------------


def cost(book: Book, op_class: str, conventions: dict[str, str] | None = None, /, **symbols: float) -> dict[str, float]:
    """Every cost of one run of an op class, in numbers."""
    return {
        name: value(tree, symbols) for name, tree in costs(book.record(OpClass, op_class), conventions or {}).items()
    }


def quantity(book: Book, op_class: str, name: str, **symbols: float) -> float:
    """A named quantity of an op class, such as its intensity."""
    return value(named(book.record(OpClass, op_class), {})[name], symbols)


def by_law(book: Book, name: str, wanted: str, conventions: dict[str, str] | None = None, /, **symbols: float) -> float:
    """A quantity of a law, in numbers."""
    constants = {symbol: entry.value for symbol, entry in book.glossary.symbols.items() if entry.value is not None}
    return value(law(book.record(Law, name), conventions or {})[wanted], {**constants, **symbols})


def summed(
    book: Book,
    symbol: str,
    groups: list[Group],
    window: int | None = None,
    conventions: dict[str, str] | None = None,
) -> float:
    """A statistic of a step, under a window or none."""
    statistic = Statistic(symbol, None, window)
    total: float = statistics_function([statistic], book.glossary, conventions or {})(Step(groups=tuple(groups)))[0]
    return total


def prefill(new: int, past: int = 0, count: int = 1, positions: int = 1) -> Group:
    return Group(count=count, new=new, past=past, positions=positions, phase="prefill")


def decode(past: int, count: int = 1) -> Group:
    return Group(count=count, new=1, past=past, phase="decode")


# -- books with one record changed ------------------------------------------------------------------------------------


def with_record(kind: str, record_id: str, data: dict[str, Any]) -> Book:
    """The bundled book with a record added, or put in the place of ours."""
    load()  # builds book.json where the YAML is newer
    built = msgspec.json.decode(Path(BUILT).read_bytes(), type=Built)
    built.records.setdefault(kind, {})[record_id] = msgspec.Raw(msgspec.json.encode({**data, "id": record_id}))
    return Book(built)
