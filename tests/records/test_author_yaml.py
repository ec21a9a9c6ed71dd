"""What YAML reads in two ways is refused, at its line, in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from flopmap.records.yaml_file import Faults, Problem, read_file

if TYPE_CHECKING:
    from pathlib import Path

NO_ANCHORS = "an alias (*name). Fix: write the value out; a book has no anchors"
TWO_READINGS = "is read differently by YAML 1.1 and 1.2; write plain digits"


def read(folder: Path, content: str | bytes) -> Any:
    path = folder / "x.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_file(path, "x.yaml").data


def problems(folder: Path, content: str | bytes) -> list[str]:
    with pytest.raises(Faults) as caught:
        read(folder, content)
    assert str(caught.value) == "\n".join(map(str, caught.value.problems))
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("written", "data"),
    [
        ("5", 5),
        ("+5", 5),
        ("-5", -5),
        ("0", 0),
        ("0.5", 0.5),
        ("-.5", -0.5),
        ("1.", 1.0),
        ("3.35e12", 3.35e12),
        ("1e5", 1e5),
        ("1.0e+30", 1e30),
        ("0.0", 0.0),
        ("123456789012345678", 123456789012345678),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("1:30", "1:30"),
        ("1.2.3", "1.2.3"),
        ("2 * t * n", "2 * t * n"),
        ('"1_000"', "1_000"),
        ('"017"', "017"),
        ("'2026-12-01'", "2026-12-01"),
        ('"5"', "5"),
        ("| \n  two\n  lines", "two\nlines\n"),
        ("[1, [2, a]]", [1, [2, "a"]]),
        ("{b: 1, c: {}}", {"b": 1, "c": {}}),
    ],
)
def test_plain_values_are_read_as_both_versions_of_yaml_read_them(tmp_path: Path, written: str, data: Any) -> None:
    found = read(tmp_path, f"a: {written}\n")["a"]
    assert (found, type(found)) == (data, type(data))


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("1_000", f"'1_000' {TWO_READINGS}"),
        ("1_000.5", f"'1_000.5' {TWO_READINGS}"),
        ("1_", f"'1_' {TWO_READINGS}"),
        ("017", f"'017' {TWO_READINGS}"),
        ("-017", f"'-017' {TWO_READINGS}"),
        ("007", f"'007' {TWO_READINGS}"),
        ("08", f"'08' {TWO_READINGS}"),
        ("0o17", f"'0o17' {TWO_READINGS}"),
        ("0x1F", f"'0x1F' {TWO_READINGS}"),
        ("0b101", f"'0b101' {TWO_READINGS}"),
        (".inf", "'.inf' is not a finite number"),
        ("-.Inf", "'-.Inf' is not a finite number"),
        (".nan", "'.nan' is not a finite number"),
        ("1e400", "'1e400' is not a finite number"),
        ("-1e999", "'-1e999' is not a finite number"),
        ("2026-12-01", "a date must be quoted: '2026-12-01'"),
        ("2026-12-01 10:00:00", "a date must be quoted: '2026-12-01 10:00:00'"),
        ("!foo bar", "'!foo' is a tag; a book has plain values"),
    ],
)
def test_what_is_read_in_two_ways_is_refused(tmp_path: Path, written: str, message: str) -> None:
    assert problems(tmp_path, f"b: 1\na: {written}\n") == [f"x.yaml:2:4: a: {message}"]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("a: 1\nb: 2\na: 3\n", ["x.yaml:3:1: a: this key stands twice"]),
        ("a:\n  b: 1\n  b: 1\n", ["x.yaml:3:3: a.b: this key stands twice"]),
        ("1: 5\n1: 6\n", ["x.yaml:2:1: 1: this key stands twice"]),
        (
            "a: [{b: 1, b: 2}]\na: 1\n",
            ["x.yaml:1:12: a.0.b: this key stands twice", "x.yaml:2:1: a: this key stands twice"],
        ),
        ("a: &x [1]\nb: *x\n", [f"x.yaml:2:1: b: {NO_ANCHORS}"]),
        ("a: &x 5\nb: *x\n", [f"x.yaml:2:1: b: {NO_ANCHORS}"]),
        ("a: &x {b: 1}\nc: {<<: *x}\n", [f"x.yaml:2:5: c.<<: {NO_ANCHORS}"]),
        ("a: &x [*x]\n", [f"x.yaml:1:4: a.0: {NO_ANCHORS}"]),
        ("&x\na: *x\n", [f"x.yaml:2:1: a: {NO_ANCHORS}"]),
        ("a: *x\n", ["x.yaml:1:4: not YAML: found undefined alias 'x'"]),
        ("a:\n\tb: 1\n", ["x.yaml:2:1: not YAML: found character '\\t' that cannot start any token"]),
        ("a: b: c\n", ["x.yaml:1:5: not YAML: mapping values are not allowed here"]),
        ('a: "x\n', ["x.yaml:2:1: not YAML: found unexpected end of stream"]),
        ('a: "\\q"\n', ["x.yaml:1:6: not YAML: found unknown escape character 'q'"]),
        (
            "a: 1\n---\nb: 2\n",
            ["x.yaml:2:1: not YAML: expected a single document in the stream but found another document"],
        ),
        ("? [a, b]\n: 1\n", ["x.yaml:1:3: a key is a word"]),
        ("a: {[b]: 1}\n", ["x.yaml:1:5: a: a key is a word"]),
        (b"a: \xff\n", ["x.yaml:1:1: not UTF-8: invalid start byte at byte 3"]),
        ("a: 1\n".encode("utf-16"), ["x.yaml:1:1: not UTF-8: invalid start byte at byte 0"]),
        (
            "a: \0\n",
            ["x.yaml:1:1: not YAML: unacceptable character #x0000: special characters are not allowed"],
        ),
        ("a: " + "[" * 500 + "]" * 500, ["x.yaml:1:1: not YAML: nested too deeply"]),
        (
            "%YAML 1.1\n---\na: yes\n",
            ["x.yaml:3:4: a: 'yes' is read differently by YAML 1.1 and 1.2; write true or false"],
        ),
        ("a: " + "x" * 2_000_000, ["x.yaml:1:1: a record file is at most 1000000 bytes"]),
        ("a: 017\nb: [1_0]\n", [f"x.yaml:1:4: a: '017' {TWO_READINGS}", f"x.yaml:2:5: b.0: '1_0' {TWO_READINGS}"]),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_file_that_is_no_plain_yaml_is_refused_at_its_place(
    tmp_path: Path, content: str | bytes, found: list[str]
) -> None:
    assert problems(tmp_path, content) == found


@pytest.mark.parametrize("content", ["", "\n\n", "# a comment only\n", "---\n"])
def test_an_empty_file_holds_nothing(tmp_path: Path, content: str) -> None:
    assert read(tmp_path, content) is None


@pytest.mark.parametrize("content", ["\ufeffa: 1\nb: x\n", "a: 1\r\nb: x\r\n", '{"a": 1, "b": "x"}'])
def test_files_of_other_systems_and_json_are_read(tmp_path: Path, content: str) -> None:
    assert read(tmp_path, content) == {"a": 1, "b": "x"}


def test_a_thousand_nested_aliases_do_not_multiply(tmp_path: Path) -> None:
    layers = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60)]
    assert len(problems(tmp_path, "\n".join(layers))) == 118


def test_every_value_knows_its_place(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a: 1\nb:\n  - c\n  - {d: 2}\n")
    file = read_file(path, "x.yaml")
    assert file.places == {
        (): (1, 1),
        ("a",): (1, 4),
        ("b",): (3, 3),
        ("b", 0): (3, 5),
        ("b", 1): (4, 5),
        ("b", 1, "d"): (4, 9),
    }
    assert file.problem(("b", 1, "d"), "wrong", "mend") == Problem("x.yaml", 4, 9, "b.1.d", "wrong", "mend")
    assert str(file.problem(("b", 1, "e", "f"), "missing")) == "x.yaml:4:5: b.1.e.f: missing"
    assert str(file.problem((), "wrong", "mend")) == "x.yaml:1:1: wrong. Fix: mend"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.mkdir(), "cannot be read: Is a directory"),
        (lambda path: path.symlink_to("nowhere.yaml"), "cannot be read: No such file or directory"),
        (lambda path: path.symlink_to("x.yaml"), "cannot be read: Too many levels of symbolic links"),
    ],
    ids=["folder", "dangling link", "link to itself"],
)
def test_a_name_that_is_no_file_is_one_clear_line(tmp_path: Path, make: Any, message: str) -> None:
    make(tmp_path / "x.yaml")
    with pytest.raises(Faults) as caught:
        read_file(tmp_path / "x.yaml", "x.yaml")
    assert str(caught.value) == f"x.yaml:1:1: {message}"
