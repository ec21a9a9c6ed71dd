"""What the trace of a profiler says: the answer, tables of kinds of work, idle time and kernels, and data."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from flopmap.diagnosis.traces.profile import IDLE, against, lost
from flopmap.quantity import percent, seconds, significant
from flopmap.records.book import to_data
from flopmap.report import content
from flopmap.report.content import Table, lower

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flopmap.diagnosis.diagnose import Diagnosis
    from flopmap.diagnosis.traces.profile import Kernel, Lost, Profile
    from flopmap.diagnosis.verdict import Verdict

MOST_WORK = 3  # named in the answer
MOST_KERNELS = 10
MOST_UNMATCHED = 5
MOST_DATA = 100
LONGEST_NAME = 72
LEAST_SHARE = 0.005
NAMESPACE = re.compile(r"\(anonymous namespace\)::|\b[A-Za-z_]\w*::")
IDLE_WORDS = {
    "host": "host",
    "launch": "launch gaps",
    "communication": "communication gaps",
    "waiting": "waiting",
    "unknown": "idle for an unknown reason",
}


def headline(profile: Profile) -> str:
    """What took the time, in one line."""
    work = ", ".join(
        f"{lower(each.title)} {percent(each.seconds / profile.kernel_seconds)}" for each in profile.work[:MOST_WORK]
    )
    if not profile.wall:
        return f"{seconds(profile.kernel_seconds)} of kernels, without the time between them: {work or 'none is known'}"
    idle = sorted(profile.idle.items(), key=lambda item: -item[1])
    parts = [
        f"{IDLE_WORDS[name]} {percent(time / profile.wall)}"
        for name, time in idle
        if time >= LEAST_SHARE * profile.wall
    ]
    if profile.communication.exposed_seconds >= LEAST_SHARE * profile.wall:
        parts.append(f"exposed communication {percent(profile.communication.exposed_seconds / profile.wall)}")
    answer = f"GPU busy {percent(profile.busy / profile.wall)} of {seconds(profile.wall)}"
    return f"{answer}; {', '.join(parts) or 'hardly idle'}; of the time of kernels: {work or 'none is known'}"


def held(verdict: Verdict) -> str:
    """The step against its floor, as the second half of the answer."""
    if not verdict.causes or verdict.causes[0].cause == "impossible input":
        return content.headline(verdict)
    floor = verdict.pricing.operation_seconds
    assert verdict.measured is not None  # noqa: S101 - a judged step is measured
    step, over = seconds(verdict.measured.seconds), significant(verdict.measured.seconds / floor)
    most = verdict.causes[0]
    return f"{step} a step is {over}x the floor of {seconds(floor)}, {percent(most.weight)} of it {most.cause}"


def rows_of(diagnosis: Diagnosis) -> tuple[tuple[Lost, ...], dict[str, float]]:
    """Each kind of work beside its floor, and floors without a kernel; nothing where no step was priced."""
    profile = diagnosis.run.profile
    if profile is None or not diagnosis.judged:
        return (), {}
    floors: dict[str, float] = {}
    for line in diagnosis.judged[0].verdict.pricing.lines:
        name = line.line.op.op_class
        floors[name] = floors.get(name, 0.0) + line.seconds
    return against(profile, floors)


def lines(diagnosis: Diagnosis) -> list[str]:
    """What is said below the answer."""
    profile = diagnosis.run.profile
    if profile is None:
        return []
    said = [f"  {percent(profile.matched)} of the time of kernels is of a known kind of work; device {profile.device}"]
    for name, time in profile.idle.items():
        if time >= LEAST_SHARE * profile.wall:
            said.append(f"  {IDLE_WORDS[name]} {seconds(time)}: {IDLE[name]}")
    talk = profile.communication
    if talk.seconds:
        said.append(
            f"  communication {seconds(talk.seconds)}: {seconds(talk.exposed_seconds)} exposed, "
            f"{seconds(talk.overlapped_seconds)} beside other work"
        )
    if profile.graphs.launches:
        graphs = profile.graphs
        said.append(
            f"  launches of graphs: {graphs.launches:,}, {graphs.expanded:,} with their kernels ({graphs.kernels:,})"
        )
    if profile.steps:
        steps = profile.steps
        shape = [f"{steps.phase}" if steps.phase else "of a shape that is not marked"]
        shape += [
            f"{word} {value:,}"
            for word, value in (
                ("batch", steps.batch_size),
                ("mean context", steps.context_len),
                ("prompt", steps.input_len),
            )
            if value
        ]
        said.append(f"  steps: {steps.count:,}, {', '.join(shape)}")
    unmatched = [kernel for kernel in profile.kernels if kernel.work is None]
    said += [
        f"  unmatched {percent(kernel.seconds / profile.kernel_seconds)}: {kernel.name[:LONGEST_NAME]}"
        for kernel in unmatched[:MOST_UNMATCHED]
    ]
    if len(unmatched) > MOST_UNMATCHED:
        rest = sum(kernel.seconds for kernel in unmatched[MOST_UNMATCHED:])
        said.append(
            f"  unmatched {percent(rest / profile.kernel_seconds)}: {len(unmatched) - MOST_UNMATCHED} more (--json)"
        )
    if profile.other_devices:
        said.append(
            f"  {len(profile.other_devices)} more devices in the trace, each with less time; this is the busiest"
        )
    return said


def tables(diagnosis: Diagnosis) -> list[Table]:
    """Kinds of work with their floors, and the kernels that lost the most time."""
    profile = diagnosis.run.profile
    if profile is None:
        return []
    rows, left = rows_of(diagnosis)
    return [_work(profile, rows, left), _kernels(profile, rows)]


def _work(profile: Profile, rows: Sequence[Lost], left: dict[str, float]) -> Table:
    if not rows:
        cells = [
            (
                each.title,
                seconds(each.seconds),
                percent(each.seconds / profile.kernel_seconds),
                f"{each.calls:,}",
                ", ".join(each.libraries),
            )
            for each in profile.work
        ]
        return Table("Where the time of kernels went", ("work", "time", "share", "calls", "libraries"), cells)
    cells = [
        (
            row.work.title,
            seconds(row.seconds),
            percent(row.work.seconds / profile.kernel_seconds),
            seconds(row.floor_seconds) if row.floor_seconds else "not counted",
            f"{significant(row.over)}x" if row.over else "",
        )
        for row in rows
    ]
    cells += [(f"{name}: in kernels of other work", "", "", seconds(floor), "") for name, floor in left.items()]
    return Table("A step against its floor", ("work", "time", "share", "floor", "over"), cells)


def _kernels(profile: Profile, rows: tuple[Lost, ...]) -> Table:
    ranked = sorted(profile.kernels, key=lambda kernel: -lost(kernel, rows))[:MOST_KERNELS]
    cells = [
        (
            _short(kernel.name),
            seconds(lost(kernel, rows)),
            seconds(kernel.seconds),
            seconds(kernel.idle_seconds),
            f"{kernel.calls:,}",
            kernel.work or "unmatched",
        )
        for kernel in ranked
    ]
    what = "above its part of the floor" if rows else "own time"
    title = f"Kernels by time lost ({what}, and idle before)"
    return Table(title, ("kernel", "lost", "time", "idle before", "calls", "work"), cells)


def _short(name: str) -> str:
    """A name without namespaces and arguments, which are most of it."""
    plain = NAMESPACE.sub("", name.removeprefix("void ")).split("(", 1)[0]
    return plain if len(plain) <= LONGEST_NAME else f"{plain[: LONGEST_NAME - 1]}…"


def text(diagnosis: Diagnosis) -> str:
    """The tables in columns."""
    written = ""
    for table in tables(diagnosis):
        cells = [table.columns, *table.rows]
        widths = [max(len(row[at]) for row in cells) for at in range(len(table.columns))]
        written += f"\n{table.title}\n"
        for row in cells:
            padded = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            written += f"{padded.rstrip()}\n"
    return written


def profile_data(diagnosis: Diagnosis) -> dict[str, Any] | None:
    """A trace for ``--json``; null for what is none."""
    profile = diagnosis.run.profile
    if profile is None:
        return None
    rows, left = rows_of(diagnosis)
    floors = {row.work.id: row for row in rows}
    kernels = sorted(profile.kernels, key=lambda kernel: -lost(kernel, rows))
    work = []
    for each in profile.work:
        row = floors.get(each.id)
        work.append(
            {
                **to_data(each),
                "share": each.seconds / profile.kernel_seconds,
                "floor_seconds": row.floor_seconds if row else None,
                "over_floor": row.over if row else None,
            }
        )
    return {
        **to_data(profile),
        "matched_share": profile.matched,
        "work": work,
        "kernels": [_kernel_data(kernel, rows) for kernel in kernels[:MOST_DATA]],
        "floors_without_kernels": left,
    }


def _kernel_data(kernel: Kernel, rows: tuple[Lost, ...]) -> dict[str, Any]:
    return {**to_data(kernel), "lost_seconds": lost(kernel, rows)}
