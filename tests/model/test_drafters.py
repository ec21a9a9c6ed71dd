"""Parameters of what drafts and of what denoises, against lists of tensors and the sizes of published files."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import pytest

from flopmap.decoding import Speculation, read_speculation
from flopmap.floor.drafts import drafts
from flopmap.floor.roofline import price
from flopmap.floor.summary import memory
from flopmap.model.config import ConfigError
from flopmap.model.reading import from_config, read_head, read_model
from flopmap.report.model import account
from flopmap.scenario import Request, make
from flopmap.step import ScenarioError
from tests.cli.support import TINY

if TYPE_CHECKING:
    from pathlib import Path

    from flopmap.records.book import Book

LLAMA = "meta-llama/Llama-3.1-8B"
EAGLE3 = "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"
V3 = "deepseek-ai/DeepSeek-V3"


def held(model: str, speculation: str, book: Book) -> tuple[float, float]:
    """Parameters and bytes of a drafter, as a priced scenario holds them."""
    scenario = make(Request(model=model, on="h100-sxm", speculative_config=speculation, acceptance_rate=0.7), book)
    found = drafts(price(scenario, book), book)
    assert found is not None
    return found.drafter_parameters, found.drafter_bytes


def size(tensors: dict[str, tuple[int, ...]]) -> int:
    return sum(prod(shape) for shape in tensors.values())


# -- heads ------------------------------------------------------------------------------------------------------------


def test_an_eagle_3_head_holds_the_tensors_of_its_file(book: Book) -> None:
    tensors = {
        "fc.weight": (4096, 3 * 4096),
        "midlayer.self_attn.q_proj.weight": (4096, 2 * 4096),
        "midlayer.self_attn.k_proj.weight": (1024, 2 * 4096),
        "midlayer.self_attn.v_proj.weight": (1024, 2 * 4096),
        "midlayer.self_attn.o_proj.weight": (4096, 4096),
        "midlayer.mlp.gate_proj.weight": (14336, 4096),
        "midlayer.mlp.up_proj.weight": (14336, 4096),
        "midlayer.mlp.down_proj.weight": (4096, 14336),
        "midlayer.hidden_norm.weight": (4096,),
        "midlayer.input_layernorm.weight": (4096,),
        "midlayer.post_attention_layernorm.weight": (4096,),
        "norm.weight": (4096,),
        "lm_head.weight": (32000, 4096),
    }
    parameters, nbytes = held(LLAMA, f"model={EAGLE3},num_speculative_tokens=3", book)
    assert parameters == size(tensors) == 424_689_664
    assert nbytes == 2 * parameters
    # with the tables of the drafted words (8 bytes each) and of the vocabulary (1 byte): 850 MB on the hub
    assert nbytes + 32_000 * 8 + 128_256 == pytest.approx(850e6, rel=1e-3)


def eagle(**fields: Any) -> dict[str, Any]:
    return {"model_type": "llama", "num_hidden_layers": 1, "tie_word_embeddings": False, **fields}


EAGLES = {  # config, bytes of an element, and the file's size on the hub, which holds a copy of the embedding
    "EAGLE-LLaMA3-Instruct-8B": (
        eagle(
            hidden_size=4096,
            intermediate_size=14336,
            num_attention_heads=32,
            num_key_value_heads=8,
            vocab_size=128256,
        ),
        2,
        1.55e9,
    ),
    "EAGLE-llama2-chat-7B": (
        eagle(hidden_size=4096, intermediate_size=11008, num_attention_heads=32, vocab_size=32000),
        4,
        1.47e9,
    ),
    "EAGLE-llama2-chat-13B": (
        eagle(hidden_size=5120, intermediate_size=13824, num_attention_heads=40, vocab_size=32000),
        4,
        2.13e9,
    ),
    "EAGLE-llama2-chat-70B": (
        eagle(
            hidden_size=8192,
            intermediate_size=28672,
            num_attention_heads=64,
            num_key_value_heads=8,
            vocab_size=32000,
        ),
        4,
        5.01e9,
    ),
    "EAGLE-LLaMA3-Instruct-70B": (
        eagle(
            hidden_size=8192,
            intermediate_size=28672,
            num_attention_heads=64,
            num_key_value_heads=8,
            vocab_size=128256,
        ),
        2,
        4.08e9,
    ),
}


@pytest.mark.parametrize("name", EAGLES)
def test_an_eagle_head_and_a_copy_of_the_embedding_fill_its_file(name: str, book: Book, tmp_path: Path) -> None:
    import json

    config, element, published = EAGLES[name]
    target = {**TINY, **config, "num_hidden_layers": 2}
    for folder, fields in (("target", target), ("head", config)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "config.json").write_text(json.dumps(fields))
    parameters, _ = held(str(tmp_path / "target"), f"method=eagle,model={tmp_path}/head,num_speculative_tokens=2", book)
    embedding = config["vocab_size"] * config["hidden_size"]
    assert (parameters + embedding) * element == pytest.approx(published, rel=0.004)


def medusa(folder: Path, **fields: Any) -> str:
    import json

    (folder / "config.json").write_text(json.dumps(fields))
    return str(folder)


def test_medusa_heads_are_a_block_and_a_vocabulary_each(book: Book, tmp_path: Path) -> None:
    path = medusa(tmp_path, medusa_num_heads=5, medusa_num_layers=1)
    block, words = 4096 * 4096 + 4096, 4096 * 32000
    parameters, nbytes = held("meta-llama/Llama-2-7b-hf", f"model={path},num_speculative_tokens=3", book)
    # all five are held, though three draft; the published file of five such heads is 1.48 GB
    assert parameters == 5 * (block + words)
    assert nbytes == 2 * parameters == pytest.approx(1.48e9, rel=2e-3)


def test_a_medusa_head_drafts_one_token(book: Book, tmp_path: Path) -> None:
    path = medusa(tmp_path, medusa_num_heads=2)
    with pytest.raises(ScenarioError, match="num_speculative_tokens 3: 2 heads draft 2 tokens"):
        held(LLAMA, f"method=medusa,model={path},num_speculative_tokens=3", book)


def test_a_head_for_another_model_is_refused(book: Book) -> None:
    with pytest.raises(ScenarioError, match="a vocabulary of 128256 and the model one of 32000"):
        held("meta-llama/Llama-2-7b-hf", f"model={EAGLE3},num_speculative_tokens=3", book)
    with pytest.raises(ScenarioError, match="reads rows of 4096 elements, and the model's have 8192"):
        held("meta-llama/Llama-3.1-70B", f"model={EAGLE3},num_speculative_tokens=3", book)


def test_a_head_says_itself_what_it_is(book: Book) -> None:
    sizes = {"hidden_size": 4096, "vocab_size": 128256}
    for method in (None, "eagle3"):
        head = read_head(EAGLE3, method, sizes, book)
        assert head is not None
        assert head.architecture.family == "eagle3"
    assert read_head("Qwen/Qwen3-0.6B", None, sizes, book) is None
    target = read_model(LLAMA, book)
    small = "model=meta-llama/Llama-3.2-1B,num_speculative_tokens=2"
    found = read_speculation(small, 0.5, target, book)
    assert found is not None
    assert (found.method, found.passes) == ("draft_model", 2)


def test_a_head_of_two_layers_is_refused() -> None:
    config = {**TINY, "architectures": ["LlamaForCausalLMEagle3"]}
    with pytest.raises(ConfigError, match="num_hidden_layers: 2 is not understood in an EAGLE-3 config"):
        from_config(config, "config.json")


def test_a_head_alone_is_no_model(book: Book) -> None:
    from tests.cli.support import refused

    message = f"flopmap why: error: {EAGLE3} drafts for another model: give it with --speculative-config"
    refused(2, message, "why", EAGLE3, "--on", "h100-sxm")
    assert account(EAGLE3, book).parameters == 424_689_664


# -- layers that predict a further token ------------------------------------------------------------------------------


def test_the_predictor_of_deepseek_v3_completes_the_published_685_billion(book: Book) -> None:
    expert, rank = 3 * 7168 * 2048, 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168
    tensors = 257 * expert + 256 * 7168 + rank + 1536 + 512 + 2 * 7168  # the layer, its router and norms
    tensors += 2 * 7168 * 7168 + 3 * 7168  # eh_proj; enorm, hnorm and the norm before the head
    parameters, _ = held(V3, "method=mtp,num_speculative_tokens=1", book)
    assert parameters == tensors == 11_610_067_968
    # the files hold the embedding and the head again: 671 B + 14 B; the hub prints 684 B for files in bf16, and 685 B
    # for those in FP8, which have a scale for 128 x 128 elements
    total = account(V3, book).parameters + parameters + 2 * 129_280 * 7168
    assert round(account(V3, book).parameters / 1e9) == 671
    assert round(total / 1e9) == 684
    assert round((total + total / 128**2) / 1e9) == 685


def test_the_predictor_of_glm_5_has_an_indexer_of_its_own(book: Book) -> None:
    counted = {}
    for name in ("GLM-5", "GLM-5.3"):
        counted[name], _ = held(f"zai-org/{name}", "method=mtp,num_speculative_tokens=1", book)
    # in 5.3 most layers, the last among them, use the choice of a layer before; the predictor has none before it
    assert counted["GLM-5"] == counted["GLM-5.3"]
    # the hub prints 10 B for a file of that layer alone, and 754 B for the whole
    assert round(counted["GLM-5"] / 1e9) == 10
    assert round((counted["GLM-5"] + account("zai-org/GLM-5", book).parameters) / 1e9) == 754


def test_the_predictor_and_its_copies_complete_the_bytes_of_the_index(book: Book) -> None:
    index, copies = 688_586_727_753, 2 * 129_280 * 7168  # total_size of model.safetensors.index.json
    scenario = make(Request(model=V3, on="h200-sxm", speculative_config="method=mtp,num_speculative_tokens=1"), book)
    bytes_held = memory(price(scenario, book), book).weight_bytes
    assert bytes_held + 2 * copies == pytest.approx(index, rel=5e-5)


def test_the_predictor_of_mimo_is_a_layer_of_qwen_2(book: Book) -> None:
    parameters, _ = held("XiaomiMiMo/MiMo-7B-Base", "method=mtp,num_speculative_tokens=1", book)
    attention = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 4096 + 2 * 1024  # q, o, k, v, and the biases of three
    layer = attention + 3 * 4096 * 11008 + 2 * 4096
    assert parameters == layer + 2 * 4096 * 4096 + 3 * 4096  # input_proj, and the norms of token, hidden and end


def test_a_predictor_that_does_not_draft_is_listed_with_its_size(book: Book) -> None:
    note = (
        "the layer that predicts a further token: 11,610,067,968 parameters, 11.72 GB "
        "(held with --speculative-config method=mtp)"
    )
    assert account(V3, book).not_counted == (note,)


ERNIE = {
    **TINY,
    "model_type": "ernie4_5_moe",
    "moe_num_experts": 4,
    "moe_k": 2,
    "moe_intermediate_size": 32,
    "num_nextn_predict_layers": 1,
}


def test_the_predictor_of_ernie_has_a_dense_layer_and_no_norm_of_its_own(book: Book, tmp_path: Path) -> None:
    import json

    path = tmp_path / "config.json"
    path.write_text(json.dumps({**ERNIE, "architectures": ["Ernie4_5_MoeForCausalLM"]}))
    parameters, _ = held(str(path), "method=mtp,num_speculative_tokens=1", book)
    attention = 2 * 64 * 64 + 2 * 64 * 32
    assert parameters == attention + 3 * 64 * 128 + 2 * 64 + 2 * 64 * 64 + 2 * 64


@pytest.mark.parametrize("fields", [{"num_nextn_predict_layers": 3}, {"model_type": "mixtral", "num_local_experts": 4}])
def test_a_predictor_of_a_form_that_is_not_known_is_refused(fields: dict[str, Any], book: Book, tmp_path: Path) -> None:
    import json

    path = tmp_path / "config.json"
    path.write_text(
        json.dumps({**TINY, "model_type": "mimo", "architectures": [], "num_nextn_predict_layers": 1, **fields})
    )
    with pytest.raises(ScenarioError, match="has no layer that predicts a further token, or none of a form"):
        held(str(path), "method=mtp,num_speculative_tokens=1", book)


def test_the_methods_of_engines_are_the_same_predictor(book: Book) -> None:
    target = read_model(V3, book)
    for method in ("mtp", "deepseek_mtp"):
        found = read_speculation(f"method={method},num_speculative_tokens=1", None, target, book)
        assert isinstance(found, Speculation)
        assert found.method == "mtp"


# -- diffusion --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "parameters", "published"),
    [
        # 2 x 126,464 x 4096, 32 layers of 4 x 4096^2 + 3 x 4096 x 12,288 and two norms, a norm; six files of 16.03 GB
        ("GSAI-ML/LLaDA-8B-Instruct", 8_015_581_184, 16.03e9 / 2),
        # Qwen 2.5 7B; the hub prints 7.62B
        ("Dream-org/Dream-v0-Instruct-7B", 7_615_616_512, 7.62e9),
        # Qwen 3 4B with a head of its own; files of 8.83 GB
        ("JetLM/SDAR-4B-Chat", 4_411_424_256, 8.83e9 / 2),
        # named 16B
        ("inclusionAI/LLaDA2.1-mini", 16_255_638_528, 16e9),
    ],
)
def test_diffusion_models_are_as_large_as_their_files(
    model: str, parameters: int, published: float, book: Book
) -> None:
    assert account(model, book).parameters == parameters == pytest.approx(published, rel=2e-2)


def test_a_diffusion_model_counts_as_the_decoder_of_its_shape(book: Book, tmp_path: Path) -> None:
    import json

    llada = {"model_type": "llada", "d_model": 64, "n_heads": 4, "n_kv_heads": 2, "n_layers": 2, "mlp_hidden_size": 128}
    shape = {**TINY, "tie_word_embeddings": False}
    for name, fields, same in (
        ("llada", {**llada, "vocab_size": 100}, shape),
        ("Dream", {**shape, "model_type": "Dream", "architectures": ["DreamModel"]}, {**shape, "model_type": "qwen2"}),
        ("sdar", {**shape, "model_type": "sdar"}, {**shape, "model_type": "qwen3"}),
        ("Fast_dLLM_Qwen", {**shape, "model_type": "Fast_dLLM_Qwen"}, {**shape, "model_type": "qwen2"}),
    ):
        for folder, config in (("diffusion", fields), ("decoder", same)):
            (tmp_path / name / folder).mkdir(parents=True)
            (tmp_path / name / folder / "config.json").write_text(json.dumps(config))
        counted = [account(str(tmp_path / name / folder), book).parameters for folder in ("diffusion", "decoder")]
        assert counted[0] == counted[1]


def test_llada_moe_is_as_large_as_its_name_says(book: Book, tmp_path: Path) -> None:
    import json

    path = tmp_path / "config.json"
    config = {
        "model_type": "llada",
        "architectures": ["LLaDAMoEModelLM"],
        "hidden_size": 2048,
        "num_hidden_layers": 16,
        "num_attention_heads": 16,
        "num_experts": 64,
        "num_experts_per_tok": 8,
        "expert_intermediate_size": 1024,
        "vocab_size": 157184,
        "qk_layernorm": True,
        "tie_word_embeddings": False,
    }
    path.write_text(json.dumps(config))
    # two tables, 16 x (attention, 64 experts and their router, two norms, two norms of heads), a norm
    layer = 4 * 2048**2 + 64 * 3 * 2048 * 1024 + 64 * 2048 + 2 * 2048 + 2 * 128
    assert account(str(path), book).parameters == 2 * 157_184 * 2048 + 16 * layer + 2048


@pytest.mark.parametrize(
    ("field", "value"), [("block_type", "sequential"), ("layer_norm_type", "default"), ("activation_type", "swiglu9")]
)
def test_another_llada_is_refused_by_field_and_value(field: str, value: str) -> None:
    config = {
        "model_type": "llada",
        "d_model": 64,
        "n_heads": 4,
        "n_layers": 2,
        "mlp_hidden_size": 128,
        "vocab_size": 9,
    }
    with pytest.raises(ConfigError, match=f"'{value}'"):
        from_config({**config, field: value}, "config.json")
