"""Reading a plan: as the flags state it, or as people would run it; and refusing what cannot work."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from flopmap.plans.links import domain, wires
from flopmap.plans.plan import Plan
from flopmap.plans.shard import expert_problem, experts_of, problem
from flopmap.step import ScenarioError

if TYPE_CHECKING:
    from flopmap.machine.machine import Machine
    from flopmap.model.architecture import Architecture, Layer
    from flopmap.records.types import Engine

MOST = 1_000_000
MOST_TENSOR = 1024  # more tensor ranks are not offered
SPLIT = "split-mode"  # of an engine's defaults: an engine that splits by layers has no tensor parallelism
FLAGS = {"tensor": "-tp", "pipeline": "-pp", "data": "-dp", "expert": "-ep"}
LONG = {
    "tensor": "--tensor-parallel-size",
    "pipeline": "--pipeline-parallel-size",
    "data": "--data-parallel-size",
    "expert": "--expert-parallel-size",
}


class Asked(NamedTuple):
    """Sizes as the flags state them; None is unsaid. ``experts``: expert ranks are all ranks of a stage."""

    tensor: int | None = None
    pipeline: int | None = None
    data: int | None = None
    expert: int | None = None
    experts: bool = False


def read_plan(
    asked: Asked, machine: Machine, architecture: Architecture, engine: Engine, notes: list[str], *, counted: bool
) -> Plan:
    """The plan of a request. ``counted``: somebody said how many parts there are.

    Raises :class:`ScenarioError` for a plan that cannot work, with the nearest that does.
    """
    for name, size in zip(LONG, asked, strict=False):
        if size is not None and not 1 <= size <= MOST:
            raise ScenarioError(f"{LONG[name]} {size}: out of range (accepted: 1 to {MOST})")
    by_layers = layered(engine)
    if by_layers and (asked.tensor or 1) > 1:
        raise ScenarioError(
            f"--tensor-parallel-size {asked.tensor}: {engine.id} splits a model by layers (nearest: -pp {asked.tensor})"
        )
    sized = _sizes(asked, machine, architecture, by_layers=by_layers, notes=notes)
    if sized.parts > machine.count and counted:
        raise ScenarioError(
            f"{flags(sized)}: {sized.parts} parts, but --on gives {machine.count}"
            f" (nearest: {flags(usual(architecture, machine, machine.count))})"
        )
    _check(sized, architecture, asked)
    if by_layers and sized.pipeline > 1 and not asked.pipeline:
        notes.append(f"{engine.id} splits by layers: PP {sized.pipeline}, one part after another")
    if sized.parts < machine.count:
        notes.append(f"{sized.parts} of {machine.count} parts work: the plan takes no more")
    parts = sized.parts
    return replace(
        sized,
        stages=_stages(len(architecture.layers), sized.pipeline),
        domain=domain(machine.part, parts),
        wires=wires(machine.part, parts),
    )


def layered(engine: Engine) -> bool:
    """Whether an engine gives each part whole layers."""
    return engine.defaults.get(SPLIT) == "layer"


def _sizes(asked: Asked, machine: Machine, architecture: Architecture, *, by_layers: bool, notes: list[str]) -> Plan:
    if not any(size not in (None, 1) for size in asked[:3]):
        plan = Plan(pipeline=machine.count) if by_layers else usual(architecture, machine, machine.count)
        if plan.parts > 1 and not by_layers:
            notes.append(f"plan {plan}: none is given")
    else:
        plan = Plan(tensor=asked.tensor or 1, pipeline=asked.pipeline or 1, data=asked.data or 1)
    ranks = plan.tensor * plan.data
    if asked.experts and asked.expert in (None, 1):
        return replace(plan, expert=ranks)
    return replace(plan, expert=asked.expert or 1)


def usual(architecture: Architecture, machine: Machine, parts: int) -> Plan:
    """What people run: tensor ranks within a scale-up domain as far as the heads allow, stages beyond."""
    inside = domain(machine.part, parts)
    for tensor in range(min(inside, MOST_TENSOR), 0, -1):
        fitting = Plan(tensor=tensor, pipeline=parts // tensor)
        if (
            parts % tensor == 0
            and problem(architecture.layers, tensor) is None
            and not expert_problem(architecture.layers, fitting)
        ):
            return fitting
    return Plan(pipeline=parts)


def nearest(plan: Plan, layers: tuple[Layer, ...]) -> str:
    """The flags of the plan with the most tensor ranks, up to those asked for, that can be."""
    for tensor in range(min(plan.tensor, MOST_TENSOR), 0, -1):
        ranks = Plan(tensor=tensor, pipeline=min(plan.pipeline, len(layers)), data=plan.data)
        if problem(layers, tensor) is None and expert_problem(layers, ranks) is None:
            return flags(ranks)
    return flags(Plan(pipeline=plan.pipeline))


def flags(plan: Plan) -> str:
    """The flags that state a plan."""
    given = [f"{flag} {size}" for name, flag in FLAGS.items() if (size := getattr(plan, name)) > 1]
    return " ".join(given) or "-tp 1"


def _check(plan: Plan, architecture: Architecture, asked: Asked) -> None:
    """Refuse what cannot work, with the nearest plan that does."""
    layers = architecture.layers
    reason = problem(layers, plan.tensor)
    if reason:
        by = f"cannot be divided by {plan.tensor}"
        raise ScenarioError(f"-tp {plan.tensor}: {reason} {by} (nearest: {nearest(plan, layers)})")
    if plan.pipeline > max(1, len(layers)):
        raise ScenarioError(f"-pp {plan.pipeline}: there are {len(layers)} layers (nearest: {nearest(plan, layers)})")
    if plan.pipeline > 1 and any(layer.shared for layer in layers):
        raise ScenarioError(f"-pp {plan.pipeline}: layers share their matrices, and stages cannot (accepted: 1)")
    ranks = plan.tensor * plan.data
    if plan.expert > 1 or asked.experts:
        flag = "--enable-expert-parallel" if asked.experts else f"-ep {plan.expert}"
        if not experts_of(layers):
            raise ScenarioError(f"{flag}: {architecture.family} models have no experts")
        if plan.tensor % plan.expert and plan.expert != ranks:
            raise ScenarioError(f"{flag}: {ranks} ranks of a stage cannot hold it (nearest: -ep {ranks})")
    reason = expert_problem(layers, plan)
    if reason:
        raise ScenarioError(f"{flags(plan)}: {reason} (nearest: {_whole_experts(plan, architecture)})")


def _whole_experts(plan: Plan, architecture: Architecture) -> str:
    """The plan with the most expert ranks that works, then the one with fewer tensor ranks."""
    for expert in range(min(plan.tensor, MOST_TENSOR), 0, -1):
        if plan.tensor % expert == 0 and not expert_problem(architecture.layers, replace(plan, data=1, expert=expert)):
            return flags(replace(plan, data=1, expert=expert))
    return "-ep 1"


def _stages(layers: int, pipeline: int) -> tuple[int, ...]:
    """Layers of each stage: the same for all, and what is left over goes to those before the last."""
    each, left = divmod(layers, pipeline)
    sizes = [each] * pipeline
    for index in range(left):
        sizes[-2 - index] += 1
    return tuple(sizes)
