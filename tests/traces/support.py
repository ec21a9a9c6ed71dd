"""Small traces in the exact formats, of our own making: microseconds in Chrome traces, nanoseconds elsewhere."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flopmap.diagnosis.traces.read import read_trace
from flopmap.records.book import load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flopmap.diagnosis.readers.run import Run
    from flopmap.diagnosis.traces.profile import Profile

GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel"
NORM = "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, long, c10::BFloat16*, float, int, int)"
ATTENTION = "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>>(flash::Flash_fwd_params)"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
PROCESS = 0x1_0000_4D2F << 24  # Nsight Systems: a host, a process, and 24 bits of the thread
THREAD = PROCESS + 77
STRANGE = "mystery_kernel_7"
FIXTURES = Path(__file__).parent / "fixtures"
H100 = "NVIDIA H100 80GB HBM3"
BASE = 6_520_618_853_000.0  # µs, as a time of day is written
# name, start, duration, stream, launch: every kind of gap, see test_timeline.py
KERNELS = (
    (GEMM, 10, 20, 7, 1),
    (NORM, 32, 10, 7, 2),
    (ATTENTION, 70, 20, 7, 3),
    (NCCL, 80, 40, 20, 4),
    (GEMM, 125, 10, 7, 5),
    (NORM, 335, 10, 7, 6),
    (STRANGE, 350, 5, 7, None),
)
LAUNCHES = ((0, 5, 1), (12, 2, 2), (60, 3, 3), (61, 2, 4), (62, 2, 5), (63, 2, 6))


def kernel(name: str, start: float, duration: float, stream: int = 7, correlation: int | None = None) -> dict[str, Any]:
    """A kernel as the torch profiler writes it."""
    args: dict[str, Any] = {"External id": 7, "device": 0, "context": 1, "stream": stream, "grid": [1, 1, 1]}
    if correlation is not None:
        args["correlation"] = correlation
    event = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream}
    return {**event, "ts": BASE + start, "dur": duration, "args": args}


def launch(start: float, duration: float, correlation: int, name: str = "cudaLaunchKernel") -> dict[str, Any]:
    """A call of the runtime."""
    event = {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": 1, "ts": BASE + start, "dur": duration}
    return {**event, "args": {"External id": 7, "cbid": 211, "correlation": correlation}}


def mark(name: str, start: float, duration: float, *, device: bool = False) -> dict[str, Any]:
    """An annotation of a step."""
    category = "gpu_user_annotation" if device else "user_annotation"
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": BASE + start, "dur": duration}


def noise() -> list[dict[str, Any]]:
    """What a torch trace has besides, none of which is work of a device."""
    return [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": "aten::mm",
            "pid": 1,
            "tid": 1,
            "ts": BASE,
            "dur": 400,
            "args": {"a": [{}]},
        },
        {"ph": "X", "cat": "python_function", "name": 'f"}, {"ph": "x', "pid": 1, "tid": 1, "ts": BASE, "dur": 400},
        {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": BASE, "args": {}},
        {"ph": "s", "id": 1, "pid": 1, "tid": 1, "ts": BASE, "cat": "ac2g", "name": "ac2g"},
        {"name": "process_name", "ph": "M", "ts": BASE, "pid": 1, "tid": 0, "args": {"name": "python3"}},
        {"ph": "X", "cat": "Trace", "ts": BASE, "dur": 9, "pid": "Spans", "tid": "PyTorch Profiler", "name": "P"},
    ]


def events() -> list[dict[str, Any]]:
    """The events of the example."""
    return [*noise(), *(launch(*each) for each in LAUNCHES), *(kernel(*each) for each in KERNELS)]


def chrome(found: Sequence[Any], indent: int | None = None, **beside: Any) -> bytes:
    """A trace as the torch profiler writes it, properties before and after the events."""
    head = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": H100}], **beside}
    return json.dumps({**head, "traceEvents": list(found), "traceName": "trace.json"}, indent=indent).encode()


def run_of(folder: Path, data: bytes, name: str = "trace.json", steps: int | None = None) -> Run:
    """The run of a trace with these bytes."""
    path = folder / name
    path.write_bytes(gzip.compress(data, mtime=0) if name.endswith(".gz") else data)
    found = read_trace(str(path), load(), steps)
    assert found is not None
    return found


def profile_of(folder: Path, data: bytes, name: str = "trace.json", steps: int | None = None) -> Profile:
    """The profile of a trace with these bytes."""
    profile = run_of(folder, data, name, steps).profile
    assert profile is not None
    return profile


def nsys(path: Path, *, node: bool = True) -> str:
    """The example as Nsight Systems exports it; without ``node`` graphs are recorded whole."""
    database = sqlite3.connect(path)
    database.execute("PRAGMA synchronous = OFF")
    kernels = (
        "start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER, "
    )
    kernels += "globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, graphNodeId INTEGER"
    copies = "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, bytes INTEGER, "
    copies += "globalPid INTEGER"
    runtime = "start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER"
    for table, columns in (
        ("StringIds", "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL"),
        ("TARGET_INFO_GPU", "id INTEGER, name TEXT, busLocation TEXT"),
        ("CUPTI_ACTIVITY_KIND_KERNEL", kernels),
        ("CUPTI_ACTIVITY_KIND_MEMCPY", f"{copies}, copyKind INTEGER"),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", runtime),
        ("NVTX_EVENTS", "start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER"),
        (
            "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
            "start INTEGER, end INTEGER, deviceId INTEGER, correlationId INTEGER, globalPid INTEGER",
        ),
    ):
        database.execute(f"CREATE TABLE {table} ({columns})")
    names = [*dict.fromkeys(name for name, *_ in KERNELS), "cudaLaunchKernel_v7000", "cudaGraphLaunch_v10000"]
    database.executemany("INSERT INTO StringIds VALUES (?, ?)", list(enumerate(names)))
    database.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, ?, '0000:01:00.0')", (H100,))
    for name, start, duration, stream, correlation in KERNELS:
        row: tuple[int | None, ...] = (
            start * 1000,
            (start + duration) * 1000,
            0,
            1,
            stream,
            correlation,
            PROCESS,
            names.index(name),
            0,
            None,
        )
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    for start, duration, correlation in LAUNCHES:
        row = (start * 1000, (start + duration) * 1000, 0, THREAD, correlation, names.index("cudaLaunchKernel_v7000"))
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?, ?)", row)
    database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (355000, 365000, 0, 7, 9, 4096, ?, 2)", (PROCESS,))
    database.execute("INSERT INTO NVTX_EVENTS VALUES (0, 365000, 59, 'execute_context_0(0)_generation_8(8)', NULL)")
    if not node:
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (400000, 500000, 0, 10, ?)", (PROCESS,))
        row = (396000, 398000, 0, THREAD, 10, names.index("cudaGraphLaunch_v10000"))
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?, ?)", row)
    database.commit()
    database.close()
    return str(path)


def table(name: str) -> bytes:
    """A table of the fixtures."""
    return (FIXTURES / f"{name}.csv").read_bytes()


def xla() -> list[dict[str, Any]]:
    """A TPU as XLA's profiler writes it: names first, then ops, some of them around others."""
    named = [
        ("process_name", 3, 0, "/device:TPU:0"),
        ("thread_name", 3, 1, "Steps"),
        ("thread_name", 3, 2, "XLA Modules"),
        ("thread_name", 3, 3, "XLA Ops"),
        ("process_name", 701, 0, "/host:CPU"),
        ("thread_name", 701, 3, "python"),
    ]
    found: list[dict[str, Any]] = [
        {"ph": "M", "pid": pid, "tid": tid, "name": what, "args": {"name": name}} for what, pid, tid, name in named
    ]
    timed = [
        (3, 1, "0", 0, 100, None),
        (3, 2, "jit_step(123)", 0, 100, None),
        (3, 3, "while.3", 0, 90, "while"),  # stands for the ops in it
        (3, 3, "fusion.12", 0, 40, "convolution fusion"),
        (3, 3, "fusion.13", 40, 20, "loop fusion"),
        (3, 3, "all-reduce.1", 70, 20, "all-reduce"),
        (701, 3, "python call", 0, 500, None),
    ]
    for pid, tid, name, start, duration, category in timed:
        args = {} if category is None else {"args": {"hlo_category": category, "hlo_op": name}}
        found.append({"ph": "X", "pid": pid, "tid": tid, "name": name, "ts": BASE + start, "dur": duration, **args})
    return found
