"""A plan's parts beside the one that is priced: the fullest stage, the whole model, and the plan that would hold it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from flopmap.floor.roofline import Pricer, price
from flopmap.floor.summary import memory
from flopmap.machine.machine import Machine
from flopmap.plans.links import domain
from flopmap.plans.plan import Plan
from flopmap.plans.read import flags, layered, usual
from flopmap.plans.shard import stages
from flopmap.quantity import amount
from flopmap.scenario import make
from flopmap.step import ScenarioError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopmap.floor.roofline import Pricing
    from flopmap.floor.summary import Memory
    from flopmap.records.book import Book
    from flopmap.scenario import Request, Scenario

WIDEST = 8  # tensor ranks of a stage that people run


def with_shares(pricing: Pricing, book: Book) -> Pricing:
    """A rank's pricing with the fullest stage of its pipeline and with the whole model."""
    scenario = pricing.scenario
    plan, checkpoint = scenario.plan, scenario.model
    if plan is None or scenario.whole is None:
        return pricing
    whole = replace(scenario, plan=None, model=replace(checkpoint, architecture=scenario.whole))
    pricing = replace(pricing, whole=Pricer(whole, book)(scenario.step))
    if plan.pipeline == 1:
        return pricing
    alone = replace(plan, pipeline=1)
    shares = []
    for stage in stages(checkpoint.architecture, plan.stages):
        share = replace(scenario, plan=alone, model=replace(checkpoint, architecture=stage))
        shares.append(Pricer(share, book)(scenario.step))
    fullest = max(shares, key=_needed)
    device = pricing.device_seconds
    if scenario.phase != "decode":  # chunks of a prompt can be in several stages at once
        device = max(share.device_seconds for share in shares)
    return replace(pricing, stage=fullest, device_seconds=device)


def _needed(pricing: Pricing) -> float:
    return sum(pricing.totals[resource] for resource in ("resident", "cache", "held"))


def refuse_unfit(request: Request, pricing: Pricing, fit: Memory, book: Book) -> None:
    """Raise :class:`ScenarioError` where weights alone are more than a part holds, with the nearest plan that fits."""
    plan = pricing.scenario.plan
    if plan is None or fit.fits or fit.borderline or fit.weight_bytes <= fit.capacity_bytes:
        return
    part, weights = pricing.scenario.machine.part, pricing.entire.totals["resident"]
    fitting = next(_fitting(request, pricing.scenario, fit.least_parts, book), None)
    instead = f"nearest: --on {part.id}:{fitting.parts} {flags(fitting)}" if fitting else "no plan that we know does"
    each, held = amount(fit.weight_bytes, "B"), amount(fit.capacity_bytes, "B")
    raise ScenarioError(
        f"{plan}: {each} of weights on a part do not fit in the {held} of {part.id}; "
        f"{amount(weights, 'B')} of them need at least {fit.least_parts} parts ({instead})"
    )


def _fitting(request: Request, scenario: Scenario, least: int, book: Book) -> Iterator[Plan]:
    """Plans whose parts hold the weights, fewest parts first."""
    part, whole = scenario.machine.part, scenario.whole
    if whole is None:
        return
    by_layers = layered(scenario.engine)
    widest = (
        1 if by_layers else usual(whole, Machine(part=part, count=domain(part, WIDEST)), domain(part, WIDEST)).tensor
    )
    unsaid = {"data_parallel_size": None, "expert_parallel_size": None, "enable_expert_parallel": False}
    for parts in range(max(2, least), (max(2, least) + widest) * 4):
        plan = Plan(pipeline=parts) if by_layers else usual(whole, Machine(part=part, count=parts), parts)
        if plan.pipeline > len(whole.layers) or (plan.pipeline > 1 and plan.tensor < widest):
            continue  # a stage has as many ranks as people would give it
        sizes = {"tensor_parallel_size": plan.tensor, "pipeline_parallel_size": plan.pipeline}
        other = price(make(replace(request, on=f"{part.id}:{parts}", **sizes, **unsaid), book), book)
        if memory(other, book).weight_bytes <= part.capacity_bytes.value:
            yield plan
