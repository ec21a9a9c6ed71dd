"""The verdicts of the three documents' claims, held against an independent recomputation of them.

The table is no part of this repository: FLOPMAP_SEED_CLAIMS names it, a CSV with the columns id, recomputed, unit and
verdict. Without it these tests are skipped; what they hold is in `tests/checks/test_statements.py` too, in numbers.
"""

from __future__ import annotations

import contextlib
import csv
import os
from pathlib import Path

import pytest

from flopmap.checks.claims import VERDICTS, Judgement
from flopmap.checks.run import check

TABLE = os.environ.get("FLOPMAP_SEED_CLAIMS", "")
pytestmark = pytest.mark.skipif(not TABLE, reason="FLOPMAP_SEED_CLAIMS names no table")
THEIRS = {"agrees": "agrees", "convention": "convention", "disagrees": "disagrees", "cannot check": "unchecked"}
OTHERWISE = {
    "S1-086": "agrees",  # 73.8 lies in the range, and so does the 52 of the card that was measured: no choice to make
    "S1-187": "unchecked",  # what a project's documentation requires is no recomputation
}


@pytest.fixture(scope="module", name="judged")
def fixture_judged() -> dict[str, Judgement]:
    return {judgement.id: judgement for judgement in check(()).claims if judgement.says}


@pytest.fixture(scope="module", name="rows")
def fixture_rows() -> dict[str, dict[str, str]]:
    with Path(TABLE).open(encoding="utf-8", newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def test_every_row_has_its_claim_and_its_verdict(judged: dict[str, Judgement], rows: dict[str, dict[str, str]]) -> None:
    assert judged.keys() == rows.keys()
    expected = {key: OTHERWISE.get(key, THEIRS[row["verdict"]]) for key, row in rows.items()}
    assert {key: judgement.verdict for key, judgement in judged.items()} == {
        key: VERDICTS[word] for key, word in expected.items()
    }


def test_figures_in_the_same_unit_are_the_same(judged: dict[str, Judgement], rows: dict[str, dict[str, str]]) -> None:
    """Where no convention is at stake: of those the table has now the one reading, now the other."""
    compared = 0
    for key, row in rows.items():
        ours, unit = judged[key].ours, judged[key].unit.rstrip("s")
        units = (row["unit"], row["unit"].rstrip("s"), row["unit"].replace("flop", "FLOP"))
        if ours is None or row["verdict"] not in ("agrees", "disagrees") or unit not in units:
            continue
        with contextlib.suppress(ValueError):
            figure = float(row["recomputed"])
            compared += 1
            if key != "S0-111":  # a router's logits are written too: 126 and not 128
                assert ours == pytest.approx(figure, rel=2e-3), key
    assert compared > 100
