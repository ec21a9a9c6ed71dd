"""The header of a GGUF file: its metadata and every tensor's type, shape and bytes, without reading a tensor.

Read in order from a buffered file. What is kept is small: scalars, short strings and short lists of numbers; of long
arrays (tokens, merges, scores) only the length.
"""

from __future__ import annotations

import math
import os
import struct
from pathlib import Path
from typing import IO, TYPE_CHECKING, NoReturn

import msgspec

from flopmap.model.config import ConfigError
from flopmap.model.tensors import Tensor
from flopmap.quantity import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_HEADER_BYTES = 100_000_000  # those of real files have 5 to 20 million, nearly all of it the tokens
MAX_TENSORS = 1_000_000
MAX_KEYS = 100_000
MAX_STRINGS = 2_000_000  # strings and arrays in arrays, in one file; a large vocabulary with its merges has 800,000
MAX_DEPTH = 4
MAX_DIMENSIONS = 4
MAX_ALIGNMENT = 2**20
MAX_SHARDS = 1000
LONGEST_STRING = 4096  # longer ones, and lists of more numbers, are passed over
LONGEST_LIST = 4096
LONGEST_NAME = 65_535
LEAST_KEY = 8 + 4 + 1  # bytes of the shortest possible entry of the metadata
LEAST_TENSOR = 8 + 4 + 4 + 8
STRING, ARRAY = 8, 9
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
WIDTHS = {code: struct.calcsize(f"<{letter}") for code, letter in SCALARS.items()}

# type: its name, elements a block, bytes a block (ggml.c; Q4_2, Q4_3 and the repacked Q4_0_x_x are no longer there)
TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 36),  # of ggml.c; gguf-py has 40, which it once was; no file stores it
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}

Value = int | float | bool | str | list[int]


class Long(msgspec.Struct, frozen=True):
    """A string or array that was passed over: its length in bytes or elements."""

    length: int


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What a GGUF file says before its tensors. ``path`` is the file that was named, or the first of its shards."""

    path: str
    metadata: dict[str, Value | Long]
    tensors: list[Tensor]


# -- reading bytes ----------------------------------------------------------------------------------------------------


class _Reader:
    """A file read in order, never beyond its end or beyond what a header may have."""

    def __init__(self, file: IO[bytes], path: str) -> None:
        self.file = file
        self.path = path
        self.size = os.fstat(file.fileno()).st_size
        self.position = 0
        self.strings = 0

    def error(self, message: str) -> NoReturn:
        """Refuse the file."""
        raise ConfigError(f"{self.path}: {message}")

    def take(self, count: int, what: str) -> bytes:
        """The next bytes."""
        self._advance(count, what)
        data = self.file.read(count)
        if len(data) < count:
            self.error(f"truncated in {what}")
        return data

    def skip(self, count: int, what: str) -> None:
        """Pass over the next bytes."""
        self._advance(count, what)
        self.file.seek(count, os.SEEK_CUR)

    def _advance(self, count: int, what: str) -> None:
        left = self.size - self.position
        if count > left:
            self.error(f"truncated or wrong: {what} of {count} bytes, and {left} are left")
        self.position += count
        if self.position > MAX_HEADER_BYTES:
            self.error(f"the header is too large (at most {MAX_HEADER_BYTES} bytes)")

    def number(self, width: int, what: str) -> int:
        """An unsigned number."""
        return int.from_bytes(self.take(width, what), "little")

    def text(self, what: str, longest: int) -> str | Long:
        """A string, or its length where it is longer than anything here needs."""
        length = self.number(8, what)
        if length > longest:
            self.skip(length, what)
            return Long(length)
        try:
            return self.take(length, what).decode()
        except UnicodeDecodeError:
            self.error(f"{what} is not UTF-8")

    def name(self, what: str) -> str:
        """A string that must be short."""
        found = self.text(what, LONGEST_NAME)
        if isinstance(found, Long):
            self.error(f"{what} of {found.length} bytes is too long (at most {LONGEST_NAME})")
        return found

    def value(self, kind: int, key: str) -> Value | Long:
        """A value of the metadata."""
        if kind == STRING:
            return self.text(f"the value of {shown(key)}", LONGEST_STRING)
        if kind == ARRAY:
            return self.array(key, 1)
        if kind not in SCALARS:
            self.error(f"the value of {shown(key)} has the unknown type {kind}")
        found: Value = struct.unpack(f"<{SCALARS[kind]}", self.take(WIDTHS[kind], f"the value of {shown(key)}"))[0]
        return found

    def array(self, key: str, depth: int) -> Value | Long:
        """A list of whole numbers where it is short, or else the length of what was passed over."""
        what = f"the array {shown(key)}"
        if depth > MAX_DEPTH:
            self.error(f"{what} is nested too deeply (at most {MAX_DEPTH})")
        kind, length = self.number(4, what), self.number(8, what)
        if kind in SCALARS:
            if length > LONGEST_LIST or SCALARS[kind] in "fd":
                self.skip(length * WIDTHS[kind], what)
                return Long(length)
            return list(struct.unpack(f"<{length}{SCALARS[kind]}", self.take(length * WIDTHS[kind], what)))
        if kind not in (STRING, ARRAY):
            self.error(f"{what} has elements of the unknown type {kind}")
        self.strings += length
        if length * 8 > self.size - self.position:
            self.error(f"truncated or wrong: {what} of {length} elements, and {self.size - self.position} bytes left")
        if self.strings > MAX_STRINGS:
            self.error(f"{what}: more than {MAX_STRINGS} strings in arrays")
        if kind == STRING:
            self._skip_strings(length, what)
        else:
            for _ in range(length):
                self.array(key, depth + 1)
        return Long(length)

    def _skip_strings(self, count: int, what: str) -> None:
        """Pass over strings one by one: a vocabulary has hundreds of thousands, so with few calls for each."""
        read, decode = self.file.read, int.from_bytes
        most = min(self.size, MAX_HEADER_BYTES)
        for _ in range(count):
            length = decode(read(8), "little")
            if self.position + 8 + length > most:  # say what is wrong in the words of all other values
                self._advance(8, what)
                self._advance(length, what)
            self.position += 8 + length
            if length <= LONGEST_NAME:
                read(length)
            else:
                self.file.seek(length, os.SEEK_CUR)


# -- one file ---------------------------------------------------------------------------------------------------------


def read_file(path: str) -> Header:
    """The header of one file.

    Raises :class:`ConfigError` where it is no GGUF file of version 2 or 3 in little-endian order, where it is
    truncated, or where tensors do not fit the file, their type or each other.
    """
    if not Path(path).is_file():
        raise ConfigError(f"{path}: {'is no regular file' if Path(path).exists() else 'no such file'}")
    try:
        with Path(path).open("rb") as file:
            reader = _Reader(file, path)
            tensor_count, key_count = _start(reader)
            metadata = _metadata(reader, key_count)
            return Header(path=path, metadata=metadata, tensors=_tensors(reader, tensor_count, metadata))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None


def _start(reader: _Reader) -> tuple[int, int]:
    """How many tensors and keys follow."""
    magic = reader.file.read(len(MAGIC))
    reader.position = len(magic)
    if magic != MAGIC:
        reader.error(f"not GGUF: it begins with {shown(magic.decode('latin-1'))}")
    version = reader.number(4, "the version")
    if version not in VERSIONS:
        if int.from_bytes(version.to_bytes(4, "big"), "little") in VERSIONS:
            reader.error("a big-endian GGUF file is not read (little-endian ones are)")
        reader.error(f"GGUF version {version} is not read (versions 2 and 3 are)")
    tensors, keys = reader.number(8, "the count of tensors"), reader.number(8, "the count of keys")
    for count, least, most, what in (
        (tensors, LEAST_TENSOR, MAX_TENSORS, "tensors"),
        (keys, LEAST_KEY, MAX_KEYS, "keys"),
    ):
        if count * least > reader.size:
            reader.error(f"{count} {what} do not fit a file of {reader.size} bytes")
        if count > most:
            reader.error(f"{count} {what} are too many (at most {most})")
    return tensors, keys


def _metadata(reader: _Reader, count: int) -> dict[str, Value | Long]:
    found: dict[str, Value | Long] = {}
    for _ in range(count):
        key = reader.name("a key")
        if key in found:
            reader.error(f"the key {shown(key)} comes twice")
        found[key] = reader.value(reader.number(4, f"the type of {shown(key)}"), key)
    return found


def _tensors(reader: _Reader, count: int, metadata: Mapping[str, Value | Long]) -> list[Tensor]:
    alignment = metadata.get("general.alignment", 32)
    if isinstance(alignment, bool) or not isinstance(alignment, int) or not _is_alignment(alignment):
        reader.error(f"general.alignment: {shown(alignment)} is no power of two up to {MAX_ALIGNMENT}")
    names: set[str] = set()
    found: list[tuple[int, int, Tensor]] = []
    for _ in range(count):
        tensor, offset = _tensor(reader, alignment)
        if tensor.name in names:
            reader.error(f"the tensor {shown(tensor.name)} comes twice")
        names.add(tensor.name)
        found.append((offset, tensor.nbytes, tensor))
    data = reader.size - (reader.position + alignment - 1) // alignment * alignment
    last_end, last = 0, ""
    for offset, nbytes, tensor in sorted(found, key=lambda item: item[:2]):
        if nbytes and offset + nbytes > data:
            message = f"its {nbytes} bytes at {offset} are not within the {max(data, 0)} bytes of data"
            reader.error(f"tensor {shown(tensor.name)}: {message}")
        if offset < last_end:
            reader.error(f"tensor {shown(tensor.name)}: its data overlaps that of {shown(last)}")
        if nbytes:
            last_end, last = offset + nbytes, tensor.name
    return [tensor for _, _, tensor in found]


def _is_alignment(number: int) -> bool:
    return 0 < number <= MAX_ALIGNMENT and number & (number - 1) == 0


def _tensor(reader: _Reader, alignment: int) -> tuple[Tensor, int]:
    """One tensor and where its data begins, in bytes behind the header."""
    name = reader.name("the name of a tensor")
    what = f"tensor {shown(name)}"
    dimensions = reader.number(4, what)
    if dimensions > MAX_DIMENSIONS:
        reader.error(f"{what}: {dimensions} dimensions (at most {MAX_DIMENSIONS})")
    shape = struct.unpack(f"<{dimensions}Q", reader.take(8 * dimensions, what))
    kind, offset = reader.number(4, what), reader.number(8, what)
    if kind not in TYPES:
        reader.error(f"{what}: unknown type {kind}")
    dtype, block, block_bytes = TYPES[kind]
    if (shape[0] if shape else 1) % block:
        reader.error(f"{what}: rows of {shape[0] if shape else 1} are no whole blocks of {dtype} ({block} elements)")
    if offset % alignment:
        reader.error(f"{what}: its offset {offset} is not aligned to {alignment}")
    return Tensor(name, shape, dtype, math.prod(shape) // block * block_bytes), offset


# -- a file or its shards ---------------------------------------------------------------------------------------------


def read_shards(path: str) -> Header:
    """The header of a file, or of all shards of the one that it belongs to (``-00001-of-00003.gguf``).

    Raises :class:`ConfigError` as :func:`read_file` does, and where a shard is missing or has a tensor of another.
    """
    header = read_file(path)
    count = header.metadata.get("split.count", 1)
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MAX_SHARDS:
        raise ConfigError(f"{path}: split.count: {shown(count)} is no count of shards (at most {MAX_SHARDS})")
    if count <= 1:
        return header
    ending = f"-of-{count:05d}.gguf"
    stem = path.removesuffix(ending)[: -len("-00001")]
    if not path.endswith(ending) or not path.removesuffix(ending)[-6:].startswith("-"):
        message = f"is one of {count} shards, and its name does not end in -00001{ending}, so the others are not found"
        raise ConfigError(f"{path}: {message}")
    shards = [read_file(f"{stem}-{number:05d}{ending}") for number in range(1, count + 1)]
    tensors = [tensor for shard in shards for tensor in shard.tensors]
    names: set[str] = set()
    for tensor in tensors:
        if tensor.name in names:
            raise ConfigError(f"{path}: the tensor {shown(tensor.name)} is in two shards")
        names.add(tensor.name)
    return Header(path=shards[0].path, metadata=shards[0].metadata, tensors=tensors)
