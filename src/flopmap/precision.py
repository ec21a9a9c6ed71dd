"""The formats of a scenario: those of activations, weights, cache and state, and the types that they multiply in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from flopmap.decoding import FIRST
from flopmap.machine.machine import dtypes, fastest_peak, matrix_peak
from flopmap.records.formula import value
from flopmap.records.resolve import law
from flopmap.records.types import Format, Law
from flopmap.step import ScenarioError

if TYPE_CHECKING:
    from flopmap.decoding import Speculation
    from flopmap.machine.machine import Machine
    from flopmap.model.reading import Checkpoint
    from flopmap.records.book import Book


class Wanted(NamedTuple):
    """Formats as the flags state them; ``auto`` and None are those of the checkpoint."""

    dtype: str
    quantization: str | None
    kv_cache_dtype: str


class Precision(msgspec.Struct, frozen=True, kw_only=True):
    """Formats of activations, weights and cache; ``math`` is the data type that GEMMs over the weights multiply in.

    ``cache_math`` is the fastest that attention can multiply in: a narrow cache can be multiplied as it is stored.
    ``stored`` are bytes a parameter of the ops (by name) whose matrices are in another format than ``weights``.
    """

    activations: Format
    weights: Format
    kv: Format
    state: Format
    math: str
    activation_math: str
    cache_math: str
    stored: dict[str, float] = {}


def read_precision(wanted: Wanted, book: Book, checkpoint: Checkpoint, machine: Machine, notes: list[str]) -> Precision:
    """The formats of a checkpoint on a machine, as asked for or as it says. Raises :class:`ScenarioError`."""
    activations = _activations(wanted, book, checkpoint, machine, notes)
    math = _math_of(activations, machine)
    if math is None:
        raise ScenarioError(
            f"{machine.part.id} has no peak on record for {activations.id} (it has: {', '.join(dtypes(machine.part))})"
        )
    if math != activations.id:
        notes.append(
            f"{machine.part.id} has no {activations.id} peak on record; {activations.id} runs at its {math} peak"
        )
    weights, stored = _weights(wanted, book, checkpoint, activations, notes)
    kv = _cache(wanted, book, checkpoint, activations, notes)
    native = _math_of(weights, machine) if weights.math else None
    if weights is not activations and native is None:
        reason = (
            f"{machine.part.id} has no {weights.math[0]} math" if weights.math else f"{weights.id} stores weights only"
        )
        notes.append(f"{reason}: weights are converted and multiplied in {math}; the conversion is not counted")
    return Precision(
        activations=activations,
        weights=weights,
        kv=kv,
        state=book.record(Format, checkpoint.state_dtype) if checkpoint.state_dtype else activations,
        math=native or math,
        activation_math=math,
        cache_math=max((math, *kv.math), key=lambda dtype: fastest_peak(machine.part, dtype)),
        stored=stored,
    )


def _activations(wanted: Wanted, book: Book, checkpoint: Checkpoint, machine: Machine, notes: list[str]) -> Format:
    if wanted.dtype != "auto":
        chosen = _format(wanted.dtype, "activations", "--dtype", book)
        if chosen.id not in dtypes(machine.part):
            accepted = ", ".join(_computable(book, machine))
            raise ScenarioError(
                f"--dtype {wanted.dtype}: {machine.part.id} does not compute in {chosen.id} (accepted: {accepted})"
            )
        return chosen
    if checkpoint.dtype is None:
        notes.append("data type bf16: the config names none")
    stated = book.record(Format, checkpoint.dtype or "bf16")
    computable = _computable(book, machine)
    if _math_of(stated, machine) is None and computable:
        notes.append(f"data type {computable[0]}: {machine.part.id} does not compute in {stated.id}, the config's")
        return book.record(Format, computable[0])
    return stated


def _computable(book: Book, machine: Machine) -> list[str]:
    """The data types of activations that the part multiplies in."""
    return [
        dtype
        for dtype in dtypes(machine.part)
        if book.find("formats", dtype) and "activations" in book.record(Format, dtype).applies_to
    ]


def _format(name: str, use: Literal["weights", "kv", "activations"], flag: str, book: Book) -> Format:
    if book.find("formats", name) is not None:
        found = book.record(Format, name)
        if use in found.applies_to:
            return found
    fitting = [other for other in book.ids("formats") if use in book.record(Format, other).applies_to]
    raise ScenarioError(f"{flag} {name}: not a format of {use} (accepted: {', '.join(fitting)})")


def _weights(
    wanted: Wanted, book: Book, checkpoint: Checkpoint, activations: Format, notes: list[str]
) -> tuple[Format, dict[str, float]]:
    """The general format of the weights, and bytes a parameter of the ops (by name) that are stored in others."""
    if wanted.quantization is not None:
        return _format(wanted.quantization, "weights", "--quantization", book), {}
    if checkpoint.quantization is None:
        return book.record(Format, checkpoint.weights) if checkpoint.weights else activations, checkpoint.stored
    from flopmap.model.quantization import read_quantization

    found = read_quantization(checkpoint, book, activations, lambda stored: element_bytes(stored, book))
    notes.extend(found.assumptions)
    return found.weights, {**found.stored, **checkpoint.stored}


def _cache(wanted: Wanted, book: Book, checkpoint: Checkpoint, activations: Format, notes: list[str]) -> Format:
    """The format of the KV cache: as asked for, or else as a quantised checkpoint asks for, or that of activations."""
    if wanted.kv_cache_dtype != "auto":
        return _format(wanted.kv_cache_dtype, "kv", "--kv-cache-dtype", book)
    if checkpoint.quantization is None or wanted.quantization is not None:
        return activations
    from flopmap.model.quantization import read_cache_format

    asked = read_cache_format(checkpoint, book)
    if asked is not None:
        notes.append(f"KV cache {asked.id}: the checkpoint's quantization_config asks for it")
    return asked or activations


def _math_of(stored: Format, machine: Machine) -> str | None:
    """The first data type of the format's that the part multiplies in."""
    return next((dtype for dtype in stored.math if matrix_peak(machine.part, dtype) is not None), None)


def element_bytes(stored: Format, book: Book) -> float:
    """Bytes of an element with its share of scales and zero points, by the law of formats."""
    formula = law(book.record(Law, "formats"), {})["element_bytes"]
    given = {
        "bits": stored.bits,
        "group": stored.group or 1,
        "scale_bits": stored.scale_bits,
        "zero_bits": stored.zero_bits,
    }
    return value(formula, given)


def draft_precision(
    speculation: Speculation, wanted: Wanted, book: Book, machine: Machine, *, model: Precision, notes: list[str]
) -> Precision | None:
    """The formats of a drafter: the model's own where they are one file, else those of its config."""
    if speculation.drafter is None:
        return None
    if speculation.method == "mtp":
        return mtp_precision(model, book)
    same = Wanted(model.activations.id, None, wanted.kv_cache_dtype)
    said: list[str] = []
    own = read_precision(same, book, speculation.drafter, machine, said)
    notes.extend(f"drafter: {note}" for note in said if note not in notes)
    stored = {f"{FIRST}.{name}": number for name, number in own.stored.items()}
    return msgspec.structs.replace(own, stored=stored)


def mtp_precision(precision: Precision, book: Book) -> Precision:
    """The formats of a model's own layer that predicts: the model's; what joins its two rows is left unquantised."""
    stored = {f"{FIRST}.{name}": number for name, number in precision.stored.items()}
    stored[f"{FIRST}.eh_proj"] = element_bytes(precision.activations, book)
    return msgspec.structs.replace(precision, stored=stored)
