"""A formula comes out in a unit, and unlike things are never added."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from flopmap.records.formula import FormulaError, parse
from flopmap.records.types import OpClass
from flopmap.records.units import Dimension, dimension, unit_dimension, unit_text

if TYPE_CHECKING:
    from flopmap.records.book import Book

COUNTS = ("token", "element", "FLOP", "op")
UNITS: dict[str, Dimension] = {
    name: unit_dimension(unit, COUNTS)
    for name, unit in {
        "t": "token",
        "matrix": "FLOP",
        "weights": "byte",
        "kv": "byte",
        "bandwidth": "byte/s",
        "weight_bytes": "byte/element",
        "seconds": "s",
        "energy": "J",
        "price": "USD/s",
    }.items()
}


def unit(source: str) -> str:
    return unit_text(dimension(parse(source), UNITS))


def refusal(source: str) -> str:
    with pytest.raises(FormulaError) as caught:
        dimension(parse(source), UNITS)
    return str(caught.value)


@pytest.mark.parametrize(
    ("written", "powers"),
    [
        ("byte", {"byte": 1}),
        ("byte/s", {"byte": 1, "s": -1}),
        ("byte / s / s", {"byte": 1, "s": -2}),
        ("s*byte/s", {"byte": 1}),
        ("USD/byte*s", {"USD": 1, "byte": -1, "s": 1}),
        ("byte/element", {"byte": 1}),
        ("FLOP/byte", {"byte": -1}),
        ("1", {}),
        ("1/s", {"s": -1}),
        ("token", {}),
    ],
)
def test_a_unit_is_a_product_of_powers_and_counts_are_pure_numbers(written: str, powers: dict[str, int]) -> None:
    assert unit_dimension(written, COUNTS) == {word: Fraction(power) for word, power in powers.items()}


@pytest.mark.parametrize(
    ("source", "written"),
    [
        ("weights / bandwidth", "s"),
        ("weights // bandwidth", "s"),
        ("bandwidth * seconds", "byte"),
        ("matrix / weights", "1/byte"),
        ("2 * t * 4096", "a pure number"),
        ("t * 4096 * weight_bytes", "byte"),
        ("weights ** 2", "byte^2"),
        ("weights ** -1", "1/byte"),
        ("bandwidth ** 2", "byte^2/s^2"),
        ("sqrt(bandwidth * bandwidth)", "byte/s"),
        ("sqrt(weights)", "byte^1/2"),
        ("weights ** 0", "a pure number"),
        ("t ** 0.5", "a pure number"),
        ("weights + kv - 0", "byte"),
        ("-weights", "byte"),
        ("ceil(weights)", "byte"),
        ("floor(seconds)", "s"),
        ("weights % kv", "byte"),
        ("min(weights, kv)", "byte"),
        ("max(0, weights - kv)", "byte"),
        ("max(0, 0)", "a pure number"),
        ("weights < kv", "a pure number"),
        ("weights == 0", "a pure number"),
        ("where(weights > 0, seconds, 0)", "s"),
        ("where(t > 1, 0, seconds)", "s"),
        ("log2(weights / kv)", "a pure number"),
        ("price * seconds", "USD"),
        ("energy / seconds", "J/s"),
        ("1 / (bandwidth * price)", "s^2/USD/byte"),
    ],
)
def test_a_formula_comes_out_in_a_unit(source: str, written: str) -> None:
    assert unit(source) == written


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("weights + seconds", "+ joins byte with s in weights + seconds"),
        ("weights - t", "- joins byte with a pure number in weights - t"),
        ("1 + 2 * seconds", "+ joins a pure number with s in 1 + 2 × seconds"),
        ("2 * (bandwidth + weights)", "+ joins byte/s with byte in bandwidth + weights"),
        ("weights < bandwidth", "< joins byte with byte/s in weights < bandwidth"),
        ("weights == 1", "== joins byte with a pure number in weights == 1"),
        ("seconds % weights", "% joins s with byte in seconds mod weights"),
        ("max(weights, kv, seconds)", "max joins byte with s in max(weights, kv, seconds)"),
        ("min(0, weights, seconds)", "min joins byte with s in min(0, weights, seconds)"),
        ("where(t > 0, weights, seconds)", "where joins byte with s in where(t > 0, weights, seconds)"),
        ("where(weights > seconds, 1, 2)", "> joins byte with s in weights > seconds"),
        ("weights ** 0.5", "weights has a unit, so its exponent must be a whole number"),
        ("(weights * t) ** t", "weights × t has a unit, so its exponent must be a whole number"),
        ("log2(weights)", "log2 takes a pure number, weights is in byte"),
        ("2 ** seconds", "an exponent is a pure number, seconds is in s"),
        ("2 * tt", "unknown symbol 'tt'"),
    ],
)
def test_unlike_things_are_refused_with_both_units(source: str, message: str) -> None:
    assert refusal(source) == message


def test_every_cost_of_the_bundled_book_comes_out_in_its_resources_unit(book: Book) -> None:
    units = {name: unit_dimension(symbol.unit, book.glossary.counts) for name, symbol in book.glossary.symbols.items()}
    formulas = 0
    for op_class in book.ids("flops"):
        record = book.record(OpClass, op_class)
        known = dict(units)
        for name, source in record.define.items():
            known[name] = dimension(parse(source), known)
        readings = [record.cost, *(texts for choices in record.conventions.values() for texts in choices.values())]
        for resource, source in (item for texts in readings for item in texts.items()):
            tree = parse(source)
            assert tree == 0 or dimension(tree, known) == units[resource], f"{op_class}: {resource}: {source}"
            formulas += 1
    assert formulas > 60


def test_bytes_over_bandwidth_is_a_time_in_the_bundled_glossary(book: Book) -> None:
    units = {name: unit_dimension(symbol.unit, book.glossary.counts) for name, symbol in book.glossary.symbols.items()}
    assert unit_text(dimension(parse("weights / bandwidth"), units)) == "s"
    assert unit_text(dimension(parse("matrix / matrix_peak"), units)) == "s"
    assert unit_text(dimension(parse("exp / exp_rate"), units)) == "s"
    assert unit_text(dimension(parse("launches * launch_seconds"), units)) == "s"
    assert unit_text(dimension(parse("capacity / sequence_bytes"), units)) == "a pure number"
