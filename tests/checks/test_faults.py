"""Each kind of fault of a book is one line: where it is, what it is, what would mend it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flopmap.checks import run
from flopmap.records.faults import MissingBookError
from flopmap.records.formula import ALLOWED
from tests.records.small_book import ENGINE, LAW, OP_CLASS, small_book, write

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small book in place of the bundled one."""
    base = small_book(tmp_path / "base")
    monkeypatch.setattr(run, "BOOK", str(base))
    monkeypatch.setattr(run, "BUILT", str(base / "book.json"))
    return base


def problems(tmp_path: Path, files: Mapping[str, str]) -> list[str]:
    """Every line of the check of an overlay, with the overlay's folder written as T."""
    overlay = write(tmp_path / "overlay", files)
    outcome = run.check((overlay,))
    return [str(problem).replace(str(overlay), "T") for problem in outcome.problems]


def op_class(rest: str) -> dict[str, str]:
    return {"flops/a.yaml": OP_CLASS + rest}


def law(rest: str) -> dict[str, str]:
    return {"laws/a.yaml": LAW + rest}


def claim(rest: str) -> dict[str, str]:
    return op_class(f"cost: {{matrix: 2 * t}}\nclaims:\n  - {{{rest}}}\n")


GOOD = {
    "symbols.yaml": "counts: [widget]\nsymbols: {widgets: {unit: widget, meaning: mine, sum: new}}\n",
    "conventions.yaml": "mine: {meaning: m, values: {one: a, two: b}}\n",
    "sources/own.yaml": "title: Our measurement\nkind: measurement\npublisher: us\n",
    "engines/own.yaml": "extends: ideal\ntitle: Ours\nsources: [own]\nconfidence: 0.5\nsee: [ideal]\n",
    "parts/own.yaml": (
        "extends: h100\ntitle: Ours\nstatus: contested\ncapacity_bytes:\n  value: 96e9\n  source: own\n"
        "  others: [{value: 94e9, source: sheet, note: its label}]\n"
    ),
    "flops/own.yaml": (
        "title: Ours\nkind: cost\nbound_by: memory\ndefine: {m: 3 * widgets, k: m * n}\n"
        'cost: {matrix: 2 * k, weights: k * weight_bytes, launches: "1"}\n'
        'conventions: {mine: {two: {weights: "0"}}, mask: {full: {matrix: 4 * k}}}\n'
        "quantities: {intensity: matrix / weights}\n"
        "claims:\n"
        "  - {quantity: intensity, given: {widgets: 5, n: 7, weight_bytes: 2}, expect: 1, source: own}\n"
        "  - {quantity: matrix, given: {widgets: 5, n: 7}, conventions: {mask: full}, expect: 420, source: own}\n"
        "sources: [own]\nsee: [gemm]\n"
    ),
    "laws/own.yaml": (
        "title: Ours\nquantities:\n"
        "  ratio: {formula: seconds_of / seconds, unit: '1', meaning: m}\n"
        "  seconds_of: {formula: 'max(weights / bandwidth, seconds)', unit: s, meaning: m,"
        " conventions: {mine: {two: seconds}}}\n"
        "claims:\n"
        "  - {quantity: ratio, given: {weights: 6.7e12, seconds: 1}, part: NVIDIA H100, expect: 2, source: own}\n"
        "sources: [own]\n"
    ),
}


def test_a_good_overlay_has_no_problems(tmp_path: Path) -> None:
    outcome = run.check((write(tmp_path / "overlay", GOOD),))
    assert outcome.problems == []
    assert outcome.counts == {"flops": 2, "laws": 2, "parts": 2, "engines": 2, "sources": 3}
    assert {judgement.id: judgement.verdict for judgement in outcome.claims} == {
        "flops/gemm#0": "agrees",
        "flops/own#0": "agrees",
        "flops/own#1": "agrees",
        "laws/own#0": "agrees",
        "laws/ridge#0": "agrees",
    }


def test_the_small_book_laid_over_itself_has_no_problems(small: Path) -> None:
    assert run.check((small,)).problems == []


@pytest.mark.parametrize(
    ("files", "line"),
    [
        pytest.param(
            {"engines/a.yaml": "title: e\n"},
            "T/engines/a.yaml:1:1: sources: a record names its sources. Fix: add sources: [id]",
            id="no source",
        ),
        pytest.param(
            {"engines/a.yaml": "title: e\nsources: [paper, papers]\n"},
            "T/engines/a.yaml:2:18: sources.1: no source record 'papers'. Fix: use paper, or write sources/papers.yaml",
            id="unknown source of a record",
        ),
        pytest.param(
            {"parts/a.yaml": "extends: h100\ntitle: a\ncapacity_bytes: {source: zzzz}\n"},
            "T/parts/a.yaml:3:26: capacity_bytes.source: no source record 'zzzz'. Fix: write sources/zzzz.yaml",
            id="unknown source of a figure",
        ),
        pytest.param(
            {
                "parts/a.yaml": "extends: h100\ntitle: a\npeaks:\n"
                "  - {unit: matrix, dtype: bf16, value: 1, source: sheet}\n"
                "  - {unit: matrix, dtype: fp8, value: 1, source: sheets}\n"
            },
            "T/parts/a.yaml:5:50: peaks.1.source: no source record 'sheets'. "
            "Fix: use sheet, or write sources/sheets.yaml",
            id="unknown source within a list",
        ),
        pytest.param(
            {
                "parts/a.yaml": "extends: h100\ntitle: a\n"
                "capacity_bytes: {others: [{value: 1, source: shet, note: other}]}\n"
            },
            "T/parts/a.yaml:3:46: capacity_bytes.others.0.source: no source record 'shet'. "
            "Fix: use sheet, or write sources/shet.yaml",
            id="unknown source of another value",
        ),
        pytest.param(
            claim("quantity: matrix, given: {t: 1}, expect: 2, source: papr"),
            "T/flops/a.yaml:7:58: claims.0.source: no source record 'papr'. Fix: use paper, or write sources/papr.yaml",
            id="unknown source of a claim",
        ),
        pytest.param(
            {"engines/a.yaml": f"{ENGINE}see: [ideal, idael]\n"},
            "T/engines/a.yaml:3:14: see.1: no engines record 'idael'. Fix: use ideal, or write engines/idael.yaml",
            id="dangling see",
        ),
        pytest.param(
            op_class("cost: {matrix: 2 * t * nn}\n"),
            "T/flops/a.yaml:5:16: cost.matrix: unknown symbol 'nn' in '2 * t * nn'. "
            "Fix: use n, or add it to symbols.yaml",
            id="unknown symbol",
        ),
        pytest.param(
            op_class("cost: {matrix: 2 * qqqq}\n"),
            "T/flops/a.yaml:5:16: cost.matrix: unknown symbol 'qqqq' in '2 * qqqq'. Fix: add it to symbols.yaml",
            id="unknown symbol like no other",
        ),
        pytest.param(
            op_class("define: {k: m, m: t}\ncost: {matrix: k}\n"),
            "T/flops/a.yaml:5:13: define.k: unknown symbol 'm' in 'm'. Fix: add it to symbols.yaml",
            id="a definition used above itself",
        ),
        pytest.param(
            op_class("cost: {matrix: t}\nquantities: {intensity: matrix / bytes}\n"),
            "T/flops/a.yaml:6:25: quantities.intensity: unknown symbol 'bytes' in 'matrix / bytes'. "
            "Fix: use word_bytes, or add it to symbols.yaml",
            id="unknown symbol of a quantity",
        ),
        pytest.param(
            {"symbols.yaml": "symbols: {k: {unit: token, meaning: m, sum: nwe}}\n"},
            "T/symbols.yaml:1:45: symbols.k.sum: unknown symbol 'nwe' in 'nwe'. "
            "Fix: use new, or add it to symbols.yaml",
            id="unknown symbol of a symbol",
        ),
        pytest.param(
            op_class("cost: {weights: 2 * t}\n"),
            "T/flops/a.yaml:5:17: cost.weights: '2 * t' comes out in a pure number, not in byte",
            id="wrong unit of a cost",
        ),
        pytest.param(
            op_class("cost: {weights: n * weight_bytes}\nconventions: {mask: {full: {weights: n * seconds}}}\n"),
            "T/flops/a.yaml:6:38: conventions.mask.full.weights: 'n * seconds' comes out in s, not in byte",
            id="wrong unit of a reading",
        ),
        pytest.param(
            op_class("define: {k: n * weight_bytes}\ncost: {matrix: k}\n"),
            "T/flops/a.yaml:6:16: cost.matrix: 'k' comes out in byte, not in a pure number",
            id="wrong unit of a definition",
        ),
        pytest.param(
            law("quantities:\n  x: {formula: weights / seconds, unit: s, meaning: m}\n"),
            "T/laws/a.yaml:4:16: quantities.x.formula: 'weights / seconds' comes out in byte/s, not in s",
            id="wrong unit of a quantity",
        ),
        pytest.param(
            law("quantities:\n  x: {formula: seconds, unit: s, meaning: m, conventions: {peak: {sheet: weights}}}\n"),
            "T/laws/a.yaml:4:74: quantities.x.conventions.peak.sheet: 'weights' comes out in byte, not in s",
            id="wrong unit of a quantity's reading",
        ),
        pytest.param(
            {"symbols.yaml": "symbols: {k: {unit: byte, meaning: m, sum: new}}\n"},
            "T/symbols.yaml:1:44: symbols.k.sum: 'new' comes out in a pure number, not in byte",
            id="wrong unit of a symbol",
        ),
        pytest.param(
            op_class("cost: {weights: n * weight_bytes + t}\n"),
            "T/flops/a.yaml:5:17: cost.weights: + joins byte with a pure number in n × weight_bytes + t",
            id="a sum of unlike things",
        ),
        pytest.param(
            op_class("cost: {matrx: 2 * t}\n"),
            "T/flops/a.yaml:5:15: cost.matrx: unknown resource 'matrx'. Fix: use matrix",
            id="unknown resource",
        ),
        pytest.param(
            op_class("cost: {matrix: t}\nconventions: {maks: {full: {matrix: 2 * t}}}\n"),
            "T/flops/a.yaml:6:28: conventions.maks.full: unknown convention maks=full. Fix: see conventions.yaml",
            id="unknown convention",
        ),
        pytest.param(
            op_class("cost: {matrix: t}\nconventions: {mask: {fulll: {matrix: 2 * t}}}\n"),
            "T/flops/a.yaml:6:29: conventions.mask.fulll: unknown convention mask=fulll. Fix: see conventions.yaml",
            id="unknown choice of a convention",
        ),
        pytest.param(
            law("quantities:\n  x: {formula: t, unit: token, meaning: m, conventions: {mask: {half: n}}}\n"),
            "T/laws/a.yaml:4:71: quantities.x.conventions.mask.half: unknown convention mask=half. "
            "Fix: see conventions.yaml",
            id="unknown choice of a law",
        ),
        pytest.param(
            claim("quantity: matrix, given: {t: 1}, conventions: {maks: full}, expect: 2, source: paper"),
            "T/flops/a.yaml:7:59: claims.0.conventions.maks: unknown convention maks=full. Fix: see conventions.yaml",
            id="unknown convention of a claim",
        ),
        pytest.param(
            {"symbols.yaml": "symbols:\n  k: {unit: token, meaning: m, sum: new, conventions: {mask: {fulll: new}}}\n"},
            "T/symbols.yaml:2:70: symbols.k.conventions.mask.fulll: unknown convention mask=fulll. "
            "Fix: see conventions.yaml",
            id="unknown convention of a symbol",
        ),
        pytest.param(
            {"engines/a.yaml": f"{ENGINE}status: contested\n"},
            "T/engines/a.yaml:3:9: status: a contested record shows the other values. "
            "Fix: add others: to the figure in question",
            id="contested without others",
        ),
        pytest.param(
            claim("quantity: matrix, given: {t: 1}, expect: 3, source: paper"),
            "T/flops/a.yaml:7:5: claims.0: matrix is 2 here, 3 in paper",
            id="a claim that does not hold",
        ),
        pytest.param(
            claim("quantity: 1000 * matrix, given: {t: 1}, expect: 2011, source: paper"),
            "T/flops/a.yaml:7:5: claims.0: 1000 * matrix is 2000 here, 2011 in paper",
            id="a claim just beyond half a percent",
        ),
        pytest.param(
            claim("quantity: matrix, expect: 2, source: paper"),
            "T/flops/a.yaml:7:5: claims.0: matrix cannot be computed: no value for t",
            id="a claim without its values",
        ),
        pytest.param(
            claim("quantity: matrix * 1e299 * 1e299, given: {t: 1}, expect: 2, source: paper"),
            "T/flops/a.yaml:7:5: claims.0: matrix * 1e299 * 1e299 cannot be computed: "
            "2e+299 × 1e+299 has no finite value",
            id="a claim beyond all numbers",
        ),
        pytest.param(
            claim("quantity: matrix +, given: {t: 1}, expect: 2, source: paper"),
            "T/flops/a.yaml:7:5: claims.0: matrix + cannot be computed: not a formula: invalid syntax",
            id="a claim that cannot be read",
        ),
        pytest.param(
            claim("quantity: matrix / matrix_peak, given: {t: 1}, expect: 2, source: paper, part: h200"),
            "T/flops/a.yaml:7:5: claims.0: matrix / matrix_peak cannot be computed: unknown part 'h200'; "
            "nearest: h100 (all: flopmap parts)",
            id="a claim on an unknown part",
        ),
        pytest.param(
            law(
                "quantities:\n  seconds_a: {formula: seconds_b, unit: s, meaning: m}\n"
                "  seconds_b: {formula: 2 * seconds_a, unit: s, meaning: m}\n"
            ),
            "T/laws/a.yaml:4:3: quantities: a circle of quantities: seconds_a -> seconds_b -> seconds_a. "
            "Fix: write one of them in symbols only",
            id="a circle of quantities",
        ),
        pytest.param(
            law(
                "quantities:\n  seconds_a: {formula: seconds_b, unit: s, meaning: m}\n"
                "  seconds_b: {formula: seconds, unit: s, meaning: m, conventions: {mask: {full: seconds_a}}}\n"
            ),
            "T/laws/a.yaml:4:3: quantities: a circle of quantities: seconds_a -> seconds_b -> seconds_a. "
            "Fix: write one of them in symbols only",
            id="a circle under a convention",
        ),
        pytest.param(
            op_class("cost:\n  matrix: 2 * t.real\n"),
            f"T/flops/a.yaml:6:11: cost.matrix: attribute access is not allowed in a formula; allowed: {ALLOWED} "
            "(column 5 of '2 * t.real')",
            id="a formula outside the language",
        ),
        pytest.param(
            op_class('cost: {matrix: "  2 * t n"}\n'),
            "T/flops/a.yaml:5:16: cost.matrix: not a formula: invalid syntax (column 9 of '  2 * t n')",
            id="a formula that cannot be read",
        ),
        pytest.param(
            op_class("define: {k: t ** 99}\ncost: {matrix: k}\n"),
            "T/flops/a.yaml:5:13: define.k: an exponent is at most 16, this one is 99 (column 6 of 't ** 99')",
            id="a definition that cannot be read",
        ),
        pytest.param(
            op_class('cost: {matrix: ""}\n'),
            "T/flops/a.yaml:5:16: cost.matrix: a formula is empty (column 1 of '')",
            id="an empty formula",
        ),
        pytest.param(
            {"engines/a.yaml": "title: e\ntitle: f\n"},
            "T/engines/a.yaml:2:1: title: this key stands twice",
            id="not YAML",
        ),
        pytest.param(
            {"engines/a.yaml": f"{ENGINE}graphs: [decod]\n"},
            "T/engines/a.yaml:3:10: graphs.0: Invalid enum value 'decod'. Fix: use one of decode, prefill, mixed",
            id="not its type",
        ),
    ],
)
def test_a_fault_is_one_line(tmp_path: Path, files: dict[str, str], line: str) -> None:
    assert problems(tmp_path, files) == [line]


@pytest.mark.parametrize(
    "files",
    [
        claim("quantity: 1000 * matrix, given: {t: 1}, expect: 2009, source: paper"),
        claim("quantity: matrix, given: {t: 1}, expect: 3, source: paper, tolerance: 0.34"),
        claim("quantity: matrix - 2, given: {t: 1}, expect: 0, source: paper"),
        claim("quantity: -matrix, given: {t: 1}, expect: -2, source: paper"),
        claim("quantity: matrix * word_bytes, given: {t: 1}, expect: 4, source: paper"),
        claim("quantity: matrix * word_bytes, given: {t: 1, word_bytes: 4}, expect: 8, source: paper"),
        claim("quantity: matrix, given: {matrix: 9}, expect: 9, source: paper"),
        claim("quantity: 989.5e12 / matrix_peak, part: H100-SXM, expect: 1, source: paper"),
        claim("quantity: 1979e12 / matrix_peak, part: h100, dtype: fp8, expect: 1, source: paper"),
        op_class('cost: {weights: "0", matrix: "max(0, t)"}\n'),
        law("quantities:\n  t: {formula: 2 * t, unit: token, meaning: its own name is the glossary's}\n"),
        op_class("define: {k: n * weight_bytes, m: 2 * k}\ncost: {weights: m + k}\n"),
        {"engines/a.yaml": "title: e\nconfidence: 1\n"},
        {"engines/a.yaml": "title: e\nlaunch_seconds: {value: 1e-6, source: paper}\n"},
        {
            "parts/a.yaml": "extends: h100\ntitle: a\nstatus: contested\npeaks:\n"
            "  - {unit: matrix, dtype: bf16, value: 1, source: sheet,"
            " others: [{value: 2, source: paper, note: n}]}\n"
        },
    ],
)
def test_what_is_right_is_left_in_peace(tmp_path: Path, files: dict[str, str]) -> None:
    assert problems(tmp_path, files) == []


def test_all_faults_are_told_in_order_of_file_and_line(tmp_path: Path) -> None:
    files = {
        "flops/b.yaml": f"{OP_CLASS}cost:\n  matrix: seconds\n  weights: t\nsee: [gem]\n",
        "flops/a.yaml": f"{OP_CLASS}cost: {{matrix: tt}}\n",
        "engines/a.yaml": "title: e\n",
    }
    assert problems(tmp_path, files) == [
        "T/engines/a.yaml:1:1: sources: a record names its sources. Fix: add sources: [id]",
        "T/flops/a.yaml:5:16: cost.matrix: unknown symbol 'tt' in 'tt'. Fix: use t, or add it to symbols.yaml",
        "T/flops/b.yaml:6:11: cost.matrix: 'seconds' comes out in s, not in a pure number",
        "T/flops/b.yaml:7:12: cost.weights: 't' comes out in a pure number, not in byte",
        "T/flops/b.yaml:8:7: see.0: no flops record 'gem'. Fix: use gemm, or write flops/gem.yaml",
    ]


def test_a_claim_that_does_not_hold_is_still_listed_among_the_claims(tmp_path: Path) -> None:
    overlay = write(tmp_path / "overlay", claim("quantity: matrix, given: {t: 1}, expect: 3, source: paper"))
    outcome = run.check((overlay,))
    judgement = next(judgement for judgement in outcome.claims if judgement.id == "flops/a#0")
    assert (judgement.verdict, judgement.ours, judgement.theirs) == ("disagrees", 2, 3)
    assert judgement.why == "matrix is 2 here, 3 in paper"
    assert [judgement.id for judgement in outcome.claims] == ["flops/a#0", "flops/gemm#0", "laws/ridge#0"]


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(MissingBookError) as caught:
        run.check((tmp_path / "nowhere",))
    assert str(caught.value) == f"{tmp_path}/nowhere: no such folder"


def test_what_an_overlay_breaks_in_the_book_below_it_is_told_at_its_place_there(tmp_path: Path) -> None:
    assert problems(tmp_path, {"symbols.yaml": "symbols: {new: {unit: byte}}\n"}) == [
        "symbols.yaml:4:54: symbols.t.sum: 'new' comes out in byte, not in a pure number",
        "symbols.yaml:4:86: symbols.t.conventions.mask.full: '2 * new' comes out in byte, not in a pure number",
    ]
