"""Which files are traces, by their first bytes, and the run that a trace is."""

from __future__ import annotations

import contextlib
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from flopmap.diagnosis.errors import ReadingError
from flopmap.diagnosis.readers.run import Found, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flopmap.diagnosis.traces.activity import Activities
    from flopmap.diagnosis.traces.profile import Profile
    from flopmap.records.book import Book

PEEK = 64 * 2**10
GZIP = b"\x1f\x8b"
SQLITE = b"SQLite format 3\0"
CHROME = (b'"traceEvents"', b'"deviceProperties"', b'"displayTimeUnit"', b'"ph":', b'"ph" :')
CSV = (b"Kernel_Name", b"KernelName", b'"Kernel Name"', b"TotalDurationNs", b"Total Time (ns)")
BY_PATH = "a database of Nsight Systems: give it by its path, unpacked"


def read_trace(path: str, book: Book, steps: int | None = None) -> Run | None:
    """The run of a trace, or None for what is no trace. ``-`` is stdin, of which nothing is then taken.

    Raises :class:`ReadingError`, and OSError as opening does.
    """
    with _opened(path) as file:
        head = _head(file)
        kind = _kind(head)
        if kind is None:
            return None
        found = _activities(kind, _unpacked(file, head), path)
    if not found.start:
        return Run(tool=found.tool, line=1, notes=tuple(found.notes))
    return _run(found, book, steps)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    if path == "-":
        yield sys.stdin.buffer
        return
    with Path(path).open("rb") as file:
        yield file


def _head(file: BinaryIO) -> bytes:
    """The first bytes, which stay in the file."""
    if file.seekable():
        head = file.read(PEEK)
        file.seek(0)
        return head
    peek: Callable[[int], bytes] | None = getattr(file, "peek", None)
    return peek(PEEK) if peek else b""


def _kind(head: bytes) -> str | None:
    """What kind of trace begins so, or None."""
    if head.startswith(SQLITE):
        return "sqlite"
    if head.startswith(GZIP):
        with contextlib.suppress(zlib.error):
            head = zlib.decompressobj(wbits=31).decompress(head, PEEK)
        if head.startswith(SQLITE):
            raise ReadingError(BY_PATH)
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith((b"{", b"[")):
        return "chrome" if any(word in text for word in CHROME) else None
    line = next((line for line in text.split(b"\n") if any(word in line for word in CSV)), b"")
    return "csv" if line.count(b",") > 2 else None  # noqa: PLR2004 - a name, a time and more


def _activities(kind: str, read: Callable[[int], bytes], path: str) -> Activities:
    if kind == "sqlite":
        from flopmap.diagnosis.traces import nsys

        if path == "-":
            raise ReadingError(BY_PATH)
        return nsys.read(path)
    if kind == "chrome":
        from flopmap.diagnosis.traces import chrome

        return chrome.read(read)
    from flopmap.diagnosis.traces import tables

    return tables.read(read)


def _unpacked(file: BinaryIO, head: bytes) -> Callable[[int], bytes]:
    """Reads at most so many bytes, unpacked where the file is a gzip; an error names the place."""
    if not head.startswith(GZIP):
        return file.read
    import gzip

    packed = gzip.GzipFile(fileobj=file, mode="rb")
    taken = 0

    def read(size: int) -> bytes:
        nonlocal taken
        try:
            data = packed.read(size)
        except EOFError:
            raise ReadingError(f"a gzip file that is cut off (after byte {taken:,} of what it holds)") from None
        except (OSError, zlib.error):
            raise ReadingError(f"a gzip file that is damaged (after byte {taken:,} of what it holds)") from None
        taken += len(data)
        return data

    return read


def _run(found: Activities, book: Book, given: int | None) -> Run:
    from flopmap.diagnosis.traces.kernels import Matcher
    from flopmap.diagnosis.traces.timeline import profile

    seen = profile(found, Matcher(book), given)
    steps = seen.steps
    return Run(
        tool=found.tool,
        line=1,
        measurements=_figures(seen).all(),
        phase=steps.phase if steps else None,
        batch_size=steps.batch_size if steps else None,
        context_len=steps.context_len if steps else None,
        input_len=steps.input_len if steps else None,
        cached_len=steps.cached_len if steps else None,
        part=found.part,
        parts=found.parts,
        notes=(*_left_out(found), *found.notes),
        profile=seen,
    )


def _figures(seen: Profile) -> Found:
    figures = Found()
    if seen.wall:
        figures.add("duration", seen.wall, "total")
        figures.add("utilisation", seen.busy / seen.wall, "mean")
    figures.add("kernel_time", seen.kernel_seconds, "total")
    figures.add("calls", seen.activities, "total")
    if seen.steps:
        figures.add("step_time", (seen.wall or seen.kernel_seconds) / seen.steps.count, "mean")
    return figures


def _left_out(found: Activities) -> Iterator[str]:
    for count, what in (
        (found.negative, "have a negative duration"),
        (found.without_time, "have no length"),
        (found.unreadable, "have no number for a time"),
    ):
        if count:
            yield f"{count:,} events {what} and are left out"
    if found.whole_graphs:
        yield (
            f"{found.whole_graphs:,} launches of graphs are recorded without their kernels: "
            "record again with --cuda-graph-trace=node"
        )
