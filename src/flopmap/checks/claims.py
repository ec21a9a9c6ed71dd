"""Every claim is recomputed: a published figure agrees with ours, or the check says by how much it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from flopmap.machine.machine import matrix_peak, vector_peak
from flopmap.records.formula import FormulaError, parse, value
from flopmap.records.formula import bind as put
from flopmap.records.notation import number_text
from flopmap.records.resolve import law, named
from flopmap.records.types import Claim, Law, OpClass, Part

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopmap.records.author import Source
    from flopmap.records.book import Book
    from flopmap.records.notation import Expr
    from flopmap.records.yaml_file import Problem


# the word that a record and a command line use, and the verdict
VERDICTS = {
    "agrees": "agrees",
    "convention": "holds under a convention",
    "disagrees": "disagrees",
    "unchecked": "cannot be checked",
}


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """A claim with our figure beside it, both in ``unit``. ``ours`` is None when it could not be computed.

    ``why`` says what is behind the verdict, and ``under`` which convention the claim holds under. Of what a document
    says, ``says`` is the statement, ``formula`` our recomputation written out, ``printed`` the figure or ``form`` the
    formula as published, and ``fault`` what is wrong with our record of it.
    """

    id: str
    record: str
    quantity: str
    verdict: str
    ours: float | None
    theirs: float | None
    source: str
    why: str
    says: str = ""
    section: str = ""
    formula: str = ""
    printed: str = ""
    form: str = ""
    unit: str = ""
    under: str = ""
    fault: str = ""


def ours(judgement: Judgement) -> str:
    """Our figure as people read it, with its unit."""
    return "none" if judgement.ours is None else f"{number_text(judgement.ours)} {judgement.unit}".rstrip()


def theirs(judgement: Judgement) -> str:
    """The published figure: as printed, or a formula and what it comes to."""
    figure = "" if judgement.theirs is None else number_text(judgement.theirs)
    if judgement.form:
        return f"{judgement.form} = {figure}"
    return judgement.printed or figure


def check(judgements: list[Judgement], source: Source) -> Iterator[Problem]:
    """The claims that do not hold, each at its line."""
    for judgement in judgements:
        if judgement.verdict != "agrees":
            kind, _, rest = judgement.record.partition("/")
            file = source.records[kind][rest]
            index = int(judgement.id.rsplit("#", 1)[1])
            yield file.problem(("claims", index), judgement.why)


def judge(book: Book) -> list[Judgement]:
    """Every claim of the book, recomputed."""
    judgements = []
    for kind, of in (("flops", OpClass), ("laws", Law)):
        for record_id in book.ids(kind):
            record: OpClass | Law = book.record(of, record_id)  # type: ignore[assignment]
            for index, claim in enumerate(record.claims):
                judgements.append(_judge(f"{kind}/{record_id}", index, claim, record, book))
    return judgements


def _judge(place: str, index: int, claim: Claim, record: OpClass | Law, book: Book) -> Judgement:
    try:
        ours, why = _ours(claim, record, book), claim.note
    except (FormulaError, LookupError) as error:
        ours, why = None, f"{claim.quantity} cannot be computed: {error}"
    verdict = "cannot be checked"
    if ours is not None:
        holds = abs(ours - claim.expect) <= claim.tolerance * abs(claim.expect)
        verdict = "agrees" if holds else "disagrees"
        if not holds:
            why = f"{claim.quantity} is {ours:.6g} here, {claim.expect:.6g} in {claim.source}"
    return Judgement(
        id=f"{place}#{index}",
        record=place,
        quantity=claim.quantity,
        verdict=verdict,
        ours=ours,
        theirs=claim.expect,
        source=claim.source,
        why=why,
    )


def _ours(claim: Claim, record: OpClass | Law, book: Book) -> float:
    """The claim's quantity under its given values, its part's rates and its conventions."""
    names = named(record, claim.conventions) if isinstance(record, OpClass) else law(record, claim.conventions)
    given: dict[str, Expr] = {
        name: symbol.value for name, symbol in book.glossary.symbols.items() if symbol.value is not None
    }
    if claim.part:
        given |= rates(book.record(Part, claim.part), claim.dtype)
    given |= claim.given
    own = {name: put(tree, given) for name, tree in names.items() if name not in claim.given}
    return value(put(parse(claim.quantity), {**own, **claim.given}), given)


def rates(part: Part, dtype: str) -> dict[str, Expr]:
    """The rates and limits of a part that are known, by their symbols."""
    matrix, vector = matrix_peak(part, dtype), vector_peak(part)
    found = {
        "matrix_peak": matrix.value if matrix else None,
        "vector_peak": vector.value if vector else None,
        "exp_rate": part.exp_per_second.value if part.exp_per_second else None,
        "bandwidth": part.bandwidth_bytes_per_second.value,
        "capacity": part.capacity_bytes.value,
    }
    return {name: rate for name, rate in found.items() if rate is not None}
