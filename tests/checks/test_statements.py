"""What documents say is recomputed, and its verdict is held: on a small book, and on the bundled one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flopmap.checks import run
from flopmap.checks.claims import VERDICTS, Judgement
from tests.records.small_book import small_book, write

if TYPE_CHECKING:
    from pathlib import Path

HEAD = (
    "title: A paper's figures\nsource: paper\nsection: '2'\nshared: {of: flops/gemm, given: {n: 64, weight_bytes: 2}}\n"
)


@pytest.fixture(name="judged")
def fixture_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small book in place of the bundled one."""
    base = small_book(tmp_path / "base")
    monkeypatch.setattr(run, "BOOK", str(base))
    monkeypatch.setattr(run, "BUILT", str(base / "book.json"))
    return tmp_path


def check(folder: Path, *claims: str, head: str = HEAD) -> run.Outcome:
    """The outcome of an overlay with claims A1, A2 ..., each given as the fields of one."""
    listed = "".join(f"  A{number}: {{says: something, {claim}}}\n" for number, claim in enumerate(claims, 1))
    return run.check((write(folder / "overlay", {"claims/a.yaml": f"{head}claims:\n{listed}"}),))


def one(folder: Path, claim: str) -> Judgement:
    outcome = check(folder, claim)
    assert list(map(str, outcome.problems)) == []
    return next(judgement for judgement in outcome.claims if judgement.id == "A1")


def fault(folder: Path, claim: str) -> str:
    (problem,) = check(folder, claim).problems
    return str(problem).replace(str(folder / "overlay"), "T")


# -- verdicts ---------------------------------------------------------------------------------------------------------


def test_a_claim_agrees_when_ours_rounds_to_the_printed_figure(judged: Path) -> None:
    # 2 t n over 2 n bytes, 7 tokens
    found = one(judged, "quantity: matrix / weights, given: {new: 7}, theirs: 7 FLOP/B")
    assert (found.verdict, found.ours, found.theirs, found.unit) == ("agrees", 7, 7, "FLOP/B")
    assert (found.record, found.source, found.section) == ("flops/gemm", "paper", "2")


def test_ours_is_given_in_the_unit_of_theirs(judged: Path) -> None:
    # 64e9 weights of 2 bytes
    found = one(judged, "quantity: weights, given: {n: 64e9}, theirs: 128 GB")
    assert (found.ours, found.theirs, found.unit) == (128, 128, "GB")


def test_a_formula_that_the_document_writes_is_evaluated_at_the_same_values(judged: Path) -> None:
    found = one(judged, "quantity: matrix, form: 2 * new * n, given: {new: 3}")
    assert (found.verdict, found.ours, found.theirs, found.form) == ("agrees", 384, 384, "2 × new × n")
    found = one(judged, "quantity: matrix, form: new * n, given: {new: 3}, expected: disagrees, why: twice")
    assert (found.verdict, found.ours, found.theirs) == ("disagrees", 384, 192)


def test_a_ratio_is_the_quantity_over_itself_in_another_way(judged: Path) -> None:
    found = one(judged, "quantity: matrix, given: {new: 6}, over: {given: {new: 2}}, theirs: 3.0 x")
    assert (found.verdict, found.ours) == ("agrees", 3)
    assert found.formula == "2 × t × n, over the same with new 2"


def test_a_claim_that_holds_in_another_way_holds_under_that_convention(judged: Path) -> None:
    # the small book's mask=full counts two rows a token
    claim = "quantity: matrix, given: {new: 1}, theirs: 256 FLOP, expected: convention, why: half, under: {UNDER}"
    found = one(judged, claim.replace("UNDER", "mask=full: {conventions: {mask: full}}"))
    assert (found.verdict, found.under, found.ours) == ("holds under a convention", "mask=full", 128)
    found = one(judged, claim.replace("UNDER", "one: {given: {new: 7}}, two tokens: {given: {new: 2}}"))
    assert found.under == "two tokens"


def test_a_claim_that_agrees_does_not_hang_on_its_conventions(judged: Path) -> None:
    found = one(judged, "quantity: matrix, given: {new: 1}, theirs: 128 FLOP, under: {x: {given: {new: 2}}}")
    assert (found.verdict, found.under) == ("agrees", "")


def test_what_cannot_be_checked_shows_our_figure_where_there_is_one(judged: Path) -> None:
    found = one(judged, "cannot: a measurement")
    assert (found.verdict, found.ours, found.theirs, found.why) == ("cannot be checked", None, None, "a measurement")
    found = one(judged, "quantity: matrix, given: {new: 2}, cannot: the page is cut")
    assert (found.verdict, found.ours) == ("cannot be checked", 256)


def test_names_may_be_given_as_formulas_and_sequences_as_a_count(judged: Path) -> None:
    found = one(judged, "quantity: matrix / part, given: {seqs: 4, new: 2, part: whole / 2, whole: n}, theirs: 32 FLOP")
    assert found.ours == 2 * (4 * 2) * 64 / 32
    assert found.formula == "2 × t × n / (n / 2)"


def test_a_part_gives_its_rates(judged: Path) -> None:
    # 2 x 64e9 bytes over 3.35e12 byte/s
    found = one(judged, "quantity: weights / bandwidth, part: h100, given: {n: 64e9}, theirs: 38.2 ms")
    assert found.ours == pytest.approx(128e9 / 3.35e12 * 1e3)
    ridge = "quantity: matrix_peak / bandwidth, part: h100, dtype: fp8, theirs: 590.7 FLOP/B"
    assert one(judged, ridge).verdict == "agrees"


# -- faults, each at its line -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        (
            "quantity: matrix, given: {new: 1}, theirs: 256 FLOP",
            "disagrees, and is recorded as 'agrees': ours 128, theirs 256 FLOP",
        ),
        (
            "quantity: matrix, given: {new: 1}, theirs: 128 FLOP, expected: disagrees, why: no",
            "agrees, and is recorded as 'disagrees': ours 128, theirs 128 FLOP",
        ),
        (
            "quantity: matrix, given: {new: 1}, theirs: 9 FLOP, expected: convention, why: no",
            "disagrees, and is recorded as 'holds under a convention': ours 128, theirs 9 FLOP",
        ),
        (
            "quantity: matrix, given: {new: 1}, theirs: 9 FLOP, expected: disagrees",
            "disagrees, and does not say why",
        ),
        ("theirs: 9 FLOP", "cannot be checked, and is recorded as 'agrees': it has no quantity"),
        (
            "quantity: matrix, given: {new: 1}",
            "give one of theirs (a printed figure), form (a formula) and cannot (why it cannot be checked)",
        ),
        (
            "quantity: matrix, given: {new: 1}, theirs: '1', form: new",
            "give one of theirs (a printed figure), form (a formula) and cannot (why it cannot be checked)",
        ),
        (
            "quantity: matrix, given: {new: 1}, theirs: 128 GB",
            "cannot be computed: 'matrix' comes out in a pure number, theirs in byte",
        ),
        (
            "quantity: weights, theirs: a lot",
            "cannot be computed: 'a lot' is not a printed figure (accepted: 41.94 GB, about 500 x, 25 to 50, ",
        ),
        ("quantity: matrix, theirs: 1 FLOP", "cannot be computed: no value for new"),
        (
            "quantity: a, given: {a: b, b: a}, theirs: '1'",
            "cannot be computed: a circle of names: a -> b -> a",
        ),
        ("quantity: 1 / (n - n), theirs: '1'", "cannot be computed: 1 / 0 has no value: float division by zero"),
        ("quantity: n, over: {quantity: n - n}, theirs: '1'", "cannot be computed: 64 / 0 has no value: float"),
        ("quantity: n, form: n +, theirs: ''", "cannot be computed: not a formula: invalid syntax"),
        ("of: parts/h100, quantity: n, theirs: '1'", "cannot be computed: of names a record of flops or laws, "),
        ("of: flops/gem, quantity: n, theirs: '1'", "cannot be computed: unknown operation class 'gem'"),
        ("part: h1000, quantity: n, theirs: '1'", "cannot be computed: unknown part 'h1000'"),
    ],
)
def test_a_claim_that_is_not_as_recorded_is_a_problem_at_its_line(judged: Path, claim: str, message: str) -> None:
    assert fault(judged, claim).startswith(f"T/claims/a.yaml:6:7: claims.A1: {message}")


def test_a_chain_of_names_ends(judged: Path) -> None:
    chain = ", ".join(f"a{number}: a{number + 1}" for number in range(200))
    message = fault(judged, f"quantity: a0, given: {{{chain}, a200: 1}}, theirs: '1'")
    assert message.endswith("cannot be computed: a chain of more than 50 names: a0 -> a1 -> ...")


def test_a_verdict_cannot_be_typed(judged: Path) -> None:
    (problem,) = check(judged, "quantity: n, theirs: '1', verdict: agrees").problems
    assert "unknown field `verdict`" in problem.message


def test_an_id_names_one_claim(judged: Path) -> None:
    claim = f"{HEAD}claims:\n  A1: {{says: something, cannot: a measurement}}\n"
    overlay = write(judged / "overlay", {"claims/a.yaml": claim, "claims/b.yaml": claim})
    (problem,) = run.check((overlay,)).problems
    assert str(problem).endswith("b.yaml:6:7: claims.A1: this id stands in another file too. Fix: give it a new one")


def test_a_file_that_extends_another_repeats_its_ids(judged: Path) -> None:
    claims = f"{HEAD}claims:\n  A1: {{says: something, cannot: a measurement}}\n"
    overlay = write(judged / "overlay", {"claims/a.yaml": claims, "claims/b.yaml": "extends: a\ntitle: b\n"})
    (problem,) = run.check((overlay,)).problems
    assert str(problem).endswith("b.yaml:1:1: claims.A1: this id stands in another file too. Fix: give it a new one")


def test_its_sources_and_conventions_are_records(judged: Path) -> None:
    outcome = check(judged, "cannot: no, sources: [papr]", "cannot: no, conventions: {mask: ful}")
    assert [problem.message for problem in outcome.problems] == [
        "no source record 'papr'",
        "unknown convention mask=ful",
    ]


def test_claims_are_no_part_of_the_built_book(judged: Path) -> None:
    write(judged / "base", {"claims/a.yaml": f"{HEAD}claims:\n  A1: {{says: something, cannot: no}}\n"})
    assert [judgement.id for judgement in run.check(()).claims if judgement.says] == ["A1"]
    assert "something" not in (judged / "base" / "book.json").read_text()


# -- the bundled book -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", name="bundled")
def fixture_bundled() -> dict[str, Judgement]:
    outcome = run.check(())
    assert list(map(str, outcome.problems)) == []
    return {judgement.id: judgement for judgement in outcome.claims if judgement.says}


def test_each_of_the_429_claims_has_a_verdict(bundled: dict[str, Judgement]) -> None:
    counts = {
        word: sum(judgement.verdict == verdict for judgement in bundled.values()) for word, verdict in VERDICTS.items()
    }
    assert counts == {"agrees": 277, "convention": 48, "disagrees": 66, "unchecked": 38}
    ids = {f"S{document}-{number:03}" for document, last in enumerate((183, 206, 40)) for number in range(1, last + 1)}
    assert set(bundled) == ids


def test_more_than_half_of_the_recomputed_claims_hold_a_formula_of_a_record(bundled: dict[str, Judgement]) -> None:
    computed = [judgement for judgement in bundled.values() if judgement.ours is not None]
    through = [judgement for judgement in computed if judgement.record.startswith(("flops/", "laws/"))]
    assert len(through) > len(computed) / 2
    assert {judgement.record for judgement in through} >= {"flops/decode-attention", "flops/moe-experts", "laws/ridge"}


@pytest.mark.parametrize(
    ("key", "verdict", "ours"),
    [
        # attention of 4096 tokens: 80 layers, 4 L^2 FLOP for each of 8192 elements
        ("S2-029", "agrees", 80 * 4 * 4096**2 * 8192 / 1e12),
        # 80 layers x 8 heads x 128 x 2 x 2 bytes, 8192 tokens
        ("S2-019", "agrees", 80 * 8 * 128 * 2 * 2 * 8192 / 1e9),
        # 140 GB do not fit in 80
        ("S2-009", "disagrees", 140 / 80),
        # 4 d^2 would be 973,078,528: grouped keys are an eighth of the queries
        ("S2-004", "disagrees", 2 * 8192**2 + 2 * 8192 * 1024 + 3 * 8192 * 28672),
        # the ridge doubles with the peak, and the intensity with the width: the batch stays
        ("S1-041", "disagrees", 1979e12 / 3.35e12 / 2),
        # 128,256 entries of 2 bytes
        ("S1-131", "disagrees", 128256 * 2 / 1024),
        # 32k tokens of a Llama 3 8B: causal FLOP over 16-bit weights and the cache
        (
            "S1-116",
            "disagrees",
            (2 * 6979321856 * 32768 + 2 * 4096 * 32 * 32768**2) / (2 * 6979321856 + 131072 * 32768),
        ),
        # one token of 256 experts, 8 chosen: 2 FLOP a 2-byte weight
        ("S0-108", "holds under a convention", 1),
        # 128 new tokens behind 32,640: every row sees all of them, half of its own square
        ("S0-130", "disagrees", 4 * 4096 * (128 * 32640 + 128**2 / 2)),
        # a window of 1024 over 32,768 tokens, pair by pair
        ("S0-140", "disagrees", (32768 * 32769 / 2) / (1024 * 1025 / 2 + (32768 - 1024) * 1024)),
        # 6 FLOP an element that is read and written in 2 bytes
        ("S0-031", "disagrees", 6 / 4),
        # half of the weights, each kept one with 2 bits
        ("S0-033", "disagrees", 0.5 * 18 / 16),
    ],
)
def test_a_claim_comes_to_its_figure(bundled: dict[str, Judgement], key: str, verdict: str, ours: float) -> None:
    assert bundled[key].verdict == verdict
    assert bundled[key].ours == pytest.approx(ours, rel=1e-9)


def test_a_claim_under_a_convention_is_no_match_without_it(bundled: dict[str, Judgement]) -> None:
    for judgement in bundled.values():
        if judgement.verdict == "holds under a convention":
            assert judgement.under, judgement.id
            assert judgement.why, judgement.id
            assert judgement.theirs is None or judgement.ours != pytest.approx(judgement.theirs, rel=1e-6), judgement.id


def test_every_disagreement_and_every_open_claim_says_why(bundled: dict[str, Judgement]) -> None:
    for judgement in bundled.values():
        if judgement.verdict != "agrees":
            assert len(judgement.why) > 10, judgement.id


def test_each_claim_says_what_it_is_about(bundled: dict[str, Judgement]) -> None:
    for judgement in bundled.values():
        assert judgement.says.endswith("."), judgement.id
        assert judgement.section, judgement.id
        assert not judgement.says.startswith(("It ", "They ", "And ", "Its ", "Those ")), judgement.id
