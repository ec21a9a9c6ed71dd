"""Crossovers, combined levers and comparisons as lines of text and as data."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from flopmap.quantity import amount, percent, seconds, significant
from flopmap.records.book import to_data

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flopmap.choices.combine import Levers, Pulled
    from flopmap.choices.compare import Compared, Comparison
    from flopmap.choices.crossover import Crossover, Crossovers, FormatRidge, Preference
    from flopmap.scenario import Request

HEADINGS = ("what", "from 1 on", "flips at", "then", "1% moves it", "how")
UNIT = {"batch": "sequences", "context": "tokens of context", "prompt": "tokens of prompt", "cached": "cached tokens"}
METRIC = {"time": "s/token", "price": "USD/token"}


def grid(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines, each column as wide as its widest cell."""
    if not rows:
        return []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def point(at: float) -> str:
    """A point of an axis: four figures where it is small, whole where it is large."""
    return significant(at) if at < 1e4 else f"{at:,.0f}"  # noqa: PLR2004 - five digits


# -- crossovers -------------------------------------------------------------------------------------------------------


def crossover_headline(result: Crossovers) -> str:
    """The step's own flip, in one sentence."""
    step = result.found[0]
    where = f"{result.scenario.model.name} on {result.scenario.machine.part.id}"
    if step.at is None:
        return f"never: the step is bound by {step.below} at any {result.axis} ({where}){_why_never(result)}"
    reach = ""
    if result.axis == "batch" and result.most is not None and result.most < step.at:
        reach = f"; {result.most:,} sequences fit"
    moved = _moved(step.flips[0].sensitivity)
    return (
        f"{result.axis} {point(step.at)}: there the step leaves {step.below} for {step.beyond} "
        f"({where}; 1% of the ridge moves it by {moved}{reach})"
    )


def _why_never(result: Crossovers) -> str:
    pole = next((one for one in result.found[1:] if one.beyond == "no batch" and one.at is not None), None)
    if pole is None or pole.at is None:
        return ""
    return f": from context {math.ceil(pole.at):,} on each sequence brings more time of bytes than of FLOP"


def _moved(sensitivity: float) -> str:
    return "any amount" if math.isinf(sensitivity) else f"{significant(sensitivity)}%"


def crossover_lines(result: Crossovers) -> list[str]:
    """The answer, a line for every crossover, and what the laws give."""
    rows = [HEADINGS, *map(_row, result.found)]
    lines = [crossover_headline(result), "", *grid(rows)]
    if result.figures:
        shown = [
            (one.what, "never" if one.value is None else f"{point(one.value)} {one.unit}".strip(), one.law)
            for one in result.figures
        ]
        lines += ["", *grid([("by a law or a measurement", "", "record"), *shown])]
    return lines


def _row(found: Crossover) -> tuple[str, ...]:
    what = found.what if found.axis in ("batch", "prompt") else f"{found.what} ({found.axis})"
    how = "closed form" if found.exact else "bracketed root"
    if found.at is None:
        return (what, found.below, "never", "", "", how)
    further = "".join(f", back at {point(flip.at)}" for flip in found.flips[1:2])
    return (what, found.below, point(found.at) + further, found.beyond, _moved(found.flips[0].sensitivity), how)


def crossover_data(result: Crossovers) -> dict[str, Any]:
    """The crossovers as data; ``at`` null is never."""
    return {
        "schema_version": 1,
        "axis": result.axis,
        "model": result.scenario.model.name,
        "part": result.scenario.machine.part.id,
        "max_sequences": result.most,
        "crossovers": [{**to_data(one), "at": one.at} for one in result.found],
        "figures": [to_data(one) for one in result.figures],
    }


def series_lines(field: str, results: Sequence[tuple[str, Crossovers]]) -> list[str]:
    """The step's flip for each value of another field."""
    rows = [(field, *(one.what for one in results[0][1].found[:2]), "1% moves them")]
    for value, result in results:
        both = result.found[:2]
        moved = [_moved(one.flips[0].sensitivity) if one.flips else "-" for one in both]
        rows.append((value, *("never" if one.at is None else point(one.at) for one in both), ", ".join(moved)))
    poles = [one for one in results[0][1].found[2:4] if one.beyond == "no batch" and one.at is not None]
    told = "; ".join(
        f"never from context {math.ceil(one.at or 0):,} on ({one.what.partition(':')[0]})" for one in poles
    )
    head = f"{results[0][1].axis} at which the step flips, by {field}" + (f": {told}" if told else "")
    return [head, "", *grid(rows)]


def format_lines(rows: Sequence[FormatRidge], part: str) -> list[str]:
    """The batch at which weight GEMMs flip, by format."""
    heads = ("format", "bits", "multiplied in", "batch, elements alone", "batch, with scales")
    cells = [
        (row.format, f"{row.bits:g}", row.math, significant(row.batch_of_elements), significant(row.batch))
        for row in rows
    ]
    first, last = rows[0], rows[-1]
    answer = (
        f"{significant(first.batch)} to {significant(last.batch)} sequences: where weight GEMMs leave memory on "
        f"{part}, from {first.format} to {last.format} (activations not counted)"
    )
    return [answer, "", *grid([heads, *cells])]


def preference_lines(found: Preference, first: Request, second: Request, names: tuple[str, str]) -> list[str]:
    """Which of two scenarios wins at the point asked for, and where that changes."""
    winner = names[0] if found.first_wins else names[1]
    ratio = max(found.values) / min(found.values) if min(found.values) > 0 else math.inf
    head = f"{winner} wins by {percent(1 - 1 / ratio)} a token here"
    start = names[0] if found.first_wins_at_1 else names[1]
    if found.flips_at is None:
        flip = f"never flips along the {found.axis}"
    else:
        other = names[1] if found.first_wins_at_1 else names[0]
        flip = f"{start} wins below {found.axis} {found.flips_at:,}, {other} from there"
    rows = [(name, f"{value:.4g} {METRIC[found.metric]}") for name, value in zip(names, found.values, strict=True)]
    same = "" if first.model != second.model else f" ({first.model})"
    return [f"{head}; {flip}{same}", "", *grid(rows)]


def preference_data(found: Preference, names: tuple[str, str]) -> dict[str, Any]:
    """The preference as data."""
    return {"schema_version": 1, "names": list(names), **to_data(found)}


# -- levers -----------------------------------------------------------------------------------------------------------


def lever_lines(result: Levers) -> list[str]:
    """What the levers come to together, then each by itself."""
    rows: list[tuple[str, ...]] = [
        ("lever", "step", "time", "throughput", "memory", "sequences that fit", "turns", "needs and caveats")
    ]
    rows += [(*_pulled(one), _turns(one, result.axis), _mind(one)) for one in result.single]
    lines = [_lever_headline(result)]
    if result.together:
        order = [("pulled in this order", "step", "time", "throughput", "memory", "sequences that fit")]
        lines += ["", *grid([*order, *map(_pulled, result.together)])]
    lines += ["", *grid(rows)]
    if result.without_effect:
        lines += ["", f"without effect here, in force already or not to be had: {', '.join(result.without_effect)}"]
    return lines


def _lever_headline(result: Levers) -> str:
    now = f"{seconds(result.seconds)} a step, {significant(result.tokens_per_second)} tokens/s"
    if not result.together:
        return f"no lever is pulled: {now}"
    last = result.together[-1]
    names = " + ".join(one.gain.title for one in result.together)
    factor = last.tokens_per_second / result.tokens_per_second
    return f"{significant(factor)}x with {names}: from {now}, to {significant(last.tokens_per_second)} tokens/s"


def _pulled(one: Pulled) -> tuple[str, ...]:
    held = one.memory.weight_bytes + one.memory.cache_bytes
    room = "" if one.memory.max_sequences is None else f"{one.memory.max_sequences:,}"
    return (
        one.gain.title,
        seconds(one.gain.step_seconds),
        f"{-one.gain.gain * 100:+.1f}%",
        f"{significant(one.tokens_per_second)} tokens/s",
        amount(held, "B") + ("" if one.memory.fits else ", does not fit"),
        room,
    )


def _turns(one: Pulled, axis: str) -> str:
    if one.turns_at is None:
        return "never" if one.wins_at_1 else "never gains"
    return f"{'loses' if one.wins_at_1 else 'gains'} from {axis} {one.turns_at:,}"


def _mind(one: Pulled) -> str:
    return "; ".join((*one.gain.gates, *one.gain.traps))


def lever_data(result: Levers) -> dict[str, Any]:
    """The levers as data, in SI units."""
    return {"schema_version": 1, **to_data(result)}


# -- comparisons ------------------------------------------------------------------------------------------------------

COLUMNS: dict[str, tuple[str, Callable[[Compared], str]]] = {
    "step": ("step", lambda row: seconds(row.step_seconds)),
    "device": ("device floor", lambda row: seconds(row.device_seconds)),
    "throughput": ("throughput", lambda row: f"{significant(row.tokens_per_second)} tokens/s"),
    "price": ("USD a million", lambda row: "?" if row.usd_per_million is None else significant(row.usd_per_million)),
    "bound": ("bound by", lambda row: row.bound_by.replace("_", " ")),
    "mbu": ("MBU", lambda row: percent(row.mbu)),
    "mfu": ("MFU", lambda row: percent(row.mfu)),
    "memory": ("holds", lambda row: f"{amount(row.held_bytes, 'B')} of {amount(row.capacity_bytes, 'B')}"),
    "fits": ("sequences that fit", lambda row: "" if row.max_sequences is None else f"{row.max_sequences:,}"),
}
USUAL = ("step", "throughput", "price", "bound", "fits")


def comparison_lines(result: Comparison, columns: Sequence[str]) -> list[str]:
    """The winner and why, then every row with where it would win."""
    heads = (result.field, *(COLUMNS[name][0] for name in columns), f"beats the winner ({result.axis})")
    rows = [
        (
            row.name + ("" if row.fits else " (does not fit)"),
            *(COLUMNS[name][1](row) for name in columns),
            "" if row is result.rows[0] else _flip(row),
        )
        for row in result.rows
    ]
    return [*_winner(result), "", *grid([heads, *rows])]


def _flip(row: Compared) -> str:
    if row.flips_at is None:
        return "at any" if row.wins_at_1 else "never"
    return f"{'below' if row.wins_at_1 else 'from'} {row.flips_at:,}"


def _winner(result: Comparison) -> list[str]:
    first, *others = result.rows
    if not first.fits:
        return [f"none fits: the least of {result.metric} would be {first.name}'s", *_why(first, others)]
    if not others:
        return [f"{first.name}: {seconds(first.step_seconds)} a step"]
    flip = _flip(others[0])
    told = "" if flip == "never" else f"; {others[0].name} wins {flip} ({result.axis})"
    by = f"{seconds(first.step_seconds)} a step against {seconds(others[0].step_seconds)} on {others[0].name}"
    fits = "" if others[0].fits else ", which does not fit"
    return [f"{first.name} wins on {result.metric}: {by}{fits}{told}", *_why(first, others)]


def _why(first: Compared, others: Sequence[Compared]) -> list[str]:
    """What the difference to the runner-up is made of, by the property that governs the time."""
    if not others:
        return []
    second = others[0]
    terms = dict.fromkeys((*first.terms, *second.terms))
    apart = {term: second.terms.get(term, 0.0) - first.terms.get(term, 0.0) for term in terms}
    pieces = [
        f"{term.replace('_', ' ')} {seconds(first.terms.get(term, 0.0))} against {seconds(second.terms.get(term, 0.0))}"
        for term in sorted(apart, key=lambda term: -abs(apart[term]))
        if apart[term]
    ]
    return [f"time by what governs it: {'; '.join(pieces)}"] if pieces else ["their times do not differ"]


def comparison_data(result: Comparison) -> dict[str, Any]:
    """The comparison as data, in SI units."""
    return {"schema_version": 1, **to_data(result)}
