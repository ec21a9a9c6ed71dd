"""From columns to a profile: busy and idle time of the busiest device, gaps by cause, exposed communication."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import numpy as np

from flopmap.diagnosis.traces.gaps import Timeline, covered, gaps
from flopmap.diagnosis.traces.kernels import COLLECTIVE
from flopmap.diagnosis.traces.profile import Communication, Graphs, Kernel, Profile, Work
from flopmap.diagnosis.traces.steps import read_steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from flopmap.diagnosis.traces.activity import Activities
    from flopmap.diagnosis.traces.kernels import Match, Matcher

SECONDS = 1e-6


def profile(found: Activities, matcher: Matcher, steps: int | None = None) -> Profile:
    """The profile of a trace, whose columns it takes over. ``steps`` is what the user says of their number."""
    totals = np.bincount(np.asarray(found.device), weights=np.asarray(found.duration))
    busiest = int(totals.argmax())
    matches = [matcher.match(each) for each in found.names]
    line, seconds = _line(found, _chosen(found, busiest), matches)
    calls = np.bincount(line.name, minlength=len(matches))
    for number, more in found.more_calls.items():
        calls[number] += more
    wall, busy = 0.0, float(seconds.sum())
    idle: dict[str, float] = {}
    before: NDArray[Any] = np.zeros(len(matches))
    communication = Communication()
    if found.timed:
        wall = float(line.end.max() - line.start[0]) * SECONDS
        told = gaps(line, found, len(matches))
        idle = {cause: time * SECONDS for cause, time in told.idle.items()}
        before = told.before * SECONDS
        busy = max(0.0, wall - sum(idle.values()))
        communication = _communication(line, busy)
    return Profile(
        device=found.devices[busiest],
        wall=wall,
        busy=busy,
        kernel_seconds=float(seconds.sum()),
        activities=int(calls.sum()),
        idle=idle,
        communication=communication,
        graphs=_graphs(found, line.correlation),
        work=_work(matches, seconds, calls, matcher),
        kernels=_kernels(found.names, matches, seconds, calls, before),
        steps=read_steps(found, steps),
        other_devices={
            found.devices[other]: float(total) * SECONDS for other, total in enumerate(totals) if other != busiest
        },
    )


def _chosen(found: Activities, device: int) -> NDArray[Any]:
    """The activities of a device within the steps that are marked on it, by their start; all where none is marked."""
    of_device = np.asarray(found.device) == device
    marked = [step for step in found.steps if step.on_device]
    start = np.asarray(found.start)
    chosen = np.zeros(0, dtype=np.int64)
    if marked:
        first, last = min(step.start for step in marked), max(step.end for step in marked)
        chosen = np.flatnonzero(of_device & (start >= first) & (start < last))
    if not len(chosen):
        chosen = np.flatnonzero(of_device)
    return chosen[np.argsort(start[chosen], kind="stable")] if found.timed else chosen


def _line(found: Activities, chosen: NDArray[Any], matches: Sequence[Match]) -> tuple[Timeline, NDArray[Any]]:
    """The columns of these activities, and seconds by name.

    Columns of the trace are let go one by one, for they may be most of the memory.
    """
    start = np.asarray(found.start)[chosen]
    found.start = array("d")
    name = np.asarray(found.name)[chosen]
    found.name = array("i")
    end = np.asarray(found.duration)[chosen]
    found.duration = array("d")
    # of durations and not of the times of day, which are rounded
    seconds: NDArray[Any] = np.bincount(name, weights=end, minlength=len(matches)) * SECONDS
    end += start
    correlation = np.asarray(found.correlation)[chosen]
    found.correlation = array("q")
    collective = np.array([match.work == COLLECTIVE for match in matches])[name]
    return Timeline(start, end, name, correlation, collective), seconds


def _communication(line: Timeline, busy: float) -> Communication:
    if not line.collective.any():
        return Communication()
    total = covered(line.start[line.collective], line.end[line.collective]) * SECONDS
    others = ~line.collective
    exposed = max(0.0, busy - covered(line.start[others], line.end[others]) * SECONDS)
    return Communication(
        seconds=total, exposed_seconds=min(exposed, total), overlapped_seconds=max(0.0, total - exposed)
    )


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
