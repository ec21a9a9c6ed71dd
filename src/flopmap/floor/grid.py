"""Many steps at once: the floors over arrays of batch sizes and contexts, as one compiled function of both.

The arrays are worked through in blocks that stay in the processor's cache, so memory does not grow with the grid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from flopmap.floor.roofline import TERMS, device_whole, law_trees, rates
from flopmap.ledger.ledger import STEP_RESOURCES, account, cost_trees
from flopmap.records.affine import simplify
from flopmap.records.formula import array_namespace, bind, code, compiled, operate, total
from flopmap.records.resolve import law
from flopmap.records.types import Law
from flopmap.step import ScenarioError, formula

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from flopmap.records.book import Book
    from flopmap.records.notation import Expr
    from flopmap.scenario import Scenario

GridFunction: TypeAlias = "Callable[[NDArray[np.float64], NDArray[np.float64]], dict[str, NDArray[np.float64]]]"
BLOCK = 8192
HELD = ("cache", "held", "resident")
COUNTED = (*STEP_RESOURCES, *HELD)
FLOORS = ("device", "operation", "engine")


def floor_trees(scenario: Scenario, book: Book) -> dict[str, Expr]:
    """The totals and the three floors of a decode step, as formulas of ``count`` (sequences) and ``past`` (tokens).

    Raises :class:`ScenarioError` for steps that yield more than a token a sequence.
    """
    if scenario.speculation or scenario.blocks or scenario.plan:
        raise ScenarioError("a grid is one of plain decode steps on one part, without drafts and without denoising")
    ledger, machine = account(scenario, book), rates(scenario, book)
    laws = law_trees(scenario.conventions, book)
    decoded = {"new": 1, "positions": 1, "memory": scenario.step.groups[-1].memory}
    sums = {
        statistic.name: operate("*", "count", bind(formula(statistic, book.glossary, scenario.conventions), decoded))
        for statistic in ledger.statistics
    }
    lines = [_step_costs(cost_trees(line, scenario), sums) for line in ledger.lines]
    least = [
        _step_costs(cost_trees(line, scenario, least=True), sums) if line.op_class.least else costs
        for line, costs in zip(ledger.lines, lines, strict=True)
    ]
    seconds = []
    matrix: dict[str, Expr] = dict.fromkeys(machine.fastest, 0)
    for line, costs, lowest in zip(ledger.lines, lines, least, strict=True):
        known = {**machine.values, **costs, **machine.of(line)}
        seconds.append(bind(laws["roofline"]["seconds"], known))
        matrix[line.fastest_math] = operate("+", matrix[line.fastest_math], lowest["matrix"])
    totals: dict[str, Expr] = {resource: total(costs[resource] for costs in lines) for resource in COUNTED}
    known = {**machine.values, **{resource: total(costs[resource] for costs in least) for resource in STEP_RESOURCES}}
    device = {name: bind(laws["device-floor"][name], known) for name in TERMS if name != "matrix_seconds"}
    device["matrix_seconds"] = total(
        bind(laws["device-floor"]["matrix_seconds"], {**known, "matrix": flop, "matrix_peak": machine.fastest[dtype]})
        for dtype, flop in matrix.items()
    )
    whole = bind(device_whole(scenario.conventions, book), device)
    known = {**machine.values, **totals, "operation_seconds": total(seconds)}
    floors = {"device": whole, "operation": total(seconds), "engine": bind(laws["engine-floor"]["seconds"], known)}
    speed = law(book.record(Law, "utilisation"), scenario.conventions)["tokens_per_second"]
    floors["tokens_per_second"] = bind(speed, {"tokens": "count", "seconds": floors["engine"]})
    return {name: simplify(tree, nonnegative=("count", "past")) for name, tree in {**totals, **floors}.items()}


def _step_costs(trees: Mapping[str, Expr], sums: Mapping[str, Expr]) -> dict[str, Expr]:
    return {resource: bind(trees.get(resource, 0), sums) for resource in COUNTED}


def decode_grid(
    scenario: Scenario,
    book: Book,
    batch: NDArray[np.float64],
    context: NDArray[np.float64],
    outputs: Iterable[str] = FLOORS,
) -> dict[str, NDArray[np.float64]]:
    """Floors in seconds (or totals of a resource) for each pair of batch size and context.

    Args:
        scenario: a decode scenario; its own batch and context do not matter.
        book: the book.
        batch: sequences, one-dimensional.
        context: tokens that each attends to, the new one included; as long as ``batch``.
        outputs: ``device``, ``operation``, ``engine``, ``tokens_per_second``, a resource of a step, or of :data:`HELD`.
    """
    return grid_function(scenario, book, outputs)(batch, context)


def grid_function(scenario: Scenario, book: Book, outputs: Iterable[str] = FLOORS) -> GridFunction:
    """:func:`decode_grid` with the formulas composed and compiled once, as a function of batch and context."""
    trees = floor_trees(scenario, book)
    names = list(outputs)
    function = compiled(code([trees[name] for name in names], ("count", "past")), array_namespace())

    def grid(batch: NDArray[np.float64], context: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        import numpy as np

        results = {name: np.empty(len(batch)) for name in names}
        for start in range(0, len(batch), BLOCK):
            block = slice(start, start + BLOCK)
            for name, values in zip(names, function(batch[block], context[block] - 1.0), strict=True):
                results[name][block] = values
        return results

    return grid
