"""What a reader returns: one run of a tool as it was printed, with every figure in SI units and what is known of it."""

from __future__ import annotations

import math
from typing import Any

import msgspec

UNITS = {
    "ttft": "s",
    "tpot": "s",
    "itl": "s",
    "e2e_latency": "s",
    "step_time": "s",
    "prefill_time": "s",
    "decode_time": "s",
    "load_time": "s",
    "queue_time": "s",
    "duration": "s",
    "output_throughput": "tokens/s",
    "output_throughput_per_user": "tokens/s",
    "peak_output_throughput": "tokens/s",
    "input_throughput": "tokens/s",
    "total_throughput": "tokens/s",
    "request_throughput": "requests/s",
    "request_rate": "requests/s",
    "concurrency": "sequences",
    "peak_concurrency": "sequences",
    "waiting": "sequences",
    "requests": "requests",
    "failed_requests": "requests",
    "input_tokens": "tokens",
    "output_tokens": "tokens",
    "output_tokens_retokenized": "tokens",
    "total_tokens": "tokens",
    "input_len": "tokens",
    "output_len": "tokens",
    "requested_output_len": "tokens",
    "cached_tokens": "tokens",
    "acceptance_rate": "share",
    "acceptance_length": "tokens",
    "drafts": "drafts",
    "draft_tokens": "tokens",
    "accepted_tokens": "tokens",
    "cache_usage": "share",
    "prefix_hit_rate": "share",
    "preemptions": "preemptions",
    "utilisation": "share",
    "kernel_time": "s",
    "time_share": "share",
    "calls": "calls",
    "memory": "bytes",
    "memory_capacity": "bytes",
    "memory_throughput": "bytes/s",
    "power": "W",
    "power_cap": "W",
    "temperature": "degC",
    "tokens_per_kilowatt": "tokens/s/kW",
}
GB, GIB, MIB = 1e9, 2.0**30, 2.0**20
# names of the statistics that tools use, in lower case
STATISTICS = {"avg": "mean", "average": "mean", "p50": "median", "p50.0": "median", "minimum": "min", "maximum": "max"}
SINGLE, STATIC = "single stream", "static batch"
CLOSED, OPEN = "closed loop: an upper bound of the sequences", "open loop: as many sequences as arrive"
PARALLEL, UNSAID = "parallel sequences", "not stated"


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One figure: SI units, never negative and always finite."""

    name: str
    value: float
    unit: str
    statistic: str


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run. What a text does not say is None; ``queueing`` is whether requests may have waited before their prefill.

    ``batch`` says what a batch means there; ``batch_size`` is a batch only where sequences really ran together.
    """

    tool: str
    line: int
    measurements: tuple[Measurement, ...] = ()
    phase: str | None = None
    batch: str = UNSAID
    batch_size: int | None = None
    max_concurrency: int | None = None
    input_len: int | None = None
    output_len: int | None = None
    cached_len: int | None = None
    requested_output_len: int | None = None
    model: str | None = None
    part: str | None = None
    parts: int | None = None
    engine: str | None = None
    enforce_eager: bool | None = None
    dtype: str | None = None
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    data_parallel_size: int | None = None
    expert_parallel_size: int | None = None
    speculative: bool | None = None
    queueing: bool | None = None
    notes: tuple[str, ...] = ()

    def get(self, name: str, *statistics: str) -> float | None:
        """The figure of the first of these statistics that is there (mean, then median, without any)."""
        for statistic in statistics or ("mean", "median", "last", "total"):
            for each in self.measurements:
                if (each.name, each.statistic) == (name, statistic):
                    return each.value
        return None


class Found:
    """Figures as a reader meets them; what is not finite or negative is no figure."""

    def __init__(self) -> None:
        self._figures: dict[tuple[str, str], Measurement] = {}

    def add(self, name: str, value: Any, statistic: str = "mean", scale: float = 1.0) -> None:
        """Add a figure, times ``scale`` to make it SI. None, text, NaN and infinities are passed over."""
        number = number_of(value)
        if number is None or not 0 <= number * scale < math.inf:
            return
        known = STATISTICS.get(statistic.lower(), statistic.lower())
        self._figures[name, known] = Measurement(name=name, value=number * scale, unit=UNITS[name], statistic=known)

    def has(self, name: str, statistic: str) -> bool:
        """Whether this figure is there already."""
        return (name, STATISTICS.get(statistic.lower(), statistic.lower())) in self._figures

    def value(self, name: str, statistic: str = "mean") -> float | None:
        """A figure, or None."""
        figure = self._figures.get((name, statistic))
        return figure.value if figure else None

    def all(self) -> tuple[Measurement, ...]:
        """Every figure, in the order of the text."""
        return tuple(self._figures.values())

    def __bool__(self) -> bool:
        return bool(self._figures)


def number_of(value: Any) -> float | None:
    """A number of JSON, or of text without a unit; None for everything else, true and false included."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def whole(value: Any) -> int | None:
    """A count of at least 1, rounded, or None."""
    number = number_of(value)
    return None if number is None or not 1 <= number < 10**12 else round(number)


def word(value: Any) -> str | None:
    """A text that is not empty, or None."""
    return value if isinstance(value, str) and value.strip() else None


def mean_len(total: float | None, count: float | None) -> int | None:
    """Tokens a request."""
    return whole(total / count) if total and count else None
