"""The documents are true: their examples run, and their tables equal the code and the book."""

from __future__ import annotations

import functools
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from msgspec.structs import replace

from flopmap import __version__
from flopmap.checks.run import check
from flopmap.cli import why
from flopmap.cli.main import COMMANDS, Parser
from flopmap.model import architecture, families
from flopmap.model.config import Config
from flopmap.model.families import common, dense
from flopmap.model.gguf_model import ARCHITECTURES
from flopmap.model.methods import METHODS
from flopmap.records.book import BOOK
from flopmap.records.kernels import Efficiency, Fit
from flopmap.records.kinds import KINDS
from flopmap.records.types import Law, OpClass
from flopmap.records.yaml_file import read_file
from tests.docs.counts import SENTENCES, Sentence, facts, names, pattern
from tests.docs.examples import (
    CONFIG,
    COUNTED,
    DOCUMENTS,
    OVERLAY,
    ROOT,
    Example,
    all_examples,
    blocks,
    furnish,
    output,
    run,
)
from tools import errata
from tools.oracle_table import TABLE, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from flopmap.records.book import Book

README, CONTRIBUTING, DESIGN = ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "docs" / "design.md"
STARCODER2_3B = {
    "model_type": "starcoder2",
    "hidden_size": 3072,
    "intermediate_size": 12288,
    "num_hidden_layers": 30,
    "num_attention_heads": 24,
    "num_key_value_heads": 2,
    "vocab_size": 49152,
    "sliding_window": 4096,
}


@pytest.fixture(scope="module", autouse=True)
def quick_reading() -> Iterator[None]:
    """The bundled YAML is read once and not for every check of an overlay."""
    bundled = functools.cache(read_file)

    def cached(path: Path, name: str) -> Any:
        return (bundled if str(path).startswith(BOOK) else read_file)(path, name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flopmap.records.author.read_file", cached)
        yield


@pytest.fixture(autouse=True)
def furnished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the examples need, as the working directory."""
    furnish(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def section(document: Path, title: str) -> str:
    """A section of a document, from its title to the next of any level."""
    text = document.read_text()
    found = re.search(rf"^#+ [^\n]*{re.escape(title)}[^\n]*\n(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"{document.name} has no section {title!r}"
    return found[1]


def rows(text: str) -> list[list[str]]:
    """The cells of a section's tables, without heads and rules."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [cells for cells in lines if "---" not in cells[0]]


def unquoted(cell: str) -> str:
    """A cell without the backticks of code."""
    return cell.strip().strip("`").strip()


def answer(*words: str) -> Any:
    """The JSON of a command that succeeds."""
    code, out, err = run([*words, "--json"])
    assert code == 0, err
    return json.loads(out)


# -- examples ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("example", all_examples(), ids=lambda example: f"{example.document}: {example.command}")
def test_an_example_runs_and_prints_what_is_pasted_below_it(example: Example) -> None:
    code, _, err = run(example.words)
    assert (code, err) == (0, "")
    if example.shown:
        printed = output(example)
        # after a deliberate change: python tests/docs/examples.py
        assert list(example.shown) == (printed[: len(example.shown)] if example.goes_on else printed)


def test_each_document_has_examples() -> None:
    without = {"accuracy.md", "design.md", "errata.md", "oracle.md", "soundness.md"}
    assert {example.document for example in all_examples()} == {path.name for path in DOCUMENTS} - without


def test_the_demo_is_the_first_example_of_the_readme() -> None:
    demo = re.search(r"^DEMO\s*:= (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert demo
    assert all_examples()[0].command == demo[1]


def test_a_family_as_contributing_writes_it_counts_a_published_model(monkeypatch: pytest.MonkeyPatch) -> None:
    (written,) = blocks(CONTRIBUTING, "python")
    scope = {**vars(common), **vars(architecture), "Config": Config, "replace": replace}
    exec(compile(written, "CONTRIBUTING.md", "exec", dont_inherit=True), scope)  # noqa: S102 - our own document
    monkeypatch.setitem(families.INDEX, "starcoder2", "dense")
    monkeypatch.setitem(dense.FAMILIES, "starcoder2", scope["starcoder2"])
    _write_json("starcoder2.json", STARCODER2_3B)
    # the hub says 3,030,371,328 for bigcode/starcoder2-3b
    assert answer("why", "./starcoder2.json", "--on", "h100")["parameters"]["total"] == 3_030_371_328


def _write_json(name: str, data: dict[str, Any]) -> None:
    with open(name, "w", encoding="utf-8") as file:  # noqa: PTH123 - into the working directory
        json.dump(data, file)


def test_the_config_of_the_examples_is_a_model_that_the_book_has() -> None:
    ours, theirs = (
        answer("why", name, "--on", "h100")["parameters"] for name in ("./config.json", "meta-llama/Llama-3.2-3B")
    )
    assert CONFIG["model_type"] == "llama"
    assert ours == theirs


# -- the overlay of CONTRIBUTING.md -----------------------------------------------------------------------------------


def test_the_yaml_of_contributing_passes_the_check() -> None:
    code, out, err = run(["check", OVERLAY])
    assert (code, err) == (0, "")
    assert out.startswith("no problems in ")


@pytest.mark.parametrize("row", rows(section(CONTRIBUTING, "The likely mistakes"))[1:], ids=lambda row: row[2])
def test_a_likely_mistake_is_answered_as_contributing_says(row: list[str], furnished: Path) -> None:
    name, before, after, line = map(unquoted, row)
    path = furnished / OVERLAY / name
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, after))
    code, _, err = run(["check", OVERLAY])
    assert code == 1
    assert any(printed.startswith(line) for printed in err.splitlines()), err


# -- completeness -----------------------------------------------------------------------------------------------------


def test_every_command_is_documented() -> None:
    for document in (README, DESIGN):
        text = document.read_text()
        assert [name for name in COMMANDS if f"flopmap {name}" not in text] == []


def test_every_long_flag_of_why_is_documented() -> None:
    parser = Parser("flopmap why", "")
    why.add_arguments(parser, "why")
    flags = [option for action in parser._actions for option in action.option_strings if option.startswith("--")]
    text = README.read_text() + DESIGN.read_text()
    assert "--batch-size" in flags
    assert [flag for flag in flags if not re.search(rf"{flag}(?![-\w])", text)] == []


def test_the_version_is_in_the_changelog() -> None:
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_every_module_has_its_place_in_the_design() -> None:
    (tree,) = re.findall(r"^src/flopmap/\n(.*?)^```", DESIGN.read_text(), re.MULTILINE | re.DOTALL)
    modules = [path.name for path in (ROOT / "src" / "flopmap").rglob("*.py") if not path.name.startswith("__")]
    assert sorted(re.findall(r"\b[a-z0-9_]+\.py\b", tree)) == sorted(modules)


# -- tables -----------------------------------------------------------------------------------------------------------


def test_the_kinds_of_the_design_are_the_kinds_of_records() -> None:
    listed = [unquoted(cells[0]) for cells in rows(section(DESIGN, "5. The book"))]
    assert listed[1:] == list(KINDS)


def test_the_conventions_of_the_design_are_those_of_the_book(book: Book) -> None:
    table = rows(section(DESIGN, "8. Conventions"))[1:]
    listed = {unquoted(name): [value.split("`")[1] for value in values.split(" · ")] for name, values in table}
    assert listed == {name: list(convention.values) for name, convention in book.conventions.items()}
    assert list(listed) == list(book.conventions)


def test_the_formulas_of_the_design_are_those_of_the_laws(book: Book) -> None:
    table = [list(map(unquoted, cells)) for cells in rows(section(DESIGN, "7. Floors"))[1:]]
    listed: dict[str, dict[str, str]] = {}
    for law, quantity, formula in table:
        listed.setdefault(law, {})[quantity] = formula
    own = listed.pop("kernel-floor")  # in the rest it is the device floor, which it extends
    kernel, device = (book.record(Law, name).quantities for name in ("kernel-floor", "device-floor"))
    assert own == {name: kernel[name].formula for name in kernel if kernel[name] != device[name]}
    assert listed.keys() == {"roofline", "device-floor", "engine-floor", "estimate"}
    for law, formulas in listed.items():
        quantities = book.record(Law, law).quantities
        assert formulas == {name: quantity.formula for name, quantity in quantities.items()}


def test_the_sums_of_the_design_are_those_of_the_glossary(book: Book) -> None:
    listed = {unquoted(cells[0]): cells[1:] for cells in rows(section(DESIGN, "4. A step"))[1:]}
    statistics = {name: symbol for name, symbol in book.glossary.symbols.items() if symbol.sum}
    assert {name: unquoted(cells[0]) for name, cells in listed.items()} == {
        name: symbol.sum for name, symbol in statistics.items()
    }
    for name, (_, windowed) in listed.items():
        if "`min(" in windowed:
            assert unquoted(windowed) == statistics[name].windowed


def test_the_keys_of_the_design_are_the_keys_of_the_json() -> None:
    written = blocks(DESIGN, "json")[0]
    printed = answer("why", "gpt2", "--on", "h100", "--engine", "vllm", "--enforce-eager", "--tpot", "30ms")
    assert _shape(json.loads(written), printed) == []


def test_the_keys_of_an_account_in_the_design_are_those_of_the_json() -> None:
    written = blocks(DESIGN, "json")[1]
    (record,) = answer("models", "gpt2")
    assert _shape(json.loads(written), record["account"]) == []


def test_the_keys_of_drafts_blocks_and_adapters_in_the_design_are_those_of_the_json() -> None:
    written = json.loads(blocks(DESIGN, "json")[2])
    drafts = ("--speculative-config", "method=ngram,num_speculative_tokens=2", "--lora-rank", "8")
    printed = answer("why", "gpt2", "--on", "h100", *drafts)
    denoised = answer("why", "GSAI-ML/LLaDA-8B-Instruct", "--on", "h100")
    assert _shape(written["speculation"], printed["speculation"]) == []
    assert _shape(written["lora"], printed["lora"]) == []
    assert _shape(written["denoising"], denoised["denoising"]) == []


def test_the_keys_of_a_diagnosis_in_the_design_are_those_of_the_json() -> None:
    written = blocks(DESIGN, "json")[3]
    runs = answer("diagnose", "bench.txt", "--model", "gpt2", "--on", "h100")
    assert _shape([written_run := json.loads(written)], runs) == []
    assert list(written_run) == list(runs[0])


def _shape(written: Any, printed: Any, place: str = "$") -> list[str]:
    """Where the keys of two JSON values differ. An empty table or list of the document stands for any."""
    if isinstance(written, list) and written:
        return [fault for item in printed for fault in _shape(written[0], item, f"{place}[]")]
    if not isinstance(written, dict) or not written:
        return []
    faults = [f"{place}.{key}" for key in written.keys() ^ printed.keys()]
    both = written.keys() & printed.keys()
    return faults + [fault for key in both for fault in _shape(written[key], printed[key], f"{place}.{key}")]


@pytest.mark.parametrize("sentence", SENTENCES, ids=lambda sentence: sentence.text)
def test_a_number_in_the_documents_is_what_is_there(sentence: Sentence, book: Book) -> None:
    found = pattern(sentence).findall((ROOT / sentence.document).read_text())
    assert len(found) == 1, "the sentence is gone or stands twice: tests/docs/counts.py"
    written = found[0] if isinstance(found[0], tuple) else (found[0],)
    known = facts(book, ROOT)
    # after a change of the book or the families: python tests/docs/examples.py
    assert list(written) == [str(known[name]) for name in names(sentence)]
    assert sentence.document in COUNTED


def test_the_table_of_the_oracle_is_what_its_script_writes(book: Book) -> None:
    current = table(book) == TABLE.read_text()
    assert current, "python tools/oracle_table.py"


def test_the_errata_are_what_its_script_writes(book: Book) -> None:
    current = errata.page(check(()).claims, book) == errata.PAGE.read_text()
    assert current, "python tools/errata.py"


def test_the_model_types_of_the_readme_are_understood() -> None:
    kinds = rows(section(README, "Model types"))[1:]
    listed = [name for cells in kinds for name in cells[1].split(", ")]
    assert len(kinds) >= 4
    assert [name for name in listed if name not in families.KNOWN] == []
    assert len(listed) == len(set(listed))


def test_the_formats_of_the_readme_are_those_of_the_book(book: Book) -> None:
    (cell,) = (cells[1] for cells in rows(section(README, "What it covers")) if cells[0] == "formats")
    listed = re.findall(r"`([^`]+)`", cell.partition("`quantization_config`")[0])
    assert len(listed) > 9
    assert [name for name in listed if name not in book.ids("formats")] == []


def test_the_formulas_of_models_in_the_design_are_those_of_the_book(book: Book) -> None:
    table = [list(map(unquoted, cells)) for cells in rows(section(DESIGN, "What it costs"))[1:]]
    assert {cells[0] for cells in table} >= {"moe-experts", "decode-latent-attention", "state-update"}
    for name, reading, resource, formula in table:
        record = book.record(OpClass, name)
        convention, _, chosen = reading.partition("=")
        changed = record.conventions[convention].get(chosen, {}) if convention in record.conventions else {}
        assert reading == "" or list(book.conventions[convention].values).index(chosen) == 0 or resource in changed
        assert formula == {**record.define, **record.cost, **changed}[resource]


@pytest.mark.parametrize(("title", "known"), [("Quantised checkpoints", METHODS), ("Headers of files", ARCHITECTURES)])
def test_what_is_read_is_listed_in_the_design(title: str, known: dict[str, Any]) -> None:
    listed = re.search(r"^Understood: (.+?)\.$", section(DESIGN, title), re.MULTILINE | re.DOTALL)
    assert listed
    assert sorted(re.findall(r"`([^`]+)`", listed[1])) == sorted(known)


# -- figures ----------------------------------------------------------------------------------------------------------

THEIRS = ("parameters=nominal", "mask=full", "gemm-bytes=weights", "clock=rated")
PROMPT = ("--phase", "prefill", "--input-len", "4096")


class Figure(NamedTuple):
    """A row of the table: the flags of its command, where the JSON has it, its unit, and how both columns print it."""

    label: str
    flags: tuple[str, ...]
    found: Callable[[Any], float]
    unit: float
    theirs: str
    ours: str


def spent(data: Any, *op_classes: str) -> float:
    """The matrix FLOP of some classes."""
    return float(sum(op["matrix_flop"] for op in data["ops"] if op["class"] in op_classes))


def operation(data: Any) -> Any:
    return data["floor_seconds"]["operation"]


def cache(data: Any) -> Any:
    return data["totals"]["device_bytes"]["kv"]


def context(tokens: int, *more: str) -> tuple[str, ...]:
    return ("--context-len", str(tokens), *more)


FIGURES = [
    Figure("weights,", context(1), lambda d: d["totals"]["device_bytes"]["weights"], 1e9, "140.003 GB", "137.429 GB"),
    Figure("floor, batch 1", context(1), operation, 1e-3, "41.79 ms", "41.04 ms"),
    Figure("tokens a", context(1), lambda d: d["utilisation"]["floor"]["tokens_per_second"], 1, "23.93", "24.37"),
    Figure("cache, one token", context(1), lambda d: d["memory"]["kv_bytes_per_token"], 1, "327,680 B", "327,680 B"),
    Figure("cache at 8192", context(8192), cache, 1e9, "2.684 GB", "2.684 GB"),
    Figure("floor at 8192", context(8192), operation, 1e-3, "42.59 ms", "41.84 ms"),
    Figure("cache at 128,000 ", context(128_000), cache, 1e9, "41.94 GB", "41.94 GB"),
    Figure("cache at 128,000, b", context(128_000, "--batch-size", "32"), cache, 1e12, "1.342 TB", "1.342 TB"),
    Figure("GEMMs", PROMPT, lambda d: spent(d, "weight-gemm", "lm-head"), 1e12, "573.4 TFLOP", "560.8 TFLOP"),
    Figure("attention", PROMPT, lambda d: spent(d, "prefill-attention"), 1e12, "43.98 TFLOP", "22.00 TFLOP"),
    Figure("floor of that", PROMPT, lambda d: d["floor_seconds"]["device"], 1, "0.6240 s", "0.5443 s"),
]


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.label)
def test_a_figure_is_what_the_command_prints(figure: Figure) -> None:
    command = ("why", "meta-llama/Llama-2-70b-hf", "--on", "h100-sxm", *figure.flags)
    chosen = [word for name in THEIRS for word in ("--convention", name)]
    table = section(ROOT / "docs" / "figures.md", "Figures").splitlines()
    (row,) = [line.strip("| ").split(" | ") for line in table if line.startswith(f"| {figure.label}")]
    for data, written, cell in (
        (answer(*command, *chosen), figure.theirs, row[2]),
        (answer(*command), figure.ours, row[3]),
    ):
        number = written.split()[0]
        assert cell.startswith(written)
        assert f"{figure.found(data) / figure.unit:,.{len(number.partition('.')[2])}f}" == number
        assert not data["memory"]["fits"]


# -- soundness --------------------------------------------------------------------------------------------------------


def test_no_row_beats_its_floor_without_a_reason() -> None:
    page = (ROOT / "docs" / "soundness.md").read_text()
    total, priced, roofline, beaten = (
        int(number.replace(",", ""))
        for found in re.findall(r"([\d,]+) rows, ([\d,]+) priced; ([\d,]+) beat the roofline, \*\*([\d,]+) beat", page)
        for number in found
    )
    kinds = [
        [int(cell.replace(",", "")) for cell in cells[3:6]]
        for cells in rows(page)
        if len(cells) >= 9 and cells[3][0].isdigit()  # a kind without large rows has no last cell
    ]
    assert [priced, roofline, beaten] == [sum(column) for column in zip(*kinds, strict=True)]
    assert total >= priced
    explained = re.findall(r"^- \*\*(\d+) rows\*\*", page, re.MULTILINE)
    assert sum(map(int, explained)) == beaten
    assert "NOT EXPLAINED" not in page
    assert f"and {beaten} beat our floor" in README.read_text().replace("\n  ", " ")


def test_the_floor_of_large_gemms_is_close() -> None:
    # of rows whose working set is more than 4 times the on-chip memory, half are within 1.6 of the floor
    page = (ROOT / "docs" / "soundness.md").read_text()
    for part in ("h100-sxm", "h200-sxm", "a100-sxm-80gb"):
        (cells,) = [cells for cells in rows(page) if cells[:3] == [part, "gemm", "bf16"]]
        assert cells[5] == "0"
        assert float(cells[9]) <= 1.6


# -- accuracy ---------------------------------------------------------------------------------------------------------


def test_the_accuracy_page_is_that_of_the_records(book: Book) -> None:
    # rows kept out, rows of other versions, and the median errors of the fits, by part, kernel and types
    known: dict[tuple[str, ...], list[Fit]] = {}
    for name in book.ids("efficiency"):
        for fit in book.record(Efficiency, name).fits:
            types = f"{fit.dtype} over {fit.kv_dtype}" if fit.kv_dtype else fit.dtype
            known.setdefault((name, fit.family, types), []).append(fit)
    page = (ROOT / "docs" / "accuracy.md").read_text()
    listed = {tuple(cells[:3]): cells[3:] for cells in rows(page)[1:]}
    assert listed.keys() == known.keys()
    for key, cells in listed.items():
        kept, others = int(cells[0].replace(",", "")), int(cells[3].replace(",", ""))
        fits = known[key]
        assert kept == sum(fit.kept_out.rows for fit in fits), key
        assert others == sum(fit.other_versions.rows for fit in fits if fit.other_versions), key
        # the median of pooled rows lies between those of its parts; the page rounds to a tenth of a percent
        median, far = (float(cell.rstrip("%")) / 100 for cell in cells[1:3])
        medians, tenths = ([getattr(fit.kept_out, name) for fit in fits] for name in ("median", "nine_in_ten"))
        assert min(medians) - 0.0006 <= median <= max(medians) + 0.0006, key
        assert min(tenths) - 0.0006 <= far <= max(tenths) + 0.0006, key
    counted = re.search(r"(\d+) fits of .*?(\d+) of (\d+) lines have a median within the aim", page, re.DOTALL)
    assert counted
    aims = {"gemm": 5.0, "decode attention": 6.0, "prefill attention": 6.0, "MLA decode": 10.0, "MLA prefill": 10.0}
    aims |= {"experts": 10.0}
    near = sum(float(cells[1].rstrip("%")) <= aims.get(key[1], 15.0) for key, cells in listed.items())
    assert int(counted[1]) == sum(map(len, known.values()))
    assert abs(int(counted[2]) - near) <= 1  # a median that rounds to the aim may be above it
    assert int(counted[3]) == len(listed)
