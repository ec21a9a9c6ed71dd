"""Time in which a device did nothing, by cause: walked in pieces, so that a long trace needs only its columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flopmap.diagnosis.traces.activity import UNLAUNCHED
from flopmap.diagnosis.traces.profile import IDLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from flopmap.diagnosis.traces.activity import Activities

PIECE = 2**16
PROMPT = 100.0  # µs: launched work starts within a few µs; what takes longer waits for something else
ROUNDING = 0.01  # µs: times of day in µs are floats that hold a nanosecond


class Timeline(NamedTuple):
    """The activities of one device by their start, in µs; ``collective`` marks communication."""

    start: NDArray[Any]
    end: NDArray[Any]
    name: NDArray[Any]
    correlation: NDArray[Any]
    collective: NDArray[Any]


class Gaps(NamedTuple):
    """Microseconds idle by cause, and before the activities of each name."""

    idle: dict[str, float]
    before: NDArray[Any]


class Piece(NamedTuple):
    """Gaps of a piece of a timeline: the activity that ends each, the one that began it, and where it began."""

    ends: NDArray[Any]
    after: NDArray[Any]
    begin: NDArray[Any]


def gaps(line: Timeline, found: Activities, names: int) -> Gaps:
    """All gaps of a timeline. ``names`` is how many names there are."""
    idle = dict.fromkeys(IDLE, 0.0)
    before: NDArray[Any] = np.zeros(names)
    launches = Launches(found)
    for piece in pieces(line.start, line.end):
        stop = line.start[piece.ends]
        before += np.bincount(line.name[piece.ends], weights=stop - piece.begin, minlength=names)
        beside = line.collective[piece.ends] | line.collective[piece.after]
        for cause, time in _by_cause(piece.begin, stop, beside, launches.of(line.correlation[piece.ends])).items():
            idle[cause] += time
    return Gaps(idle, before)


def covered(start: NDArray[Any], end: NDArray[Any]) -> float:
    """Microseconds that intervals cover, which are sorted by their start."""
    if not len(start):
        return 0.0
    idle = sum(float((start[piece.ends] - piece.begin).sum()) for piece in pieces(start, end))
    return float(end.max() - start[0]) - idle


def pieces(start: NDArray[Any], end: NDArray[Any]) -> Iterator[Piece]:
    """The gaps between intervals that are sorted by their start."""
    reach, owner = float(end[0]), 0  # how far anything has run, and what ran so far
    for low in range(1, len(start), PIECE):
        high = min(low + PIECE, len(start))
        reached = np.maximum.accumulate(np.concatenate(([reach], end[low:high])))
        owners = np.where(end[low:high] >= reached[1:], np.arange(low, high), 0)
        owners = np.maximum.accumulate(np.concatenate(([owner], owners)))
        at = np.flatnonzero(start[low:high] > reached[:-1] + ROUNDING)
        yield Piece(ends=at + low, after=owners[:-1][at], begin=reached[:-1][at])
        reach, owner = float(reached[-1]), int(owners[-1])


def _by_cause(
    begin: NDArray[Any],
    stop: NDArray[Any],
    beside: NDArray[Any],
    launch: tuple[NDArray[Any], NDArray[Any], NDArray[Any]],
) -> dict[str, float]:
    """Microseconds by cause of gaps, ``beside`` a collective, with the launches of what ends them."""
    called, returned, known = launch
    called = np.clip(called, begin, stop)  # where the work was queued, the host has no part in it
    waited = known & (called == begin) & beside
    counted = known & ~waited
    launched = np.minimum(stop, np.maximum(called, returned) + PROMPT)
    return {
        "host": float((called - begin)[counted].sum()),
        "launch": float((launched - called)[counted].sum()),
        "communication": float((stop - begin)[waited].sum()),
        "waiting": float((stop - launched)[counted].sum()),
        "unknown": float((stop - begin)[~known].sum()),
    }


class Launches:
    """The calls that launched activities, by correlation."""

    def __init__(self, found: Activities) -> None:
        self._calls = np.asarray(found.launch_correlation)
        self._start, self._end = np.asarray(found.launch_start), np.asarray(found.launch_end)
        self._order = np.argsort(self._calls, kind="stable").astype(np.int32)

    def of(self, correlation: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """When the launches of these correlations were called and returned, and whether that is known."""
        if not len(self._calls):
            nothing = np.zeros(len(correlation))
            return nothing, nothing, nothing > 0
        place = np.searchsorted(self._calls, correlation, sorter=self._order)
        at = self._order[np.minimum(place, len(self._calls) - 1)]
        known = (self._calls[at] == correlation) & (correlation != UNLAUNCHED)
        return self._start[at], self._end[at], known
