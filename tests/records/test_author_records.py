"""Files become records: where they lie, what they extend, whether they fit their type, what they are called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flopmap.records.author import build, draft
from flopmap.records.faults import BookError, MissingBookError
from flopmap.records.yaml_file import Faults
from tests.records.small_book import ENGINE, LAW, OP_CLASS, small_book, write

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS = (
    "flops, laws, parts, machines, models, engines, formats, levers, readings, measurements, crossovers, efficiency, "
    "traps, kernels, claims, sources"
)
ENGINE_FIELDS = (
    "aliases, confidence, defaults, graphs, host_seconds_per_step, launch_seconds, notes, see, sources, status, "
    "summary, title"
)
ALONE = "Fix: let one of them stand alone"


def built(base: Path, *overlays: Path) -> Any:
    return json.loads(build(base, overlays))


@pytest.fixture(name="base")
def fixture_base(tmp_path: Path) -> Path:
    return small_book(tmp_path / "base")


@pytest.fixture(name="overlay")
def fixture_overlay(tmp_path: Path) -> Path:
    folder = tmp_path / "overlay"
    folder.mkdir()
    return folder


def problems(base: Path, overlay: Path, files: Mapping[str, str | bytes]) -> list[str]:
    """Every fault of an overlay, with the overlay's folder written as T."""
    write(overlay, files)
    try:
        found = draft((base, overlay)).problems
    except Faults as faults:
        found = faults.problems
    return [str(problem).replace(str(overlay), "T") for problem in found]


# -- extends ----------------------------------------------------------------------------------------------------------

EXTENDED = """\
extends: h100
title: Its variant
bandwidth_bytes_per_second: {value: 2e12, note: slower memory}
peaks:
  - {unit: matrix, dtype: bf16, value: 756e12, source: sheet}
"""
WRITTEN_OUT = """\
title: Its variant
vendor: V
architecture: A
kind: gpu
capacity_bytes: {value: 80e9, source: sheet}
bandwidth_bytes_per_second: {value: 2e12, source: sheet, note: slower memory}
peaks:
  - {unit: matrix, dtype: bf16, value: 756e12, source: sheet}
sources: [sheet]
"""


def test_a_variant_builds_to_the_same_record_as_one_written_out(base: Path, overlay: Path) -> None:
    write(overlay, {"parts/short.yaml": EXTENDED, "parts/long.yaml": WRITTEN_OUT})
    parts = built(base, overlay)["records"]["parts"]
    assert parts["short"] | {"id": ""} == parts["long"] | {"id": ""}
    assert parts["short"]["id"] == "short"


def test_tables_are_merged_lists_replaced_and_aliases_left_behind(base: Path, overlay: Path) -> None:
    write(overlay, {"parts/h100-pcie.yaml": EXTENDED})
    book = built(base, overlay)
    part = book["records"]["parts"]["h100-pcie"]
    assert part["bandwidth_bytes_per_second"] == {"value": 2e12, "source": "sheet", "note": "slower memory"}
    assert [peak["dtype"] for peak in part["peaks"]] == ["bf16"]
    assert "aliases" not in part
    assert "extends" not in part
    assert book["aliases"]["parts"]["h100-sxm"] == "h100"
    assert book["records"]["parts"]["h100"]["bandwidth_bytes_per_second"] == {"value": 3.35e12, "source": "sheet"}


def test_a_variant_of_a_variant_takes_the_nearest_value(base: Path, overlay: Path) -> None:
    write(
        overlay,
        {
            "parts/one.yaml": "extends: h100\ntitle: One\nisa: sm_90\ncapacity_bytes: {value: 96e9}\n",
            "parts/two.yaml": "extends: one\ntitle: Two\ncapacity_bytes: {note: of one}\n",
        },
    )
    two = built(base, overlay)["records"]["parts"]["two"]
    assert two["title"] == "Two"
    assert two["isa"] == "sm_90"
    assert two["vendor"] == "V"
    assert two["capacity_bytes"] == {"value": 96e9, "source": "sheet", "note": "of one"}


def test_the_base_of_a_variant_is_the_one_in_force(base: Path, tmp_path: Path) -> None:
    first = write(tmp_path / "first", {"engines/mine.yaml": "extends: ideal\ntitle: Mine\n"})
    second = write(tmp_path / "second", {"engines/ideal.yaml": "title: Ours\nsummary: replaced\nsources: [paper]\n"})
    assert "summary" not in built(base, first)["records"]["engines"]["mine"]
    assert built(base, first, second)["records"]["engines"]["mine"]["summary"] == "replaced"


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"a": "a"}, [f"T/engines/a.yaml:1:10: extends: a circle of extends: a -> a. {ALONE}"]),
        (
            {"a": "b", "b": "a"},
            [
                f"T/engines/b.yaml:1:10: extends: a circle of extends: a -> b -> a. {ALONE}",
                f"T/engines/a.yaml:1:10: extends: a circle of extends: b -> a -> b. {ALONE}",
            ],
        ),
        (
            {"a": "b", "b": "c", "c": "a"},
            [
                f"T/engines/c.yaml:1:10: extends: a circle of extends: a -> b -> c -> a. {ALONE}",
                f"T/engines/a.yaml:1:10: extends: a circle of extends: b -> c -> a -> b. {ALONE}",
                f"T/engines/b.yaml:1:10: extends: a circle of extends: c -> a -> b -> c. {ALONE}",
            ],
        ),
        ({"a": "idael"}, ["T/engines/a.yaml:1:10: extends: no engines record 'idael'. Fix: use ideal"]),
        ({"a": "h100"}, ["T/engines/a.yaml:1:10: extends: no engines record 'h100'. Fix: name one of the engines"]),
        ({"a": "5"}, ["T/engines/a.yaml:1:10: extends: names one record by its id. Fix: name one of the engines"]),
        ({"a": "[b]"}, ["T/engines/a.yaml:1:10: extends: names one record by its id. Fix: name one of the engines"]),
        ({"a": "null"}, ["T/engines/a.yaml:1:10: extends: names one record by its id. Fix: name one of the engines"]),
    ],
)
def test_an_extends_that_leads_nowhere_is_told(
    base: Path, overlay: Path, files: dict[str, str], found: list[str]
) -> None:
    texts = {f"engines/{name}.yaml": f"extends: {of}\n{ENGINE}" for name, of in files.items()}
    assert problems(base, overlay, texts) == found


def test_an_overlay_may_replace_a_record_but_not_extend_what_it_replaces(base: Path, overlay: Path) -> None:
    assert problems(base, overlay, {"parts/h100.yaml": "extends: h100\ntitle: Mine\n"}) == [
        f"T/parts/h100.yaml:1:10: extends: a circle of extends: h100 -> h100. {ALONE}"
    ]


# -- form -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"engines/a.yaml": ""}, ["T/engines/a.yaml:1:1: a record is a mapping of fields"]),
        ({"engines/a.yaml": "# nothing\n"}, ["T/engines/a.yaml:1:1: a record is a mapping of fields"]),
        ({"engines/a.yaml": "- 1\n"}, ["T/engines/a.yaml:1:1: a record is a mapping of fields"]),
        ({"engines/a.yaml": "words\n"}, ["T/engines/a.yaml:1:1: a record is a mapping of fields"]),
        (
            {"engines/a.yaml": f"{ENGINE}id: a\n"},
            ["T/engines/a.yaml:3:5: id: a record's id is its path. Fix: delete this line"],
        ),
        (
            {"engins/a.yaml": ENGINE},
            [f"T/engins/a.yaml:1:1: no kind of record is kept at engins/a.yaml. Fix: put it in a folder of {KINDS}"],
        ),
        (
            {"a.yaml": ENGINE},
            [f"T/a.yaml:1:1: no kind of record is kept at a.yaml. Fix: put it in a folder of {KINDS}"],
        ),
        (
            {"engines/a.yml": ENGINE},
            ["T/engines/a.yml:1:1: a record's file ends in .yaml. Fix: rename it to a.yaml"],
        ),
        (
            {"engines/a.yaml": f"{ENGINE}grpahs: [decode]\n"},
            [
                (
                    "T/engines/a.yaml:3:9: grpahs: Object contains unknown field `grpahs`. "
                    f"Fix: fields here: {ENGINE_FIELDS}"
                )
            ],
        ),
        ({"engines/a.yaml": "sources: [paper]\n"}, ["T/engines/a.yaml:1:1: Object missing required field `title`"]),
        (
            {"engines/a.yaml": f"{ENGINE}status: sure\n"},
            ["T/engines/a.yaml:3:9: status: Invalid enum value 'sure'. Fix: use one of verified, draft, contested"],
        ),
        (
            {"engines/a.yaml": f'{ENGINE}confidence: "0.9"\n'},
            ["T/engines/a.yaml:3:13: confidence: Expected `float`, got `str`"],
        ),
        (
            {"parts/a.yaml": 'extends: h100\ntitle: a\nbandwidth_bytes_per_second: {value: "3e12"}\n'},
            ["T/parts/a.yaml:3:37: bandwidth_bytes_per_second.value: Expected `float`, got `str`"],
        ),
        (
            {"parts/a.yaml": "extends: h100\ntitle: a\nbandwidth_bytes_per_second:\n  vlaue: 3e12\n"},
            [
                (
                    "T/parts/a.yaml:4:10: bandwidth_bytes_per_second.vlaue: Object contains unknown field `vlaue`. "
                    "Fix: fields here: note, others, source, value"
                )
            ],
        ),
        (
            {"parts/a.yaml": "extends: h100\ntitle: a\nclock_hz: {rated: {value: 1, source: sheet, nte: x}}\n"},
            [
                (
                    "T/parts/a.yaml:3:50: clock_hz.rated.nte: Object contains unknown field `nte`. "
                    "Fix: fields here: note, others, source, value"
                )
            ],
        ),
        (
            {
                "parts/a.yaml": "extends: h100\ntitle: a\npeaks:\n"
                "  - {unit: matrix, dtype: bf16, value: 1, source: sheet}\n"
                "  - {unit: matrix, dtype: bf61, value: 1, source: sheet}\n"
            },
            [
                (
                    "T/parts/a.yaml:5:27: peaks.1.dtype: Invalid enum value 'bf61'. "
                    "Fix: use one of fp64, tf32, fp32, fp16, bf16, fp8, int8, fp6, fp4, int4"
                )
            ],
        ),
        (
            {"flops/a.yaml": f"{OP_CLASS}cost:\n  matrix: 2 * t * n\n  launches: 1\n"},
            ["T/flops/a.yaml:7:13: cost.launches: Expected `str`, got `int`"],
        ),
        (
            {
                "laws/a.yaml": f"{LAW}quantities:\n  good: {{formula: t, unit: token, meaning: m}}\n"
                "  bad: {formla: t, unit: token, meaning: m}\n"
            },
            [
                (
                    "T/laws/a.yaml:5:17: quantities.bad.formla: Object contains unknown field `formla`. "
                    "Fix: fields here: conventions, formula, meaning, unit"
                )
            ],
        ),
        (
            {"laws/a.yaml": f"{LAW}quantities:\n  bad: {{formula: t, meaning: m}}\n"},
            ["T/laws/a.yaml:4:8: quantities.bad: Object missing required field `unit`"],
        ),
        (
            {
                "laws/a.yaml": f"{LAW}quantities:\n  x:\n    formula: t\n    unit: token\n    meaning: m\n"
                "    conventions:\n      peak: {dense: t}\n      mask: {exact: t, full: 3}\n"
            },
            ["T/laws/a.yaml:10:30: quantities.x.conventions.mask.full: Expected `str`, got `int`"],
        ),
        ({"engines/a.yaml": f"{ENGINE}aliases: 5\n"}, ["T/engines/a.yaml:3:10: aliases: Expected `array`, got `int`"]),
        ({"engines/a.yaml": f"{ENGINE}aliases:\n"}, ["T/engines/a.yaml:3:1: aliases: Expected `array`, got `null`"]),
        (
            {"engines/a.yaml": f"{ENGINE}aliases: ideal\n"},
            ["T/engines/a.yaml:3:10: aliases: Expected `array`, got `str`"],
        ),
        (
            {"engines/a.yaml": f"{ENGINE}aliases: [a, 5]\n"},
            ["T/engines/a.yaml:3:14: aliases.1: Expected `str`, got `int`"],
        ),
        (
            {"symbols.yaml": "symbols: {mine: {unit: token}}\n"},
            ["T/symbols.yaml:1:17: symbols.mine: Object missing required field `meaning`"],
        ),
        ({"symbols.yaml": "- 1\n"}, ["T/symbols.yaml:1:1: Expected `object`, got `array`"]),
        (
            {"conventions.yaml": "mask: {meaning: 5}\n"},
            ["T/conventions.yaml:1:17: mask.meaning: Expected `str`, got `int`"],
        ),
    ],
    ids=lambda value: next(iter(value.values()))[-30:] if isinstance(value, dict) else "",
)
def test_a_record_that_does_not_fit_is_told_at_its_place(
    base: Path, overlay: Path, files: dict[str, str], found: list[str]
) -> None:
    assert problems(base, overlay, files) == found


def test_every_faulty_file_is_told_not_only_the_first(base: Path, overlay: Path) -> None:
    assert problems(base, overlay, {"engines/a.yaml": "a: *x\n", "engines/b.yaml": "a: 017\n", "c.yaml": ENGINE}) == [
        f"T/c.yaml:1:1: no kind of record is kept at c.yaml. Fix: put it in a folder of {KINDS}",
        "T/engines/a.yaml:1:4: not YAML: found undefined alias 'x'",
        "T/engines/b.yaml:1:4: a: '017' is read differently by YAML 1.1 and 1.2; write plain digits",
    ]


# -- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ("[mine]", "[Mine]", ["T/engines/b.yaml:3:11: aliases.0: 'Mine' already names a. Fix: give it to one of them"]),
        ("[x]", "[y, A]", ["T/engines/b.yaml:3:14: aliases.1: 'A' already names a. Fix: give it to one of them"]),
        (
            "[ideal]",
            "[]",
            ["T/engines/a.yaml:3:11: aliases.0: 'ideal' already names ideal. Fix: give it to one of them"],
        ),
        ("[a, A, twice, twice]", "[h100-sxm]", []),
    ],
)
def test_an_alias_names_one_record_of_its_kind(
    base: Path, overlay: Path, first: str, second: str, found: list[str]
) -> None:
    files = {"engines/a.yaml": f"{ENGINE}aliases: {first}\n", "engines/b.yaml": f"{ENGINE}aliases: {second}\n"}
    assert problems(base, overlay, files) == found


def test_an_id_is_the_path_below_its_kind(base: Path, overlay: Path) -> None:
    write(overlay, {"engines/org/Name-1.5.yaml": ENGINE})
    book = built(base, overlay)
    assert book["records"]["engines"]["org/Name-1.5"]["id"] == "org/Name-1.5"
    assert book["aliases"]["engines"]["org/name-1.5"] == "org/Name-1.5"


# -- folders ----------------------------------------------------------------------------------------------------------


def test_an_overlay_adds_symbols_units_and_readings_without_losing_any(base: Path, overlay: Path) -> None:
    write(
        overlay,
        {
            "symbols.yaml": "counts: [widget]\nsymbols:\n  widgets: {unit: widget, meaning: mine}\n"
            "  n: {meaning: ours}\n",
            "conventions.yaml": "mine: {meaning: m, values: {a: b}}\n",
        },
    )
    book = built(base, overlay)
    assert book["glossary"]["counts"] == ["token", "element", "FLOP", "launch", "widget"]
    assert book["glossary"]["symbols"]["widgets"] == {"unit": "widget", "meaning": "mine"}
    assert book["glossary"]["symbols"]["n"] == {"unit": "element", "meaning": "ours"}
    assert book["glossary"]["symbols"]["t"]["sum"] == "new"
    assert list(book["conventions"]) == ["mask", "peak", "mine"]


def test_an_overlay_that_is_not_there_or_no_folder_is_told(base: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingBookError) as caught:
        build(base, (tmp_path / "nowhere",))
    assert str(caught.value) == f"{tmp_path}/nowhere: no such folder"
    (tmp_path / "file").touch()
    with pytest.raises(MissingBookError) as caught:
        build(base, (tmp_path / "file",))
    assert str(caught.value) == f"{tmp_path}/file: no such folder"


def test_a_build_with_faults_says_each_in_a_line(base: Path, overlay: Path) -> None:
    write(overlay, {"engines/a.yaml": f"{ENGINE}x: 1\n", "engines/b.yaml": "title: b\nsources: 5\n"})
    with pytest.raises(BookError) as caught:
        build(base, (overlay,))
    assert str(caught.value).replace(str(overlay), "T").splitlines() == [
        f"T/engines/a.yaml:3:4: x: Object contains unknown field `x`. Fix: fields here: {ENGINE_FIELDS}",
        "T/engines/b.yaml:2:10: sources: Expected `array`, got `int`",
    ]


def test_a_folder_linked_into_itself_is_read_once(base: Path, overlay: Path) -> None:
    write(overlay, {"engines/a.yaml": ENGINE})
    (overlay / "engines" / "again").symlink_to(overlay)
    (overlay / "engines" / "engines").symlink_to(overlay / "engines")
    assert sorted(built(base, overlay)["records"]["engines"]) == ["a", "ideal"]


def test_a_file_that_cannot_be_read_is_one_line_among_the_others(base: Path, overlay: Path) -> None:
    write(overlay, {"engines/a.yaml": ENGINE})
    (overlay / "engines" / "b.yaml").symlink_to("b.yaml")
    (overlay / "engines" / "c.yaml").symlink_to("nowhere")
    assert problems(base, overlay, {}) == [
        "T/engines/b.yaml:1:1: cannot be read: Too many levels of symbolic links",
        "T/engines/c.yaml:1:1: cannot be read: No such file or directory",
    ]


def test_files_of_other_endings_are_left_alone(base: Path, overlay: Path) -> None:
    assert problems(base, overlay, {"README.md": "# mine", "engines/a.yaml~": "[", "engines/a.json": "{"}) == []


def test_the_built_book_replaces_the_old_one_in_one_move(base: Path, tmp_path: Path) -> None:
    target = tmp_path / "book.json"
    target.write_text("old")
    data = build(base, write=target)
    assert target.read_bytes() == data
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base", "book.json"]
    assert build(base, write=Path("/proc/nowhere/book.json")) == data
