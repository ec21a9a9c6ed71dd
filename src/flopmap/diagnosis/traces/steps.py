"""The steps that engines and profilers mark in a trace, and what their names say of the batch.

vLLM marks a step as ``execute_context_P(p)_generation_D(d)``: P prompts with p tokens, D sequences that decode with d;
newer forms put the sum of the contexts (``sk``) into the brackets. SGLang marks ``step[DECODE bs=32]``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from flopmap.diagnosis.traces.profile import Steps

if TYPE_CHECKING:
    from flopmap.diagnosis.traces.activity import Activities

NUMBER = r"\d{1,12}"
INSIDE = r"\((?:(?P<{0}_tokens>{1})|sq(?P<{0}_sq>{1})sk(?P<{0}_sk>{1})\w*)\)"
EXECUTE = re.compile(
    rf"execute_(?:\d+_)?context_(?P<prompts>{NUMBER}){INSIDE.format('p', NUMBER)}"
    rf"_generation_(?P<sequences>{NUMBER}){INSIDE.format('d', NUMBER)}"
)
SGLANG = re.compile(rf"step\[(?P<mode>\w+)(?: bs=(?P<batch>{NUMBER}))?(?: toks=(?P<tokens>{NUMBER}))?")
FORMS = ("execute_", "step[", "ProfilerStep#")  # the first of these that a trace has tells its steps


class Shape(NamedTuple):
    """A step: sequences that decode and the sum of their contexts; prompts, their tokens and those cached before."""

    sequences: int = 0
    context: int | None = None
    prompts: int = 0
    tokens: int = 0
    cached: int = 0


def read_steps(found: Activities, given: int | None = None) -> Steps | None:
    """The steps of a trace, or None where it marks none and the user gave no number."""
    device = [step for step in found.steps if step.on_device]
    marked = device or found.steps
    names: list[str] = next((chosen for form in FORMS if (chosen := _named(found, form))), [])
    count = given or len(names) or len({step.name for step in marked})
    if not count:
        return None
    shapes = [shape for name in names if (shape := shape_of(name)) is not None]
    if not shapes or len(shapes) < len(names):
        return Steps(count=count)
    return _mean(count, shapes)


def _named(found: Activities, form: str) -> list[str]:
    """The steps of a form: those on the device, for the host marks each as well; some mark one on each stream."""
    device, host = (
        [step.name for step in found.steps if step.name.startswith(form) and step.on_device is on_device]
        for on_device in (True, False)
    )
    return host if host and (not device or len(device) > len(host)) else device


def shape_of(name: str) -> Shape | None:
    """What the name of a step says of its batch, or None."""
    if match := EXECUTE.match(name):
        context, tokens = match["d_sk"], int(match["p_tokens"] or match["p_sq"])
        return Shape(
            sequences=int(match["sequences"]),
            context=int(context) if context else None,
            prompts=int(match["prompts"]),
            tokens=tokens,
            cached=max(0, int(match["p_sk"] or 0) - tokens),
        )
    match = SGLANG.match(name)
    if match and match["batch"]:
        batch = int(match["batch"])
        if match["mode"] == "DECODE":
            return Shape(sequences=batch)
        prompts = Shape(prompts=batch, tokens=int(match["tokens"] or 0))
        return prompts if match["mode"] in ("EXTEND", "PREFILL") else None
    return None


def _mean(count: int, shapes: list[Shape]) -> Steps:
    sequences, prompts = sum(shape.sequences for shape in shapes), sum(shape.prompts for shape in shapes)
    if sequences and prompts:
        return Steps(count=count)  # of several kinds: the time of none is known
    if sequences:
        contexts = [shape.context for shape in shapes if shape.context is not None]
        whole = len(contexts) == len(shapes)
        return Steps(
            count=count,
            phase="decode",
            batch_size=max(1, round(sequences / len(shapes))),
            context_len=max(1, round(sum(contexts) / sequences)) if whole else None,
        )
    if not prompts:
        return Steps(count=count)
    tokens = sum(shape.tokens for shape in shapes)
    return Steps(
        count=count,
        phase="prefill",
        batch_size=max(1, round(prompts / len(shapes))),
        input_len=max(1, round(tokens / prompts)) if tokens else None,
        cached_len=round(sum(shape.cached for shape in shapes) / prompts),
    )
