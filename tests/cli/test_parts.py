"""flopmap parts: filters, figures, ridges, contradictions; machines by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flopmap.machine.machine import bits, linked, matrix_peak, read_machine, read_part
from flopmap.quantity import QuantityError, parse_amount
from flopmap.records.types import MachineRecord, Part
from flopmap.report.parts import contradictions, entries, ridges, written
from tests.cli.support import data, flopmap, refused, text

if TYPE_CHECKING:
    from flopmap.records.book import Book


def names(*words: str) -> list[str]:
    return [part["id"] for part in data("parts", *words)]


# -- the catalogue ----------------------------------------------------------------------------------------------------


def test_the_book_has_more_than_130_parts_and_every_figure_a_source(book: Book) -> None:
    parts = [book.record(Part, name) for name in book.ids("parts")]
    assert len(parts) >= 130
    for part in parts:
        for _, _, figure in entries(part):
            assert book.find("sources", figure.source)
            assert all(other.note for other in figure.others)


def test_a_part_whose_memory_and_peak_are_general_knowledge_is_a_draft(book: Book) -> None:
    for name in book.ids("parts"):
        part = book.record(Part, name)
        main = (part.capacity_bytes, part.bandwidth_bytes_per_second, *part.peaks[:1])
        if all(figure.source == "general-knowledge" for figure in main):
            assert part.status == "draft", name


def test_no_figure_comes_from_a_source_that_may_not_be_passed_on(book: Book) -> None:
    for name in book.ids("sources"):
        assert "techpowerup" not in str(book.get("sources", name)).lower()


@pytest.mark.parametrize(
    ("printed", "part"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA GeForce RTX 4070", "rtx-4070"),
        ("NVIDIA GeForce RTX 5070 Ti", "rtx-5070-ti"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"),
        ("AMD_Instinct_MI300X_OAM", "mi300x"),
        ("AMD Instinct MI350X", "mi350x"),
        ("Intel(R) Arc(TM) B580 Graphics", "arc-b580"),
        ("AMD EPYC 7763 64-Core Processor", "epyc-milan-7763"),
        ("Apple M4 Pro", "m4-pro"),
    ],
)
def test_a_part_goes_by_the_name_that_tools_print(printed: str, part: str, book: Book) -> None:
    assert book.find("parts", printed) == part


def test_geforce_parts_multiply_twice_as_fast_with_16_bit_sums(book: Book) -> None:
    # 46 SM x 512 and 1024 FLOP/clk x 2.475 GHz
    part = book.record(Part, "rtx-4070")
    wide, narrow = matrix_peak(part, "fp16"), matrix_peak(part, "fp16", narrow=True)
    assert wide is not None
    assert narrow is not None
    assert wide.value == pytest.approx(46 * 512 * 2.475e9, rel=1e-3)
    assert narrow.value == pytest.approx(2 * wide.value, rel=1e-3)


def test_a_workstation_card_has_no_such_difference(book: Book) -> None:
    part = book.record(Part, "rtx-a5000")
    assert matrix_peak(part, "fp16") == matrix_peak(part, "fp16", narrow=True)


def test_where_the_memory_is_the_chip_it_is_not_counted_twice(book: Book) -> None:
    for name in ("groq-lpu", "wse-2", "wse-3"):
        assert book.record(Part, name).on_chip == ()


def test_no_link_of_a_pair_is_faster_than_all_of_the_links(book: Book) -> None:
    part = book.record(Part, "mi350x")
    # seven links of 76.5 GB/s
    assert [link.value for link in part.links] == [535.5e9, 76.5e9]
    assert part.links[0].value == pytest.approx(7 * part.links[1].value)


# -- filters ----------------------------------------------------------------------------------------------------------


def test_a_list_has_a_row_for_every_part(book: Book) -> None:
    ids = book.ids("parts")
    lines = text("parts").splitlines()
    assert lines[0] == f"{len(ids)} parts"
    assert lines[1].split()[:3] == ["part", "vendor", "kind"]
    assert [line.split()[0] for line in lines[2:]] == ids


def test_filters_are_joined_by_and(book: Book) -> None:
    found = names("bandwidth>3TB/s", "dtype:fp8", "vendor:amd", "kind:gpu", "capacity>=80GB")
    assert found == ["mi300x", "mi325x", "mi350x", "mi355x", "mi455x"]
    for name in found:
        part = book.record(Part, name)
        assert part.bandwidth_bytes_per_second.value > 3e12
        assert matrix_peak(part, "fp8")


def test_a_filter_and_its_opposite_share_the_parts_that_have_the_figure(book: Book) -> None:
    above, below = names("power>=300W"), names("power<300W")
    assert not set(above) & set(below)
    assert set(above) | set(below) == {
        name for name in book.ids("parts") if book.record(Part, name).power_watts is not None
    }


def test_gb_and_gib_are_not_the_same() -> None:
    # the label of the H100 is 80e9 bytes
    assert "h100-sxm" in names("capacity>=80GB")
    assert "h100-sxm" not in names("capacity>=80GiB")


def test_words_are_searched_for_and_filters_narrow_them() -> None:
    assert set(names("blackwell", "kind:gpu", "memory:gddr7")) >= {"rtx-5090", "rtx-5070"}
    assert names("h100-sxm", "b200-sxm") == ["h100-sxm", "b200-sxm"]
    assert names("h100-sxm", "vendor:amd") == []
    assert text("parts", "h100-sxm", "vendor:amd").startswith("0 parts")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("bandwith>3TB/s", "'bandwith>3TB/s': unknown field 'bandwith' (did you mean bandwidth?)"),
        ("bandwidth>3", "'bandwidth>3': '3' is not an amount in B/s (accepted: 3TB/s)"),
        ("bandwidth>3TB", "'bandwidth>3TB': '3TB' is not an amount in B/s (accepted: 3TB/s)"),
        ("capacity>=80GX", "'capacity>=80GX': '80GX' is not an amount in B (accepted: 80GB, 80GiB)"),
        ("ridge>3k", "'ridge>3k': '3k' is not a number (accepted: 3.5)"),
        ("power<0W", "'power<0W': '0W' is not a positive number"),
        ("dtype:fp9", "'dtype:fp9': no part has dtype 'fp9' (nearest: fp8, fp6, fp4)"),
        ("vendr:amd", "'vendr:amd': unknown field 'vendr' (did you mean vendor?)"),
        ("h100-smx", "unknown part 'h100-smx'; nearest: h100-sxm, v100-sxm2, h800-sxm (all: flopmap parts)"),
        ("h100-sxm nosuch", "unknown part 'nosuch' (all: flopmap parts)"),
        ("h100-sxm --measured", "--measured goes with --ridge"),
        ("h100-sxm --dtype fp8", "--dtype goes with --ridge; the filter for parts is dtype:fp8"),
        ("--ridge --contradictions", "argument --contradictions: not allowed with argument --ridge"),
        (
            "mi300a@nobody",
            "mi300a@nobody: mi300a has no other values of 'nobody' (accepted: rocm-gpu-specs)",
        ),
    ],
)
def test_a_wrong_selection_is_refused_with_what_is_accepted(arguments: str, message: str) -> None:
    refused(2, f"flopmap parts: error: {message}", "parts", *arguments.split())


def test_an_unknown_word_of_a_field_without_a_near_one_names_some() -> None:
    assert "(nearest: apu, cpu, gpu, npu, tpu)" in flopmap("parts", "kind:zzzz").err
    assert "(accepted: bandwidth, capacity, " in flopmap("parts", "zzzz>1").err


@pytest.mark.parametrize(
    ("written_as", "unit", "number"),
    [
        ("3TB/s", "B/s", 3e12),
        ("80GiB", "B", 80 * 2**30),
        ("80 GB", "B", 80e9),
        ("1.5PFLOPS", "FLOP/s", 1.5e15),
        ("400TOPS", "FLOP/s", 400e12),
        ("2.5GHz", "Hz", 2.5e9),
        ("700W", "W", 700.0),
        ("295.4", "", 295.4),
    ],
)
def test_an_amount_is_read_in_its_unit(written_as: str, unit: str, number: float) -> None:
    assert parse_amount(written_as, unit) == number


@pytest.mark.parametrize(("text_", "unit"), [("", "B"), ("GB", "B"), ("-3GB", "B"), ("3GW", "B"), ("1e999GB", "B")])
def test_what_is_no_amount_is_refused(text_: str, unit: str) -> None:
    with pytest.raises(QuantityError):
        parse_amount(text_, unit)


# -- one part ---------------------------------------------------------------------------------------------------------


def test_a_part_shows_every_figure_with_its_source_and_the_other_values(book: Book) -> None:
    shown = text("parts", "b300-sxm")
    for name, unit, figure in entries(book.record(Part, "b300-sxm")):
        line = next(line for line in shown.splitlines() if line.startswith(f"  {name} "))
        assert written(figure.value, unit) in line or shown.count(f"  {name} ") > 1
        for other in figure.others:
            assert f"{written(other.value, unit)}  {other.source}: {other.note}" in shown


def test_both_values_of_a_contradiction_are_usable_by_name(book: Book) -> None:
    # HGX B300: 7.75 TB/s and 4.5 PFLOP/s in fp8; the serving guide prints the GB300 column, 5 PFLOP/s
    default, other = read_part("b300-sxm", book), read_part("b300-sxm@serving-guide", book)
    assert [peak.value for peak in default.peaks if (peak.dtype, peak.sparsity) == ("fp8", "dense")] == [4500e12]
    assert [peak.value for peak in other.peaks if (peak.dtype, peak.sparsity) == ("fp8", "dense")] == [5000e12]
    assert other.bandwidth_bytes_per_second == default.bandwidth_bytes_per_second  # it does not disagree there
    assert read_machine("b300-sxm@serving-guide", book).part == other
    int8 = matrix_peak(read_part("b300-sxm@ml-engineering", book), "int8")
    assert int8 is not None
    assert int8.value == 4500e12


@pytest.mark.parametrize(
    ("part", "figure", "values"),
    [
        ("b300-sxm", "matrix fp4, dense, accumulates in fp32", {14000e12, 15000e12, 13125e12, 12600e12}),
        ("b300-sxm", "matrix int8, dense, accumulates in int32", {153.5e12, 157.5e12, 150e12, 4500e12}),
        ("mi355x", "matrix fp8, dense, accumulates in fp32", {5033.2e12, 5000e12, 4600e12}),
        ("tt-p150", "matrix fp8, dense, accumulates in fp32", {774e12, 664e12}),
        ("xeon-gnr-6980p", "bandwidth", {844.8e9, 614.4e9, 768e9}),
    ],
)
def test_contradictions_show_every_value(part: str, figure: str, values: set[float]) -> None:
    found = {row["figure"]: row for row in data("parts", "--contradictions", part)}[figure]
    assert {found["value"], *(other["value"] for other in found["others"])} == values
    assert all(other["note"] for other in found["others"])


def test_the_count_of_contradictions_is_that_of_the_book(book: Book) -> None:
    found = contradictions([book.record(Part, name) for name in book.ids("parts")])
    assert len(found) >= 170
    assert text("parts", "--contradictions").startswith(f"{len(found)} figures of ")


def test_the_peak_of_an_amd_part_s_matrix_and_vector_units_are_two_figures(book: Book) -> None:
    dense = [peak for peak in book.record(Part, "mi355x").peaks if (peak.dtype, peak.sparsity) == ("fp16", "dense")]
    assert {peak.unit: peak.value for peak in dense} == {"matrix": 2516.6e12, "vector": 157.3e12}
    tf32 = {peak.unit: peak.value for peak in book.record(Part, "mi300x").peaks if peak.dtype == "tf32"}
    assert tf32 == {"matrix": 653.7e12, "vector": 653.7e12}  # one table labels the same figure as vector


# -- ridges -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "dtype", "ridge", "batch", "narrow", "prompts"),
    [
        # 989.5 / 3.35 = 295.4; bytes of 8-bit weights are half, of 4-bit weights a quarter; a prompt: 2 x ridge / g
        ("h100-sxm", "bf16", 295.373, 295.373, {8: 147.687, 4: 73.8433}, (590.746, 147.687, 73.8433)),
        # twice the peak, half the bytes: the batch stays
        ("h100-sxm", "fp8", 590.746, 295.373, {4: 147.687}, (590.746, 147.687, 73.8433)),
        ("b200-sxm", "bf16", 292.208, 292.208, {8: 146.104, 4: 73.0519}, (584.416, 146.104, 73.0519)),
        ("gb200", "bf16", 312.5, 312.5, {8: 156.25, 4: 78.125}, (625, 156.25, 78.125)),
        ("b200-sxm", "fp4", 1168.83, 292.208, {}, (584.416, 146.104, 73.0519)),
    ],
)
def test_ridges_follow_from_peak_and_bandwidth(  # noqa: PLR0917 - the columns of the table
    part: str,
    dtype: str,
    ridge: float,
    batch: float,
    narrow: dict[int, float],
    prompts: tuple[float, ...],
    book: Book,
) -> None:
    (row,) = ridges([book.record(Part, part)], book, dtype)
    assert row.ridge == pytest.approx(ridge, rel=2e-4)
    assert row.matched == pytest.approx(batch, rel=2e-4)
    assert row.weights_only == pytest.approx(narrow, rel=2e-4)
    assert row.prompt == pytest.approx(dict(zip((1, 4, 8), prompts, strict=True)), rel=2e-4)


def test_a_table_of_ridges_has_a_row_for_every_type_of_math(book: Book) -> None:
    found = data("parts", "--ridge", "a100-sxm-80gb")
    assert [row["dtype"] for row in found] == ["bf16", "fp16", "int8", "int4", "tf32", "fp64"]
    assert text("parts", "--ridge", "--dtype", "bf16", "kind:tpu").startswith("7 ridges of 7 parts")
    assert ridges([book.record(Part, "mi50")], book) == []  # no matrix unit


def test_measured_crossovers_stand_beside_the_ridge(book: Book) -> None:
    rows = {(row["part"], row["weights"]): row for row in data("parts", "--ridge", "--measured")}
    # GEMMs of H100 leave memory at 273 tokens, of 295 by its ridge; those of H200 at 192, of 206
    assert (rows["h100-sxm", "bf16"]["measured"], round(rows["h100-sxm", "bf16"]["batch"])) == (273, 295)
    assert (rows["h200-sxm", "bf16"]["measured"], round(rows["h200-sxm", "bf16"]["batch"])) == (192, 206)
    # fp8 doubles the peak and halves the bytes: the ridge stays, and kernels reach less of it
    assert rows["h100-sxm", "fp8"]["batch"] == rows["h100-sxm", "bf16"]["batch"]
    assert rows["h100-sxm", "fp8"]["over_ridge"] == pytest.approx(234 / 295.37, rel=1e-4)
    assert len({part for part, _ in rows}) == len(book.ids("crossovers")) == 10
    first = text("parts", "--ridge", "--measured", "--dtype", "fp8", "h100-sxm")
    assert first.startswith("2 measured crossovers of 1 part\n")  # by tensor or token, and by block
    assert data("parts", "--ridge", "--measured", "mi300x") == []


def test_the_bits_of_a_data_type_are_in_its_name() -> None:
    assert [bits(dtype) for dtype in ("bf16", "fp8", "int4", "tf32", "fp64")] == [16, 8, 4, 32, 64]


# -- machines ---------------------------------------------------------------------------------------------------------


def test_every_machine_has_a_part_and_whole_hosts(book: Book) -> None:
    assert len(book.ids("machines")) >= 40
    for name in book.ids("machines"):
        machine = book.record(MachineRecord, name)
        assert book.find("parts", machine.part)
        assert machine.count % machine.node == 0, name
        assert not book.find("parts", name), f"{name} is a part's name too"


@pytest.mark.parametrize(
    ("name", "part", "count"),
    [
        ("p5.48xlarge", "h100-sxm", 8),
        ("a3-megagpu-8g", "h100-sxm", 8),
        ("dgx-h200", "h200-sxm", 8),
        ("gb300-rack", "gb300", 72),
        ("v5e-8", "tpu-v5e", 8),
        ("v5p-8", "tpu-v5p", 4),  # the name counts TensorCores
        ("v6e-8", "tpu-v6e", 8),
        ("trn2.48xlarge", "trainium2", 16),
        ("inf2.48xlarge", "inferentia2", 12),
        ("nd96isr-mi300x-v5", "mi300x", 8),
        ("mac-studio", "m3-ultra", 1),
    ],
)
def test_a_machine_is_a_part_and_a_count(name: str, part: str, count: int, book: Book) -> None:
    machine = book.record(MachineRecord, name)
    assert (machine.part, machine.count) == (part, count)


def test_the_links_of_a_machine_stand_in_for_those_of_the_same_level(book: Book) -> None:
    part, machine = book.record(Part, "h100-sxm"), book.record(MachineRecord, "p5.48xlarge")
    links = linked(part, machine).links
    # 32 x 100 Gbit/s over 8 parts is 50 GB/s; NVLink stays
    assert {(link.level, link.value) for link in links} == {("scale-out", 50e9), ("scale-up", 450e9)}
    assert read_machine("g6.xlarge", book).part.id == "l4"


def test_a_machine_has_its_parts_as_often_as_it_is_there(book: Book) -> None:
    for name, count, part in (
        ("p5.48xlarge", 8, "h100-sxm"),
        ("p5.48xlarge:2", 16, "h100-sxm"),
        ("g6.xlarge:2", 2, "l4"),
    ):
        machine = read_machine(name, book)
        assert (machine.count, machine.part.id) == (count, part)


def test_an_unknown_machine_is_refused_with_the_nearest() -> None:
    answer = flopmap("why", "meta-llama/Llama-3.1-8B", "--on", "p9.48xlarge")
    assert answer.code == 2
    assert "unknown machine 'p9.48xlarge'; nearest: p5.48xlarge" in answer.err
