"""A small writer of GGUF files: real headers, and data that is a hole in the file."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

# elements and bytes a block of the types that the tests write, as llama.cpp's documents have them
BLOCKS = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q8_0": (8, 32, 34), "Q4_K": (12, 256, 144), "Q6_K": (14, 256, 210)}
BLOCKS |= {"BF16": (30, 1, 2), "MXFP4": (39, 32, 17)}
ALIGNMENT = 32


class Weight(NamedTuple):
    """A tensor to write: its shape is in GGUF's order, rows last."""

    name: str
    shape: tuple[int, ...]
    kind: str = "F32"

    @property
    def nbytes(self) -> int:
        _, block, block_bytes = BLOCKS[self.kind]
        return math.prod(self.shape) // block * block_bytes


class Typed(NamedTuple):
    """A value whose type is said: the number of the type, and the bytes that follow it."""

    kind: int
    data: bytes


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def value(item: Any) -> bytes:
    """A value with its type before it."""
    if isinstance(item, Typed):
        return struct.pack("<I", item.kind) + item.data
    if isinstance(item, bool):
        return struct.pack("<I?", 7, item)
    if isinstance(item, int):
        return struct.pack("<II", 4, item)
    if isinstance(item, float):
        return struct.pack("<If", 6, item)
    if isinstance(item, str):
        return struct.pack("<I", 8) + text(item)
    kinds = {struct.unpack("<I", value(one)[:4])[0] for one in item} or {8}
    return struct.pack("<IIQ", 9, kinds.pop(), len(item)) + b"".join(value(one)[4:] for one in item)


def tensor(name: str, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def start(tensors: int, keys: int, *, magic: bytes = b"GGUF", version: int = 3) -> bytes:
    return magic + struct.pack("<IQQ", version, tensors, keys)


def header(metadata: dict[str, Any], weights: list[Weight], *, version: int = 3) -> tuple[bytes, int]:
    """The header, padded, and the bytes of data behind it."""
    parts = [start(len(weights), len(metadata), version=version)]
    parts += [text(key) + value(item) for key, item in metadata.items()]
    offset = 0
    for weight in weights:
        parts.append(tensor(weight.name, weight.shape, BLOCKS[weight.kind][0], offset))
        offset += -(-weight.nbytes // ALIGNMENT) * ALIGNMENT
    data = b"".join(parts)
    return data + bytes(-len(data) % ALIGNMENT), offset


def write(path: Path, metadata: dict[str, Any], weights: list[Weight], *, version: int = 3) -> str:
    """A file with a hole for its data. Returns its path."""
    data, size = header(metadata, weights, version=version)
    with path.open("wb") as file:
        file.write(data)
        file.truncate(len(data) + size)
    return str(path)


# -- models -----------------------------------------------------------------------------------------------------------


def more_bits(index: int, count: int) -> bool:
    """Which layers llama.cpp gives more bits in its _M mixtures: the first and last eighth, and every third between."""
    eighth = count // 8
    return index < eighth or index >= 7 * count // 8 or (index - eighth) % 3 == 2


def llama_metadata(
    *, layers: int, hidden: int, width: int, heads: int, keys: int, vocab: int, arch: str = "llama"
) -> dict[str, Any]:
    return {
        "general.architecture": arch,
        "general.name": "a model",
        f"{arch}.block_count": layers,
        f"{arch}.context_length": 131_072,
        f"{arch}.embedding_length": hidden,
        f"{arch}.feed_forward_length": width,
        f"{arch}.attention.head_count": heads,
        f"{arch}.attention.head_count_kv": keys,
        f"{arch}.rope.freq_base": 500_000.0,
        f"{arch}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{arch}.vocab_size": vocab,
    }


def llama_weights(
    *, layers: int, hidden: int, width: int, heads: int, keys: int, vocab: int, tied: bool = False
) -> list[Weight]:
    """The tensors of a Llama in the layout of Q4_K_M."""
    key_width = hidden // heads * keys
    weights = [Weight("token_embd.weight", (hidden, vocab), "Q6_K" if tied else "Q4_K")]
    for index in range(layers):
        best = "Q6_K" if more_bits(index, layers) else "Q4_K"
        weights += [
            Weight(f"blk.{index}.attn_norm.weight", (hidden,)),
            Weight(f"blk.{index}.ffn_down.weight", (width, hidden), best),
            Weight(f"blk.{index}.ffn_gate.weight", (hidden, width), "Q4_K"),
            Weight(f"blk.{index}.ffn_up.weight", (hidden, width), "Q4_K"),
            Weight(f"blk.{index}.ffn_norm.weight", (hidden,)),
            Weight(f"blk.{index}.attn_k.weight", (hidden, key_width), "Q4_K"),
            Weight(f"blk.{index}.attn_output.weight", (hidden, hidden), "Q4_K"),
            Weight(f"blk.{index}.attn_q.weight", (hidden, hidden), "Q4_K"),
            Weight(f"blk.{index}.attn_v.weight", (hidden, key_width), best),
        ]
    weights.append(Weight("output_norm.weight", (hidden,)))
    if not tied:
        weights += [Weight("rope_freqs.weight", (64,)), Weight("output.weight", (hidden, vocab), "Q6_K")]
    return weights
