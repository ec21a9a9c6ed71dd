"""What a trace says, in seconds: where the time of a device went, by kind of work, and why it was idle."""

from __future__ import annotations

import msgspec

IDLE = {
    "host": "the host had not yet begun the next launch (Python, scheduler, sampler, waiting for a result)",
    "launch": "from the launch call to the start of the kernel, and between kernels that were queued",
    "communication": "queued work before or after a collective",
    "waiting": "launched work that did not start: an event, another stream, or work that is not in the trace",
    "unknown": "the trace does not tell what launched the next kernel",
}


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of work: summed time of its kernels. ``classes`` are the op classes whose floors it is held against."""

    id: str
    title: str
    seconds: float
    calls: int
    libraries: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels of one name. ``idle_seconds`` is the time that the device was idle before them; no work is unmatched."""

    name: str
    work: str | None
    library: str | None
    seconds: float
    calls: int
    idle_seconds: float = 0.0


class Communication(msgspec.Struct, frozen=True, kw_only=True):
    """Time in which a collective ran: alone, or beside other work."""

    seconds: float = 0.0
    exposed_seconds: float = 0.0
    overlapped_seconds: float = 0.0


class Graphs(msgspec.Struct, frozen=True, kw_only=True):
    """Launches of captured graphs, how many of them have their kernels in the trace, and how many kernels those are."""

    launches: int = 0
    expanded: int = 0
    kernels: int = 0


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """The steps that are marked in a trace; what they say of their shape is a mean over them."""

    count: int
    phase: str | None = None
    batch_size: int | None = None
    context_len: int | None = None
    input_len: int | None = None
    cached_len: int | None = None


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """A trace. ``wall`` is 0 where it has durations only; ``kernel_seconds`` may exceed ``busy``: streams overlap."""

    device: str
    wall: float
    busy: float
    kernel_seconds: float
    activities: int
    idle: dict[str, float]
    communication: Communication
    graphs: Graphs
    work: tuple[Work, ...]
    kernels: tuple[Kernel, ...]
    steps: Steps | None = None
    other_devices: dict[str, float] = {}

    @property
    def matched(self) -> float:
        """The share of the time of kernels whose kind of work is known."""
        known = sum(each.seconds for each in self.work)
        return known / self.kernel_seconds if self.kernel_seconds else 0.0


def shares(profile: Profile, floor_seconds: float) -> dict[str, float]:
    """What a step's time was, by cause, as shares: its floor, kernels above it, idle time and communication.

    ``floor_seconds`` is that of one step. The cause of the floor itself is under ``floor``.
    """
    assert profile.steps is not None  # noqa: S101 - only what has steps is held against the floor of one
    exposed = profile.communication.exposed_seconds
    work = (profile.busy - exposed) / profile.steps.count
    idle = {name: time / profile.steps.count for name, time in profile.idle.items()}
    found = {
        "floor": min(floor_seconds, work),
        "slow kernels": max(0.0, work - floor_seconds),
        "launch-host": idle.get("host", 0.0) + idle.get("launch", 0.0),
        "interconnect": exposed / profile.steps.count + idle.get("communication", 0.0),
        "waiting": idle.get("waiting", 0.0),
        "unknown idle": idle.get("unknown", 0.0),
    }
    whole = sum(found.values())
    return {name: time / whole for name, time in found.items() if time}


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of work against the floor of its op classes, seconds of one step; ``over`` is measured over floor."""

    work: Work
    seconds: float
    floor_seconds: float | None
    over: float | None


def against(profile: Profile, floors: dict[str, float]) -> tuple[tuple[Lost, ...], dict[str, float]]:
    """Each kind of work beside its floor, and the floors that no kernel of the trace is for. ``floors`` by op class."""
    assert profile.steps is not None  # noqa: S101 - only what has steps is held against the floor of one
    rows, left = [], dict(floors)
    for work in profile.work:
        seconds = work.seconds / profile.steps.count
        priced = [left.pop(name) for name in work.classes if name in left]
        floor = sum(priced) or None
        rows.append(Lost(work=work, seconds=seconds, floor_seconds=floor, over=seconds / floor if floor else None))
    return tuple(rows), {name: seconds for name, seconds in left.items() if seconds}


def lost(kernel: Kernel, rows: tuple[Lost, ...]) -> float:
    """Seconds that kernels of a name took above their part of the floor, with the idle time before them.

    The floor of a kind of work is parted among its kernels by their time; where there is none, all time is lost.
    """
    row = next((row for row in rows if row.work.id == kernel.work), None)
    over = row.over if row else None
    return kernel.idle_seconds + kernel.seconds * (1 - 1 / over if over else 1.0)
