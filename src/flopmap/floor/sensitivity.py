"""Which hardware property governs a step's time, what doubling it would give, and where the bound flips."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from flopmap.floor.roofline import PROPERTY_OF

if TYPE_CHECKING:
    from flopmap.floor.roofline import Pricing

PROPERTIES = (
    "memory_bandwidth",
    "matrix_peak",
    "vector_peak",
    "exp_rate",
    "link_bandwidth",
    "link_latency",
    "launch",
    "host",
)
SCALABLE = tuple(PROPERTY_OF.values())
FURTHEST = 1e6


class Doubling(msgspec.Struct, frozen=True, kw_only=True):
    """What twice a property gives: step time, share saved; ``flips_at`` is the factor at which ``flips_to`` binds."""

    property: str
    step_seconds: float
    gain: float
    flips_at: float | None
    flips_to: str | None


def shares(pricing: Pricing, scaled: dict[str, float] | None = None) -> dict[str, float]:
    """Seconds of the engine floor that each property governs, with some properties multiplied by a factor."""
    factors = scaled or {}
    governed = dict.fromkeys(PROPERTIES, 0.0)
    divisors = [factors.get(name, 1.0) for name in SCALABLE]
    for line in pricing.lines:
        times = [seconds / divisor for seconds, divisor in zip(line.times, divisors, strict=True)]
        longest = max(times)
        governed[SCALABLE[times.index(longest)]] += longest
    launch = pricing.launch_seconds / factors.get("launch", 1.0)
    if launch > sum(governed.values()):
        governed = dict.fromkeys(PROPERTIES, 0.0) | {"launch": launch}
    host = pricing.rates.values["host_seconds"]
    return governed | {"host": host}


def elasticity(pricing: Pricing) -> dict[str, float]:
    """The share of the engine floor that each property governs: +1% of it takes that many percent of time away."""
    governed = shares(pricing)
    whole = sum(governed.values())
    return {name: seconds / whole if whole else 0.0 for name, seconds in governed.items()}


def bound_by(pricing: Pricing) -> str:
    """The property that governs most of the step."""
    governed = shares(pricing)
    return max(governed, key=lambda name: governed[name])


def doublings(pricing: Pricing) -> list[Doubling]:
    """What doubling each property would give, best first."""
    whole = sum(shares(pricing).values())
    binding = bound_by(pricing)
    results = []
    for name in (*SCALABLE, "launch"):
        if name.startswith("link") and not pricing.totals["hops"]:
            continue  # one part sends nothing
        seconds = sum(shares(pricing, {name: 2.0}).values())
        flip = _flip(pricing, name) if name == binding else None
        results.append(
            Doubling(
                property=name,
                step_seconds=seconds,
                gain=1 - seconds / whole if whole else 0.0,
                flips_at=flip[0] if flip else None,
                flips_to=flip[1] if flip else None,
            )
        )
    return sorted(results, key=lambda result: result.step_seconds)


def _flip(pricing: Pricing, name: str) -> tuple[float, str] | None:
    """The least factor on the binding property from which another one governs more. Its own share only falls."""

    def leader(factor: float) -> str:
        governed = shares(pricing, {name: factor})
        return max(governed, key=lambda other: governed[other])

    low, high = 1.0, FURTHEST
    if leader(high) == name:
        return None
    for _ in range(40):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if leader(middle) == name else (low, middle)
    return high, leader(high)
