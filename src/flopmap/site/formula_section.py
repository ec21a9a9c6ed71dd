"""The formulas of a record's page: maths, values that follow the sliders, other readings, a plot."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from flopmap.quantity import amount, significant
from flopmap.site.formulas import LEAST, Program, values
from flopmap.site.html import Markup, link, section, tag
from flopmap.site.mathml import equation

if TYPE_CHECKING:
    from flopmap.records.book import Book
    from flopmap.site.formulas import Formula
    from flopmap.site.symbols import Range

STEPS = 1000  # of a slider that moves by ratios
PREFIXED = ("byte", "byte/s", "FLOP", "FLOP/s", "op", "op/s", "byte/sequence")
PARTS = {"define": "Names", "cost": "Cost of one run", "quantities": "Quantities"}


def formula_section(of: Program, root: str, book: Book) -> Markup | None:
    """All formulas of a program with what they come to; None when it has none."""
    if not of.formulas:
        return None
    stand = values(of)
    groups = []
    for part, title in PARTS.items():
        found = [_formula(formula, of, stand) for formula in of.formulas if formula.part == part]
        groups += [tag("h3", title), found] if found else []
    return section(
        "Formulas",
        tag(
            "form",
            _readings(of, book),
            tag("div", [_slider(each, root) for each in of.symbols], class_="sliders"),
            id="symbols",
        ),
        tag("noscript", tag("p", "Without JavaScript the values are those of the symbols as they stand here.")),
        tag("div", groups, class_="formulas"),
        _plot(of),
        class_="live",
    )


def _formula(formula: Formula, of: Program, stand: dict[str, float | None]) -> Markup:
    others = [
        tag(
            "div",
            tag("span", LEAST if choice == LEAST else f"{convention}={choice}", class_="tag"),
            equation(formula.name, trees[formula.name]),
        )
        for convention, choices in of.readings.items()
        for choice, trees in choices.items()
        if formula.name in trees
    ]
    value = stand.get(formula.name)
    shown = tag(
        "output",
        "no value" if value is None else written(value, formula.unit),
        data_formula=formula.name,
        data_unit=formula.unit,
        data_value=None if value is None else repr(value),
    )
    stated = None if formula.tree is None else equation(formula.name, formula.tree)
    spelt = tag("div", stated, [tag("div", others, class_="readings")] if others else None, class_="maths", tabindex=0)
    why = tag("p", formula.why, class_="why") if formula.why else None
    return tag("div", spelt, shown, why, class_="formula", id=f"f-{formula.name}")


def _slider(symbol: Range, root: str) -> Markup:
    """A symbol as a number and a slider; both say the same."""
    if symbol.log:
        place = math.log(symbol.value / symbol.low) / math.log(symbol.high / symbol.low) * STEPS
        low, high, step, at = "0", str(STEPS), "any", f"{place:.6g}"
    else:
        low, high, at = repr(symbol.low), repr(symbol.high), repr(symbol.value)
        step = "1" if symbol.whole else "any"
    name = tag(
        "label", link(symbol.name, f"{root}glossary.html#{symbol.name}"), for_=f"n-{symbol.name}", title=symbol.meaning
    )
    number = tag(
        "input",
        type="number",
        id=f"n-{symbol.name}",
        name=symbol.name,
        value=repr(symbol.value),
        step="any",
        inputmode="decimal",
        data_low=repr(symbol.low),
        data_high=repr(symbol.high),
        data_whole=symbol.whole,
        data_log=symbol.log,
    )
    slider = tag(
        "input",
        type="range",
        min=low,
        max=high,
        step=step,
        value=at,
        data_of=symbol.name,
        aria_label=f"{symbol.name}, slider",
    )
    unit = "" if symbol.unit == "1" else symbol.unit
    return tag("div", name, number, slider, tag("span", unit, class_="unit"), class_="symbol")


def _readings(of: Program, book: Book) -> Markup:
    """A choice for each convention that the record has another reading for."""
    chosen = []
    for convention in of.readings:
        # the base formula is the default's
        offered = ["as written", LEAST] if convention == LEAST else list(book.conventions[convention].values)
        name = "luck" if convention == LEAST else convention
        select = tag(
            "select", [tag("option", choice) for choice in offered], data_convention=convention, name=f"c-{convention}"
        )
        chosen.append(tag("label", name, " ", select))
    return tag("div", chosen, class_="choices") if chosen else Markup("")


def _plot(of: Program) -> Markup | None:
    """The frame of the plot; the page draws it, since it follows the sliders."""
    if not of.symbols:
        return None
    own = [formula.name for formula in of.formulas if formula.tree is not None]
    first = next((name for name in reversed(own) if name in ("intensity", "seconds", "ridge_batch")), own[0])
    across = tag("select", [tag("option", each.name) for each in of.symbols], name="x")
    up = tag("select", [tag("option", name, selected=name == first) for name in own], name="y")
    choices = tag("p", tag("label", "plot ", up), " ", tag("label", "over ", across), class_="choices")
    return tag("figure", choices, tag("div", id="plot"), class_="plot")


def written(value: float, unit: str) -> str:
    """A value with its unit, as the page writes it too."""
    if unit in PREFIXED:
        return amount(value, unit.replace("byte", "B"))
    return significant(value) if unit in ("1", "a pure number") else f"{significant(value)} {unit}"
