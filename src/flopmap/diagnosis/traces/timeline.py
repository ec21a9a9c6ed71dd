"""From columns to a profile: busy and idle time of the busiest device, gaps by cause, exposed communication."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flopmap.diagnosis.traces.activity import UNLAUNCHED
from flopmap.diagnosis.traces.kernels import COLLECTIVE
from flopmap.diagnosis.traces.profile import IDLE, Communication, Graphs, Kernel, Profile, Work
from flopmap.diagnosis.traces.steps import read_steps

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from flopmap.diagnosis.traces.activity import Activities
    from flopmap.diagnosis.traces.kernels import Match, Matcher

SECONDS = 1e-6
PROMPT = 100.0  # µs: launched work starts within a few µs; what takes longer waits for something else
ROUNDING = 0.01  # µs: times of day in µs are floats that hold a nanosecond


def profile(found: Activities, matcher: Matcher, steps: int | None = None) -> Profile:
    """The profile of a trace. ``steps`` is what the user says of their number."""
    device = _column(found.device)
    duration = _column(found.duration)
    totals = np.bincount(device, weights=duration)
    busiest = int(totals.argmax())
    start = _column(found.start)
    chosen = np.flatnonzero((device == busiest) & _within(found, start))
    if not len(chosen):
        chosen = np.flatnonzero(device == busiest)
    if found.timed:
        chosen = chosen[np.argsort(start[chosen], kind="stable")]
    start = start[chosen]
    duration = duration[chosen]
    name = _column(found.name)[chosen]
    correlation = _column(found.correlation)[chosen]
    matches = [matcher.match(each) for each in found.names]
    collective = np.array([match.work == COLLECTIVE for match in matches])[name]
    seconds = SECONDS * np.bincount(name, weights=duration, minlength=len(matches))
    calls = np.bincount(name, minlength=len(matches))
    for number, more in found.more_calls.items():
        calls[number] += more
    wall = busy = 0.0
    idle: dict[str, float] = {}
    before: NDArray[Any] = np.zeros(len(matches))
    communication = Communication()
    if found.timed:
        end = start + duration
        wall = float(end.max() - start[0]) * SECONDS
        busy = _union(start, end)
        gaps, idle = _gaps(start, end, correlation, collective, found)
        before = np.bincount(name[gaps[0]], weights=gaps[1], minlength=len(matches)) * SECONDS
        communication = _communication(start, end, collective, busy)
    return Profile(
        device=found.devices[busiest],
        wall=wall,
        busy=busy if found.timed else float(seconds.sum()),
        kernel_seconds=float(seconds.sum()),
        activities=int(calls.sum()),
        idle=idle,
        communication=communication,
        graphs=_graphs(found, correlation),
        work=_work(matches, seconds, calls, matcher),
        kernels=_kernels(found.names, matches, seconds, calls, before),
        steps=read_steps(found, steps),
        other_devices={
            found.devices[other]: float(total) * SECONDS for other, total in enumerate(totals) if other != busiest
        },
    )


def _column(values: array[Any]) -> NDArray[Any]:
    return np.asarray(values)


def _within(found: Activities, start: NDArray[Any]) -> NDArray[Any]:
    """What began in the steps that are marked on the device, from the first to the last; all where none is."""
    marked = [step for step in found.steps if step.on_device]
    if not marked:
        return np.ones(len(start), dtype=bool)
    first, last = min(step.start for step in marked), max(step.end for step in marked)
    return (start >= first) & (start < last)


def _union(start: NDArray[Any], end: NDArray[Any]) -> float:
    """Seconds covered by intervals that are sorted by their start."""
    if not len(start):
        return 0.0
    reach = np.maximum.accumulate(end)
    gaps = np.maximum(start[1:] - reach[:-1], 0.0)
    return float(reach[-1] - start[0] - gaps.sum()) * SECONDS


def _communication(start: NDArray[Any], end: NDArray[Any], collective: NDArray[Any], busy: float) -> Communication:
    if not collective.any():
        return Communication()
    total = _union(start[collective], end[collective])
    exposed = max(0.0, busy - _union(start[~collective], end[~collective]))
    return Communication(
        seconds=total, exposed_seconds=min(exposed, total), overlapped_seconds=max(0.0, total - exposed)
    )


def _gaps(
    start: NDArray[Any],
    end: NDArray[Any],
    correlation: NDArray[Any],
    collective: NDArray[Any],
    found: Activities,
) -> tuple[tuple[NDArray[Any], NDArray[Any]], dict[str, float]]:
    """The activities that end a gap and the length of each (µs), and the seconds of idle time by cause."""
    reach = np.maximum.accumulate(end)
    ends = np.flatnonzero(start[1:] > reach[:-1] + ROUNDING) + 1
    begin, stop = reach[ends - 1], start[ends]
    length = stop - begin
    called, returned, known = _launches(correlation[ends], found)
    called = np.clip(called, begin, stop)  # where the work was queued, the host has no part in it
    last = np.maximum.accumulate(np.where(end >= reach, np.arange(len(end)), 0))[ends - 1]
    beside = known & (called == begin) & (collective[ends] | collective[last])
    counted = known & ~beside
    launched = np.minimum(stop, np.maximum(called, returned) + PROMPT)
    parts = {
        "host": (called - begin)[counted].sum(),
        "launch": (launched - called)[counted].sum(),
        "communication": length[beside].sum(),
        "waiting": (stop - launched)[counted].sum(),
        "unknown": length[~known].sum(),
    }
    return (ends, length), {name: float(parts[name]) * SECONDS for name in IDLE}


def _launches(correlation: NDArray[Any], found: Activities) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """When the launches of these correlations were called and returned, and whether that is known."""
    calls = _column(found.launch_correlation)
    if not len(calls):
        nothing = np.zeros(len(correlation))
        return nothing, nothing, nothing > 0
    order = np.argsort(calls, kind="stable")
    place = np.minimum(np.searchsorted(calls, correlation, sorter=order), len(calls) - 1)
    at = order[place]
    known = (calls[at] == correlation) & (correlation != UNLAUNCHED)
    return _column(found.launch_start)[at], _column(found.launch_end)[at], known


def _graphs(found: Activities, correlation: NDArray[Any]) -> Graphs:
    launches = len(found.graph_launches)
    if not launches:
        return Graphs(launches=found.whole_graphs)
    of_graphs = np.isin(correlation, np.fromiter(found.graph_launches, dtype=np.int64))
    inside = correlation[of_graphs]
    expanded = 0 if found.whole_graphs else len(np.unique(inside))
    return Graphs(launches=launches, expanded=expanded, kernels=len(inside) if expanded else 0)


def _work(matches: Sequence[Match], seconds: NDArray[Any], calls: NDArray[Any], matcher: Matcher) -> tuple[Work, ...]:
    libraries: dict[str, dict[str, None]] = {}
    totals: dict[str, list[float]] = {}
    for match, time, count in zip(matches, seconds, calls, strict=True):
        if match.work is None or not count:
            continue
        total = totals.setdefault(match.work, [0.0, 0])
        total[0] += float(time)
        total[1] += int(count)
        if match.library:
            libraries.setdefault(match.work, {})[match.library] = None
    rows = [
        Work(
            id=name,
            title=matcher.title(name),
            seconds=time,
            calls=int(count),
            libraries=tuple(libraries.get(name, ())),
            classes=matcher.classes(name),
        )
        for name, (time, count) in totals.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.seconds, row.id)))


def _kernels(
    names: Sequence[str],
    matches: Sequence[Match],
    seconds: NDArray[Any],
    calls: NDArray[Any],
    before: NDArray[Any],
) -> tuple[Kernel, ...]:
    rows = [
        Kernel(
            name=names[at],
            work=matches[at].work,
            library=matches[at].library,
            seconds=float(seconds[at]),
            calls=int(calls[at]),
            idle_seconds=float(before[at]),
        )
        for at in np.flatnonzero(calls).tolist()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.seconds - row.idle_seconds, row.name)))
