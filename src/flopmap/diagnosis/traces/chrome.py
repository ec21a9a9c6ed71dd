"""Chrome traces: of the torch profiler (vLLM, SGLang, Hugging Face on CUDA and HIP) and of JAX and XLA.

The torch profiler says by category what an event is. XLA says it by the names of processes and threads, which come
first.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from flopmap.diagnosis.errors import ReadingError
from flopmap.diagnosis.traces.activity import Activities
from flopmap.diagnosis.traces.stream import Events

if TYPE_CHECKING:
    from collections.abc import Callable

    from flopmap.diagnosis.traces.stream import Event, Properties

TORCH, XLA = "torch profiler trace", "JAX/XLA trace"
ACTIVITIES = frozenset(("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"))  # capitals: torch 1
CALLS = frozenset(("cuda_runtime", "cuda_driver", "Runtime", "hip_runtime"))
LAUNCHES = re.compile(r"Launch|Memcpy|Memset")
MARKS = {"user_annotation": False, "gpu_user_annotation": True}
STEP = re.compile(r"execute_|ProfilerStep#\d|step\[")
ALONE = 0  # where a trace does not name its device
MOST_THREADS = 100_000
# ops that stand for others on the same line
AROUND = frozenset(("while", "conditional", "call"))
NUMBERED = re.compile(r"[.\d]+$")
NOTHING = "a trace without any activity of a GPU: profile with the device's activities on"


def read(read_bytes: Callable[[int], bytes]) -> Activities:
    """The activities of a Chrome trace. Raises :class:`ReadingError`."""
    found = Activities(TORCH)
    xla = Xla(found)
    events = Events(read_bytes)
    for chunk in events:
        for event in chunk:
            category = event.cat
            if category in ACTIVITIES:
                _activity(event, found)
            elif category in CALLS:
                if event.args is not None and isinstance(event.name, str) and LAUNCHES.search(event.name):
                    found.launched(event.name, event.ts, event.dur, event.args.correlation)
            elif category in MARKS:
                if isinstance(event.name, str) and STEP.match(event.name):
                    found.step(event.name, event.ts, event.dur, on_device=MARKS[category])
            elif category is None:
                xla.take(event)
    if not found.start:
        odd = ((found.negative, "have a negative duration"), (found.without_time, "have no length"))
        left = ", ".join(f"{count:,} {what}" for count, what in odd if count)
        raise ReadingError(f"{NOTHING} ({left})" if left else NOTHING)
    found.part = next(filter(None, map(_part, events.properties)), found.part)
    found.parts = next(filter(None, map(_parts, events.properties)), None)
    return found


def _activity(event: Event, found: Activities) -> None:
    args = event.args
    device = event.pid if args is None or args.device is None else args.device
    device = ALONE if device is None else device
    found.add(event.name, event.ts, event.dur, device, args.correlation if args else None)


def _part(properties: Properties) -> str | None:
    """The name of the first device that has one."""
    devices = properties.device_properties
    names = [each.get("name") for each in devices if isinstance(each, dict)] if isinstance(devices, list) else []
    return next((name for name in names if isinstance(name, str) and name.strip()), None)


def _parts(properties: Properties) -> int | None:
    """How many ranks ran together."""
    info = properties.distributed_info
    size = info.get("world_size") if isinstance(info, dict) else None
    return size if type(size) is int and 1 < size < 10**6 else None


class Xla:
    """Which threads of an XLA trace are of a device, and their ops."""

    def __init__(self, found: Activities) -> None:
        self._found = found
        self._processes: dict[Any, str] = {}
        self._threads: dict[tuple[Any, Any], str] = {}

    def take(self, event: Event) -> None:
        """An event without a category."""
        if event.ph == "M":
            self._name(event)
            return
        device = self._processes.get(_plain(event.pid))
        if device is None or event.ph != "X":
            return
        line = self._threads.get((_plain(event.pid), _plain(event.tid)), "")
        if line == "Steps":
            self._found.step(str(event.name), event.ts, event.dur, on_device=True)
        elif line == "XLA Ops" or line.startswith("Stream #"):
            self._op(event, device)

    def _name(self, event: Event) -> None:
        name = event.args.name if event.args else None
        if not isinstance(name, str):
            return
        if event.name == "process_name" and name.startswith("/device:"):
            self._processes[_plain(event.pid)] = name
            self._found.tool = XLA
        elif event.name == "thread_name" and len(self._threads) < MOST_THREADS:
            self._threads[_plain(event.pid), _plain(event.tid)] = name

    def _op(self, event: Event, device: str) -> None:
        name, args = event.name, event.args
        if not isinstance(name, str):
            return
        plain = NUMBERED.sub("", name)
        category = args.hlo_category if args else None
        if plain in AROUND or category in AROUND:
            return
        if isinstance(category, str):
            name = f"xla:{category}:{plain}"
        self._found.add(name, event.ts, event.dur, device, args.correlation_id if args else None)


def _plain(value: Any) -> Any:
    """A value that can be looked up."""
    return value if isinstance(value, (str, int)) else str(value)
