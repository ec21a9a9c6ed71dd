"""The events of a Chrome trace, block by block: a file of any size in the memory of a few blocks.

A block is cut where an event may end and decoded as an array. A cut elsewhere, in a string or a nested array, leaves
something open, so an array that decodes was cut between events. Where guesses fail, a slower scan finds the place.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from flopmap.diagnosis.errors import ReadingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BLOCK = 2**20  # the fastest of 128 KiB to 4 MiB: it stays in the cache
LARGEST_EVENT = 16 * 2**20  # also of what stands before and after the events
LARGEST_TRACE = 8 * 2**30  # bytes, unpacked: what bounds the time
GUESSES = 2
DEEPEST = 500
MOST_BRACES = 10_000  # looked at for one guess
START = re.compile(rb'"traceEvents"\s*:\s*\[')
LEAD = re.compile(rb"[,\s]*")
PLACE = re.compile(r"byte (\d+)")
TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+(")?|[\[\]{}]', re.DOTALL)
SPACE = b" \t\r\n"
QUOTE, COMMA, BRACE, BRACKET = b'",}]'


class Args(msgspec.Struct, gc=False):
    """The arguments of an event that we look at."""

    correlation: Any = None
    correlation_id: Any = None
    device: Any = None
    name: Any = None
    hlo_category: Any = None


class Event(msgspec.Struct, gc=False):
    """An event of a Chrome trace. Times in microseconds; nothing is checked but that it is an object."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    args: Args | None = None


class Properties(msgspec.Struct, rename="camel"):
    """What stands beside the events."""

    device_properties: Any = None
    distributed_info: Any = None


class Chunk(NamedTuple):
    """What could be cut off a block: events, where the rest begins, and whether the array of events has ended."""

    events: list[Event]
    end: int
    ended: bool


class Events:
    """Iterates over the events in lists; afterwards ``properties`` are those of both ends of the file."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._decoder = msgspec.json.Decoder(list[Event])
        self._taken = 0  # bytes of the file before the buffer
        self._count = 0
        self._within = True  # an object, which must end, too
        self.properties: list[Properties] = []

    def __iter__(self) -> Iterator[list[Event]]:
        buffer = self._head()
        while True:
            chunk = self._guess(buffer) or self._scan(buffer)
            if chunk is not None:
                self._count += len(chunk.events)
                yield chunk.events
                self._taken += chunk.end
                buffer = buffer[chunk.end :]
                if chunk.ended:
                    self._tail(buffer)
                    return
            elif len(buffer) > LARGEST_EVENT:
                raise self._error(f"no end of an event within {LARGEST_EVENT >> 20} MiB")
            # twice as much where a block holds no end of an event, so that a scan is not repeated for each block
            block = self._block(BLOCK if chunk else max(BLOCK, len(buffer)))
            if not block:
                if chunk is not None and not chunk.ended and buffer.strip(SPACE):
                    continue  # the rest of the file is smaller than a block
                self._taken += len(buffer)
                raise self._error("cut off")
            buffer += block

    def _block(self, size: int = BLOCK) -> bytes:
        if self._taken > LARGEST_TRACE:
            raise ReadingError(f"unpacks to more than {LARGEST_TRACE >> 30} GiB: profile fewer steps")
        return self._read(size)

    def _head(self) -> bytes:
        buffer = self._block()
        text = buffer.removeprefix(b"\xef\xbb\xbf").lstrip(SPACE)
        if text.startswith(b"["):
            self._taken = len(buffer) - len(text) + 1
            self._within = False
            return text[1:]
        while True:
            found = START.search(buffer)
            if found:
                self._property(buffer[: found.end()].removeprefix(b"\xef\xbb\xbf") + b"]}")
                self._taken = found.end()
                return buffer[found.end() :]
            block = self._block()
            if not block or len(buffer) > LARGEST_EVENT:
                self._taken = len(buffer)
                raise self._error("no traceEvents before this place")
            buffer += block

    def _tail(self, buffer: bytes) -> None:
        while len(buffer) <= LARGEST_EVENT:
            block = self._block()
            if not block:
                break
            buffer += block
        text = buffer.strip(SPACE)
        if self._within and not text:
            raise self._error("cut off")
        if len(buffer) <= LARGEST_EVENT and text:
            self._property(b'{"":0' + text)

    def _property(self, text: bytes) -> None:
        try:
            self.properties.append(msgspec.json.decode(text, type=Properties))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._error(f"damaged beside the events: {_short(error)}") from None

    def _guess(self, buffer: bytes) -> Chunk | None:
        """Events up to the last place that looks like the end of one."""
        at = len(buffer)
        for _ in range(GUESSES):
            at = _candidate(buffer, at)
            if at <= 0:
                return None
            try:
                return Chunk(self._decode(buffer, at), at, ended=False)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                if isinstance(error, msgspec.ValidationError):
                    raise self._error(f"an event that is none: {_short(error)}") from None
            at -= 1
        return None

    def _scan(self, buffer: bytes) -> Chunk | None:
        """Events up to the last that is whole, found by counting brackets outside of strings."""
        depth, whole = 0, 0
        ended = False
        for token in TOKEN.finditer(buffer):
            sign = buffer[token.start()]
            if sign == QUOTE:
                if token[1] is None:  # it does not end here
                    break
            elif sign in b"[{":
                depth += 1
                if depth > DEEPEST:
                    raise self._error("nested too deeply")
            elif depth == 0:
                ended = sign == BRACKET
                if ended:
                    whole = token.start()
                break
            else:
                depth -= 1
                if depth == 0:
                    whole = token.end()
        if not whole and not ended:
            return None
        try:
            events = self._decode(buffer, whole)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._error(f"damaged: {_short(error)}") from None
        return Chunk(events, whole + ended, ended)

    def _decode(self, buffer: bytes, end: int) -> list[Event]:
        start = min(LEAD.match(buffer).end(), end)  # type: ignore[union-attr] # it matches nothing, too
        try:
            return self._decoder.decode(b"".join((b"[", memoryview(buffer)[start:end], b"]")))
        except msgspec.DecodeError as error:
            place = PLACE.search(str(error))
            if place is None:
                raise
            message = str(error).replace(place[0], f"byte {self._taken + start + int(place[1]) - 1:,}")
            raise type(error)(message) from None

    def _error(self, what: str) -> ReadingError:
        return ReadingError(f"{what} (after event {self._count:,}, byte {self._taken:,} of the unpacked trace)")


def _candidate(buffer: bytes, before: int) -> int:
    """The end of the last ``}`` before a comma and a ``{``, or -1."""
    for _ in range(MOST_BRACES):
        before = buffer.rfind(b"{", 0, before)
        if before <= 0:
            return -1
        comma = _back(buffer, before)
        if comma >= 0 and buffer[comma] == COMMA:
            brace = _back(buffer, comma)
            if brace >= 0 and buffer[brace] == BRACE:
                return brace + 1
    return -1


def _back(buffer: bytes, at: int) -> int:
    """The place of the last byte before ``at`` that is no space, or -1."""
    at -= 1
    while at >= 0 and buffer[at] in SPACE:
        at -= 1
    return at


def _short(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)[:200]
