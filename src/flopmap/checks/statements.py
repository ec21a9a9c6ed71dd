"""What documents say, recomputed: every statement of `book/claims` with its verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopmap.checks.claims import VERDICTS, Judgement, rates
from flopmap.records.formula import FormulaError, operate, parse, symbols, value
from flopmap.records.formula import bind as put
from flopmap.records.notation import number_text, text
from flopmap.records.printed import Printed, exactly, read_printed
from flopmap.records.resolve import law, named, parse_once
from flopmap.records.types import Claims, Law, OpClass, Part, Way
from flopmap.records.units import Dimension, dimension, unit_dimension, unit_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from flopmap.records.author import Source
    from flopmap.records.book import Book
    from flopmap.records.notation import Expr
    from flopmap.records.types import Statement, Symbol
    from flopmap.records.yaml_file import Problem

MAX_CHAIN = 50
LONGEST = 160  # characters of a formula that is written out


def judge(book: Book) -> list[Judgement]:
    """Every statement of the book, recomputed."""
    files = [(name, book.record(Claims, name)) for name in book.ids("claims")]
    judged = [
        _judge(f"claims/{name}", key, statement, file, book)
        for name, file in files
        for key, statement in file.claims.items()
    ]
    return sorted(judged, key=lambda judgement: judgement.id)


def _judge(place: str, key: str, statement: Statement, file: Claims, book: Book) -> Judgement:
    way = _over(file.shared, statement)
    ours: float | None = None
    theirs: float | None = None
    unit = under = fault = formula = form = ""
    used = False
    verdict = "cannot be checked"
    try:
        if way.quantity:
            ours = _figure(way, statement, book)  # first, since it finds circles of names
            own = _own(way, book)
            formula = _written(way, statement.over, own)
            used = bool(symbols(_put_in(way)) & own.keys())
        if ours is not None and (statement.theirs or statement.form):
            printed = _printed(statement, way, file, book)
            verdict, under = _verdict(printed, ours, way, statement, book)
            theirs, unit = printed.value, printed.label
            form = text(parse_once(statement.form)) if statement.form else ""
            ours /= printed.scale
        fault = _fault(statement, verdict, ours)
    except (FormulaError, LookupError, ValueError) as error:
        fault = f"cannot be computed: {error}"
    return Judgement(
        id=key,
        record=way.of if used else place,
        quantity=way.quantity,
        verdict=verdict,
        ours=ours,
        theirs=theirs,
        source=file.source,
        why=statement.cannot or statement.why,
        says=statement.says,
        section=statement.section or file.section,
        formula=formula,
        printed=statement.theirs,
        form=form,
        unit=unit,
        under=under,
        fault=fault,
    )


def _fault(statement: Statement, verdict: str, ours: float | None) -> str:
    """What is wrong with a statement that could be computed: its verdict is not the one that it records."""
    if bool(statement.theirs) + bool(statement.form) + bool(statement.cannot) != 1:
        return "give one of theirs (a printed figure), form (a formula) and cannot (why it cannot be checked)"
    expected = "cannot be checked" if statement.cannot else VERDICTS[statement.expected]
    if verdict != expected:
        found = (
            "it has no quantity" if ours is None else f"ours {ours:.6g}, theirs {statement.theirs or statement.form}"
        )
        return f"{verdict}, and is recorded as {expected!r}: {found}"
    if verdict != "agrees" and not (statement.why or statement.cannot):
        return f"{verdict}, and does not say why"
    return ""


def _written(way: Way, over: Way | None, own: Mapping[str, Expr]) -> str:
    """The quantity as maths, with given formulas and short ones of its record put in; and what it is compared with."""
    tree = _put_in(way)
    if len(text(put(tree, own))) < LONGEST:
        tree = put(tree, own)
    if over is None:
        return text(tree)
    apart = {"of": over.of, "on": over.part, "in": over.dtype, **over.conventions}
    changed = [f"{name} {word}" for name, word in apart.items() if word]
    changed += [f"{name} {each if isinstance(each, str) else number_text(each)}" for name, each in over.given.items()]
    other = text(parse_once(over.quantity)) if over.quantity else "the same"
    return f"{text(tree)}, over {other} with {', '.join(changed)}"


def _put_in(way: Way) -> Expr:
    """The quantity with the formulas that it is given in place of their names, as far as it stays short."""
    own = {name: parse_once(given) for name, given in way.given.items() if isinstance(given, str)}
    tree = parse_once(way.quantity)
    while symbols(tree) & own.keys() and len(text(tree)) < LONGEST:  # no circle, since it has a value
        tree = put(tree, own)
    return tree


def _over(below: Way, way: Way) -> Way:
    """A way with what it leaves out taken from the one below it."""
    return Way(
        of=way.of or below.of,
        quantity=way.quantity or below.quantity,
        given=below.given | way.given,
        part=way.part or below.part,
        dtype=way.dtype or below.dtype,
        conventions=below.conventions | way.conventions,
    )


def _verdict(printed: Printed, ours: float, way: Way, statement: Statement, book: Book) -> tuple[str, str]:
    if printed.holds(ours):
        return "agrees", ""
    for name, other in statement.under.items():
        chosen = _over(way, other)
        held = printed
        if statement.form:
            held = exactly(_figure(chosen, statement, book, quantity=statement.form))
        if held.holds(_figure(chosen, statement, book)):
            return "holds under a convention", name
    return "disagrees", ""


def _printed(statement: Statement, way: Way, file: Claims, book: Book) -> Printed:
    """The published figure. Raises FormulaError when it is in another unit than the quantity."""
    found = _dimension(way, way.quantity, file, book)
    if statement.over is not None:
        other = _over(way, statement.over)
        found = dimension(("/", "a", "b"), {"a": found, "b": _dimension(other, other.quantity, file, book)})
    if statement.form:
        printed = exactly(_figure(way, statement, book, quantity=statement.form))
        theirs = _dimension(way, statement.form, file, book)
    else:
        printed = read_printed(statement.theirs)
        theirs = unit_dimension(printed.unit, book.glossary.counts)
    if found != theirs:
        raise FormulaError(f"{way.quantity!r} comes out in {unit_text(found)}, theirs in {unit_text(theirs)}")
    return printed


# -- names ------------------------------------------------------------------------------------------------------------


def _figure(way: Way, statement: Statement, book: Book, quantity: str = "") -> float:
    """The quantity in numbers; where the statement compares, over the same in the other way."""
    figure = _value(parse_once(quantity or way.quantity), names(way, book), {}, ())
    if statement.over is not None and not quantity:
        other = _over(way, statement.over)
        figure = value(("/", figure, _value(parse_once(other.quantity), names(other, book), {}, ())))
    return figure


def names(way: Way, book: Book) -> dict[str, Expr]:
    """Every name that a quantity may use: constants, rates, the record's own, sums over sequences, what is given."""
    found: dict[str, Expr] = {"seqs": 1}
    found |= {name: symbol.value for name, symbol in book.glossary.symbols.items() if symbol.value is not None}
    found |= {name: _sum(name, symbol, way) for name, symbol in book.glossary.symbols.items() if symbol.sum}
    if way.part:
        found |= rates(book.record(Part, way.part), way.dtype or "bf16")
    found |= _own(way, book)
    return found | {name: parse_once(given) if isinstance(given, str) else given for name, given in way.given.items()}


def _own(way: Way, book: Book) -> dict[str, Expr]:
    """The names of the record that a way is of, written out in symbols, without those that it is given itself."""
    kind, _, name = way.of.partition("/")
    if kind == "flops":
        trees = named(book.record(OpClass, name), way.conventions)
    elif kind == "laws":
        trees = law(book.record(Law, name), way.conventions)
    elif kind == "":
        trees = {}
    else:
        raise FormulaError(f"of names a record of flops or laws, not {way.of!r}")
    return {each: tree for each, tree in trees.items() if tree != each and each not in way.given}


def _sum(name: str, symbol: Symbol, way: Way) -> Expr:
    """A statistic of a step over ``seqs`` equal sequences."""
    formula = symbol.windowed if symbol.windowed and "window" in way.given else symbol.sum
    for convention, readings in symbol.conventions.items():
        formula = readings.get(way.conventions.get(convention, ""), formula)
    return 1 if name == "seqs" else operate("*", "seqs", parse_once(formula))


def _value(expr: Expr, trees: Mapping[str, Expr], known: dict[str, Expr], above: tuple[str, ...]) -> float:
    """The number that a formula comes to, each name worked out once. Raises FormulaError where it has none."""
    for name in sorted(symbols(expr) - known.keys()):
        if name in above:
            raise FormulaError(f"a circle of names: {' -> '.join((*above, name))}")
        if len(above) > MAX_CHAIN:
            raise FormulaError(f"a chain of more than {MAX_CHAIN} names: {above[0]} -> {above[1]} -> ...")
        if name not in trees:
            raise FormulaError(f"no value for {name}")
        known[name] = _value(trees[name], trees, known, (*above, name))
    return value(put(expr, known))


def _dimension(way: Way, quantity: str, file: Claims, book: Book) -> Dimension:
    """The dimension of a quantity. A name that neither the glossary nor the file gives a unit is a pure number."""
    counts = book.glossary.counts
    units = {name: unit_dimension(symbol.unit, counts) for name, symbol in book.glossary.symbols.items()}
    units |= {name: unit_dimension(unit, counts) for name, unit in file.units.items()}
    trees = names(way, book)

    def known(expr: Expr) -> Dimension:
        for name in sorted(symbols(expr) - units.keys()):
            units[name] = known(trees[name]) if name in trees else {}
        return dimension(expr, units)

    return known(parse(quantity))


def check(judgements: list[Judgement], book: Book, source: Source) -> Iterator[Problem]:
    """The statements that are not as recorded, each at its line, and the ids that stand twice."""
    found = {judgement.id: judgement.fault for judgement in judgements}
    seen: set[str] = set()
    for name, file in source.records["claims"].items():
        for key in book.record(Claims, name).claims:
            if key in seen:
                yield file.problem(("claims", key), "this id stands in another file too", "give it a new one")
            elif found[key]:
                yield file.problem(("claims", key), found[key])
            seen.add(key)
