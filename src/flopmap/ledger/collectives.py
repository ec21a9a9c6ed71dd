"""What the ranks of a plan send to each other in a step, as ops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from flopmap.ledger.op import Op
from flopmap.model.architecture import CrossAttention, Experts, Linear
from flopmap.step import MAIN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from flopmap.model.architecture import Architecture, Layer, Stack
    from flopmap.plans.plan import Plan
    from flopmap.step import Level


def communicating(
    architecture: Architecture, whole: Architecture, plan: Plan, running: Collection[str]
) -> Iterator[Op]:
    """The collectives of a rank; ``architecture`` is its share of the ``whole``. A stack that each has is silent."""
    if plan.tensor > 1:
        for stack in architecture.stacks:
            if stack.name in running and stack not in whole.stacks:
                for op in _of_layers(stack, plan):
                    yield replace(op, name=f"{stack.name}.{op.name}", stack=stack.name)
        if architecture.vocab and architecture.embedding == "own":
            width = architecture.embedding_width
            yield from _joined("embedding.all_reduce", "embedding-reduce", {"width": width}, plan.tensor, plan)
    yield from _of_layers(architecture, plan)
    if plan.tensor > 1 and architecture.head:
        words = architecture.head_vocab or architecture.vocab
        yield from _joined("lm_head.gather", "logits-gather", {"vocab": words}, plan.tensor, plan)
    if plan.pipeline > 1:
        yield from _sends(architecture.hidden, plan)


def _of_layers(architecture: Architecture | Stack, plan: Plan) -> Iterator[Op]:
    counts: dict[str, int] = {}
    spread: dict[Experts, int] = {}
    for layer in architecture.layers:
        for name in _reduced(layer, plan):
            counts[name] = counts.get(name, 0) + 1
        for experts in _spread(layer):
            spread[experts] = spread.get(experts, 0) + 1
    for name, count in counts.items() if plan.tensor > 1 else ():
        shapes = {"width": architecture.hidden}
        for op in _joined(f"{name}.all_reduce", "all-reduce", shapes, plan.tensor, plan):
            yield replace(op, count=count)
    for experts, count in spread.items():
        yield from _exchanges(experts, count, architecture.hidden, plan)


def _reduced(layer: Layer, plan: Plan) -> Iterator[str]:
    """The halves of a layer whose sums are added up. One norm for two halves is one sum of both."""
    pieces = layer.pieces
    mixes = layer.attention is not None or any(isinstance(piece, Linear) and piece.summed for piece in pieces)
    feeds = layer.feed_forward is not None or any(isinstance(piece, Experts) for piece in pieces)
    if any(_spread(layer)):
        feeds = isinstance(layer.feed_forward, Experts) and bool(layer.feed_forward.shared_width) and plan.tensor > 1
    if mixes:
        yield "attention" if layer.attention is not None else "mixer"
    if feeds and not (mixes and layer.norms == 1):
        yield "mlp"
    for piece in pieces:
        if isinstance(piece, CrossAttention):
            yield piece.name


def _spread(layer: Layer) -> Iterator[Experts]:
    """The experts of a layer that lie over data ranks."""
    for half in (layer.feed_forward, *layer.pieces):
        if isinstance(half, Experts) and half.replicas > 1:
            yield half


def _exchanges(experts: Experts, count: int, hidden: int, plan: Plan) -> Iterator[Op]:
    """Rows to the ranks that hold their experts and back; each tensor rank sends its share of them."""
    width = (experts.latent or hidden) / plan.tensor
    for step in ("dispatch", "combine"):
        for ranks, level in _levels(plan.expert, plan):
            yield Op(
                name=f"{experts.name}.{step}{'' if level == 'scale-up' else '.out'}",
                op_class="expert-dispatch",
                count=count,
                shapes=(("ranks", ranks), ("width", width), ("top_k", experts.top_k)),
                level=level,
            )


def _joined(name: str, op_class: str, shapes: Mapping[str, float], ranks: int, plan: Plan) -> Iterator[Op]:
    """A collective inside of each scale-up domain, then one between domains, where each part has a piece of the row."""
    piece = 1
    for joined, level in _levels(ranks, plan):
        divided = {key: value / piece for key, value in shapes.items()}
        yield Op(
            name=name if level == "scale-up" else f"{name}.out",
            op_class=op_class,
            shapes=(*divided.items(), ("ranks", joined)),
            level=level,
        )
        piece = joined


def _levels(ranks: int, plan: Plan) -> Iterator[tuple[int, Level]]:
    inside = min(ranks, plan.domain)
    if inside > 1:
        yield inside, "scale-up"
    if ranks > inside:
        yield -(-ranks // inside), "scale-out"


def _sends(hidden: int, plan: Plan) -> Iterator[Op]:
    """From stage to stage: within a domain as many stages as it holds."""
    ranks = plan.tensor * plan.data
    within = max(1, plan.domain // ranks)
    beyond = -(-plan.pipeline // within) - 1
    levels: tuple[tuple[int, Level], ...] = ((plan.pipeline - 1 - beyond, "scale-up"), (beyond, "scale-out"))
    for count, level in levels:
        if count:
            yield Op(
                name="pipeline.send" if level == "scale-up" else "pipeline.send.out",
                op_class="stage-send",
                count=count,
                shapes=(("width", hidden), ("ranks", plan.tensor)),
                level=level,
                stack=MAIN,
            )
