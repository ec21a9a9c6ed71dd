"""What a trace is to us: activities of a device in columns, the calls that launched them, and the steps around them.

Columns of numbers and not objects: a million kernels take 32 MB. Times are microseconds as the traces have them.
"""

from __future__ import annotations

from array import array
from typing import Any

import msgspec

from flopmap.diagnosis.errors import ReadingError

MOST_ACTIVITIES = 3_000_000  # and as many launches: what fits below 300 MB with its analysis
MOST_NAMES = 50_000
MOST_STEPS = 100_000
LONGEST_NAME = 1_000
UNLAUNCHED = -1
LARGEST_TIME = 1e18  # µs


class StepSpan(msgspec.Struct, frozen=True):
    """A step that a profiler or an engine marked, by name; ``on_device`` marks what the device did for it."""

    name: str
    start: float
    end: float
    on_device: bool


class Activities:
    """The columns of one trace, filled by a reader."""

    def __init__(self, tool: str) -> None:
        self.tool = tool
        self.start, self.duration = array("d"), array("d")
        self.name, self.device = array("i"), array("i")
        self.correlation = array("q")
        self.launch_correlation = array("q")
        self.launch_start, self.launch_end = array("d"), array("d")
        self.graph_launches: set[int] = set()
        self.whole_graphs = 0  # launches of graphs that are there as one activity, without their kernels
        self.names: list[str] = []
        self.devices: list[str] = []
        self.steps: list[StepSpan] = []
        self.part: str | None = None
        self.parts: int | None = None
        self.origin: int | None = None  # nanoseconds of the first time, where times are too large for a float
        self.timed = True  # False where a format has durations and no times, so that gaps cannot be known
        self.without_time = 0
        self.negative = 0
        self.unreadable = 0
        self.more_calls: dict[int, int] = {}  # by number of the name, where a row stands for several
        self.notes: list[str] = []
        self._names: dict[str, int] = {}
        self._devices: dict[str, int] = {}

    def add(self, name: Any, start: Any, duration: Any, device: Any, correlation: Any = None) -> None:
        """An activity of a device. What has no time is counted and left out."""
        if not (_is_time(start) and _is_time(duration) and isinstance(name, str)):
            self.unreadable += 1
            return
        if duration <= 0:
            self.without_time += duration == 0
            self.negative += duration < 0
            return
        if len(self.start) >= MOST_ACTIVITIES:
            raise ReadingError(f"more than {MOST_ACTIVITIES:,} activities of a device: profile fewer steps")
        known = self._names.get(name)
        self.name.append(self._new_name(name) if known is None else known)
        number = self._devices.get(device)
        self.device.append(self._new_device(device) if number is None else number)
        self.start.append(start)
        self.duration.append(duration)
        self.correlation.append(correlation if _is_correlation(correlation) else UNLAUNCHED)

    def stands_for(self, calls: int) -> None:
        """The last activity stands for so many."""
        if self.name:
            self.more_calls[self.name[-1]] = self.more_calls.get(self.name[-1], 0) + calls - 1

    def launched(self, name: str, start: Any, duration: Any, correlation: Any) -> None:
        """A call of the host that launches activities of this correlation."""
        if not (_is_time(start) and _is_correlation(correlation)):
            return
        if len(self.launch_start) >= MOST_ACTIVITIES:
            raise ReadingError(f"more than {MOST_ACTIVITIES:,} launches: profile fewer steps")
        self.launch_correlation.append(correlation)
        self.launch_start.append(start)
        self.launch_end.append(start + (max(duration, 0) if _is_time(duration) else 0))
        if "GraphLaunch" in name:
            self.graph_launches.add(correlation)

    def step(self, name: str, start: Any, duration: Any, *, on_device: bool) -> None:
        """A step that is marked in the trace."""
        if not (_is_time(start) and _is_time(duration)) or duration < 0:
            self.unreadable += 1
            return
        if len(self.steps) >= MOST_STEPS:
            raise ReadingError(f"more than {MOST_STEPS:,} steps: profile fewer")
        self.steps.append(StepSpan(name[:LONGEST_NAME], start, start + duration, on_device))

    def _new_name(self, name: str) -> int:
        short = name[:LONGEST_NAME]
        if len(self.names) >= MOST_NAMES:
            raise ReadingError(f"more than {MOST_NAMES:,} names of kernels: not a trace of inference steps")
        self.names.append(short)
        # a longer name is looked up by its beginning the next time
        return self._names.setdefault(name if len(name) <= LONGEST_NAME else short, len(self.names) - 1)

    def _new_device(self, device: Any) -> int:
        if not isinstance(device, (str, int)) or len(self.devices) >= MOST_NAMES:
            raise ReadingError(f"a device {str(device)[:40]!r}, which is neither a number nor a name")
        self.devices.append(str(device))
        return self._devices.setdefault(device, len(self.devices) - 1)  # type: ignore[arg-type]


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < LARGEST_TIME  # not for NaN


def _is_correlation(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63
