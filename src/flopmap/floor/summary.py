"""Numbers of a priced step that people ask for first: memory, utilisation, throughput."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from flopmap.ledger.ledger import DEVICE_BYTES, cost_trees
from flopmap.records.formula import bind, total, value
from flopmap.records.resolve import law
from flopmap.records.types import Law
from flopmap.step import MAIN

if TYPE_CHECKING:
    from flopmap.floor.roofline import Pricing
    from flopmap.records.book import Book


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """What a scenario holds in device memory, in bytes, and whether it fits.

    ``max_sequences`` is an upper bound at this context; None when a sequence holds nothing.
    ``least_parts``: no fewer parts of this kind hold all of the model's weights.
    ``borderline``: it fits or not depending on which source of the part's capacity one believes.
    """

    weight_bytes: float
    kv_bytes_per_token: float
    state_bytes_per_sequence: float
    cache_bytes: float
    capacity_bytes: float
    fits: bool
    borderline: bool
    max_sequences: int | None
    least_parts: int


def memory(pricing: Pricing, book: Book) -> Memory:
    """The memory of a scenario, by the law of capacity: that of one part, and the sequences of all of them."""
    entire, pricing, plan = pricing.entire, pricing.held, pricing.scenario.plan
    capacity = pricing.scenario.machine.part.capacity_bytes
    weights, cache, state = (pricing.totals[resource] for resource in ("resident", "cache", "held"))
    sequences = sum(group.count for group in pricing.scenario.step.groups if group.stack == MAIN) or 1
    limits = [capacity.value, *(other.value for other in capacity.others)]
    needed = weights + cache + state
    most, laws = None, law(book.record(Law, "capacity"), pricing.scenario.conventions)
    if cache + state:
        replicas = plan.data if plan else 1
        most = replicas * int(
            value(
                laws["max_sequences"],
                {"capacity": capacity.value, "resident": weights, "sequence_bytes": (cache + state) / sequences},
            )
        )
    return Memory(
        weight_bytes=weights,
        kv_bytes_per_token=cache_per_token(pricing),
        state_bytes_per_sequence=state / sequences,
        cache_bytes=cache,
        capacity_bytes=capacity.value,
        fits=needed <= capacity.value,
        borderline=(needed <= min(limits)) != (needed <= max(limits)),
        max_sequences=most,
        least_parts=int(
            value(laws["least_parts"], {"capacity": capacity.value, "resident": entire.totals["resident"]})
        ),
    )


def cache_per_token(pricing: Pricing, *, encoded: bool = False) -> float:
    """Bytes that a token of the text leaves in the cache, or one of those ``encoded`` that cross attention reads."""
    token = {
        statistic.name: int((statistic.symbol == "remembered") == encoded) for statistic in pricing.ledger.statistics
    }
    trees = (cost_trees(line, pricing.scenario) for line in pricing.ledger.lines)
    return value(total([tree["cache"] for tree in trees if "cache" in tree]), token)


def utilisation(pricing: Pricing, seconds: float, book: Book) -> dict[str, float]:
    """MBU, MFU and tokens/s of a step that takes ``seconds``. FLOP of several data types count at their own peaks.

    Of all parts of a plan together, which is that of each: while a stage of a pipeline works, the others wait.
    """
    laws = law(book.record(Law, "utilisation"), pricing.scenario.conventions)
    stages = pricing.scenario.plan.pipeline if pricing.scenario.plan else 1
    moved = sum(pricing.totals[kind] for kind in DEVICE_BYTES) / stages
    values = {"device_bytes": moved, "bandwidth": pricing.rates.values["bandwidth"], "seconds": seconds}
    mfu = 0.0
    for dtype, peak in pricing.rates.matrix.items():
        amount = sum(line.costs["matrix"] for line in pricing.lines if line.line.math == dtype) / stages
        mfu += value(bind(laws["mfu"], {"matrix": amount, "seconds": seconds, "matrix_peak": peak}))
    speed = value(laws["tokens_per_second"], {"tokens": pricing.scenario.tokens, "seconds": seconds})
    return {"mbu": value(laws["mbu"], values), "mfu": mfu, "tokens_per_second": speed}
