"""What a file's tensors hold, as bytes a parameter of a model's ops, and where they and the architecture disagree."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from flopmap.model.architecture import Table
from flopmap.model.modules import modules
from flopmap.model.towers import tower_parameters
from flopmap.quantity import amount, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from flopmap.model.architecture import Architecture


class Tensor(msgspec.Struct, frozen=True, gc=False):
    """A tensor of a file, by its header: ``dtype`` in the file's own spelling, ``nbytes`` as stored."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int


class Place(NamedTuple):
    """Where a tensor belongs: the op that multiplies with it ('' for none that is known), and its layer if any.

    ``kind``: a matrix; part of one that is stored in pieces (scales, packed integers), so that its elements are not
    parameters; a vector (norms, biases, routers), which the ledger counts in the activations' format; or something
    that the model's step does not use.
    """

    op: str
    kind: str
    layer: int | None = None


MATRIX, PACKED, VECTOR, UNUSED, TOWER = "matrix", "packed", "vector", "unused", "tower"
EXAMPLES = 3  # tensors that a line names


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What the tensors of a file say of an architecture.

    ``stored`` are bytes a parameter by op name; bytes of matrices, vectors, towers and of what is not used add up to
    those of the file. ``notes`` say what is counted otherwise than it is stored, and what does not agree.
    """

    stored: dict[str, float]
    matrix_bytes: int
    vector_bytes: int
    vector_parameters: int
    unused_bytes: int
    notes: tuple[str, ...]
    tower_bytes: int = 0


# -- what an architecture has -----------------------------------------------------------------------------------------


def matrices(architecture: Architecture) -> dict[str, int]:
    """Parameters of every op that multiplies with a matrix of its own or looks up a table, over all layers, by name."""
    held = architecture.embedding == "own"
    found = Counter({"embedding": architecture.vocab * architecture.embedding_width * held})
    if architecture.positions:
        found["position_embedding"] = architecture.positions * architecture.hidden
    for piece in architecture.before:
        if isinstance(piece, Table):
            found[piece.name] += piece.rows * piece.width
    for _, module in modules(architecture):
        found[module.op] += module.size
    if architecture.tied:
        del found["lm_head"]
    return {name: size for name, size in found.items() if size}


# -- what a file has --------------------------------------------------------------------------------------------------


class _Sum:
    """The tensors of one op."""

    def __init__(self) -> None:
        self.nbytes = 0
        self.elements = 0
        self.packed = False
        self.first = ""

    def add(self, tensor: Tensor, kind: str) -> None:
        """Count one tensor."""
        self.nbytes += tensor.nbytes
        self.packed = self.packed or kind == PACKED
        self.elements += elements(tensor) if kind == MATRIX else 0
        self.first = self.first or tensor.name


def elements(tensor: Tensor) -> int:
    """How many numbers a tensor holds as its header has it."""
    count = 1
    for length in tensor.shape:
        count *= length
    return count


def measure(architecture: Architecture, placed: Iterable[tuple[Tensor, Place]]) -> Measured:
    """The bytes of a file's tensors against the parameters of an architecture."""
    expected, layers = matrices(architecture), len(architecture.layers)
    sums: dict[str, _Sum] = {}
    vectors, unused, beyond, towers, unknown = _Sum(), _Sum(), _Sum(), _Sum(), []
    for tensor, place in placed:
        if place.layer is not None and place.layer >= layers:
            beyond.add(tensor, MATRIX)
        elif place.kind == VECTOR:
            vectors.add(tensor, MATRIX)
        elif place.kind == TOWER:
            towers.add(tensor, MATRIX)
        elif place.kind == UNUSED:
            unused.add(tensor, MATRIX)
        elif place.op in expected or (place.op == "lm_head" and architecture.tied):
            sums.setdefault(place.op, _Sum()).add(tensor, place.kind)
        else:
            unknown.append(tensor)
    tied_copy = sums.pop("lm_head", None) if architecture.tied else None
    stored = {name: _mean(found, expected[name]) for name, found in sums.items()}
    if architecture.tied and "embedding" in stored:
        stored["lm_head"] = stored["embedding"]
    notes = [
        *_disagreements(expected, sums),
        *_of_towers(architecture, towers),
        *_left_out(beyond, f"beyond the {layers} layers of the config"),
        *_left_out(tied_copy, "the LM head is tied to the embedding"),
        *_left_out(unused, "no op of a decoder step holds them"),
        *_unknown(unknown),
    ]
    left = (beyond, unused, *((tied_copy,) if tied_copy else ()))
    return Measured(
        stored=stored,
        matrix_bytes=sum(found.nbytes for found in sums.values()),
        vector_bytes=vectors.nbytes,
        vector_parameters=vectors.elements,
        unused_bytes=sum(found.nbytes for found in left) + sum(tensor.nbytes for tensor in unknown),
        notes=tuple(notes),
        tower_bytes=towers.nbytes,
    )


def _mean(found: _Sum, parameters: int) -> float:
    """Bytes a parameter: of the file's own elements, or of the architecture's where the file packs them."""
    return found.nbytes / (parameters if found.packed or not found.elements else found.elements)


def _disagreements(expected: dict[str, int], sums: dict[str, _Sum]) -> Iterator[str]:
    for name, parameters in expected.items():
        found = sums.get(name)
        if found is None:
            yield f"{name}: {parameters} parameters by the config, and no tensor in the file"
        elif not found.packed and found.elements != parameters:
            where = f"the tensors from {shown(found.first)} on"
            yield f"{name}: {parameters} parameters by the config, {found.elements} in the file ({where})"


def _of_towers(architecture: Architecture, towers: _Sum) -> Iterator[str]:
    """What the file has of towers and connectors, which are counted in the activations' format."""
    if not architecture.stacks:
        return
    counted = tower_parameters(architecture)
    where = f" (from {shown(towers.first)} on)" if towers.first else ""
    if towers.elements == counted:
        yield f"towers: {counted} parameters, {amount(towers.nbytes, 'B')} in the file{where}"
    else:
        yield f"towers: {counted} parameters by the config, {towers.elements} in the file{where}"


def _left_out(found: _Sum | None, reason: str) -> Iterator[str]:
    if found is not None and found.first:
        yield f"{amount(found.nbytes, 'B')} of the file are not counted: {reason} (from {shown(found.first)} on)"


def _unknown(tensors: list[Tensor]) -> Iterator[str]:
    if tensors:
        names = ", ".join(shown(tensor.name) for tensor in tensors[:EXAMPLES])
        more = f" and {len(tensors) - EXAMPLES} more" if len(tensors) > EXAMPLES else ""
        nbytes = amount(sum(tensor.nbytes for tensor in tensors), "B")
        yield f"{nbytes} of the file have no op that is known by their names, and are not measured: {names}{more}"
