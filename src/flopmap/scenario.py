"""The one value that flows through the program: model, machine, engine, precision, step and conventions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from flopmap.adapters import Adapters, read_adapters
from flopmap.decoding import (
    Blocks,
    Speculation,
    denoising_group,
    drafted_step,
    kept_tokens,
    read_blocks,
    read_speculation,
)
from flopmap.machine.machine import Machine, read_machine
from flopmap.media import images, media_tokens, sound, step_with_media
from flopmap.model.architecture import Architecture
from flopmap.model.media import MediumError
from flopmap.model.reading import Checkpoint, read_model
from flopmap.plans.plan import Plan
from flopmap.precision import Precision, Wanted, draft_precision, read_precision
from flopmap.records.types import Engine
from flopmap.step import MAIN, Group, ScenarioError, Step, decode_step, encode_step, mixed_step, prefill_step

if TYPE_CHECKING:
    from flopmap.model.media import Medium
    from flopmap.records.book import Book

PhaseName = Literal["decode", "prefill", "mixed", "encode"]
PHASE_NAMES: tuple[PhaseName, ...] = ("decode", "prefill", "mixed", "encode")
MAX_LENGTH = 1_000_000_000
DEFAULT_CONTEXT = 2048
DEFAULT_ENGINE = "ideal"
SIZES = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "expert_parallel_size")
UNSAID = {"batch_size": "batch of 1 sequence", "engine": "engine that adds nothing (ideal)"}


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides a step's cost. ``assumptions`` are what nobody said and the program took.

    ``kept``: tokens that a decoding sequence gets from a step, the fewest and the most; more than one with drafts that
    are checked, or in a pass of denoising, and a range where nobody says how many drafts are accepted.
    """

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
    images: int = 0
    audio_seconds: float = 0.0
    media_tokens: int = 0
    speculation: Speculation | None = None
    draft_precision: Precision | None = None
    blocks: Blocks | None = None
    adapters: Adapters | None = None
    kept: tuple[float, float] = (1.0, 1.0)
    plan: Plan | None = None
    whole: Architecture | None = None
    assumptions: tuple[str, ...] = ()

    @property
    def tokens(self) -> float:
        """Tokens that the step brings its users: at least those ``kept`` in decode, else those of the input."""
        if self.phase in ("prefill", "encode"):
            return self.batch_size * (self.input_len or self.media_tokens)
        return self.batch_size * self.kept[0]


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
    images: int | None = None
    image_size: tuple[int, int] | None = None
    video_frames: int | None = None
    audio_seconds: float | None = None
    speculative_config: str | None = None
    acceptance_rate: float | None = None
    block_length: int | None = None
    diffusion_steps: int | None = None
    lora_modules: str | None = None
    lora_rank: int | None = None
    max_loras: int | None = None
    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    data_parallel_size: int | None = None
    expert_parallel_size: int | None = None
    enable_expert_parallel: bool = False
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
    wanted = Wanted(request.dtype, request.quantization, request.kv_cache_dtype)
    precision = read_precision(wanted, book, checkpoint, machine, notes)
    architecture = checkpoint.architecture
    speculation = read_speculation(request.speculative_config, request.acceptance_rate, checkpoint, book)
    asked = (request.block_length, request.diffusion_steps)
    blocks = read_blocks(*asked, architecture.denoising, architecture.family, notes)
    adapters = read_adapters(request.lora_modules, request.lora_rank, request.max_loras, architecture)
    engine = book.record(Engine, request.engine or DEFAULT_ENGINE)
    media, seconds = _media(request, checkpoint, notes)
    plan, share = _plan(request, machine, checkpoint, engine, notes), request
    if plan:
        share = _share_of(request, plan, notes, beside={"--speculative-config": speculation, "--lora-rank": adapters})
        machine = msgspec.structs.replace(machine, count=max(machine.count, plan.parts))
        checkpoint = _shard_of(checkpoint, plan, notes)
    phase, step = _step(share, architecture, blocks, media, notes)
    context = step.groups[-1].past + step.groups[-1].new if phase in ("decode", "mixed") else None
    main = [group for group in step.groups if group.stack == MAIN]
    chunk = main[0].new if main and phase != "decode" else None
    if not main and not media:  # an encoder by itself: what it leaves to the decoder
        chunk = sum(group.new for group in step.groups if group.stack in architecture.sources)
    drafter = None
    if speculation:
        step = drafted_step(speculation, checkpoint, phase, step, notes)
        drafter = draft_precision(speculation, wanted, book, machine, model=precision, notes=notes)
    longest = max((group.past + group.new for group in step.groups if group.stack == MAIN), default=0)
    positions = architecture.positions
    if positions and longest > positions:
        notes.append(f"{longest} tokens go beyond the model's table of {positions} positions")
    return Scenario(
        model=checkpoint,
        machine=machine,
        engine=engine,
        eager=request.enforce_eager,
        precision=precision,
        phase=phase,
        batch_size=request.batch_size or 1,
        context_len=context,
        input_len=chunk,
        cached_len=request.cached_len,
        step=step,
        conventions=conventions,
        images=len(media) - bool(seconds),
        audio_seconds=seconds,
        media_tokens=media_tokens(media),
        speculation=speculation,
        draft_precision=drafter,
        blocks=blocks,
        adapters=adapters,
        kept=kept_tokens(phase, speculation, blocks, book),
        plan=plan,
        whole=architecture if plan else None,
        assumptions=tuple(notes),
    )


# -- plans ------------------------------------------------------------------------------------------------------------


def _plan(request: Request, machine: Machine, checkpoint: Checkpoint, engine: Engine, notes: list[str]) -> Plan | None:
    """The plan over several parts; None on one."""
    tensor, pipeline, data, expert = sizes = [getattr(request, name) for name in SIZES]
    if machine.count == 1 and not request.enable_expert_parallel and all(size in (None, 1) for size in sizes):
        return None
    from flopmap.plans.read import Asked, read_plan

    asked = Asked(tensor, pipeline, data, expert, request.enable_expert_parallel)
    counted = machine.count > 1 or request.on.strip().endswith(":1")
    plan = read_plan(asked, machine, checkpoint.architecture, engine, notes, counted=counted)
    return plan if plan.parts > 1 else None


def _share_of(request: Request, plan: Plan, notes: list[str], beside: dict[str, object]) -> Request:
    """The request of one data rank. Raises :class:`ScenarioError` for what no plan counts yet."""
    for flag, given in beside.items():
        if given is not None:
            raise ScenarioError(f"{flag}: not counted yet under a plan over several parts ({plan}); give one part")
    if ("parameters", "nominal") in request.conventions:
        raise ScenarioError(f"--convention parameters=nominal: a plan over several parts ({plan}) needs exact shapes")
    batch = request.batch_size or 1
    share = -(-batch // plan.data)
    if share * plan.data != batch:
        notes.append(f"a batch of {batch:,} is no multiple of {plan.data} data ranks: each is priced at {share:,}")
    return msgspec.structs.replace(request, batch_size=share)


def _shard_of(checkpoint: Checkpoint, plan: Plan, notes: list[str]) -> Checkpoint:
    from flopmap.plans.shard import said, shard

    architecture = shard(checkpoint.architecture, plan, notes)
    notes += said(checkpoint.architecture, plan)
    return msgspec.structs.replace(checkpoint, architecture=architecture)


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


# -- step -------------------------------------------------------------------------------------------------------------


def _media(request: Request, checkpoint: Checkpoint, notes: list[str]) -> tuple[tuple[Medium, ...], float]:
    """The images and the sound of one sequence, and how many seconds that has."""
    said: list[str] = []
    try:
        wanted = request.phase == "encode" or not checkpoint.architecture.vocab
        asked = (request.images, request.image_size, request.video_frames)
        media = images(checkpoint.architecture, *asked, said, wanted=wanted)
        heard, seconds = sound(checkpoint.architecture, request.audio_seconds, notes, wanted=wanted)
    except MediumError as error:
        raise ScenarioError(str(error)) from None
    if media and not checkpoint.processor and checkpoint.architecture.vocab:
        said.append(
            "limits of the image processor: its family's, since no preprocessor_config.json lies beside the config"
        )
    notes.extend(said)
    return media + heard, seconds


def _step(
    request: Request,
    architecture: Architecture,
    blocks: Blocks | None,
    media: tuple[Medium, ...],
    notes: list[str],
) -> tuple[PhaseName, Step]:
    for flag, number in (
        ("batch-size", request.batch_size),
        ("context-len", request.context_len),
        ("input-len", request.input_len),
    ):
        _in_range(flag, number, 1)
    _in_range("output-len", request.output_len, 1)
    _in_range("cached-len", request.cached_len, 0)
    phase, batch = _phase(request, architecture, notes), request.batch_size or 1
    if architecture.sources and architecture.images is None:
        return phase, _encoder_decoder_step(request, architecture, phase, batch, notes)
    if media:
        return phase, _step_with_media(request, phase, batch, media, notes)
    if phase == "encode":
        tokens = _prompt(request, notes, architecture.longest)
        return "encode", encode_step(batch, tokens, 1 if architecture.generative or not architecture.head else tokens)
    if phase == "decode":
        context = _context(request, notes)
        if blocks and architecture.denoising:
            if request.block_length is None and blocks.block > context:
                blocks = msgspec.structs.replace(blocks, block=context)
            group = denoising_group(blocks, architecture.denoising, batch, context, request.cached_len)
            return "decode", Step(groups=(group,))
        return "decode", decode_step(batch, context)
    if phase == "prefill":
        return "prefill", prefill_step(batch, _prompt(request, notes), request.cached_len)
    return "mixed", mixed_step(batch, _context(request, notes), _prompt(request, notes), request.cached_len)


def _step_with_media(
    request: Request, phase: PhaseName, batch: int, media: tuple[Medium, ...], notes: list[str]
) -> Step:
    """Media go through the towers in the step that reads the prompt; a decode step finds their tokens in the cache."""
    context = _context(request, notes) if phase in ("decode", "mixed") else None
    what = "images" if request.audio_seconds is None else "sound"
    if context is not None and request.context_len is None:
        context += media_tokens(media)
        notes.append(f"context {context:,} tokens: {media_tokens(media):,} of {what} with it")
    prompt = _prompt(request, notes) + media_tokens(media) if phase in ("prefill", "mixed") else None
    if prompt is not None:
        notes.append(f"prompt {prompt:,} tokens: {media_tokens(media):,} of them of {what}")
    return step_with_media(media, batch, context, prompt, request.cached_len)


def _phase(request: Request, architecture: Architecture, notes: list[str]) -> PhaseName:
    """The phase that was asked for, or the model's usual one."""
    usual: PhaseName = "decode" if architecture.generative else "encode"
    accepted = PHASE_NAMES
    if not architecture.generative:
        accepted = ("encode",)
    elif architecture.sources and architecture.images is None:
        accepted = ("decode", "prefill", "encode")
    elif architecture.denoising:
        accepted = ("decode", "prefill") if architecture.denoising.cached else ("decode",)
    if request.phase is None:
        notes.append(f"phase {usual}: none is given")
        return usual
    for phase in accepted:
        if phase == request.phase:
            return phase
    kind = f"{architecture.family} " if len(accepted) < len(PHASE_NAMES) else ""
    raise ScenarioError(f"--phase {request.phase}: no phase of {kind}models (accepted: {', '.join(accepted)})")


def _encoder_decoder_step(
    request: Request, architecture: Architecture, phase: PhaseName, batch: int, notes: list[str]
) -> Step:
    """The source goes through the encoder once; the decoder attends to it in every step."""
    sources = _sources(request, architecture, phase, notes)
    encoded = tuple(
        Group(count=batch, new=tokens, past=0, positions=0, phase="encode", stack=stack)
        for stack, tokens in sources.items()
    )
    source = sum(sources[stack] for stack in architecture.sources)
    if phase == "encode":
        return Step(groups=encoded)
    if phase == "prefill":
        notes.append("decoder prompt 1 token: the start of the sequence")
        return Step(groups=(*encoded, Group(count=batch, new=1, past=0, memory=source, phase="prefill")))
    if request.context_len is not None:
        context = request.context_len
    else:
        longest = architecture.positions or DEFAULT_CONTEXT
        context = max(1, (request.output_len or longest) // 2)
        middle = "half of the output" if request.output_len else "none is given"
        notes.append(f"decoder context {context} tokens: {middle}")
    return Step(groups=(Group(count=batch, new=1, past=context - 1, memory=source, phase="decode"),))


def _sources(request: Request, architecture: Architecture, phase: PhaseName, notes: list[str]) -> dict[str, int]:
    """Tokens of every stack: those that the model fixes, else those of the text that is encoded."""
    fixed = {stack.name: stack.tokens for stack in architecture.stacks if stack.tokens is not None}
    if len(fixed) == len(architecture.stacks):
        if request.input_len is not None:
            encodes = ", ".join(f"{tokens} of {name}" for name, tokens in fixed.items())
            raise ScenarioError(f"--input-len {request.input_len}: {architecture.family} always encodes {encodes}")
        return fixed
    longest = architecture.longest
    if request.input_len is not None or (phase != "decode" and request.context_len is not None):
        source = _prompt(request, notes)
    else:
        source = min(DEFAULT_CONTEXT, longest or DEFAULT_CONTEXT)
        notes.append(f"source {source} tokens: no input length is given")
    if longest and source > longest:
        notes.append(f"{source} tokens go beyond the encoder's table of {longest} positions")
    return {stack.name: fixed.get(stack.name, source) for stack in architecture.stacks}


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


def _prompt(request: Request, notes: list[str], longest: int = 0) -> int:
    if request.input_len is not None:
        return request.input_len
    if request.context_len is not None and request.phase in ("prefill", "encode"):
        return request.context_len
    tokens = min(DEFAULT_CONTEXT, longest or DEFAULT_CONTEXT)
    notes.append(f"prompt {tokens} tokens: none is given")
    return tokens
