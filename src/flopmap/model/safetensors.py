"""The headers of safetensors files: every tensor's data type, shape and bytes, without reading a tensor.

A file is a length (8 bytes, little-endian), that many bytes of JSON, and the tensors. A checkpoint is one such file, or
shards with an index beside them, or a folder of shards.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Annotated, Literal, NoReturn, get_args

import msgspec

from flopmap.model.config import ConfigError
from flopmap.model.tensors import Tensor
from flopmap.quantity import shown

MAX_HEADER_BYTES = 100_000_000  # the format's own limit
MAX_TENSORS = 1_100_000  # as objects in the JSON; they take 400 bytes each when decoded
MAX_NAMED_BYTES = 10_000_000  # headers up to this size are decoded a second time, to name the tensor that is wrong
MAX_SHARDS = 10_000
LENGTH_BYTES = 8
MAX_DIMENSIONS = 64
METADATA = "__metadata__"
ESCAPE = b"\\"
INDEX = "model.safetensors.index.json"
WHOLE = "model.safetensors"
SUFFIX = ".safetensors"

Dtype = Literal[
    "BOOL",
    "U8",
    "I8",
    "F8_E4M3",
    "F8_E5M2",
    "F8_E8M0",
    "F8_E4M3FNUZ",
    "F8_E5M2FNUZ",
    "F6_E2M3",
    "F6_E3M2",
    "F4",
    "U16",
    "I16",
    "F16",
    "BF16",
    "U32",
    "I32",
    "F32",
    "U64",
    "I64",
    "F64",
    "C64",
]
NARROW = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "BOOL": 8, "BF16": 16}
BITS = {name: NARROW.get(name) or int(name[1:].split("_")[0]) for name in get_args(Dtype)}


Length = Annotated[int, msgspec.Meta(ge=0)]


class Span(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """First byte of a tensor's data and the byte after its last, from the end of the header."""

    begin: int
    end: int


class Entry(msgspec.Struct, gc=False):
    """What the header says of one tensor. Every field is needed; the free text beside the tensors has none of them."""

    dtype: Dtype | None = None
    shape: tuple[Length, ...] | None = None
    data_offsets: Span | None = None


class _Key(str):
    """A name in the header, where each is looked at as it comes."""

    __slots__ = ()


class _Index(msgspec.Struct):
    """What the index of a sharded checkpoint says: the file of every tensor."""

    weight_map: dict[str, str]


# -- one file ---------------------------------------------------------------------------------------------------------


def read_file(path: str) -> list[Tensor]:
    """Every tensor of one file, in the order of its data.

    Reads the header only. Raises :class:`ConfigError` where it is none, or where its tensors do not fit the file, their
    shapes, or each other.
    """
    if not Path(path).is_file():
        raise ConfigError(f"{path}: {'is no regular file' if Path(path).exists() else 'no such file'}")
    try:
        with Path(path).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            prefix = file.read(LENGTH_BYTES)
            if len(prefix) < LENGTH_BYTES:
                raise ConfigError(f"{path}: not safetensors: {size} bytes are too few")
            length = int.from_bytes(prefix, "little")
            if length > size - LENGTH_BYTES:
                raise ConfigError(f"{path}: not safetensors: a header of {length} bytes in a file of {size}")
            if length > MAX_HEADER_BYTES:
                raise ConfigError(f"{path}: a header of {length} bytes is too large (at most {MAX_HEADER_BYTES})")
            entries = _entries(file.read(length), path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    return _tensors(entries, size - LENGTH_BYTES - length, path)


def _entries(raw: bytes, path: str) -> dict[str, Entry]:
    """The header by tensor. A name that comes twice is refused."""
    if raw.count(b"{") > MAX_TENSORS:
        raise ConfigError(f"{path}: header: too many tensors (at most {MAX_TENSORS})")
    try:
        try:
            entries = msgspec.json.decode(raw, type=dict[str, Entry])
        except msgspec.ValidationError as error:
            if len(raw) > MAX_NAMED_BYTES:
                raise ConfigError(f"{path}: header: {error}") from None
            entries = _one_by_one(raw, path)
        entries.pop(METADATA, None)
        # where nothing is escaped, every entry spells this key once, and a count at the speed of a search is enough
        if ESCAPE in raw or raw.count(b'"data_offsets"') != len(entries):
            _refuse_duplicates(raw, path)
    except RecursionError:
        raise ConfigError(f"{path}: header: not JSON: nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: header: not JSON: {error}") from None
    return entries


def _one_by_one(raw: bytes, path: str) -> dict[str, Entry]:
    """As the whole header is decoded, but an error names its tensor, and any free text is passed over."""
    try:
        parts = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: header: {error}") from None
    entries = {}
    for name, part in parts.items():
        if name == METADATA:
            continue
        try:
            entries[name] = msgspec.json.decode(part, type=Entry)
        except msgspec.ValidationError as error:
            reason = str(error).replace("Invalid enum value", "unknown data type")
            _wrong(path, name, reason.replace("`", "").replace("$.", ""))
    return entries


def _refuse_duplicates(raw: bytes, path: str) -> None:
    """Decode once more, looking at every name as it comes."""
    seen: set[str] = set()
    twice: list[str] = []

    def key(_: type, name: str) -> _Key:
        if name in seen:
            twice.append(name)
        seen.add(name)
        return _Key(name)

    msgspec.json.decode(raw, type=dict[_Key, msgspec.Raw], dec_hook=key)
    if twice:
        raise ConfigError(f"{path}: header: the name {shown(twice[0])} comes twice")


def _tensors(entries: dict[str, Entry], data: int, path: str) -> list[Tensor]:
    """The entries as tensors, checked against their shapes, each other and the ``data`` bytes behind the header.

    Empties ``entries`` on the way, so that a million tensors are not held twice.
    """
    tensors: list[Tensor] = []
    begins: list[int] = []
    limit, in_order, bits, prod = data, True, BITS, math.prod
    while entries:
        name, entry = entries.popitem()
        dtype, shape, span = entry.dtype, entry.shape, entry.data_offsets
        if dtype is None or shape is None or span is None:
            _wrong(path, name, "dtype, shape and data_offsets are needed")
        begin, end = span.begin, span.end
        if not 0 <= begin <= end <= data:
            _wrong(path, name, f"data_offsets [{begin}, {end}] are not within the {data} bytes of data")
        if len(shape) > MAX_DIMENSIONS:
            _wrong(path, name, f"shape {shown(list(shape))} has more than {MAX_DIMENSIONS} dimensions")
        if (end - begin) * 8 != prod(shape) * bits[dtype]:
            _wrong(path, name, f"data_offsets [{begin}, {end}] do not hold {dtype} of shape {shown(list(shape))}")
        in_order = in_order and end <= limit
        limit = begin
        begins.append(begin)
        tensors.append(Tensor(name, shape, dtype, end - begin))
    if not in_order:
        _refuse_overlaps(tensors, begins, path)
    tensors.reverse()
    return tensors


def _refuse_overlaps(tensors: list[Tensor], begins: list[int], path: str) -> None:
    """Refuse data that two tensors share."""
    last_end, last = 0, ""
    for index in sorted(range(len(tensors)), key=lambda index: (begins[index], tensors[index].nbytes)):
        begin, tensor = begins[index], tensors[index]
        if begin < last_end:
            _wrong(path, tensor.name, f"its data overlaps that of {shown(last)}")
        if tensor.nbytes:
            last_end, last = begin + tensor.nbytes, tensor.name


def _wrong(path: str, name: str, message: str) -> NoReturn:
    raise ConfigError(f"{path}: tensor {shown(name)}: {message}")


# -- a checkpoint -----------------------------------------------------------------------------------------------------


def read_folder(folder: Path) -> list[Tensor]:
    """Every tensor of a checkpoint: of the shards of its index, or else of the whole model's file, or of all files.

    Raises :class:`ConfigError` where a shard is missing or wrong, where the index and the shards disagree, or where two
    shards have a tensor of the same name.
    """
    shard_of = read_index(folder)
    where: dict[str, str] = {}
    tensors: list[Tensor] = []
    for path in sorted({folder / name for name in shard_of.values()}) if shard_of else _all_of(folder):
        for tensor in read_file(str(path)):
            if tensor.name in where:
                _wrong(str(path), tensor.name, f"is in {where[tensor.name]} too")
            where[tensor.name] = path.name
            tensors.append(tensor)
    for name, shard in shard_of.items():
        if where.get(name) != shard:
            raise ConfigError(f"{folder / INDEX}: weight_map: the tensor {shown(name)} is not in {shown(shard)}")
    return tensors


def _all_of(folder: Path) -> list[Path]:
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == SUFFIX)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be read: {error.strerror}") from None
    if len(paths) > MAX_SHARDS:
        raise ConfigError(f"{folder}: {len(paths)} safetensors files are too many (at most {MAX_SHARDS})")
    return [path for path in paths if path.name == WHOLE] or paths


def read_index(folder: Path) -> dict[str, str]:
    """The file of every tensor, as the index of a folder has it; empty where there is none."""
    path = folder / INDEX
    if not path.exists():
        return {}
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_HEADER_BYTES + 1)
        if len(raw) > MAX_HEADER_BYTES:
            raise ConfigError(f"{path}: too large for an index (at most {MAX_HEADER_BYTES} bytes)")
        if raw.count(b'"') > 4 * MAX_TENSORS:  # a tensor and its file
            raise ConfigError(f"{path}: too many tensors for an index (at most {MAX_TENSORS})")
        shard_of = msgspec.json.decode(raw, type=_Index).weight_map
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except RecursionError:
        raise ConfigError(f"{path}: not JSON: nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    shards = set(shard_of.values())
    for name in shards:
        if not name.endswith(SUFFIX) or set(name) & set("/\\\0"):
            raise ConfigError(f"{path}: weight_map: {shown(name)} is no safetensors file beside the index")
    if len(shards) > MAX_SHARDS:
        raise ConfigError(f"{path}: {len(shards)} safetensors files are too many (at most {MAX_SHARDS})")
    return shard_of
