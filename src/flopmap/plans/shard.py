"""The share of one rank: a model's layers with their widths divided as a plan says. What cannot be, is said."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, TypeVar

from msgspec.structs import replace

from flopmap.model.architecture import (
    Architecture,
    Attention,
    Convolution,
    CrossAttention,
    Experts,
    FeedForward,
    LatentAttention,
    Layer,
    Linear,
    Piece,
    Recurrence,
    SharedKeys,
    Stack,
    Vector,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flopmap.plans.plan import Plan

Part: TypeAlias = Piece | Experts | SharedKeys | CrossAttention
A = TypeVar("A", bound=Attention | LatentAttention)


def problem(layers: Iterable[Layer], tensor: int) -> str | None:
    """Why layers cannot be spread over so many ranks; None where they can."""
    for layer in set(layers):
        crossed = [piece.attention for piece in layer.pieces if isinstance(piece, CrossAttention)]
        attentions = [*([layer.attention] if layer.attention else []), *crossed]
        for attention in attentions:
            if attention.heads % tensor:
                return f"{attention.heads} heads"
            if isinstance(attention, Attention) and attention.kv_heads % tensor and tensor % attention.kv_heads:
                return f"{attention.kv_heads} key and value heads"
        if isinstance(layer.feed_forward, FeedForward) and layer.feed_forward.width % tensor:
            return f"a feed-forward of {layer.feed_forward.width:,}"
    return None


def experts_of(layers: Iterable[Layer]) -> list[Experts]:
    """The mixtures of experts of some layers, each kind once."""
    halves = [half for layer in set(layers) for half in (layer.feed_forward, *layer.pieces)]
    return list(dict.fromkeys(half for half in halves if isinstance(half, Experts)))


def expert_problem(layers: Iterable[Layer], plan: Plan) -> str | None:
    """Why experts cannot be spread: whole ones over the expert ranks, their widths over the ranks that share one."""
    for experts in experts_of(layers):
        for what, number, ranks in (
            (f"{experts.experts} experts", experts.experts, plan.expert),
            (f"experts of {experts.width:,}", experts.width, plan.expert_tensor),
            (f"shared experts of {experts.shared_width:,}", experts.shared_width, plan.tensor),
        ):
            if number % ranks:
                return f"{what} cannot be divided by {ranks}"
    return None


def shard(architecture: Architecture, plan: Plan, notes: list[str]) -> Architecture:
    """All layers as one rank of a plan has them: heads, widths, experts and words divided, the rest replicated."""
    kinds = {layer: _layer(layer, architecture.hidden, plan) for layer in dict.fromkeys(architecture.layers)}
    stacks = tuple(_stack(stack, plan, notes) for stack in architecture.stacks)
    return replace(
        architecture,
        layers=tuple(kinds[layer] for layer in architecture.layers),
        stacks=stacks,
        vocab_ranks=plan.tensor,
    )


def stages(architecture: Architecture, sizes: tuple[int, ...]) -> list[Architecture]:
    """The stages of a pipeline, each kind once: the first has the embedding and the towers, the last the head."""
    found, start, last = [], 0, len(sizes) - 1
    for index, size in enumerate(sizes):
        stage = replace(architecture, layers=architecture.layers[start : start + size])
        if index > 0:
            stage = replace(stage, embedding="none", positions=0, stacks=(), before=(), tied=False)
        if index < last:
            stage = replace(stage, head=False, final_norm=False, after=())
        found.append(stage)
        start += size
    return list(dict.fromkeys(found))


def said(architecture: Architecture, plan: Plan) -> list[str]:
    """What the plan assumes of a model, in words."""
    notes: list[str] = []
    layers = set(architecture.layers)
    keys = {layer.attention.kv_heads for layer in layers if isinstance(layer.attention, Attention)}
    notes += [
        f"{heads} key and value heads are fewer than {plan.tensor} ranks: each has one, and copies are held"
        for heads in sorted(number for number in keys if number < plan.tensor)
    ]
    if plan.tensor > 1 and any(isinstance(layer.attention, LatentAttention) for layer in layers):
        notes.append("the latent cache is on every tensor rank: its one vector a token cannot be divided by heads")
    if plan.tensor > 1 and any(isinstance(piece, Recurrence) for layer in layers for piece in layer.pieces):
        notes.append("mixers without softmax attention are divided evenly, with what leads to them")
    if plan.expert > 1:
        notes.append(
            f"experts are chosen evenly: each of {plan.expert} ranks has its share of tokens and of experts read"
        )
    if plan.data > 1 and not plan.spread:
        notes.append(f"the batch is spread over {plan.data} replicas that do not wait for each other")
    if plan.spread:
        notes.append(f"the batch is spread over {plan.data} ranks of attention; their tokens go to experts on all")
    if plan.pipeline > 1:
        stages = f"{min(plan.stages)} to {max(plan.stages)}" if len(set(plan.stages)) > 1 else f"{plan.stages[0]}"
        notes.append(
            f"one micro-batch: a step passes {plan.pipeline} stages of {stages} layers one after another;"
            " others could be under way meanwhile"
        )
    return notes


def _stack(stack: Stack, plan: Plan, notes: list[str]) -> Stack:
    reason = problem(stack.layers, plan.tensor)
    if reason:
        notes.append(f"{stack.name} is on every rank: {reason} cannot be divided by {plan.tensor}")
        return stack
    return replace(stack, layers=tuple(_layer(layer, stack.hidden, plan) for layer in stack.layers))


def _layer(layer: Layer, hidden: int, plan: Plan) -> Layer:
    half = layer.feed_forward
    if isinstance(half, FeedForward):
        half = replace(half, width=half.width // plan.tensor)
    elif half is not None:
        half = _experts(half, plan)
    return replace(
        layer,
        attention=_attention(layer.attention, plan.tensor) if layer.attention else None,
        feed_forward=half,
        pieces=tuple(_piece(piece, hidden, plan) for piece in layer.pieces),
    )


def _attention(attention: A, tensor: int) -> A:
    """Heads divided. Keys and values of fewer heads than ranks are replicated; so is a latent, and an indexer."""
    if isinstance(attention, Attention):
        keys = max(1, attention.kv_heads // tensor)
        return replace(attention, heads=attention.heads // tensor, kv_heads=keys)
    return replace(attention, heads=attention.heads // tensor)


def _experts(experts: Experts, plan: Plan) -> Experts:
    """Whole experts by expert ranks; the router is on each, and a rank has an even share of what tokens choose."""
    return replace(
        experts,
        ranks=plan.expert,
        width=experts.width // plan.expert_tensor,
        shared_width=experts.shared_width // plan.tensor,
        replicas=plan.replicas,
    )


def _piece(piece: Part, hidden: int, plan: Plan) -> Part:
    """A piece of a mixer: channels, states and projections divided where they can be."""
    tensor = plan.tensor
    if isinstance(piece, Experts):
        return _experts(piece, plan)
    if isinstance(piece, CrossAttention):
        return replace(piece, attention=_attention(piece.attention, tensor))
    if isinstance(piece, SharedKeys):
        return piece if piece.heads % tensor else replace(piece, heads=piece.heads // tensor)
    if isinstance(piece, Linear):
        return _linear(piece, hidden, tensor)
    if isinstance(piece, Convolution):
        return piece if piece.channels % tensor else replace(piece, channels=piece.channels // tensor)
    if isinstance(piece, Recurrence):
        return piece if piece.elements % tensor else replace(piece, elements=piece.elements // tensor)
    if isinstance(piece, Vector) and piece.width != hidden and not (piece.width % tensor or piece.parameters % tensor):
        return replace(piece, width=piece.width // tensor, parameters=piece.parameters // tensor)
    return piece


def _linear(piece: Linear, hidden: int, tensor: int) -> Linear:
    """By rows where it leads back to the layer's width (its sums are then added up), else by columns."""
    back = piece.d_out == hidden and (piece.d_in != hidden or piece.name.rpartition(".")[2].startswith("out"))
    inner = hidden not in (piece.d_in, piece.d_out) and piece.d_in > piece.d_out
    if (back or inner) and not piece.d_in % tensor:
        return replace(piece, d_in=piece.d_in // tensor, summed=back)
    if not (back or inner) and not piece.d_out % tensor:
        return replace(piece, d_out=piece.d_out // tensor)
    return piece
