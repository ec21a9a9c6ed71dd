"""Fits the figures of a law to measured times: least robust distance of logarithms, by damped Gauss-Newton steps.

Nothing is random: rows are put in an order of their own, thinned by a fixed rule, and starts and choices are listed.
So the same rows give the same figures, in whatever order they come.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Columns = dict[str, Array]

SOFT = 0.03  # of a logarithm: errors far beyond it count by their size and not by their square
STEP = 1e-4  # of a logarithm, for slopes
MOST_STEPS = {"first": 40, "again": 8, "last": 60}
LONGEST = 1.0  # of a logarithm: no figure moves farther at once
BETTER = 0.998  # a choice is taken when it leaves less than this share of the loss
DIGITS = 5
MIX = 2654435761  # spreads places of rows: the golden ratio of 32 bits


class Free(NamedTuple):
    """A figure that is fitted: where it starts (each start is tried), and the range that it stays in."""

    starts: tuple[float, ...]
    low: float
    high: float


class Problem(NamedTuple):
    """What is fitted: a law as a function of columns and figures; figures that are free, and those of a few choices.

    ``choices`` are groups of figures whose values go together, such as the sides of a tile.
    """

    law: Callable[[Columns, dict[str, float]], Array]
    free: dict[str, Free]
    choices: tuple[tuple[tuple[str, ...], tuple[tuple[float, ...], ...]], ...] = ()


class Result(NamedTuple):
    """Figures by name, and the loss that they leave a row."""

    figures: dict[str, float]
    loss: float


def fit(problem: Problem, columns: Columns, seconds: Array, *, few: int = 2000, many: int = 10_000) -> Result:
    """The figures that fit the rows best. Choices are made on ``few`` rows, the rest is fitted to ``many``."""
    columns, seconds = ordered(columns, seconds)
    some = thinned(columns, seconds, few)
    chosen = [values[min(place, len(values) - 1)] for place, (_, values) in enumerate(problem.choices)]
    starts = [
        dict(zip(problem.free, start, strict=True)) for start in product(*[one.starts for one in problem.free.values()])
    ]
    best = min((_continued(problem, chosen, start, some, "first") for start in starts), key=lambda result: result.loss)
    for _ in range(3):
        before = best.loss
        for place, (_, values) in enumerate(problem.choices):
            for value in values:
                if value in chosen:
                    continue
                tried = [*chosen[:place], value, *chosen[place + 1 :]]
                result = _continued(problem, tried, best.figures, some, "again")
                if result.loss < BETTER * best.loss:
                    best, chosen = result, tried
        if best.loss == before:
            break
    last = _continued(problem, chosen, best.figures, thinned(columns, seconds, many), "last")
    return Result({name: float(f"{value:.{DIGITS}g}") for name, value in last.figures.items()}, last.loss)


def ordered(columns: Columns, seconds: Array) -> tuple[Columns, Array]:
    """The rows sorted by all their values, so that their order in files does not matter."""
    order = np.lexsort((seconds, *[columns[name] for name in sorted(columns)]))
    return {name: column[order] for name, column in columns.items()}, seconds[order]


def thinned(columns: Columns, seconds: Array, rows: int) -> tuple[Columns, Array]:
    """At most so many rows, spread over all by a fixed rule."""
    if len(seconds) <= rows:
        return columns, seconds
    scattered = np.argsort(np.arange(len(seconds), dtype=np.uint64) * MIX % (1 << 32), kind="stable")
    places = np.sort(scattered[:rows])
    return {name: column[places] for name, column in columns.items()}, seconds[places]


def errors(law: Array, seconds: Array) -> Array:
    """How far a law is from each measured time, as a share of it."""
    return np.asarray(np.abs(law / seconds - 1))


def _continued(
    problem: Problem,
    chosen: Sequence[tuple[float, ...]],
    start: Mapping[str, float],
    rows: tuple[Columns, Array],
    steps: str,
) -> Result:
    """Figures fitted from a start with the choices held."""
    columns, seconds = rows
    held = {
        name: value
        for (names, _), values in zip(problem.choices, chosen, strict=True)
        for name, value in zip(names, values, strict=True)
    }
    names, measured = list(problem.free), np.log(seconds)
    low, high = (np.log([getattr(problem.free[name], side) for name in names]) for side in ("low", "high"))

    def misses(logs: Array) -> Array:
        figures = {**held, **dict(zip(names, np.exp(logs).tolist(), strict=True))}
        return np.asarray(np.log(problem.law(columns, figures)) - measured)

    logs, loss = _least(
        misses, np.clip(np.log([start[name] for name in names]), low, high), low, high, MOST_STEPS[steps]
    )
    return Result({**held, **dict(zip(names, np.exp(logs).tolist(), strict=True))}, loss / len(seconds))


def _loss(misses: Array) -> float:
    return float(np.sum(SOFT * (np.sqrt(1 + (misses / SOFT) ** 2) - 1)))


def _least(misses: Callable[[Array], Array], at: Array, low: Array, high: Array, steps: int) -> tuple[Array, float]:
    """Where the loss is least, found by damped Gauss-Newton steps with the weights of the robust loss."""
    miss = misses(at)
    loss, damping = _loss(miss), 1e-2
    for _ in range(steps):
        slopes = np.empty((len(miss), len(at)))
        for place in range(len(at)):
            step = STEP if at[place] + STEP <= high[place] else -STEP
            moved = at.copy()
            moved[place] += step
            slopes[:, place] = (misses(moved) - miss) / step
        weights = 1 / np.sqrt(1 + (miss / SOFT) ** 2)
        square, slope = slopes.T @ (slopes * weights[:, None]), slopes.T @ (weights * miss)
        scale = np.diag(square) + 1e-6 * np.trace(square) / len(at) + 1e-9
        for _ in range(8):
            move = -np.linalg.solve(square + damping * np.diag(scale), slope)
            tried = np.clip(at + np.clip(move, -LONGEST, LONGEST), low, high)
            next_miss = misses(tried)
            next_loss = _loss(next_miss)
            if next_loss < loss:
                break
            damping *= 4
        else:
            break
        settled = loss - next_loss < 1e-6 * loss
        at, miss, loss, damping = tried, next_miss, next_loss, max(damping / 3, 1e-6)
        if settled:
            break
    return at, loss
