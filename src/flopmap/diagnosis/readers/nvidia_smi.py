"""``nvidia-smi`` and ``nvidia-smi topo -m``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from flopmap.diagnosis.readers.run import MIB, Found, Run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NAME = re.compile(r"\| +(\d+) +(\S.*?) +(?:On|Off) +\| +[0-9A-Fa-f]{8}:")
STATE = re.compile(r"(\d+)C +P\d+ +(\d+)W / +(\d+)W \| +(\d+)MiB / +(\d+)MiB \| +(\d+)%")
GPU = re.compile(r"^GPU\d+$")
LINKS = {
    "NV": "NVLink",
    "PIX": "one PCIe switch",
    "PXB": "several PCIe switches",
    "PHB": "the PCIe host bridge of a CPU",
    "NODE": "PCIe host bridges of one NUMA node",
    "SYS": "PCIe and the link between sockets",
}
BUSY = (
    "GPU-Util is the share of time in which some kernel ran: 100% says nothing of bandwidth or FLOP in use; "
    "MBU and MFU of flopmap why say that"
)
CAPPED = "the power cap is reached: clocks fall, and compute with them, before memory bandwidth does"
NEAR_CAP = 0.97


def read(lines: Sequence[str]) -> Iterator[Run]:
    """A run a GPU, and one for the topology."""
    part = None
    for number, line in enumerate(lines, 1):
        if match := NAME.search(line):
            part = match[2].strip()
        elif match := STATE.search(line):
            found = Found()
            found.add("temperature", match[1], "last")
            found.add("power", match[2], "last")
            found.add("power_cap", match[3], "last")
            found.add("memory", match[4], "last", MIB)
            found.add("memory_capacity", match[5], "last", MIB)
            found.add("utilisation", match[6], "last", 0.01)
            capped = float(match[2]) >= NEAR_CAP * float(match[3])
            notes = (BUSY, CAPPED) if capped else (BUSY,)
            yield Run(tool="nvidia-smi", line=number, measurements=found.all(), part=part, notes=notes)
    yield from _topology(lines)


def _topology(lines: Sequence[str]) -> Iterator[Run]:
    """The links between GPUs, as far as their rows are there."""
    heads: list[str] = []
    start, kinds = 0, dict[str, int]()
    for number, line in enumerate(lines, 1):
        cells = line.split()
        if len(cells) > 1 and GPU.match(cells[0]) and GPU.match(cells[1]):
            heads, start = [cell for cell in cells if GPU.match(cell)], number
        elif heads and cells and GPU.match(cells[0]):
            for link in cells[1 : len(heads) + 1]:
                if link != "X":
                    kinds[link] = kinds.get(link, 0) + 1
    if not kinds:
        return
    words = []
    for kind in kinds:
        meaning = LINKS.get(kind.rstrip("0123456789"), "a link of unknown kind")
        count = kind[2:] if kind.startswith("NV") else ""
        words.append(f"{kind}: {meaning}{f', {count} links' if count else ''}")
    slow = any(not kind.startswith("NV") for kind in kinds)
    note = "tensor parallelism over PCIe pays its latency in every layer" if slow else "every pair is on NVLink"
    yield Run(
        tool="nvidia-smi topo", line=start, parts=len(heads), notes=(f"{len(heads)} GPUs; {'; '.join(words)}", note)
    )
