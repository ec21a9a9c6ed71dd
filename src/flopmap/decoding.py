"""How a step yields other than one token a sequence, as a request states it: drafts and their check, and denoising.

A cycle of speculative decoding is one step here: the model checks the drafts of the cycle before, and the drafter makes
new ones, pass after pass. The first pass reads what the model has just read; each later pass reads one token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from flopmap.model.families.drafters import COUNTED, FUSED
from flopmap.model.reading import HEADS, Checkpoint, read_head, read_model
from flopmap.quantity import shown
from flopmap.records.formula import value
from flopmap.records.resolve import law
from flopmap.records.types import Law
from flopmap.step import MAIN, Group, ScenarioError, Step

if TYPE_CHECKING:
    from flopmap.model.architecture import Architecture, Denoising
    from flopmap.records.book import Book
    from flopmap.step import Phase

METHODS = ("draft_model", *HEADS, "mtp", "ngram")
KEYS = ("method", "model", "num_speculative_tokens")
ON_HOST = ("prompt_lookup_max", "prompt_lookup_min")  # they cost the part nothing
MOST_DRAFTED = 64
MAX_DIGITS = 9
FIRST, LATER = "draft", "draft.later"  # the stacks of a drafter's passes


class Speculation(msgspec.Struct, frozen=True, kw_only=True):
    """Speculative decoding: ``tokens`` are drafted for each sequence of a cycle, and checked by the model at once.

    ``acceptance`` is the probability that a drafted token is kept when those before it are; None where nobody says.
    ``drafter`` is None for n-grams, which the host looks up.
    """

    method: str
    tokens: int
    acceptance: float | None
    drafter: Checkpoint | None

    @property
    def passes(self) -> int:
        """Passes of the drafter in a cycle: all of Medusa's heads run at once."""
        return 0 if self.drafter is None else 1 if self.method == "medusa" else self.tokens


def read_speculation(text: str | None, acceptance: float | None, target: Checkpoint, book: Book) -> Speculation | None:
    """Speculative decoding as ``--speculative-config`` states it; None without. Raises :class:`ScenarioError`."""
    if text is None:
        if acceptance is not None:
            raise ScenarioError(f"--acceptance-rate {acceptance:g}: there are no drafts without --speculative-config")
        return None
    if acceptance is not None and not 0 <= acceptance <= 1:
        raise ScenarioError(f"--acceptance-rate {acceptance:g}: out of range (accepted: 0 to 1)")
    fields = _settings(text)
    drafted = fields.get("num_speculative_tokens")
    if not isinstance(drafted, int) or isinstance(drafted, bool) or not 1 <= drafted <= MOST_DRAFTED:
        given = "is missing" if drafted is None else f"{shown(drafted)} is out of range"
        raise ScenarioError(f"--speculative-config: num_speculative_tokens {given} (accepted: 1 to {MOST_DRAFTED})")
    method, drafter = _drafter(fields, target, book)
    heads = len(drafter.architecture.layers) if method == "medusa" and drafter else drafted
    if drafted > heads:
        raise ScenarioError(
            f"--speculative-config: num_speculative_tokens {drafted}: {heads} heads draft {heads} tokens"
        )
    return Speculation(method=method, tokens=drafted, acceptance=acceptance, drafter=drafter)


def _settings(text: str) -> dict[str, Any]:
    """The settings as JSON, as vLLM takes them, or as ``key=value,key=value``."""
    fields: Any = {}
    if text.lstrip().startswith("{"):
        try:
            fields = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ScenarioError(f"--speculative-config: not JSON: {error}") from None
        if not isinstance(fields, dict):
            raise ScenarioError(f"--speculative-config: {shown(fields)} is no JSON object")
    else:
        for setting in text.split(","):
            key, equals, value = setting.partition("=")
            if not equals:
                raise ScenarioError(f"--speculative-config: {shown(setting)} is neither JSON nor KEY=VALUE")
            text = value.strip()
            whole = text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS
            fields[key.strip()] = int(text) if whole else text
    for key in fields:
        if key not in (*KEYS, *ON_HOST) and (key, fields[key]) != ("draft_tensor_parallel_size", 1):
            raise ScenarioError(f"--speculative-config: {shown(key)} is not understood (accepted: {', '.join(KEYS)})")
    return dict(fields)


def _drafter(fields: dict[str, Any], target: Checkpoint, book: Book) -> tuple[str, Checkpoint | None]:
    """The method, as stated or as the drafter's config says, and what it drafts with."""
    method, name = fields.get("method"), fields.get("model")
    if isinstance(method, str) and method.endswith("_mtp"):
        method = "mtp"
    if method is not None and method not in METHODS:
        raise ScenarioError(
            f"--speculative-config: method {shown(method)} is not understood (accepted: {', '.join(METHODS)})"
        )
    if method == "ngram":
        return "ngram", None
    if method == "mtp":
        if target.predictor is None:
            known = ", ".join(sorted(COUNTED))
            raise ScenarioError(
                f"--speculative-config: method mtp: {target.name} has no layer that predicts a further token, or none "
                f"of a form that is counted (counted: those of {known})"
            )
        return "mtp", msgspec.structs.replace(target, architecture=target.predictor, predictor=None)
    if not isinstance(name, str) or not name:
        what = f"method {method}" if method else "no method"
        raise ScenarioError(f"--speculative-config: {what}: a model is needed, by id or path")
    sizes = {"hidden_size": target.architecture.hidden, "vocab_size": target.architecture.vocab}
    head = None if method == "draft_model" else read_head(name, method, sizes, book)
    if head is None:
        whole = read_model(name, book)  # without what is around its text model
        drafter = msgspec.structs.replace(whole, architecture=msgspec.structs.replace(whole.architecture, stacks=()))
    else:
        drafter = head
    family = drafter.architecture.family if head or drafter.architecture.embedding != "own" else "draft_model"
    if method is not None and method != family:
        raise ScenarioError(f"--speculative-config: method {method}: {name} drafts by another (accepted: {family})")
    _refuse_unfit(drafter.architecture, target.architecture, name)
    return family, drafter


def _refuse_unfit(drafter: Architecture, target: Architecture, name: str) -> None:
    """A drafter speaks the words of its target, and a head reads its rows."""
    if not drafter.generative or drafter.sources or drafter.denoising:
        raise ScenarioError(f"--speculative-config: {name} is no decoder, so it drafts nothing")
    if drafter.vocab != target.vocab:
        raise ScenarioError(
            f"--speculative-config: {name} has a vocabulary of {drafter.vocab} and the model one of {target.vocab}; "
            "drafts are checked token by token, so they must be the same"
        )
    read = drafter.stacks[0].hidden // FUSED if drafter.family == "eagle3" and drafter.stacks else drafter.hidden
    if drafter.family in HEADS and read != target.hidden:
        raise ScenarioError(
            f"--speculative-config: {name} reads rows of {read} elements, and the model's have {target.hidden}"
        )


def drafting_groups(speculation: Speculation, groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """The groups of a cycle: the model's own, with the drafts to check, and those of the drafter's passes.

    A later pass reads one token. Which drafts will be kept is not known then, so its context is counted as if none
    were: the least.
    """
    drafted = speculation.tokens
    checked = tuple(
        msgspec.structs.replace(group, new=1 + drafted, positions=1 + drafted)
        if group.stack == MAIN and group.phase == "decode"
        else group
        for group in groups
    )
    passes: list[Group] = []
    for before, group in zip(groups, checked, strict=True):
        if not speculation.passes or group.stack != MAIN:
            continue
        one = speculation.method == "medusa"  # its heads read the last row alone
        first = msgspec.structs.replace(group, stack=FIRST, new=1 if one else group.new, positions=1, memory=0)
        passes.append(first)
        if speculation.passes > 1:
            past = before.past + before.new - 1 + drafted // 2
            passes.append(Group(count=group.count, new=1, past=past, phase="decode", stack=LATER))
    return (*passes, *checked)


def drafted_step(speculation: Speculation, checkpoint: Checkpoint, phase: str, step: Step, notes: list[str]) -> Step:
    """The step with the drafts that the model checks, and the drafter's passes."""
    model = checkpoint.architecture
    if not model.generative or model.sources or model.denoising:
        raise ScenarioError(f"--speculative-config: {checkpoint.name} does not write token by token as a decoder does")
    if speculation.acceptance is None and phase in ("decode", "mixed"):
        notes.append("drafts accepted: none to all of them, since no --acceptance-rate is given")
    return Step(groups=drafting_groups(speculation, step.groups))


# -- denoising --------------------------------------------------------------------------------------------------------


class Blocks(msgspec.Struct, frozen=True, kw_only=True):
    """Denoising as a request has it: ``block`` masked tokens a sequence, filled in ``steps`` passes."""

    block: int
    steps: int


def read_blocks(
    block: int | None, steps: int | None, denoising: Denoising | None, family: str, notes: list[str]
) -> Blocks | None:
    """The blocks of a diffusion language model, and None of any other. Raises :class:`ScenarioError`."""
    if denoising is None:
        for flag, number in (("block-length", block), ("diffusion-steps", steps)):
            if number is not None:
                raise ScenarioError(f"--{flag} {number}: {family} models write token by token, without denoising")
        return None
    if block is None:
        notes.append(f"block of {denoising.block} tokens: none is given")
        block = denoising.block
    if block < 1:
        raise ScenarioError(f"--block-length {block}: out of range (accepted: 1 and more)")
    if steps is None:
        notes.append(f"{block} denoising steps a block, a token each: none are given")
        steps = block
    if not 1 <= steps <= block:
        raise ScenarioError(f"--diffusion-steps {steps}: out of range (accepted: 1 to the block's {block} tokens)")
    return Blocks(block=block, steps=steps)


def denoising_group(blocks: Blocks, denoising: Denoising, batch: int, context: int, cached: int) -> Group:
    """One pass: over the block after a cache, or over the whole sequence. Logits are those of the block.

    ``cached`` tokens of a model without a cache of its own are those that an engine keeps from pass to pass.
    """
    if blocks.block > context:
        raise ScenarioError(f"--block-length {blocks.block}: more than the {context} tokens of the context")
    past = context - blocks.block if denoising.cached else cached
    if past > context - blocks.block:
        raise ScenarioError(f"--cached-len {past}: more than the {context - blocks.block} tokens before the block")
    phase: Phase = "decode" if denoising.cached or cached else "encode"
    return Group(count=batch, new=context - past, past=past, positions=blocks.block, phase=phase)


def kept_tokens(phase: str, speculation: Speculation | None, blocks: Blocks | None, book: Book) -> tuple[float, float]:
    """Tokens that a decoding sequence gets from the step, fewest and most."""
    if phase in ("prefill", "encode"):
        return 1.0, 1.0
    if blocks:
        formula = law(book.record(Law, "denoising"), {})["tokens_per_pass"]
        number = value(formula, {"block": blocks.block, "denoising_steps": blocks.steps})
        return number, number
    if speculation:
        formula = law(book.record(Law, "speculative-decoding"), {})["tokens_per_cycle"]
        rates = (0.0, 1.0) if speculation.acceptance is None else (speculation.acceptance, speculation.acceptance)
        low, high = (value(formula, {"acceptance": rate, "drafted": speculation.tokens}) for rate in rates)
        return low, high
    return 1.0, 1.0
