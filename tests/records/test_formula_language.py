"""What the expression language has, and the exact refusal of everything else."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flopmap.records.formula import ALLOWED, FormulaError, parse, symbols

if TYPE_CHECKING:
    from flopmap.records.notation import Expr

NOT_ALLOWED = f"is not allowed in a formula; allowed: {ALLOWED}"
ONLY_THESE = "only these functions can be called: min, max, ceil, floor, sqrt, log2, where"
ONE_COMPARISON = "one comparison at a time: a < b, a <= b, a > b, a >= b, a == b or a != b"
OPERATOR = f"this operator {NOT_ALLOWED}"


def refusal(source: str) -> tuple[str, int, int]:
    """The whole message, the line and the column at which a formula is refused."""
    with pytest.raises(FormulaError) as caught:
        parse(source)
    return str(caught.value), caught.value.line, caught.value.column


@pytest.mark.parametrize(
    ("source", "tree"),
    [
        ("7", 7),
        ("1_000", 1000),
        ("2.5e12", 2.5e12),
        ("-3", -3),
        ("+t", "t"),
        ("-t", ("neg", "t")),
        ("--3", 3),
        ("a + b", ("+", "a", "b")),
        ("a - b", ("-", "a", "b")),
        ("a * b", ("*", "a", "b")),
        ("a / b", ("/", "a", "b")),
        ("a // b", ("//", "a", "b")),
        ("a % b", ("%", "a", "b")),
        ("a ** 2", ("**", "a", 2)),
        ("a ** -16", ("**", "a", -16)),
        ("-2 ** 2", ("neg", ("**", 2, 2))),
        ("(-2) ** 2", ("**", -2, 2)),
        ("a ** b ** c", ("**", "a", ("**", "b", "c"))),
        ("a - b - c", ("-", ("-", "a", "b"), "c")),
        ("a + b * c", ("+", "a", ("*", "b", "c"))),
        ("a < b", ("<", "a", "b")),
        ("a <= b", ("<=", "a", "b")),
        ("a > b", (">", "a", "b")),
        ("a >= b", (">=", "a", "b")),
        ("a == b", ("==", "a", "b")),
        ("a != b", ("!=", "a", "b")),
        ("(a < b) < c", ("<", ("<", "a", "b"), "c")),
        ("min(a, b)", ("min", "a", "b")),
        ("max(a, b, c, d, e, f, g, h, i)", ("max", *"abcdefghi")),
        ("ceil(a / 128)", ("ceil", ("/", "a", 128))),
        ("floor(a)", ("floor", "a")),
        ("sqrt(a)", ("sqrt", "a")),
        ("log2(a)", ("log2", "a")),
        ("where(a > 0, b, 0)", ("where", (">", "a", 0), "b", 0)),
        ("  2 * t * n\n", ("*", ("*", 2, "t"), "n")),
        ("(a\n + b)", ("+", "a", "b")),
    ],
)
def test_each_operator_is_read_as_python_reads_it(source: str, tree: Expr) -> None:
    assert parse(source) == tree


@pytest.mark.parametrize(
    ("source", "message", "column"),
    [
        ("t.real", f"attribute access {NOT_ALLOWED}", 1),
        ("1 + (0).__class__", f"attribute access {NOT_ALLOWED}", 5),
        ("t[0]", f"indexing {NOT_ALLOWED}", 1),
        ("lambda: 1", f"lambda {NOT_ALLOWED}", 1),
        ("a and b", f"and/or {NOT_ALLOWED}", 1),
        ("1 + (a or b)", f"and/or {NOT_ALLOWED}", 6),
        ("a if b else c", f"if/else {NOT_ALLOWED}", 1),
        ("(a := 1)", f"assignment {NOT_ALLOWED}", 2),
        ("f'{a}'", f"text {NOT_ALLOWED}", 1),
        ("[a]", f"a list {NOT_ALLOWED}", 1),
        ("a, b", f"a tuple {NOT_ALLOWED}", 1),
        ("()", f"a tuple {NOT_ALLOWED}", 1),
        ("{a}", f"a set {NOT_ALLOWED}", 1),
        ("{}", f"a table {NOT_ALLOWED}", 1),
        ("[i for i in a]", f"a comprehension {NOT_ALLOWED}", 1),
        ("{i for i in a}", f"a comprehension {NOT_ALLOWED}", 1),
        ("{i: i for i in a}", f"a comprehension {NOT_ALLOWED}", 1),
        ("min(i for i in (1, 2))", "min takes 2 to 9 arguments, not 1", 1),
        ("max((i for i in a), 1)", f"a comprehension {NOT_ALLOWED}", 5),
        ("min(*a, b)", f"unpacking {NOT_ALLOWED}", 5),
        ("await a", f"await {NOT_ALLOWED}", 1),
        ("not a", OPERATOR, 1),
        ("~a", OPERATOR, 1),
        ("a @ b", OPERATOR, 1),
        ("a << 1", OPERATOR, 1),
        ("a >> 1", OPERATOR, 1),
        ("a | b", OPERATOR, 1),
        ("a & b", OPERATOR, 1),
        ("2 * (a ^ 2)", OPERATOR, 6),
        ("a < b < c", ONE_COMPARISON, 1),
        ("a is b", ONE_COMPARISON, 1),
        ("a in b", ONE_COMPARISON, 1),
        ("print(1)", ONLY_THESE, 1),
        ("__import__('os')", ONLY_THESE, 1),
        ("2 * eval(a)", ONLY_THESE, 5),
        ("a.sqrt(b)", ONLY_THESE, 1),
        ("min(a, b)(c)", ONLY_THESE, 1),
        ("min(a, b, key=c)", ONLY_THESE, 1),
        ("min(**a)", ONLY_THESE, 1),
        ("min(a)", "min takes 2 to 9 arguments, not 1", 1),
        ("1 + max(a, b, c, d, e, f, g, h, i, j)", "max takes 2 to 9 arguments, not 10", 5),
        ("sqrt()", "sqrt takes 1 argument, not 0", 1),
        ("ceil(a, 2)", "ceil takes 1 argument, not 2", 1),
        ("where(a, b)", "where takes 3 arguments, not 2", 1),
        ("'text'", "'text' is not a number", 1),
        ("b'x'", "b'x' is not a number", 1),
        ("a * True", "True is not a number", 5),
        ("None", "None is not a number", 1),
        ("...", "Ellipsis is not a number", 1),
        ("1j", "1j is not a number", 1),
        ("1e300", "a number in a formula must be below 1e300", 1),
        ("a * -1e400", "a number in a formula must be below 1e300", 6),
        ("1" + "0" * 301, "a number in a formula must be below 1e300", 1),
        ("a ** 17", "an exponent is at most 16, this one is 17", 6),
        ("a ** -17", "an exponent is at most 16, this one is -17", 6),
        ("a ** 16.5", "an exponent is at most 16, this one is 16.5", 6),
        ("_0 + a", "a symbol begins with a letter, '_0' does not", 1),
        ("a + __builtins__", "a symbol begins with a letter, '__builtins__' does not", 5),
        ("_pow", "a symbol begins with a letter, '_pow' does not", 1),
        ("2 * min", "'min' is a function: write min(...)", 5),
        ("π * d", "a formula is ASCII, 'π' is not", 1),
        ("2 * ﬁ", "a formula is ASCII, 'ﬁ' is not", 5),
        ("", "a formula is empty", 1),
        (" \n\t ", "a formula is empty", 1),
        ("a b", "not a formula: invalid syntax", 3),
        ("a; b", "not a formula: invalid syntax", 2),
        ("a = 1", "not a formula: invalid syntax", 3),
        ("def f(): pass", "not a formula: invalid syntax", 1),
        (
            "017",
            (
                "not a formula: leading zeros in decimal integer literals are not permitted; "
                "use an 0o prefix for octal integers"
            ),
            1,
        ),
    ],
)
def test_everything_else_is_refused_at_its_place(source: str, message: str, column: int) -> None:
    assert refusal(source) == (message, 1, column)


def test_a_column_counts_the_blanks_before_the_formula() -> None:
    assert refusal("   t.real") == (f"attribute access {NOT_ALLOWED}", 1, 4)
    assert refusal("  a b") == ("not a formula: invalid syntax", 1, 5)


def test_a_line_counts_within_the_formula() -> None:
    assert refusal("(a\n + b.real)") == (f"attribute access {NOT_ALLOWED}", 2, 4)


def test_a_formula_is_at_most_2000_characters() -> None:
    assert parse("a" * 2000) == "a" * 2000
    assert refusal("a" * 2001) == ("a formula has at most 2000 characters, this one has 2001", 1, 1)


def test_a_formula_is_at_most_60_operations_deep() -> None:
    assert symbols(parse("t" + " + 1" * 60)) == {"t"}
    assert refusal("t" + " + 1" * 61)[:2] == ("a formula is at most 60 operations deep", 1)
    assert parse("+" * 60 + "t") == "t"
    assert refusal("-" * 61 + "t") == ("a formula is at most 60 operations deep", 1, 62)


def test_brackets_alone_are_not_depth() -> None:
    assert parse("(" * 100 + "t" + ")" * 100) == "t"
    message, line, _column = refusal("(" * 500 + "t" + ")" * 500)
    assert (message, line) == ("not a formula: too many nested parentheses", 1)


def test_a_nul_byte_is_refused_in_words() -> None:
    message, line, _column = refusal("a\0")
    assert message == "not a formula: source code string cannot contain null bytes"
    assert line == 1


def test_the_symbols_of_a_formula_are_all_its_names_and_no_function() -> None:
    assert symbols(parse("where(t > 0, min(n, m) * weight_bytes, -n)")) == {"t", "n", "m", "weight_bytes"}
    assert symbols(3) == set()


@settings(derandomize=True, max_examples=300, deadline=None)
@given(st.text(alphabet="ab_1290.e+-*/%<>=!() ,'[]:\n", max_size=24))
def test_any_text_is_a_formula_or_a_formula_error(source: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python's own parser warns of `1if`; that is not what is tested
        tree = parsed(source)
    assert tree is None or all(name.isidentifier() for name in symbols(tree))


def parsed(source: str) -> Expr | None:
    with contextlib.suppress(FormulaError):
        return parse(source)
    return None
