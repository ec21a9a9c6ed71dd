"""The one value that flows through the program: model, machine, engine, precision, step and conventions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from flopmap.machine.machine import Machine, dtypes, fastest_peak, matrix_peak, read_machine
from flopmap.model.reading import Checkpoint, read_model
from flopmap.records.formula import value
from flopmap.records.resolve import law
from flopmap.records.types import Engine, Format, Law
from flopmap.step import MAIN, Group, Step, decode_step, encode_step, mixed_step, prefill_step

if TYPE_CHECKING:
    from flopmap.model.architecture import Architecture
    from flopmap.records.book import Book

PhaseName = Literal["decode", "prefill", "mixed", "encode"]
PHASE_NAMES: tuple[PhaseName, ...] = ("decode", "prefill", "mixed", "encode")
MAX_LENGTH = 1_000_000_000
DEFAULT_CONTEXT = 2048


DEFAULT_ENGINE = "ideal"
UNSAID = {"batch_size": "batch of 1 sequence", "engine": "engine that adds nothing (ideal)"}


class ScenarioError(ValueError):
    """A scenario that makes no sense. One line that names the flag, its value and what is accepted."""


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


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides a step's cost. ``assumptions`` are what nobody said and the program took."""

    model: Checkpoint
    machine: Machine
    engine: Engine
    eager: bool
    precision: Precision
    phase: PhaseName
    batch_size: int
    context_len: int | None
    input_len: int | None
    cached_len: int
    step: Step
    conventions: dict[str, str]
    assumptions: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens that the step brings its users: one a sequence in decode, else those of the input."""
        return self.batch_size * (self.input_len or 0) if self.phase in ("prefill", "encode") else self.batch_size


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario as people state it, in words and numbers; the fields are the flags of the command line."""

    model: str
    on: str
    dtype: str = "auto"
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    engine: str | None = None
    enforce_eager: bool = False
    phase: str | None = None
    batch_size: int | None = None
    context_len: int | None = None
    input_len: int | None = None
    output_len: int | None = None
    cached_len: int = 0
    conventions: tuple[tuple[str, str], ...] = ()


def make(request: Request, book: Book) -> Scenario:
    """The scenario of a request.

    Raises :class:`ScenarioError`, or the error of the part that could not be read (model, machine, record).
    """
    checkpoint = read_model(request.model, book)
    machine = read_machine(request.on, book)
    conventions = _conventions(request, book, checkpoint)
    notes: list[str] = list(checkpoint.assumptions)
    notes += [f"{what}: none is given" for field, what in UNSAID.items() if getattr(request, field) is None]
    precision = _precision(request, book, checkpoint, machine, notes)
    phase, step = _step(request, checkpoint.architecture, notes)
    context = step.groups[-1].past + 1 if phase in ("decode", "mixed") else None
    longest = max((group.past + group.new for group in step.groups if group.stack == MAIN), default=0)
    positions = checkpoint.architecture.positions
    if positions and longest > positions:
        notes.append(f"{longest} tokens go beyond the model's table of {positions} positions")
    chunk = step.groups[0].new if phase != "decode" else None
    return Scenario(
        model=checkpoint,
        machine=machine,
        engine=book.record(Engine, request.engine or DEFAULT_ENGINE),
        eager=request.enforce_eager,
        precision=precision,
        phase=phase,
        batch_size=request.batch_size or 1,
        context_len=context,
        input_len=chunk,
        cached_len=request.cached_len,
        step=step,
        conventions=conventions,
        assumptions=tuple(notes),
    )


# -- conventions ------------------------------------------------------------------------------------------------------


def _conventions(request: Request, book: Book, checkpoint: Checkpoint) -> dict[str, str]:
    chosen = {name: next(iter(convention.values)) for name, convention in book.conventions.items()}
    for name, choice in request.conventions:
        if name not in chosen:
            raise ScenarioError(f"--convention {name}: unknown (accepted: {', '.join(sorted(chosen))})")
        if choice not in book.conventions[name].values:
            raise ScenarioError(
                f"--convention {name}={choice}: unknown (accepted: {', '.join(book.conventions[name].values)})"
            )
        chosen[name] = choice
    if chosen["parameters"] == "nominal" and checkpoint.nominal_parameters is None:
        raise ScenarioError(f"--convention parameters=nominal: {checkpoint.name} has no nominal size on record")
    return chosen


# -- precision --------------------------------------------------------------------------------------------------------


def _precision(request: Request, book: Book, checkpoint: Checkpoint, machine: Machine, notes: list[str]) -> Precision:
    activations = _activations(request, book, checkpoint, machine, notes)
    math = _math_of(activations, machine)
    if math is None:
        raise ScenarioError(
            f"{machine.part.id} has no peak on record for {activations.id} (it has: {', '.join(dtypes(machine.part))})"
        )
    if math != activations.id:
        notes.append(
            f"{machine.part.id} has no {activations.id} peak on record; {activations.id} runs at its {math} peak"
        )
    weights, stored = _weights(request, book, checkpoint, activations, notes)
    kv = _cache(request, book, checkpoint, activations, notes)
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


def _activations(request: Request, book: Book, checkpoint: Checkpoint, machine: Machine, notes: list[str]) -> Format:
    if request.dtype != "auto":
        chosen = _format(request.dtype, "activations", "--dtype", book)
        if chosen.id not in dtypes(machine.part):
            accepted = ", ".join(_computable(book, machine))
            raise ScenarioError(
                f"--dtype {request.dtype}: {machine.part.id} does not compute in {chosen.id} (accepted: {accepted})"
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
    request: Request, book: Book, checkpoint: Checkpoint, activations: Format, notes: list[str]
) -> tuple[Format, dict[str, float]]:
    """The general format of the weights, and bytes a parameter of the ops (by name) that are stored in others."""
    if request.quantization is not None:
        return _format(request.quantization, "weights", "--quantization", book), {}
    if checkpoint.quantization is None:
        return book.record(Format, checkpoint.weights) if checkpoint.weights else activations, checkpoint.stored
    from flopmap.model.quantization import read_quantization

    found = read_quantization(checkpoint, book, activations, lambda stored: element_bytes(stored, book))
    notes.extend(found.assumptions)
    return found.weights, {**found.stored, **checkpoint.stored}


def _cache(request: Request, book: Book, checkpoint: Checkpoint, activations: Format, notes: list[str]) -> Format:
    """The format of the KV cache: as asked for, or else as a quantised checkpoint asks for, or that of activations."""
    if request.kv_cache_dtype != "auto":
        return _format(request.kv_cache_dtype, "kv", "--kv-cache-dtype", book)
    if checkpoint.quantization is None or request.quantization is not None:
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


# -- step -------------------------------------------------------------------------------------------------------------


def _step(request: Request, architecture: Architecture, notes: list[str]) -> tuple[PhaseName, Step]:
    for flag, number in (
        ("batch-size", request.batch_size),
        ("context-len", request.context_len),
        ("input-len", request.input_len),
    ):
        _in_range(flag, number, 1)
    _in_range("output-len", request.output_len, 1)
    _in_range("cached-len", request.cached_len, 0)
    phase, batch = _phase(request, architecture, notes), request.batch_size or 1
    if architecture.sources:
        return phase, _encoder_decoder_step(request, phase, batch, notes)
    if phase == "encode":
        tokens = _prompt(request, notes)
        return "encode", encode_step(batch, tokens, 1 if architecture.generative or not architecture.head else tokens)
    if phase == "decode":
        return "decode", decode_step(batch, _context(request, notes))
    if phase == "prefill":
        return "prefill", prefill_step(batch, _prompt(request, notes), request.cached_len)
    return "mixed", mixed_step(batch, _context(request, notes), _prompt(request, notes), request.cached_len)


def _phase(request: Request, architecture: Architecture, notes: list[str]) -> PhaseName:
    """The phase that was asked for, or the model's usual one."""
    usual: PhaseName = "decode" if architecture.generative else "encode"
    accepted = PHASE_NAMES
    if not architecture.generative:
        accepted = ("encode",)
    elif architecture.sources:
        accepted = ("decode", "prefill", "encode")
    if request.phase is None:
        notes.append(f"phase {usual}: none is given")
        return usual
    for phase in accepted:
        if phase == request.phase:
            return phase
    kind = f"{architecture.family} " if len(accepted) < len(PHASE_NAMES) else ""
    raise ScenarioError(f"--phase {request.phase}: no phase of {kind}models (accepted: {', '.join(accepted)})")


def _encoder_decoder_step(request: Request, phase: PhaseName, batch: int, notes: list[str]) -> Step:
    """The source goes through the encoder once; the decoder attends to it in every step."""
    if request.input_len is None and request.context_len is not None and phase == "decode":
        notes.append(f"source {DEFAULT_CONTEXT} tokens: no input length is given")
        source = DEFAULT_CONTEXT
    else:
        source = _prompt(request, notes)
    encoded = Group(count=batch, new=source, past=0, positions=0, phase="encode", stack="encoder")
    if phase == "encode":
        return Step(groups=(encoded,))
    if phase == "prefill":
        notes.append("decoder prompt 1 token: the start of the sequence")
        return Step(groups=(encoded, Group(count=batch, new=1, past=0, memory=source, phase="prefill")))
    if request.context_len is not None:
        context = request.context_len
    else:
        context = max(1, (request.output_len or DEFAULT_CONTEXT) // 2)
        middle = "half of the output" if request.output_len else "none is given"
        notes.append(f"decoder context {context} tokens: {middle}")
    return Step(groups=(Group(count=batch, new=1, past=context - 1, memory=source, phase="decode"),))


def _in_range(flag: str, number: int | None, low: int) -> None:
    if number is not None and not low <= number <= MAX_LENGTH:
        raise ScenarioError(f"--{flag} {number}: out of range (accepted: {low} to {MAX_LENGTH})")


def _context(request: Request, notes: list[str]) -> int:
    if request.context_len is not None:
        return request.context_len
    if request.input_len is not None and request.phase != "mixed":
        mean = request.input_len + (request.output_len or 0) // 2
        middle = (
            "input length and half of the output" if request.output_len else "input length; no output length is given"
        )
        notes.append(f"context {mean} tokens: {middle}")
        return mean
    notes.append(f"context {DEFAULT_CONTEXT} tokens: none is given")
    return DEFAULT_CONTEXT


def _prompt(request: Request, notes: list[str]) -> int:
    if request.input_len is not None:
        return request.input_len
    if request.context_len is not None and request.phase in ("prefill", "encode"):
        return request.context_len
    notes.append(f"prompt {DEFAULT_CONTEXT} tokens: none is given")
    return DEFAULT_CONTEXT
