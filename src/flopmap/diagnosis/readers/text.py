"""From the bytes that people paste or save to clean lines, and to the JSON documents among them."""

from __future__ import annotations

import json
import re
import zlib
from typing import Any, NamedTuple

from flopmap.diagnosis.errors import ReadingError

LARGEST = 64 * 2**20  # bytes of text, after decompression
SAMPLE = 4096
LONGEST_LINE = 5_000
MOST_FAILURES = 20  # starts of JSON that did not parse, before the rest is taken for text
GZIP = b"\x1f\x8b"
ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
# a quote, mpirun, docker compose, a time of Kubernetes
PREFIX = re.compile(
    r"(?:>(?: |$)|\[\d+,\d+\]<std(?:out|err)>: ?|[\w.-]+-\d+ +\| "
    r"|\d{4}-\d\d-\d\dT[\d:]+(?:\.\d+)?Z (?:std(?:out|err) F )?)"
)
BREAKS = re.compile(r"\r\n|\r|\n")
JSON_START = re.compile(r"\s*(?:\{|\[\s*(?:\{|$))")
CSV_ROW = re.compile(r"(?:[^,\n]*,(?! )){5}")
LAID_OUT = re.compile(r"[|│]|  ")
COMMA_DECIMAL = re.compile(r"(?<![\w.,:-])(\d{1,3}(?:\.\d{3})+|\d+),(\d+)(?![\w]*[.,]?\d)")
DOT_GROUPS = re.compile(r"(?<![\w.,:-])(\d{1,3}(?:\.\d{3})+)(?![\w.,])")
SURE_COMMA = re.compile(r"(?<![\w.,:-])(?:\d{1,3}(?:\.\d{3})+,\d+|\d+,(?:\d{1,2}|\d{4,}))(?![\d.,])")
SURE_DOT = re.compile(r"(?<![\w.,:-])\d+\.(?:\d{1,2}|\d{4,})(?![\w.,:])")
ENGLISH_GROUPS = re.compile(r"(?<![\w.,:-])\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\w]*[.,]?\d)")


class Document(NamedTuple):
    """A JSON document and the line where it starts."""

    line: int
    value: Any


class Paste(NamedTuple):
    """Clean lines (those of JSON left empty, so that numbers of lines stay), documents, and lines of JSON cut off.

    ``ambiguous`` is a number such as 512,250 in a text that does not tell whether it is translated.
    """

    lines: list[str]
    documents: list[Document]
    broken: list[int]
    ambiguous: str | None = None


def paste(data: bytes) -> Paste:
    """Clean a file's bytes. Raises :class:`ReadingError` for what is no text, or too large."""
    lines = [clean(line) for line in BREAKS.split(decode(inflate(data)))]
    documents, broken = _take_documents(lines)
    lines, ambiguous = _english(lines)
    return Paste(lines, documents, broken, ambiguous)


def inflate(data: bytes) -> bytes:
    """The bytes of a gzip file, else the bytes themselves, up to :data:`LARGEST` whatever it would unpack to."""
    if not data.startswith(GZIP):
        if len(data) > LARGEST:
            raise ReadingError(f"larger than {LARGEST >> 20} MiB: give the part with the results")
        return data
    unpacker = zlib.decompressobj(wbits=31)
    try:
        text = unpacker.decompress(data, LARGEST + 1)
    except zlib.error:
        raise ReadingError("a gzip file that is damaged") from None
    if len(text) > LARGEST:
        raise ReadingError(f"a gzip file that unpacks to more than {LARGEST >> 20} MiB: give the part with the results")
    if not unpacker.eof:
        raise ReadingError("a gzip file that is cut off")
    return text


def decode(data: bytes) -> str:
    """Text of UTF-8, UTF-16 or, where it is neither, Windows-1252. Raises :class:`ReadingError` for binary files."""
    for mark, name in ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig")):
        if data.startswith(mark):
            return data.decode(name, "replace")
    low, high = data[0:SAMPLE:2].count(0), data[1:SAMPLE:2].count(0)
    if high > len(data[1:SAMPLE:2]) // 20 and high > 2 * low:  # Latin text without the mark has a zero in each pair
        return data.decode("utf-16-le", "replace")
    if low > len(data[0:SAMPLE:2]) // 20 and low > 2 * high:
        return data.decode("utf-16-be", "replace")
    if b"\0" in data[:SAMPLE]:
        raise ReadingError("a binary file")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def clean(line: str) -> str:
    """A line without colours and without what a terminal, a log collector or a quote put before it."""
    line = ANSI.sub("", line) if "\x1b" in line else line
    while match := PREFIX.match(line):
        line = line[match.end() :]
    return line.rstrip()


def _take_documents(lines: list[str]) -> tuple[list[Document], list[int]]:
    """The JSON documents; their lines are emptied."""
    documents: list[Document] = []
    broken: list[int] = []
    decoder = json.JSONDecoder()
    text, starts = "\n".join(lines), [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    index = 0
    while index < len(lines):
        begin = index
        index += 1
        if len(broken) >= MOST_FAILURES or not JSON_START.match(lines[begin]):
            continue
        at = starts[begin] + len(lines[begin]) - len(lines[begin].lstrip())
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            broken.append(begin + 1)
            continue
        if not isinstance(value, (dict, list)):
            continue
        documents.append(Document(begin + 1, value))
        while index < len(lines) and starts[index] < end:
            index += 1
        lines[begin:index] = [""] * (index - begin)
    return documents, broken


def _english(lines: list[str]) -> tuple[list[str], str | None]:
    """Lines whose numbers are written 1234.5. A text is taken for translated (1.234,5) where only that can be meant."""
    lines = [line if len(line) <= LONGEST_LINE else line[:LONGEST_LINE] for line in lines]
    if any(CSV_ROW.match(line) and not LAID_OUT.search(line) for line in lines):
        return lines, None
    english = any(SURE_DOT.search(line) for line in lines)
    if not english and any(SURE_COMMA.search(line) for line in lines):
        return [_from_comma(line) for line in lines], None
    grouped = next((match[0] for line in lines if (match := ENGLISH_GROUPS.search(line))), None)
    plain = [ENGLISH_GROUPS.sub(lambda match: match[0].replace(",", ""), line) for line in lines]
    return plain, None if english else grouped


def _from_comma(line: str) -> str:
    line = DOT_GROUPS.sub(lambda match: match[0].replace(".", ""), line)
    return COMMA_DECIMAL.sub(lambda match: f"{match[1].replace('.', '')}.{match[2]}", line)
