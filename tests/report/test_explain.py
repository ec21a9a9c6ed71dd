"""``--explain``: every printed figure is the printed formula evaluated, from a record with a source."""

from __future__ import annotations

import ast
import functools
import math
import operator
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from flopmap.ledger.ledger import DEVICE_BYTES
from tests.cli.support import LLAMA_8B, WHY, data, text

if TYPE_CHECKING:
    from collections.abc import Callable

    from flopmap.records.book import Book

H100 = ("--on", "h100-sxm")
SCENARIOS: dict[str, tuple[str, ...]] = {
    "llama decode": ("why", LLAMA_8B, *H100, "--batch-size", "8", "--context-len", "3000"),
    "llama prefill": ("why", LLAMA_8B, *H100, "--phase", "prefill", "--input-len", "1000", "--cached-len", "500"),
    "llama mixed": ("why", LLAMA_8B, *H100, "--phase", "mixed", "--batch-size", "16", "--input-len", "512"),
    "llama awq": ("why", LLAMA_8B, "--on", "rtx-4090", "--quantization", "awq", "--kv-cache-dtype", "fp8"),
    "llama naive": ("why", LLAMA_8B, *H100, "--convention", "attention-bytes=naive", "--convention", "mask=full"),
    "llama streamed": ("why", LLAMA_8B, *H100, "--convention", "embedding=streamed", "--convention", "logits=all"),
    "gemma 2 windows": ("why", "google/gemma-2-9b", *H100, "--context-len", "8k"),
    "gemma 2 windows mixed": ("why", "google/gemma-2-9b", *H100, "--phase", "mixed", "--context-len", "8k"),
    "gemma 3 windows": ("why", "google/gemma-3-27b-it", *H100, "--phase", "prefill", "--input-len", "4k"),
    "opt projections": ("why", "facebook/opt-350m", "--on", "l4", "--batch-size", "3"),
    "gpt2 prefill": ("why", "gpt2", "--on", "m2-ultra", "--phase", "prefill", "--input-len", "700"),
    "phi head bias": ("why", "microsoft/phi-2", "--on", "mi300x", "--batch-size", "2"),
    "qwen 3 head norms": ("why", "Qwen/Qwen3-8B", "--on", "tpu-v6e"),
    "command r": ("why", "CohereLabs/c4ai-command-r-plus", *H100),
}
scenarios = pytest.mark.parametrize("name", SCENARIOS)
OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
CALLS: dict[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "ceil": math.ceil,
    "floor": math.floor,
    "sqrt": math.sqrt,
    "log2": math.log2,
    "where": lambda condition, yes, no: yes if condition else no,
}
UNIT = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
# 12 × (2 × 8 × (4,096 × 6,144)) = 9,663,676,416 FLOP
COST = re.compile(
    r"^  (?P<resource>\w+) = (?P<formula>.+)\n    = (?P<numbers>.+) = (?P<result>\S+) (?P<unit>.+)$", re.MULTILINE
)
# matrix_seconds = matrix / matrix_peak = 218,103,808 / 989,500,000,000,000 = 220.4 ns  <- binds
TIME = re.compile(
    r"^  (?P<term>\w+_seconds) = .+ = (?P<numbers>.+) = (?P<result>\S+) (?P<unit>n?µ?m?s)(?P<binds>  <- binds)?$",
    re.MULTILINE,
)
HEAD = re.compile(
    r"^(?P<name>\S.*): (?P<time>\S+ \S+) of the operation floor \((?P<share>[\d.]+)%\), bound by (?P<bound>.+)\n"
    r"class (?P<class>\S+) \((?P<title>.+)\), (?P<count>\d+) a step; "
    r"record flops/(?P<record>\S+), (?P<status>\w+), confidence (?P<confidence>\S+)$",
    re.MULTILINE,
)
SOURCE = re.compile(r"^source (?P<id>\S+): (?P<title>.+)$", re.MULTILINE)


class Block(NamedTuple):
    """What is said of one op."""

    head: re.Match[str]
    body: str


def number(printed: str) -> float:
    return float(printed.replace(",", ""))


def computed(printed: str) -> float:
    """A line of maths with numbers in it: what it comes to."""
    python = re.sub(r"(?<=\d),(?=\d{3})", "", printed)
    for sign, word in (("×", "*"), ("^", "**"), (" div ", " // "), (" mod ", " % ")):
        python = python.replace(sign, word)
    return float(_computed(ast.parse(python, mode="eval").body))


def _computed(node: ast.AST) -> Any:
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.BinOp(left=left, op=op, right=right):
            return OPERATORS[type(op)](_computed(left), _computed(right))
        case ast.UnaryOp(op=op, operand=operand):
            return OPERATORS[type(op)](_computed(operand))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return OPERATORS[type(op)](_computed(left), _computed(right))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return CALLS[name](*map(_computed, arguments))
    raise AssertionError(f"not a number: {ast.unparse(node)}")


def blocks(explained: str) -> list[Block]:
    heads = list(HEAD.finditer(explained))
    ends = [*(head.start() for head in heads[1:]), len(explained)]
    return [Block(head, explained[head.end() : end]) for head, end in zip(heads, ends, strict=True)]


@functools.cache
def explained_ops(name: str) -> list[tuple[dict[str, Any], Block]]:
    """Each op of a scenario as data, beside what ``--explain`` says of it when its class is asked for."""
    ops = data(*SCENARIOS[name])["ops"]
    said = [
        block for kind in {op["class"] for op in ops} for block in blocks(text(*SCENARIOS[name], "--explain", kind))
    ]
    by_name = {block.head["name"]: block for block in said}
    assert sorted(op["name"] for op in ops) == sorted(block.head["name"] for block in said)
    return [(op, by_name[op["name"]]) for op in ops]


@scenarios
def test_every_figure_of_every_op_is_its_formula_evaluated(name: str, book: Book) -> None:
    for op, block in explained_ops(name):
        costs = list(COST.finditer(block.body))
        assert costs or op["idle"], op["name"]
        by_resource = {cost["resource"]: number(cost["result"]) for cost in costs}
        for cost in costs:
            where = f"{op['name']}: {cost[0]}"
            assert cost["numbers"].startswith(f"{op['count']} × ("), where
            assert computed(cost["numbers"]) == pytest.approx(number(cost["result"]), rel=1e-5), where
            assert cost["unit"] in ("FLOP", "op", "B", "launches", "parameters"), where
        _same_as_data(op, block, by_resource)
        _has_sources(op, block, book)


def _same_as_data(op: dict[str, Any], block: Block, by_resource: dict[str, float]) -> None:
    head = block.head
    assert head["class"] == head["record"] == op["class"]
    assert int(head["count"]) == op["count"]
    assert head["bound"] == op["bound_by"].replace("_", " ")
    assert float(head["share"]) == pytest.approx(100 * op["share"], abs=0.051)
    assert by_resource.get("matrix", 0) == pytest.approx(op["matrix_flop"], rel=1e-5)
    assert by_resource.get("vector", 0) == pytest.approx(op["vector_flop"], rel=1e-5)
    assert by_resource.get("exp", 0) == pytest.approx(op["exp_op"], rel=1e-5)
    assert by_resource.get("launches", 0) == op["launches"]
    moved = sum(by_resource.get(kind, 0) for kind in DEVICE_BYTES)
    assert moved == pytest.approx(op["device_bytes"], rel=1e-5)
    assert f"  {op['formula']}" in block.body or (op["idle"] and "resident" not in by_resource)


def _has_sources(op: dict[str, Any], block: Block, book: Book) -> None:
    record = book.get("flops", op["class"])
    assert block.head["title"] == record.title
    assert block.head["status"] == record.status
    sources = {source["id"]: source["title"] for source in SOURCE.finditer(block.body)}
    assert tuple(sources) == record.sources
    assert op["source"] in sources
    for source, title in sources.items():
        assert title.startswith(f"{book.get('sources', source).title}. ")


@scenarios
def test_every_time_of_every_op_is_its_formula_evaluated(name: str) -> None:
    for op, block in explained_ops(name):
        times = list(TIME.finditer(block.body))
        assert len(times) == sum(line.startswith("  ") and "_seconds = " in line for line in block.body.splitlines())
        for time in times:
            where = f"{op['name']}: {time[0]}"
            assert computed(time["numbers"]) == pytest.approx(number(time["result"]) * UNIT[time["unit"]], rel=2e-3), (
                where
            )
        if op["idle"]:  # a tower that is held while a step decodes
            assert not times
            continue
        (binding,) = [time for time in times if time["binds"]]
        longest = max(number(time["result"]) * UNIT[time["unit"]] for time in times)
        assert number(binding["result"]) * UNIT[binding["unit"]] == longest
        assert longest == pytest.approx(op["floor_seconds"], rel=2e-3)


def test_the_rates_come_with_their_sources(book: Book) -> None:
    answer = text(*WHY, "--explain", "lm_head")
    line = next(line for line in answer.splitlines() if line.startswith("  rates of h100-sxm: "))
    for rate in ("bandwidth 3.35e+12 (", "matrix bf16 9.895e+14 (", "vector ", "exp "):
        assert rate in line
    for source in re.findall(r"\(([a-z0-9-]+)\)", line):
        assert book.find("sources", source), source


def test_a_class_explains_every_op_of_it() -> None:
    names = [block.head["name"] for block in blocks(text(*WHY, "--explain", "weight-gemm"))]
    assert names == ["attention.qkv", "attention.out", "mlp.gate_up", "mlp.down"]


def test_a_name_without_its_window_explains_both_kinds_of_layer() -> None:
    words = SCENARIOS["gemma 2 windows"]
    names = [block.head["name"] for block in blocks(text(*words, "--explain", "attention.decode"))]
    assert names == ["attention.decode[window 4096]", "attention.decode"]
    (only,) = blocks(text(*words, "--explain", "attention.decode[window 4096]"))
    assert only.head["name"] == "attention.decode[window 4096]"


def test_a_windowed_layer_is_explained_with_the_tokens_of_its_window() -> None:
    answer = text(*SCENARIOS["gemma 2 windows"], "--explain", "attention.decode[window 4096]")
    assert "  matrix = 2 × pairs × heads × (head_dim + value_dim)\n" in answer
    assert "    = 21 × (2 × 4,096 × 16 × (256 + 256)) = " in answer
