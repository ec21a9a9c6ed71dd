"""What a lever buys is the step priced again with the lever pulled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from flopmap.floor.roofline import price
from flopmap.floor.summary import memory
from flopmap.levers import Gain, gains
from flopmap.scenario import Request, make
from tests.physics.support import LLAMA_8B

if TYPE_CHECKING:
    from flopmap.records.book import Book

H100 = Request(model=LLAMA_8B, on="h100-sxm", context_len=2048)


def pulled(request: Request, book: Book) -> dict[str, Gain]:
    return {gain.id: gain for gain in gains(request, price(make(request, book), book), book)}


@pytest.mark.parametrize(
    "change", [{}, {"batch_size": 64}, {"phase": "prefill", "input_len": 4096}, {"on": "a100-sxm-80gb"}], ids=str
)
def test_a_gain_is_the_difference_of_two_prices(change: dict[str, Any], book: Book) -> None:
    request = replace(H100, **change)
    before = price(make(request, book), book)
    found = pulled(request, book)
    for lever, flags in {
        "fp8-weights": {"quantization": "fp8"},
        "int4-weights": {"quantization": "awq"},
        "fp8-kv-cache": {"kv_cache_dtype": "fp8"},
    }.items():
        after = price(make(replace(request, **flags), book), book)
        assert found[lever].step_seconds == after.engine_seconds
        assert found[lever].gain == pytest.approx(1 - after.engine_seconds / before.engine_seconds, abs=1e-12)
        assert found[lever].max_sequences == memory(after, book).max_sequences
    assert [gain.step_seconds for gain in found.values()] == sorted(gain.step_seconds for gain in found.values())


def test_eight_bit_weights_halve_the_matrices_of_the_layers_alone(book: Book) -> None:
    # 32 layers of 218,103,808; the head, the norms and the row of the embedding stay in 16 bits
    before = price(make(H100, book), book).totals
    after = price(make(replace(H100, quantization="fp8"), book), book).totals
    assert before["weights"] - after["weights"] == 32 * 218_103_808
    assert after["kv_traffic"] == before["kv_traffic"]
    assert after["matrix"] == before["matrix"]


def test_four_bit_weights_carry_their_scales_and_zero_points(book: Book) -> None:
    # 4 bits, and (16 + 4) / 128 of scale and zero point: 0.51953125 bytes
    before = price(make(H100, book), book).totals
    after = price(make(replace(H100, quantization="awq"), book), book).totals
    assert before["weights"] - after["weights"] == 32 * 218_103_808 * (2 - 0.51953125)


def test_an_eight_bit_cache_halves_reads_and_writes_and_doubles_what_fits(book: Book) -> None:
    before = price(make(H100, book), book)
    after = price(make(replace(H100, kv_cache_dtype="fp8"), book), book)
    assert after.totals["kv_traffic"] == before.totals["kv_traffic"] / 2 == 2048 * 65_536
    # (80e9 - 16,060,522,496) // (2048 * 65,536) = 476
    assert memory(after, book).max_sequences == 476


def test_a_lever_that_is_in_force_is_not_offered(book: Book) -> None:
    found = pulled(replace(H100, quantization="fp8", kv_cache_dtype="fp8"), book)
    assert "fp8-weights" not in found
    assert "fp8-kv-cache" not in found
    assert "int4-weights" in found


@pytest.mark.parametrize(
    ("model", "on", "offered", "hidden"),
    [
        # FP8 in blocks already; AWQ has half its bits
        ("deepseek-ai/DeepSeek-V3", "h200-sxm", "int4-weights", "fp8-weights"),
        # MXFP4 has 4 bits already, and an H100 multiplies neither it nor AWQ in less than 16, but FP8 it does
        ("openai/gpt-oss-120b", "h100-sxm", "fp8-kv-cache", "int4-weights"),
        # a B200 multiplies MXFP4 faster than FP8
        ("openai/gpt-oss-120b", "b200", "fp8-kv-cache", "fp8-weights"),
    ],
)
def test_weights_that_are_as_narrow_already_are_not_to_be_narrowed(
    model: str, on: str, offered: str, hidden: str, book: Book
) -> None:
    found = pulled(Request(model=model, on=on), book)
    assert offered in found
    assert hidden not in found


def test_graphs_are_offered_where_launches_cost_time(book: Book) -> None:
    assert "cuda-graphs" not in pulled(H100, book)
    # 364 launches of an eager step of the smallest bundled model take longer than its 0.27 GB at 3.35 TB/s
    eager = replace(H100, model="HuggingFaceTB/SmolLM2-135M", engine="vllm", enforce_eager=True, context_len=100)
    before = price(make(eager, book), book)
    assert before.totals["launches"] == 12 * 30 + 4
    assert before.launch_seconds > before.operation_seconds
    gain = pulled(eager, book)["cuda-graphs"]
    assert gain.step_seconds == pytest.approx(before.operation_seconds, rel=1e-12)


def test_a_part_without_eight_bit_math_converts_and_says_so(book: Book) -> None:
    gain = pulled(replace(H100, on="a100-sxm-80gb"), book)["fp8-weights"]
    assert any("converted" in gate for gate in gain.gates)
    # and its prompt is no faster for it
    prompt = replace(H100, on="a100-sxm-80gb", phase="prefill", input_len=8192)
    assert pulled(prompt, book)["fp8-weights"].gain < 0.02
    assert pulled(replace(prompt, on="h100-sxm"), book)["fp8-weights"].gain > 0.2
