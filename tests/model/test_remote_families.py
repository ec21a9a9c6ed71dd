"""Families whose classes come with their checkpoints: the hub's counts, and arithmetic."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from flopmap.floor.roofline import price
from flopmap.floor.summary import memory
from flopmap.model.config import ConfigError
from flopmap.model.reading import from_config, read_model
from tests.physics.support import priced, scenario_of, with_config

if TYPE_CHECKING:
    from pathlib import Path

    from flopmap.floor.roofline import Pricing
    from flopmap.records.book import Book

# the number of parameters in the metadata of the published safetensors
PUBLISHED = {
    "internlm/internlm2-chat-7b": 7_737_708_544,
    "baichuan-inc/Baichuan2-7B-Chat": 7_505_973_248,
    "baichuan-inc/Baichuan2-13B-Chat": 13_896_668_160,
    "Qwen/Qwen-7B-Chat": 7_721_324_544,
    "Qwen/Qwen-14B-Chat": 14_167_290_880,
    "zai-org/glm-4-9b-chat": 9_399_951_360,
    "zai-org/chatglm3-6b": 6_243_584_000,  # less the 32 rotation frequencies that its files hold
    "deepseek-ai/deepseek-moe-16b-chat": 16_375_728_128,
    "openbmb/MiniCPM-2B-dpo-bf16": 2_724_880_896,
    "inclusionAI/Ling-lite": 16_801_974_272,
    "deepseek-ai/DeepSeek-V2-Lite": 15_706_484_224,
    "deepseek-ai/DeepSeek-V2": 235_741_434_880,
    "nvidia/Llama-3_3-Nemotron-Super-49B-v1": 49_867_145_216,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_that_the_hub_prints(name: str, book: Book) -> None:
    assert priced(book, name, dtype="bf16").totals["parameters"] == PUBLISHED[name]


def test_the_cache_of_few_key_heads_of_none_and_of_layers_without_attention(book: Book) -> None:
    # K and V, 2 heads, 128 wide, 2 bytes, 40 layers
    assert memory(priced(book, "zai-org/glm-4-9b-chat"), book).kv_bytes_per_token == 40 * 2 * 2 * 128 * 2
    # 49 of the 80 layers attend: 8 key heads
    nas = priced(book, "nvidia/Llama-3_3-Nemotron-Super-49B-v1")
    assert memory(nas, book).kv_bytes_per_token == 49 * 2 * 8 * 128 * 2
    assert sum(line.line.op.count for line in nas.lines if line.line.op.op_class == "rms-norm") == 49 + 80 + 1


def test_half_of_a_head_is_rotated_or_nothing(book: Book) -> None:
    ropes = {
        name: [
            dict(line.line.op.shapes)["rotary_dim"]
            for line in priced(book, name).lines
            if line.line.op.op_class == "rope"
        ]
        for name in ("zai-org/glm-4-9b-chat", "baichuan-inc/Baichuan2-7B-Chat", "baichuan-inc/Baichuan2-13B-Chat")
    }
    assert list(ropes.values()) == [[64], [128], []]  # the last has ALiBi


def test_mimo_is_a_qwen_2_whose_predictor_is_listed(book: Book) -> None:
    step = priced(book, "XiaomiMiMo/MiMo-7B-Base")
    # embedding and head; 36 layers of q, k, v with biases, o, three matrices and two norms; the last norm
    layer = 4096 * (4096 + 2 * 1024) + 4096 + 2 * 1024 + 4096 * 4096 + 3 * 4096 * 11_008 + 2 * 4096
    assert step.totals["parameters"] == 2 * 151_680 * 4096 + 36 * layer + 4096


# -- Step 3.5 ---------------------------------------------------------------------------------------------------------


def test_windowed_layers_of_step_have_heads_of_their_own(book: Book) -> None:
    step = priced(book, "stepfun-ai/Step-3.5-Flash", context_len=4096)
    heads = {
        line.line.op.name: dict(line.line.op.shapes)
        for line in step.lines
        if line.line.op.name.startswith("attention.decode")
    }
    assert heads["attention.decode"]["heads"] == 64
    assert heads["attention.decode[window 512]"]["heads"] == 96
    # 12 layers keep 4096 tokens and 33 keep 512: K and V, 8 heads, 128 wide, 2 bytes
    assert step.totals["cache"] == (12 * 4096 + 33 * 512) * 2 * 8 * 128 * 2
    # 288 experts and a shared one in 42 of 45 layers, router, dense ones in three
    sparse = 42 * (289 * 3 * 4096 * 1280 + 288 * 4096)
    attention = 12 * (2 * 8192 + 2 * 1024 + 64) * 4096 + 33 * (2 * 12_288 + 2 * 1024 + 96) * 4096 + 45 * 2 * 128
    rest = 3 * 3 * 4096 * 11_264 + 2 * 128_896 * 4096 + (2 * 45 + 1) * 4096
    assert step.totals["parameters"] == sparse + attention + rest == 196_956_118_272


# -- Kimi K3 ----------------------------------------------------------------------------------------------------------


def kimi(book: Book, **flags: Any) -> Pricing:
    return priced(book, "moonshotai/Kimi-K3", on="b200-sxm", **flags)


def test_kimi_k3_has_the_parameters_of_its_published_shapes(book: Book) -> None:
    hidden, latent, width = 7168, 3584, 96 * 128
    moe = 92 * (896 * 3 * latent * 3072 + 2 * hidden * latent + latent + 3 * hidden * 6144 + 896 * hidden)
    delta = 69 * (
        6 * hidden * width - hidden * width + hidden * (96 + 128) + 128 * width + 3 * width * 4 + 128 + width + 96
    )
    latents = 24 * (hidden * 1536 + 1536 + 1536 * 96 * 192 + hidden * 576 + 512 + 512 * 96 * 256 + 2 * hidden * width)
    # two norms and two scores of each layer's block sums, and those of the output
    blocks = 93 * 4 * hidden + 2 * hidden
    rest = 2 * 163_840 * hidden + 3 * hidden * 33_792 + (2 * 93 + 1) * hidden
    assert kimi(book).totals["parameters"] == moe + delta + latents + blocks + rest


def test_kimi_k3_is_as_large_as_its_files_but_for_the_tower(book: Book) -> None:
    # total_size of the index: 1,560,860,324,864. What is missing is the vision tower and its projector, about
    # 447 million parameters in 16 bits, and the 32-bit halves of convolutions (69 layers, 3 x 12288 channels, 4 taps)
    missing = 1_560_860_324_864 - kimi(book).totals["resident"]
    convolutions = 69 * 3 * 12_288 * 4 * 2
    assert missing - convolutions == pytest.approx(2 * 447e6, rel=0.01)


def test_kimi_k3_holds_a_state_of_head_by_head_in_its_delta_nets(book: Book) -> None:
    # a matrix of 128 x 128 for each of 96 heads, and three inputs of each of the 3 x 12288 convolved channels
    assert kimi(book).totals["held"] == 69 * 2 * (96 * 128 * 128 + 3 * 12_288 * 3)
    # the latent and its unrotated companion, 24 layers
    assert memory(kimi(book), book).kv_bytes_per_token == 24 * (512 + 64) * 2


def test_a_layer_of_kimi_k3_sums_over_the_blocks_before_it(book: Book) -> None:
    scores = {line.line.op.name: line for line in kimi(book).lines if "blocks.score" in line.line.op.name}
    # layers 1 to 12 weigh two rows before attention, 13 to 24 three ...; a block begins at every twelfth layer
    rows = [-(-index // 12) + 1 for index in range(1, 93)]
    found = sum(line.line.op.count for line in kimi(book).lines if line.line.op.name == "attention.blocks.score")
    assert found == sum(rows)
    assert {name.split(".")[0] for name in scores} == {"attention", "mlp", "output"}


# -- refusals ---------------------------------------------------------------------------------------------------------

WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "a block too few": (
        "nvidia/Llama-3_3-Nemotron-Super-49B-v1",
        {"num_hidden_layers": 81},
        "block_configs: a list of 81 layers is needed",
    ),
    "no layer": ("nvidia/Llama-3_3-Nemotron-Super-49B-v1", {"block_configs": [3] * 80}, "block_configs: 3 is no layer"),
    "no width": (
        "nvidia/Llama-3_3-Nemotron-Super-49B-v1",
        {"block_configs": [{"attention": {"no_op": True}, "ffn": {}}] * 80},
        r"block_configs\[0\]: ffn_mult",
    ),
    "experts in a block": (
        "nvidia/Llama-3_3-Nemotron-Super-49B-v1",
        {"block_configs": [{"attention": {"no_op": True}, "ffn": {"moe": {"num_local_experts": 8}}}] * 80},
        r"block_configs\[0\]: moe: .* is not understood",
    ),
    "heads that are not said": (
        "stepfun-ai/Step-3.5-Flash",
        {"attention_other_setting": None},
        "attention_other_setting: is missing",
    ),
    "experts of no layer": (
        "stepfun-ai/Step-3.5-Flash",
        {"moe_layers_enum": "3,x"},
        "moe_layers_enum: '3,x' is no list",
    ),
    "norms elsewhere": ("zai-org/glm-4-9b-chat", {"rmsnorm": False}, "rmsnorm: only RMSNorm"),
    "no bias": ("XiaomiMiMo/MiMo-7B-Base", {"attention_bias": False}, "attention_bias: false is not understood"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_not_understood_is_refused_by_field(case: str, book: Book) -> None:
    from flopmap.records.types import Model

    name, changes, message = WRONG[case]
    with pytest.raises(ConfigError, match=message):
        from_config({**book.record(Model, name).config, **changes}, "config.json")


def test_a_plain_deepseek_is_a_llama(book: Book, tmp_path: Path) -> None:
    sizes = {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = {"model_type": "deepseek", "vocab_size": 100, "hidden_act": "silu", "torch_dtype": "bfloat16", **sizes}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    assert read_model(str(path), book).architecture.layers[0].feed_forward is not None
    llama = price(with_config(scenario_of(book), {**config, "model_type": "llama"}), book).totals
    assert price(with_config(scenario_of(book), config), book).totals == llama
