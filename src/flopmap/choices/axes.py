"""A scenario along an axis: its step with one length or the batch left open, and every cost as a formula of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from flopmap.choices.solve import AXIS
from flopmap.floor.roofline import law_trees, rates
from flopmap.ledger.ledger import DEVICE_BYTES, RESOURCES, account, cost_trees
from flopmap.records.formula import bind, operate, total
from flopmap.scenario import Request, make
from flopmap.step import ScenarioError, formula

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flopmap.records.book import Book
    from flopmap.records.notation import Expr
    from flopmap.scenario import Scenario
    from flopmap.step import Group

AXES = {"batch": "batch_size", "context": "context_len", "prompt": "input_len", "cached": "cached_len"}
PROBES = (4096, 8192, 16384)
NUMBERS = ("count", "new", "past", "positions", "memory")


class Open(NamedTuple):
    """One op of a step with an open axis: its costs, and the times of its matrix FLOP, its bytes and its roofline."""

    op_class: str
    name: str
    shapes: dict[str, float]
    costs: dict[str, Expr]
    matrix_seconds: Expr
    memory_seconds: Expr
    seconds: Expr


def changed(request: Request, field: str, value: Any) -> Request:
    """The request with a field set, also from text. Raises :class:`ScenarioError` where there is no such."""
    if field not in Request.__struct_fields__:
        raise ScenarioError(f"{field}: no field of a scenario (accepted: {', '.join(Request.__struct_fields__)})")
    fields = {**msgspec.structs.asdict(request), field: value}
    try:
        return msgspec.convert(fields, Request, strict=False)
    except msgspec.ValidationError as error:
        raise ScenarioError(f"{field} {value!r}: {str(error).partition(' - at')[0].lower()}") from None


def at(request: Request, axis: str, point: int) -> Request:
    """The request at a point of an axis."""
    return replace(request, **{AXES[axis]: point})


def opened(request: Request, axis: str, book: Book) -> tuple[Scenario, list[Open]]:
    """The ops of a request's step as formulas of :data:`AXIS`. Raises :class:`ScenarioError` if none follows it."""
    probed = [make(at(request, axis, probe), book) for probe in PROBES]
    if probed[0].plan:
        raise ScenarioError(f"--on {request.on}: crossovers of plans over several parts are not counted; give one part")
    groups = [_open(variants, axis) for variants in zip(*(scenario.step.groups for scenario in probed), strict=True)]
    if all(getattr(group, name) == getattr(probed[0].step.groups[0], name) for group in groups for name in NUMBERS):
        raise ScenarioError(f"--axis {axis}: changes nothing in a step of {probed[0].phase}")
    scenario = probed[0]
    ledger, machine = account(scenario, book), rates(scenario, book)
    laws = law_trees(scenario.conventions, book)["roofline"]
    sums = {}
    for statistic in ledger.statistics:
        tree = formula(statistic, book.glossary, scenario.conventions)
        sums[statistic.name] = total(
            operate("*", group.count, bind(tree, {name: getattr(group, name) for name in NUMBERS[1:]}))
            for group in groups
            if statistic.stack == group.stack and statistic.phase in (None, group.phase)
        )
    ops = []
    for line in ledger.lines:
        trees = cost_trees(line, scenario)
        costs = {resource: bind(trees.get(resource, 0), sums) for resource in RESOURCES}
        known = {**machine.values, **costs, "matrix_peak": machine.matrix[line.math]}
        times = [bind(laws[name], known) for name in ("matrix_seconds", "memory_seconds", "seconds")]
        shapes = {**dict(line.op.shapes), **line.formats}
        ops.append(Open(line.op_class.id, line.op.name, shapes, costs, *times))
    return scenario, ops


def _open(variants: tuple[Group, ...], axis: str) -> Group:
    """The group with the numbers that follow the axis as formulas of it. They are straight lines in all our steps."""
    first = variants[0]
    fields: dict[str, Expr] = {}
    for name in NUMBERS:
        low, middle, high = (getattr(group, name) for group in variants)
        if low == middle == high:
            continue
        slope = (middle - low) / (PROBES[1] - PROBES[0])
        if low + slope * (PROBES[2] - PROBES[0]) != high:
            raise ScenarioError(f"--axis {axis}: the {name} of a step of {first.phase} is no straight line along it")
        fields[name] = operate("+", low - slope * PROBES[0], operate("*", slope, AXIS))
    return replace(first, **fields)


def memory_of(ops: Iterable[Open], kinds: Iterable[str], scenario: Scenario, book: Book) -> Expr:
    """The time of some kinds of bytes of a step, by the law of the roofline."""
    members, wanted = list(ops), set(kinds)
    moved: dict[str, Expr] = {
        kind: total(op.costs[kind] for op in members) if kind in wanted else 0 for kind in DEVICE_BYTES
    }
    tree = law_trees(scenario.conventions, book)["roofline"]["memory_seconds"]
    return bind(tree, {**rates(scenario, book).values, **moved})
