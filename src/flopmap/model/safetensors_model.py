"""A model from safetensors: its architecture from the config.json beside them, its bytes from the tensors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from flopmap.model.config import ConfigError
from flopmap.model.modules import OTHER_PARTS, modules
from flopmap.model.reading import Checkpoint, read_config
from flopmap.model.safetensors import read_file, read_folder, read_index
from flopmap.model.tensors import MATRIX, PACKED, TOWER, UNUSED, VECTOR, Place, Tensor, measure
from flopmap.model.towers import is_tower
from flopmap.quantity import amount

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from flopmap.model.architecture import Architecture

LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d{1,9})\.(.+)")
EXPERT = re.compile(r"\bexperts\.\d+\.")
TABLES = {
    "embedding": ("embed_tokens", "wte", "word_embeddings", "tok_embeddings", "embed_in"),
    "position_embedding": ("wpe", "embed_positions", "position_embeddings"),
}
OP_OF_TABLE = {name: op for op, names in TABLES.items() for name in names}
ROUTERS = ("gate", "router", "gate_weight", "wg")
PLAIN = ("F64", "F32", "F16", "BF16")
WHOLE = (*PLAIN, "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ")  # types whose elements are parameters
NARROW = ("F8", "F6", "F4")
BLOCKS = "_blocks"  # gpt-oss keeps its 4-bit experts in tensors of this name


class Names:
    """The places of an architecture's tensors by their names in a checkpoint."""

    def __init__(self, architecture: Architecture) -> None:
        self.inside: dict[int | None, dict[str, str]] = {}
        self.known: dict[tuple[str, str, int, str, bool], tuple[str, str]] = {}
        self.layers = len(architecture.layers)
        self.towers = bool(architecture.stacks)
        same: dict[int, dict[str, str]] = {}  # layers that are equal share one table
        for index, module in modules(architecture):
            key = None if index is None else id(architecture.layers[index])
            if index is not None and index not in self.inside and key in same:
                self.inside[index] = same[key]
            table = self.inside.setdefault(index, {})
            if key is not None:
                same.setdefault(key, table)
            for name in module.names:
                table.setdefault(name, module.op)

    def place(self, tensor: Tensor) -> Place:
        """Where a tensor belongs."""
        if self.towers and is_tower(tensor.name):
            return Place("", TOWER)
        found = LAYER.search(tensor.name)
        if found is None:
            return Place("", UNUSED) if _is_other(tensor.name) else self._outside(tensor)
        layer, before, rest = int(found[1]), tensor.name[: found.start(1)], EXPERT.sub("experts.0.", found[2])
        table = self.inside.get(layer, {})
        key = (before, rest, id(table), tensor.dtype, len(tensor.shape) > 1)  # one answer for hundreds of experts
        if key not in self.known:
            unused = _is_other(before) or _is_other(rest)
            self.known[key] = ("", UNUSED) if unused else self._inside(table, rest, tensor)
        op, kind = self.known[key]
        if layer >= self.layers and kind != UNUSED:
            return Place("", MATRIX, layer)
        return Place(op, kind, layer if kind != UNUSED else None)

    def _inside(self, table: dict[str, str], rest: str, tensor: Tensor) -> tuple[str, str]:
        """The op and kind of what ``rest`` names in a layer."""
        parts = rest.split(".")
        if parts[-1].endswith("bias"):
            return "", VECTOR
        for end in range(len(parts), 0, -1):
            name = ".".join(parts[:end])
            bare = name.removesuffix(BLOCKS).removesuffix("_scales")
            op = table.get(bare) or table.get(f"mlp.{bare}")  # OPT has its feed-forward without a module around it
            if op:
                whole = name == bare and parts[end:] in ([], ["weight"]) and tensor.dtype in WHOLE
                return op, MATRIX if whole else PACKED
        is_router = any(part in ROUTERS for part in parts[:-1]) or "router" in rest
        return "", VECTOR if len(tensor.shape) <= 1 or is_router else MATRIX

    def _outside(self, tensor: Tensor) -> Place:
        parts = tensor.name.split(".")
        op = next((OP_OF_TABLE[part] for part in parts if part in OP_OF_TABLE), None)
        if op is not None:
            return Place(op, MATRIX if tensor.dtype in PLAIN else PACKED)
        table = self.inside.get(None, {})
        start = next((index for index, part in enumerate(parts) if part in table), 0)
        return Place(*self._inside(table, ".".join(parts[start:]), tensor))


def _is_other(name: str) -> bool:
    """Whether a name leads to a tower, a connector or a draft head."""
    return any(part.startswith(OTHER_PARTS) for part in name.split("."))


def read_beside_config(name: str) -> Checkpoint:
    """The model of one safetensors file, of the index that lists it, or of an index.

    Raises :class:`ConfigError` where it is wrong, or where no ``config.json`` lies beside it.
    """
    path = Path(name)
    folder = path.parent
    config = folder / "config.json"
    if not config.exists():
        raise ConfigError(f"{name}: {config} is needed, since safetensors do not say what the architecture is")
    checkpoint = read_config(str(config))
    listed = path.name.endswith(".json") or path.name in read_index(folder).values()
    return _measured(checkpoint, read_folder(folder) if listed else read_file(name))


def read_folder_of(name: str) -> Checkpoint:
    """The model of a folder with a ``config.json`` and safetensors. Raises :class:`ConfigError` where one is wrong."""
    folder = Path(name)
    return _measured(read_config(str(folder / "config.json")), read_folder(folder))


def _measured(checkpoint: Checkpoint, tensors: list[Tensor]) -> Checkpoint:
    names = Names(checkpoint.architecture)
    narrow: dict[str, str] = {}
    measured = measure(checkpoint.architecture, _placed(names, tensors, narrow))
    kept = narrow if checkpoint.quantization else {}
    stored = {op: nbytes for op, nbytes in measured.stored.items() if op not in kept}
    whole = sum(tensor.nbytes for tensor in tensors)
    notes = [f"weights as in the files: {len(tensors)} tensors, {amount(whole, 'B')}", *measured.notes]
    if kept:
        means = ", ".join(f"{op} {measured.stored[op]:.4g}" for op in sorted(kept))
        reason = "counted by the record of the config's format, so that they are multiplied in its type"
        notes.append(f"bytes a parameter in the files of what is {reason}: {means}")
    return replace(checkpoint, stored=stored, assumptions=(*checkpoint.assumptions, *notes))


def _placed(names: Names, tensors: Iterable[Tensor], narrow: dict[str, str]) -> Iterator[tuple[Tensor, Place]]:
    """Every tensor with its place. Ops with matrices of 8 bits or less are put into ``narrow``."""
    for tensor in tensors:
        place = names.place(tensor)
        if place.op and (tensor.dtype.startswith(NARROW) or tensor.name.endswith(BLOCKS)):
            narrow.setdefault(place.op, tensor.name)
        yield tensor, place
