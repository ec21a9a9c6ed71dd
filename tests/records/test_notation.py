"""What is written for people says what the formula says."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from hypothesis import assume, given, settings

from flopmap.records.formula import FormulaError, parse, value
from flopmap.records.notation import latex, number_text, text
from tests.records.random_formulas import formulas, values


def reread(written: str) -> str:
    """One line of maths back as a formula."""
    without_commas = re.sub(r"(?<=\d),(?=\d{3})", "", written)
    for sign, operator in (("×", "*"), ("^", "**"), (" div ", " // "), (" mod ", " % ")):
        without_commas = without_commas.replace(sign, operator)
    return without_commas


@settings(derandomize=True, max_examples=200, deadline=None)
@given(formulas, values)
def test_the_written_formula_has_the_value_of_the_formula(source: str, given: dict[str, Any]) -> None:
    tree = parse(source)
    try:
        ours = value(tree, given)
    except FormulaError:
        assume(False)
    assert value(parse(reread(text(tree))), given) == ours
    assert parse(reread(text(tree))) == tree


@pytest.mark.parametrize(
    ("source", "line", "maths"),
    [
        ("a + b", "a + b", r"\mathrm{a} + \mathrm{b}"),
        ("a - b", "a - b", r"\mathrm{a} - \mathrm{b}"),
        ("a * b", "a × b", r"\mathrm{a} \cdot \mathrm{b}"),
        ("a / b", "a / b", r"\frac{\mathrm{a}}{\mathrm{b}}"),
        ("a // b", "a div b", r"\left\lfloor \frac{\mathrm{a}}{\mathrm{b}} \right\rfloor"),
        ("a % b", "a mod b", r"\mathrm{a} \bmod \mathrm{b}"),
        ("a ** b", "a^b", r"\mathrm{a}^{\mathrm{b}}"),
        ("-a", "-a", r"-\mathrm{a}"),
        ("a < b", "a < b", r"\mathrm{a} < \mathrm{b}"),
        ("a <= b", "a <= b", r"\mathrm{a} \le \mathrm{b}"),
        ("a > b", "a > b", r"\mathrm{a} > \mathrm{b}"),
        ("a >= b", "a >= b", r"\mathrm{a} \ge \mathrm{b}"),
        ("a == b", "a == b", r"\mathrm{a} = \mathrm{b}"),
        ("a != b", "a != b", r"\mathrm{a} \ne \mathrm{b}"),
        ("min(a, b, 1)", "min(a, b, 1)", r"\min\left(\mathrm{a}, \mathrm{b}, 1\right)"),
        ("max(a, b)", "max(a, b)", r"\max\left(\mathrm{a}, \mathrm{b}\right)"),
        ("ceil(a)", "ceil(a)", r"\left\lceil \mathrm{a} \right\rceil"),
        ("floor(a)", "floor(a)", r"\left\lfloor \mathrm{a} \right\rfloor"),
        ("sqrt(a)", "sqrt(a)", r"\sqrt{\mathrm{a}}"),
        ("log2(a)", "log2(a)", r"\log_2\left(\mathrm{a}\right)"),
        (
            "where(a, b, 0)",
            "where(a, b, 0)",
            r"\begin{cases} \mathrm{b} & \mathrm{a} \\ 0 & \text{otherwise} \end{cases}",
        ),
        ("kv_bytes", "kv_bytes", r"\mathrm{kv\_bytes}"),
        ("1234567", "1,234,567", "1{,}234{,}567"),
        ("-0.5", "-0.5", "-0.5"),
    ],
)
def test_each_operator_is_written(source: str, line: str, maths: str) -> None:
    assert text(parse(source)) == line
    assert latex(parse(source)) == maths


@pytest.mark.parametrize(
    ("source", "line", "maths"),
    [
        ("(a + b) * c", "(a + b) × c", r"\left(\mathrm{a} + \mathrm{b}\right) \cdot \mathrm{c}"),
        ("a * b + c", "a × b + c", r"\mathrm{a} \cdot \mathrm{b} + \mathrm{c}"),
        ("a - (b - c)", "a - (b - c)", r"\mathrm{a} - \left(\mathrm{b} - \mathrm{c}\right)"),
        ("a - b - c", "a - b - c", r"\mathrm{a} - \mathrm{b} - \mathrm{c}"),
        ("a / (b / c)", "a / (b / c)", r"\frac{\mathrm{a}}{\frac{\mathrm{b}}{\mathrm{c}}}"),
        ("a * (b / c)", "a × (b / c)", r"\mathrm{a} \cdot \frac{\mathrm{b}}{\mathrm{c}}"),
        ("(a / b) ** 2", "(a / b)^2", r"\left(\frac{\mathrm{a}}{\mathrm{b}}\right)^{2}"),
        ("(a ** b) ** c", "(a^b)^c", r"\left(\mathrm{a}^{\mathrm{b}}\right)^{\mathrm{c}}"),
        ("a ** b ** c", "a^b^c", r"\mathrm{a}^{\mathrm{b}^{\mathrm{c}}}"),
        ("a ** (b + 1)", "a^(b + 1)", r"\mathrm{a}^{\mathrm{b} + 1}"),
        ("a ** -b", "a^(-b)", r"\mathrm{a}^{-\mathrm{b}}"),
        ("a ** -2", "a^(-2)", r"\mathrm{a}^{-2}"),
        ("(-2) ** 2", "(-2)^2", r"\left(-2\right)^{2}"),
        ("-a ** 2", "-a^2", r"-\mathrm{a}^{2}"),
        ("(-a) ** 2", "(-a)^2", r"\left(-\mathrm{a}\right)^{2}"),
        ("-(a + b)", "-(a + b)", r"-\left(\mathrm{a} + \mathrm{b}\right)"),
        ("(a < b) < c", "(a < b) < c", r"\left(\mathrm{a} < \mathrm{b}\right) < \mathrm{c}"),
        ("a < (b < c)", "a < (b < c)", r"\mathrm{a} < \left(\mathrm{b} < \mathrm{c}\right)"),
        ("a + b < c", "a + b < c", r"\mathrm{a} + \mathrm{b} < \mathrm{c}"),
        (
            "where(a, b, 0) * 3",
            "where(a, b, 0) × 3",
            r"\left(\begin{cases} \mathrm{b} & \mathrm{a} \\ 0 & \text{otherwise} \end{cases}\right) \cdot 3",
        ),
    ],
)
def test_brackets_stand_where_they_are_needed_and_nowhere_else(source: str, line: str, maths: str) -> None:
    assert text(parse(source)) == line
    assert latex(parse(source)) == maths


def test_symbols_can_be_written_as_their_values_or_their_own_signs() -> None:
    tree = parse("2 * t * n / min(t, 1)")
    assert text(tree, {"t": "64", "n": "58,720,256"}) == "2 × 64 × 58,720,256 / min(64, 1)"
    assert latex(tree, {"n": "N"}) == r"\frac{2 \cdot \mathrm{t} \cdot N}{\min\left(\mathrm{t}, 1\right)}"


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (0, "0"),
        (8192.0, "8,192"),
        (-8192, "-8,192"),
        (999_999_999_999_999, "999,999,999,999,999"),
        (10**15, "1e+15"),
        (0.03125, "0.03125"),
        (295.37313432, "295.373"),
        (3.35e12, "3,350,000,000,000"),
        (9.895e14, "989,500,000,000,000"),
        (1e-6, "1e-06"),
        (math.inf, "infinity"),
        (-math.inf, "-infinity"),
        (math.nan, "not a number"),
        (10**400, "about 10^400"),
    ],
)
def test_a_number_is_written_without_noise(number: float, written: str) -> None:
    assert number_text(number) == written
