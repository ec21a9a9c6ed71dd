"""Reading a large trace: throughput as a ratio to json.load in the same run, and the peak memory of each.

A synthetic trace of the torch profiler (kernels with long names, calls that launch them, operators with shapes) is
written to a temporary file; each reader is a process of its own. `--empty` writes events of no length instead.

    python benchmarks/trace.py [--megabytes 1000] [--empty]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

KERNELS = (
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel",
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::BinaryFunctor<float>>>",
    "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, false, false, cutlass::bfloat16_t>>",
    "void vllm::rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, c10::BFloat16 const*, long, float, int, int)",
)
OPERATOR = """  {
    "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 4711, "tid": 4711,
    "ts": %(at).3f, "dur": 6.125,
    "args": {
      "External id": %(number)d, "Record function id": 0, "Concrete Inputs": ["", ""], "Input type": ["c10::BFloat16", \
"c10::BFloat16"], "Input Strides": [[4096, 1], [1, 4096]], "Input Dims": [[32, 4096], [4096, 14336]],
      "Ev Idx": %(number)d
    }
  },
  {
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 4711, "tid": 4711,
    "ts": %(launch).3f, "dur": 3.250,
    "args": {
      "External id": %(number)d, "cbid": 211, "correlation": %(number)d
    }
  },
  {
    "ph": "s", "id": %(number)d, "pid": 4711, "tid": 4711, "ts": %(launch).3f,
    "cat": "ac2g", "name": "ac2g"
  },
"""
KERNEL = """  {
    "ph": "X", "cat": "kernel", "name": "%(name)s", "pid": 0, "tid": 7,
    "ts": %(start).3f, "dur": %(duration).3f,
    "args": {
      "External id": %(number)d, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": %(number)d,
      "registers per thread": 168, "shared memory": 213248, "blocks per SM": 0.848485, "warps per SM": 10.181818,
      "grid": [112, 1, 1], "block": [384, 1, 1], "est. achieved occupancy %%": 16
    }
  },
"""
EMPTY = """{"ph": "X", "cat": "kernel", "name": "nothing", "pid": 0, "tid": 7, "ts": %d.5, "dur": 0, "args": {}},
"""
OURS = """
import sys, time
from flopmap.diagnosis.errors import ReadingError
from flopmap.diagnosis.traces.read import read_trace
from flopmap.records.book import load
begin = time.perf_counter()
try:
    run = read_trace(sys.argv[1], load())
    said = f"{run.profile.activities:,} activities, busy {run.profile.busy / run.profile.wall:.1%}"
except ReadingError as error:
    said = f"refused: {error}"
"""
THEIRS = """
import gc, json, sys, time
if GARBAGE:
    gc.disable()
begin = time.perf_counter()
with open(sys.argv[1], "rb") as file:
    said = f"{len(json.load(file)['traceEvents']):,} events"
"""
REPORT = """
import resource
print(time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, said, sep="|")
"""


def main() -> int:
    """Write the trace, read it both ways, print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--empty", action="store_true", help="events of no length")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        events = write(path, options.megabytes * 10**6, empty=options.empty)
        size = path.stat().st_size / 1e6
        print(f"a trace of {size:,.0f} MB with {events:,} events")
        ours = measure(OURS, path)
        theirs = {"json.load": measure(THEIRS.replace("GARBAGE", "False"), path)}
        theirs["json.load, gc off"] = measure(THEIRS.replace("GARBAGE", "True"), path)
    for name, (seconds, megabytes, said) in {"flopmap": ours, **theirs}.items():
        ratio = f"; flopmap is {seconds / ours[0]:.2f} times as fast" if name in theirs else ""
        print(f"{name:>18}: {seconds:.2f} s, {size / seconds:,.0f} MB/s, peak {megabytes:,.0f} MB; {said}{ratio}")
    return 0


def write(path: Path, size: int, *, empty: bool) -> int:
    """Write a trace of about ``size`` bytes. Returns the number of its events."""
    number, at, written = 0, 1_428_625_731_896.125, 0
    with path.open("w") as file:
        file.write('{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}],\n')
        file.write('"traceEvents": [\n')
        while written < size:
            number += 1
            if empty:
                written += file.write(EMPTY % number)
                continue
            at += 12.5
            duration = 4.0 + number % 7
            written += file.write(OPERATOR % {"at": at, "launch": at + 2, "number": number})
            known = {"name": KERNELS[number % 4], "start": at + 9, "duration": duration, "number": number}
            written += file.write(KERNEL % known)
        file.write('{"ph": "i", "name": "Record Window End", "ts": 0}\n], "traceName": "synthetic"}\n')
    return 1 + number * (1 if empty else 4)


def measure(script: str, path: Path) -> tuple[float, float, str]:
    """Seconds, peak megabytes and what a process says."""
    command = (sys.executable, "-c", script + REPORT, str(path))
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, megabytes, said = process.stdout.split("|")
    return float(seconds), float(megabytes), said.strip()


if __name__ == "__main__":
    sys.exit(main())
