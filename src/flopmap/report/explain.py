"""Why a number is what it is: figure, formula, numbers put in, record, source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flopmap.floor.roofline import PROPERTY_OF
from flopmap.ledger.ledger import op_costs
from flopmap.quantity import seconds
from flopmap.records.formula import bind, symbols
from flopmap.records.notation import number_text, text
from flopmap.records.resolve import cost_texts, law, parse_once
from flopmap.records.types import Law, Source
from flopmap.step import ScenarioError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopmap.floor.roofline import PricedLine, Pricing
    from flopmap.records.book import Book

UNITS = {
    "matrix": "FLOP",
    "vector": "FLOP",
    "exp": "op",
    "hops": "messages",
    "launches": "launches",
    "parameters": "parameters",
    "active": "parameters",
}


def find(name: str, pricing: Pricing) -> list[PricedLine]:
    """The ops of this name or class. Raises :class:`ScenarioError` that lists those it has."""
    found = [
        line
        for line in pricing.lines
        if name in (line.line.op.name, line.line.op.op_class, line.line.op.name.split("[", 1)[0])
    ]
    if not found:
        names = ", ".join(line.line.op.name for line in pricing.lines)
        raise ScenarioError(f"--explain {name}: no such op in this step (it has: {names})")
    return found


def explain(name: str, pricing: Pricing, book: Book) -> str:
    """The trace of every figure of an op."""
    return "\n\n".join("\n".join(_lines(line, pricing, book)) for line in find(name, pricing))


def _lines(line: PricedLine, pricing: Pricing, book: Book) -> Iterator[str]:
    op, record = line.line.op, line.line.op_class
    share = line.seconds / pricing.operation_seconds * 100
    time = f"{seconds(line.seconds)} of the operation floor ({share:.1f}%)"
    yield f"{op.name}: {time}, bound by {line.bound_by.replace('_', ' ')}"
    about = f"record flops/{record.id}, {record.status}, confidence {record.confidence:g}"
    yield f"class {record.id} ({record.title}), {op.count} a step; {about}"
    yield ""
    if op.idle:
        yield "  held in memory; this step does not run it"
    spent = op_costs(op, record, pricing.scenario.conventions)  # what does not run, or holds nothing, spends less
    for resource, formula in cost_texts(record, pricing.scenario.conventions).items():
        if resource in spent:
            yield from _cost(line, resource, formula, pricing)
    yield ""
    yield from _times(line, pricing, book)
    yield ""
    for source in record.sources:
        found = book.record(Source, source)
        words = (f"{found.title}.", ", ".join(filter(None, (found.publisher, found.date))) + ".", found.url)
        yield f"source {source}: {' '.join(filter(None, words))}"


def _cost(line: PricedLine, resource: str, formula: str, pricing: Pricing) -> Iterator[str]:
    """A cost: the formula as the record writes it, then with numbers, then what it comes to over all runs."""
    values = _values(line, pricing)
    record = line.line.op_class
    written = parse_once(formula)
    whole = line.costs[resource]
    local = {name: bind(parse_once(definition), {}) for name, definition in record.define.items()}
    numbers = {name: number_text(values[name]) for name in symbols(bind(written, local)) if name in values}
    unit = UNITS.get(resource, "B")
    yield f"  {resource} = {text(written)}" + "".join(
        f", with {name} = {text(tree)}" for name, tree in local.items() if name in symbols(written)
    )
    yield f"    = {line.line.op.count} × ({text(bind(written, local), numbers)}) = {number_text(whole)} {unit}"
    if resource in record.why:
        yield f"    {record.why[resource]}"


def _values(line: PricedLine, pricing: Pricing) -> dict[str, float]:
    """The number behind each symbol of an op's formulas."""
    from_step = {symbol: pricing.statistics[statistic] for symbol, statistic in line.line.statistics.items()}
    return {**dict(line.line.op.shapes), **line.line.formats, **from_step}


def _times(line: PricedLine, pricing: Pricing, book: Book) -> Iterator[str]:
    """Each resource's time: the law's formula, the rate, and where the rate comes from."""
    roofline = law(book.record(Law, "roofline"), {})
    part = pricing.scenario.machine.part
    known: dict[str, Any] = {
        **pricing.rates.values,
        **pricing.rates.of(line.line),
    }
    known |= {**line.costs, "device_bytes": line.device_bytes}
    formulas = {"memory_seconds": parse_once("device_bytes / bandwidth")} | {
        t: roofline[t] for t in PROPERTY_OF if t != "memory_seconds"
    }
    for term, formula in formulas.items():
        if not line.terms[term]:
            continue
        numbers = {name: number_text(known[name]) for name in symbols(formula)}
        mark = "  <- binds" if PROPERTY_OF[term] == line.bound_by else ""
        yield f"  {term} = {text(formula)} = {text(formula, numbers)} = {seconds(line.terms[term])}{mark}"
    yield f"  rates of {part.id}: {_rate_sources(line, pricing)} (laws/roofline)"


def _rate_sources(line: PricedLine, pricing: Pricing) -> str:
    from flopmap.machine.machine import matrix_peak, vector_peak

    part = pricing.scenario.machine.part
    sheet = pricing.scenario.conventions["peak"] == "sheet"
    rates = [
        ("bandwidth", part.bandwidth_bytes_per_second),
        (f"matrix {line.line.math}", matrix_peak(part, line.line.math, sheet=sheet)),
    ]
    rates += [("vector", vector_peak(part)), ("exp", part.exp_per_second)]
    named = [f"{name} {figure.value:.5g} ({figure.source})" for name, figure in rates if figure is not None]
    plan = pricing.scenario.plan
    named += [
        f"{wire.name} {wire.bytes_per_second:.5g} ({wire.source})"
        for wire in (plan.wires if plan and line.costs["link"] else ())
        if wire.level == line.line.op.level and wire.bytes_per_second
    ]
    return ", ".join(named)
