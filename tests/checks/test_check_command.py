"""``flopmap check``: what it prints, and its exit code."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from flopmap.checks import run
from flopmap.cli.main import main
from flopmap.records.kinds import KINDS
from tests.records.small_book import ENGINE, OP_CLASS, small_book, write

if TYPE_CHECKING:
    from pathlib import Path

Output = pytest.CaptureFixture[str]

BAD = {
    "engines/a.yaml": f"{ENGINE}see: [idael]\n",
    "flops/a.yaml": f"{OP_CLASS}cost: {{matrix: 2 * t}}\nclaims:\n"
    "  - {quantity: matrix, given: {t: 1}, expect: 3, source: paper}\n",
}
SEE = "T/engines/a.yaml:3:7: see.0: no engines record 'idael'. Fix: use ideal, or write engines/idael.yaml"
CLAIM = "T/flops/a.yaml:7:5: claims.0: matrix is 2 here, 3 in paper"


@pytest.fixture(name="small")
def fixture_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small book in place of the bundled one."""
    base = small_book(tmp_path / "base")
    monkeypatch.setattr(run, "BOOK", str(base))
    monkeypatch.setattr(run, "BUILT", str(base / "book.json"))
    return base


@pytest.fixture(name="good")
def fixture_good(small: Path) -> str:
    return str(write(small.parent / "good", {"engines/own.yaml": ENGINE}))


@pytest.fixture(name="bad")
def fixture_bad(small: Path) -> str:
    return str(write(small.parent / "bad", BAD))


def printed(capsys: Output, folder: str = "T") -> tuple[str, str]:
    out, err = capsys.readouterr()
    return out.replace(folder, "T"), err.replace(folder, "T")


def test_a_book_without_problems_exits_0(small: Path, capsys: Output) -> None:
    assert main(["check"]) == 0
    assert printed(capsys) == ("no problems in 6 records, 2 claims: 2 agree\n", "")
    assert (small / "book.json").exists()


def test_a_good_overlay_exits_0(good: str, capsys: Output) -> None:
    assert main(["check", good]) == 0
    assert printed(capsys) == ("no problems in 7 records, 2 claims: 2 agree\n", "")


def test_a_bad_overlay_exits_1_with_a_line_a_problem(bad: str, capsys: Output) -> None:
    assert main(["check", bad]) == 1
    assert printed(capsys, bad) == (
        "2 problems in 8 records, 3 claims: 2 agree, 1 disagree\n",
        f"{SEE}\n{CLAIM}\n",
    )


def test_an_overlay_may_be_given_by_book_too(good: str, bad: str, capsys: Output) -> None:
    assert main(["check", "--book", bad, good]) == 1
    assert printed(capsys, bad)[1] == f"{SEE}\n{CLAIM}\n"
    assert main(["check", "--book", good, "--book", bad]) == 1
    assert printed(capsys, bad)[1] == f"{SEE}\n{CLAIM}\n"


def test_a_file_that_is_no_yaml_exits_1_too(small: Path, capsys: Output) -> None:
    bad = str(write(small.parent / "bad", {"engines/a.yaml": "title: &x a\nsummary: *x\n"}))
    assert main(["check", bad]) == 1
    assert printed(capsys, bad)[1] == (
        "T/engines/a.yaml:2:1: summary: an alias (*name). Fix: write the value out; a book has no anchors\n"
    )


def test_a_folder_that_is_not_there_exits_2(small: Path, capsys: Output) -> None:
    missing = str(small / "nowhere")
    with pytest.raises(SystemExit) as caught:
        main(["check", missing])
    assert caught.value.code == 2
    assert printed(capsys, missing) == ("", "flopmap check: error: T: no such folder\n")


def test_the_json_holds_problems_records_and_claims(bad: str, capsys: Output) -> None:
    assert main(["check", "--json", bad]) == 1
    out, err = printed(capsys, bad)
    assert err == ""
    data = json.loads(out)
    assert list(data) == ["schema_version", "problems", "records", "claims"]
    assert data["schema_version"] == 1
    assert data["records"] == {"flops": 2, "laws": 1, "parts": 1, "engines": 2, "sources": 2}
    assert data["problems"] == [
        {
            "file": "T/engines/a.yaml",
            "line": 3,
            "column": 7,
            "where": "see.0",
            "message": "no engines record 'idael'",
            "fix": "use ideal, or write engines/idael.yaml",
        },
        {
            "file": "T/flops/a.yaml",
            "line": 7,
            "column": 5,
            "where": "claims.0",
            "message": "matrix is 2 here, 3 in paper",
            "fix": "",
        },
    ]
    shown = [{key: value for key, value in claim.items() if value != "" or key == "why"} for claim in data["claims"]]
    assert shown == [
        {
            "id": "flops/a#0",
            "record": "flops/a",
            "quantity": "matrix",
            "verdict": "disagrees",
            "ours": 2,
            "theirs": 3,
            "source": "paper",
            "why": "matrix is 2 here, 3 in paper",
        },
        {
            "id": "flops/gemm#0",
            "record": "flops/gemm",
            "quantity": "matrix / weights",
            "verdict": "agrees",
            "ours": 1,
            "theirs": 1,
            "source": "paper",
            "why": "",
        },
        {
            "id": "laws/ridge#0",
            "record": "laws/ridge",
            "quantity": "ridge",
            "verdict": "agrees",
            "ours": 989.5e12 / 3.35e12,
            "theirs": 295.4,
            "source": "paper",
            "why": "as printed",
        },
    ]


def test_the_claims_that_disagree_are_listed_and_others_on_request(small: Path, bad: str, capsys: Output) -> None:
    assert main(["check", "--claims"]) == 0
    assert printed(capsys)[0] == "no problems in 6 records, 2 claims: 2 agree\n"
    assert main(["check", "--claims", "--only", "all"]) == 0
    assert printed(capsys)[0] == (
        "no problems in 6 records, 2 claims: 2 agree\n"
        "agrees: flops/gemm#0: matrix / weights (paper)\n"
        "  ours 1, theirs 1\n"
        "agrees: laws/ridge#0: ridge (paper)\n"
        "  ours 295.373, theirs 295.4\n"
        "  as printed\n"
    )
    assert small.is_dir()
    assert main(["check", "--claims", bad]) == 1
    assert printed(capsys, bad)[0].splitlines()[1:] == [
        "disagrees: flops/a#0: matrix (paper)",
        "  ours 2, theirs 3",
        "  matrix is 2 here, 3 in paper",
    ]


@pytest.mark.parametrize(
    ("which", "chosen"),
    [
        ("all", ["flops/a#0", "flops/gemm#0", "laws/ridge#0"]),
        ("agrees", ["flops/gemm#0", "laws/ridge#0"]),
        ("disagrees", ["flops/a#0"]),
        ("convention", []),
        ("unchecked", []),
        ("flops/", ["flops/a#0", "flops/gemm#0"]),
        ("laws/ridge#0", ["laws/ridge#0"]),
    ],
)
def test_claims_are_chosen_by_verdict_id_or_record(bad: str, capsys: Output, which: str, chosen: list[str]) -> None:
    main(["check", "--json", "--only", which, bad])
    assert [claim["id"] for claim in json.loads(printed(capsys)[0])["claims"]] == chosen


def test_what_a_document_says_is_listed_with_its_formula_and_why(small: Path, capsys: Output) -> None:
    claims = (
        "title: Theirs\nsource: paper\nsection: '2'\nshared: {of: flops/gemm, given: {n: 8, new: 3}}\nclaims:\n"
        "  A1: {says: A token costs n., quantity: matrix, form: n, expected: disagrees, why: it is 2 n}\n"
        "  A2: {says: Twice., quantity: n, theirs: '16', expected: convention, why: once,"
        " under: {it is counted twice: {given: {n: 16}}}}\n"
        "  A3: {says: It is fast., cannot: a measurement}\n"
    )
    overlay = str(write(small.parent / "theirs", {"claims/a.yaml": claims}))
    assert main(["check", overlay, "--only", "A"]) == 0
    assert printed(capsys)[0].splitlines() == [
        "no problems in 7 records, 5 claims: 2 agree, 1 hold under a convention, 1 disagree, 1 cannot be checked",
        "disagrees: A1: A token costs n. (paper 2)",
        "  ours 48, theirs n = 8; 2 × t × n",
        "  it is 2 n",
        "holds under it is counted twice: A2: Twice. (paper 2)",
        "  ours 8, theirs 16; n",
        "  once",
        "cannot be checked: A3: It is fast. (paper 2)",
        "  a measurement",
    ]


def test_a_claim_that_cannot_be_computed_says_why(small: Path, capsys: Output) -> None:
    bad = write(
        small.parent / "bad",
        {
            "flops/a.yaml": f"{OP_CLASS}cost: {{matrix: 2 * t}}\nclaims:\n"
            "  - {quantity: matrix, expect: 3, source: paper}\n"
        },
    )
    assert main(["check", "--only", "flops/a", str(bad)]) == 1
    assert printed(capsys, str(bad))[0].splitlines()[1:] == [
        "cannot be checked: flops/a#0: matrix (paper)",
        "  theirs 3",
        "  matrix cannot be computed: no value for t",
    ]


# -- the bundled book -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", name="bundled")
def fixture_bundled() -> run.Outcome:
    return run.check(())


def test_the_bundled_book_has_no_problems(bundled: run.Outcome) -> None:
    assert list(map(str, bundled.problems)) == []


def test_the_bundled_book_has_records_of_every_kind_it_needs(bundled: run.Outcome) -> None:
    assert {"flops", "laws", "parts", "models", "engines", "formats", "levers", "readings", "sources"} <= set(
        bundled.counts
    )


def test_every_claim_of_a_formula_s_own_record_agrees(bundled: run.Outcome) -> None:
    own = [judgement for judgement in bundled.claims if not judgement.says]
    assert [judgement.id for judgement in own if judgement.verdict != "agrees"] == []
    assert len(own) >= 25
    assert len({judgement.id for judgement in bundled.claims}) == len(bundled.claims)


@pytest.mark.parametrize(
    ("claim", "ours"),
    [
        ("laws/ridge#0", 989.5e12 / 3.35e12),
        ("laws/ridge#1", 1307.4e12 / 5.3e12),
        ("laws/ridge#2", 165.2e12 / 1.008e12),
        ("laws/ridge#3", 312e12 / 2.039e12),
        ("laws/ridge#4", 197e12 / 819e9),
    ],
)
def test_the_ridges_of_the_seed_come_from_the_parts_own_figures(bundled: run.Outcome, claim: str, ours: float) -> None:
    judgement = next(judgement for judgement in bundled.claims if judgement.id == claim)
    assert judgement.quantity == "ridge"
    assert judgement.ours == pytest.approx(ours, rel=2e-4)


def test_a_good_overlay_on_the_bundled_book_exits_0(tmp_path: Path, capsys: Output, bundled: run.Outcome) -> None:
    overlay = write(tmp_path, {"parts/mine.yaml": "extends: h100-sxm\ntitle: Mine\n"})
    assert main(["check", str(overlay)]) == 0
    records, claims = sum(bundled.counts.values()) + 1, len(bundled.claims)
    out, err = printed(capsys)
    assert out.startswith(f"no problems in {records} records, {claims} claims: ")
    assert err == ""


def test_the_schemas_are_those_of_the_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--schema"]) == 0
    schemas = json.loads(capsys.readouterr().out)
    assert set(schemas) == set(KINDS)
    part = schemas["parts"]["$defs"]["Part"]
    assert {"title", "vendor", "capacity_bytes", "peaks"} <= set(part["required"])
    assert "id" not in part["properties"]
    assert part["additionalProperties"] is False
    assert schemas["parts"]["$defs"]["Figure"]["properties"]["value"]["exclusiveMinimum"] == 0
