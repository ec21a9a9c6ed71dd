"""Quantised checkpoints: which format each matrix is in, to the byte, and what is refused by name."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st
from msgspec.structs import replace

from flopmap.floor.roofline import price
from flopmap.model.config import ConfigError
from flopmap.model.families import INDEX
from flopmap.model.quantization import Quantization, read_cache_format, read_quantization
from flopmap.model.reading import TEXT_FAMILIES, from_config
from flopmap.precision import element_bytes
from flopmap.records.types import Format
from flopmap.scenario import Request, Scenario, make

if TYPE_CHECKING:
    from flopmap.records.book import Book

CONFIGS = Path(os.environ.get("FLOPMAP_CONFIGS", "no-folder"))  # configs of public checkpoints, kept elsewhere
LLAMA = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 1000,
    "torch_dtype": "bfloat16",
}
ATTENTION, DENSE = 4 * 256 * 256, 3 * 256 * 512  # elements of a layer's matrices
PLAIN = 2 * 1000 * 256 * 2 + 5 * 256 * 2  # bytes of embedding, head and norms in bf16
MIXTURE = LLAMA | {"model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128}


def read(book: Book, config: dict[str, Any] = LLAMA, **settings: Any) -> Quantization:
    checkpoint = from_config(config | {"quantization_config": settings}, "config.json")
    return read_quantization(checkpoint, book, book.record(Format, "bf16"), lambda stored: element_bytes(stored, book))


def scenario(book: Book, path: Path | str, **flags: Any) -> Scenario:
    return make(Request(model=str(path), on="b200", **flags), book)


def resident(book: Book, made: Scenario) -> float:
    return price(made, book).totals["resident"]


def folder(tmp_path: Path, config: dict[str, Any], **settings: Any) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(config | ({"quantization_config": settings} if settings else {})))
    return tmp_path


def groups(weights: dict[str, Any], inputs: dict[str, Any] | None = None) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, "ignore": ["lm_head"]}


def quark(weight: dict[str, Any], inputs: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"quant_method": "quark", "global_quant_config": {"weight": weight, "input_tensors": inputs}, **more}


def torchao(kind: Any, **options: Any) -> dict[str, Any]:
    return {"quant_method": "torchao", "quant_type": kind, "quant_type_kwargs": options}


def hqq(**params: Any) -> dict[str, Any]:
    return {"quant_method": "hqq", "quant_config": {"weight_quant_params": params, "scale_quant_params": None}}


def modelopt(algo: str, **more: Any) -> dict[str, Any]:
    return {"quant_method": "modelopt", "quant_algo": algo, "exclude_modules": ["lm_head"], **more}


FLOAT8, INT8 = {"num_bits": 8, "type": "float"}, {"num_bits": 8, "type": "int"}
NF4 = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
# settings, the record, bits an element with its scales and zero points, what it is multiplied in
UNDERSTOOD: list[tuple[dict[str, Any], str, float, tuple[str, ...]]] = [
    ({"quant_method": "fp8"}, "fp8", 8, ("fp8",)),
    ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8-block", 8 + 32 / 16384, ("fp8",)),
    ({"quant_method": "fp8", "weight_block_size": [1, 128]}, "fp8-block", 8.25, ("fp8",)),
    ({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}, "fp8", 8, ("fp8",)),
    ({"quant_method": "awq", "bits": 4, "group_size": 128}, "awq", 4 + 20 / 128, ()),
    ({"quant_method": "awq", "bits": 4, "group_size": 64}, "awq", 4 + 20 / 64, ()),
    ({"quant_method": "awq", "w_bit": 4, "q_group_size": 32, "zero_point": False}, "awq", 4.5, ()),
    ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": True}, "gptq", 4 + 20 / 128, ()),
    ({"quant_method": "gptq", "bits": 3, "group_size": 32}, "gptq", 3 + 19 / 32, ()),
    ({"quant_method": "gptq", "bits": 8, "group_size": 128}, "gptq", 8 + 24 / 128, ()),
    ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "gptq", 8, ()),
    (groups({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}), "int4-group", 4.125, ()),
    (groups({"num_bits": 4, "type": "int", "group_size": 32, "symmetric": False}), "int4-group", 4 + 20 / 32, ()),
    (groups({"num_bits": 4, "type": "int", "strategy": "channel", "group_size": None}), "int4-group", 4, ()),
    (groups({"num_bits": 8, "type": "int", "strategy": "channel"}), "int8-weight-only", 8, ()),
    (groups({**INT8, "strategy": "channel"}, INT8), "int8", 8, ("int8",)),
    (groups({**FLOAT8, "strategy": "channel"}, FLOAT8), "fp8", 8, ("fp8",)),
    (groups({**FLOAT8, "strategy": "tensor"}), "fp8", 8, ()),
    (
        groups({**FLOAT8, "strategy": "block", "block_structure": [128, 128]}, FLOAT8),
        "fp8-block",
        8 + 32 / 16384,
        ("fp8",),
    ),
    (groups({"num_bits": 4, "type": "float", "group_size": 16}, {"num_bits": 4}), "nvfp4", 4.5, ("fp4",)),
    (groups({"num_bits": 4, "type": "float", "group_size": 16}), "nvfp4", 4.5, ()),
    (groups({"num_bits": 4, "type": "float", "group_size": 32}), "mxfp4", 4.25, ()),
    (groups({"num_bits": 4, "type": "int", "group_size": 128}, FLOAT8), "w4a8", 4.125, ("fp8",)),
    (groups({"num_bits": 4, "type": "int", "group_size": 128}, INT8), "w4a8", 4.125, ("int8",)),
    (modelopt("FP8"), "fp8", 8, ("fp8",)),
    (modelopt("NVFP4", group_size=16), "nvfp4", 4.5, ("fp4",)),
    (modelopt("NVFP4_AWQ", group_size=16), "nvfp4", 4.5, ("fp4",)),
    (modelopt("W4A16_NVFP4", group_size=16), "nvfp4", 4.5, ()),
    (modelopt("W4A8_AWQ", group_size=128), "w4a8", 4.125, ("fp8",)),
    (modelopt("MXFP8"), "mxfp8", 8.25, ("fp8",)),
    ({"quant_algo": "FP8", "ignore": ["lm_head"], "producer": {"name": "modelopt"}}, "fp8", 8, ("fp8",)),
    ({"quant_method": "mxfp4"}, "mxfp4", 4.25, ("fp4",)),
    (NF4, "bnb-nf4", 4.5, ()),
    (NF4 | {"bnb_4bit_use_double_quant": True}, "bnb-nf4-double", 4 + 8 / 64 + 32 / (64 * 256), ()),
    ({"load_in_8bit": True}, "bnb-int8", 8, ("int8",)),
    (torchao("int4_weight_only", group_size=32), "torchao-int4", 5, ()),
    (torchao({"default": {"_type": "Int4WeightOnlyConfig", "_data": {"group_size": 64}}}), "torchao-int4", 4.5, ()),
    (torchao("int8_weight_only"), "int8-weight-only", 8, ()),
    (torchao("int8_dynamic_activation_int8_weight"), "int8", 8, ("int8",)),
    (torchao("float8_weight_only"), "fp8", 8, ()),
    (torchao("float8_dynamic_activation_float8_weight"), "fp8", 8, ("fp8",)),
    (hqq(nbits=4, group_size=64), "hqq", 4.5, ()),
    (hqq(nbits=2, group_size=16), "hqq", 4, ()),
    (quark({"dtype": "fp4", "qscheme": "per_group", "group_size": 32}, {"dtype": "fp4"}), "mxfp4", 4.25, ("fp4",)),
    (quark({"dtype": "fp8_e4m3", "qscheme": "per_tensor"}, {"dtype": "fp8_e4m3"}), "fp8", 8, ("fp8",)),
    (quark({"dtype": "int4", "qscheme": "per_group", "group_size": 128}), "int4-group", 4.125, ()),
]


@pytest.mark.parametrize(("settings", "name", "bits", "math"), UNDERSTOOD, ids=lambda value: str(value)[:60])
def test_a_method_gives_its_format_and_leaves_the_head_alone(
    settings: dict[str, Any], name: str, bits: float, math: tuple[str, ...], book: Book
) -> None:
    found = read(book, **settings)
    assert (found.weights.id, found.weights.math) == (name, math)
    assert element_bytes(found.weights, book) * 8 == pytest.approx(bits, rel=1e-12)
    assert found.stored == {}
    assert found.assumptions == ()


@pytest.mark.parametrize(("method", "bits", "head"), [("exl2", 4.65, 6.0), ("exl3", 2.25, 8.0)])
def test_exllama_states_averages_and_quantises_the_head(method: str, bits: float, head: float, book: Book) -> None:
    found = read(book, quant_method=method, bits=bits, head_bits=head)
    assert found.weights.id == method
    assert element_bytes(found.weights, book) == bits / 8
    assert found.stored == {"lm_head": head / 8}


def test_the_bytes_of_a_small_model_are_exact(tmp_path: Path, book: Book) -> None:
    path = folder(tmp_path, LLAMA)
    assert resident(book, scenario(book, path)) == 2 * (ATTENTION + DENSE) * 2 + PLAIN
    folder(tmp_path, LLAMA, quant_method="gptq", bits=4, group_size=128)
    assert resident(book, scenario(book, path)) == 2 * (ATTENTION + DENSE) * 4.15625 / 8 + PLAIN
    folder(tmp_path, LLAMA, **modelopt("NVFP4", group_size=16, ignore=[]))
    assert resident(book, scenario(book, path)) == 2 * (ATTENTION + DENSE) * 4.5 / 8 + PLAIN
    folder(tmp_path, LLAMA, **modelopt("NVFP4") | {"exclude_modules": ["lm_head", "model.layers.*.self_attn*"]})
    assert resident(book, scenario(book, path)) == 2 * (ATTENTION * 2 + DENSE * 4.5 / 8) + PLAIN


# -- what is left alone -----------------------------------------------------------------------------------------------

OUT = {"attention.qkv": 2.0, "attention.out": 2.0}
KEPT: dict[str, dict[str, float]] = {
    "self_attn": OUT,
    "model.layers.*.self_attn": OUT,
    "*self_attn*": OUT,
    "re:.*self_attn.*": OUT,
    r"re:model\.layers\.\d+\.self_attn\..*_proj": OUT,
    "model.layers.0.self_attn*": {"attention.qkv": 1.5, "attention.out": 1.5},
    "model.layers.0.": {"attention.qkv": 1.5, "attention.out": 1.5, "mlp.gate_up": 1.5, "mlp.down": 1.5},
    "model.layers.0*": {"attention.qkv": 1.5, "attention.out": 1.5, "mlp.gate_up": 1.5, "mlp.down": 1.5},
    "language_model.model.layers.1.mlp.gate_proj": {"mlp.gate_up": 1.25},
    "model.layers.1.self_attn.v_proj": {"attention.qkv": 1 + 1 / 6},
    "re:.*down_proj": {"mlp.down": 2.0},
    "gate": {},
    "model.layers.0.mlp.gate": {},
    "model.layers.1.input_layernorm": {},
    "model.layers.2*": {},
    "model.layers.1": {"attention.qkv": 1.5, "attention.out": 1.5, "mlp.gate_up": 1.5, "mlp.down": 1.5},
    "mtp.layers.0*": {},
    "model.visual*": {},
    "lm_head": {},
    "language_model.lm_head": {},
}


@pytest.mark.parametrize(("name", "stored"), KEPT.items())
def test_a_list_of_modules_is_read_as_engines_read_it(name: str, stored: dict[str, float], book: Book) -> None:
    found = read(book, quant_method="fp8", modules_to_not_convert=[name])
    assert found.weights.id == "fp8"
    assert found.stored == stored
    assert [note.split(":")[0] for note in found.assumptions] == [op for op, size in stored.items() if size != 2.0]


def test_a_mean_over_layers_is_said(book: Book) -> None:
    found = read(book, quant_method="fp8", ignored_layers=["model.layers.0.self_attn.o_proj"])
    assert found.assumptions == ("attention.out: 50% bf16, 50% fp8; its bytes are the mean over its layers",)


def test_all_left_alone_is_the_data_type_of_the_model(book: Book) -> None:
    found = read(book, quant_method="fp8", ignored_layers=["self_attn", "mlp"])
    assert (found.weights.id, found.stored) == ("bf16", {})


def test_mxfp4_quantises_experts_only_and_never_a_router(book: Book) -> None:
    found = read(book, MIXTURE, quant_method="mxfp4", modules_to_not_convert=["lm_head"])
    assert (found.weights.id, found.stored) == ("mxfp4", OUT)


def test_an_expert_is_not_a_dense_feed_forward(book: Book) -> None:
    ignore = ["lm_head", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"]
    settings = groups({"num_bits": 4, "type": "int", "group_size": 32}) | {"ignore": ignore}
    assert read(book, MIXTURE, **settings).stored == {}
    assert read(book, LLAMA, **settings).stored == {"mlp.gate_up": 2.0, "mlp.down": 2.0}


def test_groups_by_targets_are_formats_by_module(book: Book) -> None:
    fp8 = {"targets": ["re:.*self_attn.*"], "weights": FLOAT8, "input_activations": FLOAT8}
    nvfp4 = {"num_bits": 4, "type": "float", "group_size": 16}
    other = {"targets": ["Linear"], "weights": nvfp4, "input_activations": nvfp4}
    found = read(book, quant_method="compressed-tensors", config_groups={"a": fp8, "b": other})
    assert (found.weights.id, found.stored) == ("nvfp4", {"attention.qkv": 1.0, "attention.out": 1.0})


def test_where_a_part_lacks_the_data_type_of_most_the_floor_takes_that_of_the_others(
    tmp_path: Path, book: Book
) -> None:
    # most are NVFP4, attention is FP8; an H100 has FP8 but no FP4, a B200 both, an A100 neither
    fp8 = {"targets": ["re:.*self_attn.*"], "weights": FLOAT8, "input_activations": FLOAT8}
    nvfp4 = {"num_bits": 4, "type": "float", "group_size": 16}
    other = {"targets": ["Linear"], "weights": nvfp4, "input_activations": nvfp4}
    path = folder(tmp_path, LLAMA, quant_method="compressed-tensors", config_groups={"a": fp8, "b": other})
    request = {part: Request(model=str(path), on=part) for part in ("h100-sxm", "b200", "a100-sxm-80gb")}
    math = {part: make(asked, book).precision.math for part, asked in request.items()}
    assert math == {"h100-sxm": "fp8", "b200": "fp4", "a100-sxm-80gb": "bf16"}


def test_mixed_precision_quantises_what_it_lists_and_no_more(book: Book) -> None:
    names = [f"model.layers.{index}.mlp.{name}_proj" for index in (0, 1) for name in ("gate", "up", "down")]
    layers: dict[str, Any] = {name: {"quant_algo": "NVFP4", "group_size": 16} for name in names}
    layers |= {"model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"}, "lm_head": {"quant_algo": "W4A16_NVFP4"}}
    found = read(book, **modelopt("MIXED_PRECISION", quantized_layers=layers) | {"exclude_modules": []})
    assert found.weights.id == "nvfp4"
    assert found.stored == {"attention.qkv": (1 + 2 * 5) / 6, "attention.out": 2.0, "lm_head": 4.5 / 8}
    assert found.assumptions == ("attention.qkv: 17% fp8, 83% bf16; its bytes are the mean over its layers",)


def test_gptq_with_rules_by_module(book: Book) -> None:
    assert read(book, quant_method="gptq", bits=4, dynamic={"-:.*down.*": {}}).stored == {"mlp.down": 2.0}
    assert read(book, quant_method="gptq", bits=4, lm_head=True).stored == {"lm_head": 4.15625 / 8}
    only = [["mlp.gate_proj", "mlp.up_proj"], ["mlp.down_proj"]]
    assert read(book, quant_method="gptq", bits=4, modules_in_block_to_quantize=only).stored == OUT


def test_quark_by_layers(book: Book) -> None:
    mlp = {"*.mlp.*": {"weight": {"dtype": "fp4", "group_size": 32}, "input_tensors": {"dtype": "fp4"}}}
    found = read(book, **quark({"dtype": "fp8_e4m3", "qscheme": "per_channel"}, layer_quant_config=mlp))
    assert (found.weights.id, found.stored) == ("mxfp4", {"attention.qkv": 1.0, "attention.out": 1.0})


def test_the_users_format_goes_before_the_configs(tmp_path: Path, book: Book) -> None:
    path = folder(tmp_path, LLAMA, quant_method="aqlm", kv_cache_scheme="odd")
    made = scenario(book, path, quantization="q4_k")
    assert (made.precision.weights.id, made.precision.kv.id, made.precision.stored) == ("q4_k", "bf16", {})


# -- ModelOpt's own file, and the cache -------------------------------------------------------------------------------


def test_a_file_beside_the_config_says_the_same(tmp_path: Path, book: Book) -> None:
    path = folder(tmp_path, LLAMA)
    settings = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
    (path / "hf_quant_config.json").write_text(json.dumps({"producer": {}, "quantization": settings}))
    made = scenario(book, path)
    assert (made.precision.weights.id, made.precision.kv.id) == ("fp8", "fp8")
    assert "KV cache fp8: the checkpoint's quantization_config asks for it" in made.assumptions
    assert scenario(book, path / "config.json").precision.weights.id == "fp8"
    assert scenario(book, path, kv_cache_dtype="bf16").precision.kv.id == "bf16"
    folder(tmp_path, LLAMA, quant_method="awq", bits=4)
    assert scenario(book, path).precision.weights.id == "awq"  # the config's own settings go first


CACHES: list[tuple[dict[str, Any], str | None]] = [
    ({"kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": False}}, "fp8"),
    ({"kv_cache_scheme": {"num_bits": 8, "type": "int"}}, "int8"),
    ({"kv_cache_scheme": "FP8"}, "fp8"),
    ({"kv_cache_quant_algo": "FP8"}, "fp8"),
    ({"kv_cache_quant_algo": None, "kv_cache_scheme": None}, None),
    ({"quant_method": "quark", "kv_cache_quant_config": {"*k_proj": {"output_tensors": {"dtype": "fp8_e4m3"}}}}, "fp8"),
    ({"quant_method": "quark", "kv_cache_quant_config": {}}, None),
]


@pytest.mark.parametrize(("settings", "name"), CACHES, ids=str)
def test_the_cache_is_in_the_format_that_the_checkpoint_asks_for(
    settings: dict[str, Any], name: str | None, book: Book
) -> None:
    found = read_cache_format(from_config(LLAMA | {"quantization_config": settings}, "config.json"), book)
    assert (found and found.id) == name


def test_a_cache_that_is_not_understood_can_be_named(tmp_path: Path, book: Book) -> None:
    path = folder(tmp_path, LLAMA, quant_method="fp8", kv_cache_quant_algo="NVFP4")
    with pytest.raises(ConfigError) as refusal:
        scenario(book, path)
    assert str(refusal.value) == (
        f"{path}/config.json: quantization_config: a KV cache of 'NVFP4' is not understood (understood: FP8, INT8); "
        "name the cache's format with --kv-cache-dtype"
    )
    assert scenario(book, path, kv_cache_dtype="fp8").precision.kv.id == "fp8"


# -- refusals ---------------------------------------------------------------------------------------------------------

NAME_IT = "; name the weights' format with --quantization"
METHODS = (
    "awq, bitsandbytes, compressed-tensors, exl2, exl3, fbgemm_fp8, fp8, gptq, hqq, modelopt, mxfp4, quark, torchao"
)
FLOATS = "float of 8 bits, of 4 bits in groups of 16 or 32, int of 2 to 8 bits"
TORCHAO = (
    "int4_weight_only, int8_weight_only, int8_dynamic_activation_int8_weight, float8_weight_only, "
    "float8_dynamic_activation_float8_weight"
)
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"quant_method": "aqlm"}, f"'aqlm' is not understood (understood: {METHODS}){NAME_IT}"),
    ({"bits": 4}, f"null is not understood (understood: {METHODS}){NAME_IT}"),
    (
        {"quant_method": "gptq", "bits": 7},
        f"gptq with bits 7 is not understood (understood: 2, 3, 4, 5, 6, 8){NAME_IT}",
    ),
    ({"quant_method": "awq", "bits": 2}, f"awq with bits 2 is not understood (understood: 4, 8){NAME_IT}"),
    (
        {"quant_method": "gptq", "bits": 4, "dynamic": {"+:.*down.*": {"bits": 8}}},
        "gptq with the dynamic rule '+:.*down.*' is not understood (understood: rules that begin with -:)" + NAME_IT,
    ),
    (
        {"quant_method": "bitsandbytes"},
        "bitsandbytes without load_in_4bit or load_in_8bit is not understood (understood: load_in_4bit, load_in_8bit)"
        + NAME_IT,
    ),
    (
        NF4 | {"bnb_4bit_quant_type": "nf3"},
        f"bitsandbytes with bnb_4bit_quant_type 'nf3' is not understood (understood: nf4, fp4){NAME_IT}",
    ),
    (
        torchao("fpx_weight_only"),
        f"torchao with quant_type 'fpx_weight_only' is not understood (understood: {TORCHAO}){NAME_IT}",
    ),
    (hqq(nbits=5), f"weight_quant_params: nbits 5 is not understood (understood: 1, 2, 3, 4, 8){NAME_IT}"),
    (
        groups({"num_bits": 3, "type": "float", "group_size": 32}),
        f"compressed-tensors with num_bits 3, type 'float', group_size 32 is not understood (understood: {FLOATS})"
        + NAME_IT,
    ),
    (
        groups(FLOAT8) | {"sparsity_config": {"format": "sparse-24-bitmask"}},
        "compressed-tensors with sparse weights (sparsity_config) is not understood (understood: dense weights)"
        + NAME_IT,
    ),
    (
        {"quant_method": "compressed-tensors"},
        "compressed-tensors without config_groups is not understood (understood: config_groups)" + NAME_IT,
    ),
    (
        quark({"dtype": "int3"}),
        "quark with weights of 'int3' is not understood (understood: fp8_e4m3, int8, int4, uint4, fp4, mxfp4, fp8)"
        + NAME_IT,
    ),
    (
        {"quant_method": "fp8", "modules_to_not_convert": ["re:(a+)+b"]},
        f"the expression '(a+)+b' is not understood{NAME_IT}",
    ),
    ({"quant_method": "fp8", "modules_to_not_convert": ["re:(a"]}, f"the expression '(a' is not understood{NAME_IT}"),
    (
        {"quant_method": "fp8", "modules_to_not_convert": ["a." * 5_000_000]},
        f"a name of 10000000 characters ('{'a.' * 28}...) is not understood{NAME_IT}",
    ),
    (
        {"quant_method": "fp8", "modules_to_not_convert": ["*x*"] * 5000},
        f"more than 4000 wildcards and expressions is not understood{NAME_IT}",
    ),
    (
        {"quant_method": "gptq", "modules_in_block_to_quantize": 3},
        "modules_in_block_to_quantize: 3 is not a list of lists of strings",
    ),
    ({"quant_method": "fp8", "weight_block_size": [128]}, "weight_block_size: [128] is not two whole numbers"),
    ({"quant_method": "fp8", "modules_to_not_convert": 3}, "modules_to_not_convert: 3 is not a list of strings"),
    (
        {"quant_method": "compressed-tensors", "config_groups": {"a": 3}},
        "config_groups.a: 3 is not a table",
    ),
    (modelopt("MIXED_PRECISION", quantized_layers={"x": 3}), "quantized_layers: 3 is not a table"),
    (
        {"quant_method": "awq", "group_size": 0},
        "group_size: 0 is out of range (accepted: 1 to 2147483647)",
    ),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED, ids=lambda value: str(value)[:60])
def test_what_is_not_understood_is_refused_by_name(settings: dict[str, Any], message: str, book: Book) -> None:
    with pytest.raises(ConfigError) as refusal:
        read(book, **settings)
    assert str(refusal.value) == f"config.json: quantization_config: {message}"


def test_modelopt_names_every_algorithm_it_knows(book: Book) -> None:
    with pytest.raises(ConfigError) as refusal:
        read(book, **modelopt("Q4"))
    assert str(refusal.value).startswith(
        "config.json: quantization_config: modelopt with quant_algo 'Q4' is not understood (understood: FP8, "
    )
    assert str(refusal.value).endswith(f"){NAME_IT}")


# every name that a method asks for, with values of every kind
WORDS = (*METHODS.split(", "), "FP8", "NVFP4", "float", "int", "group", "Linear", "lm_head", "layers.0*", "re:.*", "*")
# fmt: off
FIELDS = (
    "bits", "group_size", "sym", "zero_point", "weight_block_size", "modules_to_not_convert", "ignored_layers",
    "dynamic", "lm_head", "ignore", "config_groups", "weights", "input_activations", "targets", "num_bits", "type",
    "strategy", "symmetric", "block_structure", "load_in_4bit", "load_in_8bit", "quant_type", "quant_type_kwargs",
    "quant_config", "weight_quant_params", "nbits", "skip_modules", "head_bits", "quant_algo", "quantized_layers",
    "exclude_modules", "global_quant_config", "layer_quant_config", "weight", "dtype", "qscheme", "exclude",
    "kv_cache_scheme", "kv_cache_quant_algo", "kv_cache_quant_config", "modules_in_block_to_quantize",
    "sparsity_config", "expert_dtype",
)
# fmt: on
LEAVES = st.none() | st.booleans() | st.integers(-2, 300) | st.floats() | st.sampled_from(WORDS) | st.text(max_size=9)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5)
)


@limits(max_examples=200, deadline=None)
@given(
    method=st.sampled_from(WORDS[:13]),
    fields=st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6),
)
def test_any_settings_are_read_or_refused_in_one_line(method: str, fields: dict[str, Any], book: Book) -> None:
    checkpoint = from_config(MIXTURE | {"quantization_config": {"quant_method": method} | fields}, "config.json")
    bf16 = book.record(Format, "bf16")
    message, sizes = "", [1.0]
    try:
        found = read_quantization(checkpoint, book, bf16, lambda stored: element_bytes(stored, book))
        read_cache_format(checkpoint, book)
        sizes = [element_bytes(found.weights, book), *found.stored.values()]
    except ConfigError as error:
        message = str(error)
    assert message == "" or message.startswith("config.json: quantization_config: ")
    assert message.isprintable()
    assert all(0 < size < 1e12 for size in sizes)


# -- GGUF -------------------------------------------------------------------------------------------------------------

# elements and bytes of a block (ggml/src/ggml-common.h)
BLOCKS = {
    "q4_0": (32, 18),
    "q4_1": (32, 20),
    "q5_0": (32, 22),
    "q5_1": (32, 24),
    "q8_0": (32, 34),
    "q2_k": (256, 84),
    "q3_k": (256, 110),
    "q4_k": (256, 144),
    "q5_k": (256, 176),
    "q6_k": (256, 210),
    "iq1_s": (256, 50),
    "iq1_m": (256, 56),
    "iq2_xxs": (256, 66),
    "iq2_xs": (256, 74),
    "iq2_s": (256, 82),
    "iq3_xxs": (256, 98),
    "iq3_s": (256, 110),
    "iq4_nl": (32, 18),
    "iq4_xs": (256, 136),
    "tq1_0": (256, 54),
    "tq2_0": (256, 66),
    "mxfp4": (32, 17),
}


@pytest.mark.parametrize(("name", "block"), BLOCKS.items())
def test_a_block_of_a_gguf_type_has_its_bytes(name: str, block: tuple[int, int], book: Book) -> None:
    elements, size = block
    assert elements * element_bytes(book.record(Format, name), book) == size


# -- real checkpoints -------------------------------------------------------------------------------------------------


def published(tmp_path: Path, name: str) -> Path:
    """A folder with the config of a public checkpoint, and ModelOpt's file where there is one."""
    source = CONFIGS / f"{name}_config.json"
    if not source.exists():
        pytest.skip("FLOPMAP_CONFIGS names no folder with it")
    shutil.copy(source, tmp_path / "config.json")
    beside = CONFIGS / f"{name}_hf_quant_config.json"
    if beside.exists():
        shutil.copy(beside, tmp_path / "hf_quant_config.json")
    fields = json.loads(source.read_text())
    family = fields.get("model_type")
    inner = fields.get("text_config", {}).get("model_type", TEXT_FAMILIES.get(family))
    if family not in INDEX and inner not in INDEX:
        pytest.skip(f"the family {family} is not read")
    return tmp_path


# total_size of the checkpoint's index
@pytest.mark.parametrize(("size", "total"), [("120b", 65_248_815_744), ("20b", 13_761_264_768)])
def test_gpt_oss_is_as_large_as_its_files(size: str, total: int, tmp_path: Path, book: Book) -> None:
    made = scenario(book, published(tmp_path, f"openai--gpt-oss-{size}"))
    assert made.precision.stored == OUT  # experts in MXFP4, the rest in bf16
    assert resident(book, made) == total


@pytest.mark.parametrize(("rest", "gigabytes"), [("mxfp4", 2.7), ("q8_0", 3.5), ("bf16", 5.0)])
def test_bytes_of_a_token_of_gpt_oss_120b_depend_on_what_is_not_an_expert(
    rest: str, gigabytes: float, tmp_path: Path, book: Book
) -> None:
    made = scenario(book, published(tmp_path, "openai--gpt-oss-120b"), batch_size=1)
    width = element_bytes(book.record(Format, rest), book)
    stored = dict.fromkeys(("attention.qkv", "attention.out", "lm_head"), width)
    step = price(replace(made, precision=replace(made.precision, stored=stored)), book)
    assert int(step.totals["weights"] / 1e8) / 10 == gigabytes  # the published figures are cut, not rounded
    experts = 36 * 4 * 3 * 2880 * 2880 * 4.25 / 8  # 4 of 128 in each of 36 layers
    others = 36 * 2880 * (64 * 64 * 2 + 2 * 8 * 64) + 2880 * 201_088
    assert step.totals["weights"] == pytest.approx(experts + others * width, rel=0.02)


# parameters in billions (the name's, or the model card's), and bits of nearly all of them
SIZES = {
    "Qwen--Qwen3-235B-A22B-FP8": (235, 8),
    "Qwen--Qwen3-30B-A3B-FP8": (30.5, 8),
    "Qwen--Qwen3-32B-FP8": (32.8, 8),
    "Qwen--Qwen3-32B-FP8-Static-PerTensor": (32.8, 8),
    "MiniMaxAI--MiniMax-M2.5": (229, 8),
    "deepseek-ai--DeepSeek-V3": (671, 8),
    "deepseek-ai--DeepSeek-V3.2": (671, 8),
    "moonshotai--Kimi-K2-Instruct": (1026, 8),
    "moonshotai--Kimi-K2.5": (1026, 4.5),
    "nvidia--DeepSeek-V3.1-NVFP4": (671, 4.5),
    "nvidia--DeepSeek-V3.2-NVFP4": (671, 4.5),
    "nvidia--Kimi-K2.5-NVFP4": (1026, 4.5),
    "nvidia--Kimi-K2.6-NVFP4": (1026, 4.5),
    "nvidia--Llama-3.1-70B-Instruct-FP8": (70.6, 8),
    "nvidia--MiniMax-M2.5-NVFP4": (229, 4.5),
    "nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-FP8": (550, 8),
    "nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4": (550, 4.5),
    "nvidia--Qwen3-235B-A22B-NVFP4": (235, 4.5),
    "zai-org--GLM-5-FP8": (744, 8),
    "zai-org--GLM-5.1-FP8": (744, 8),
}


@pytest.mark.parametrize(("name", "size"), SIZES.items())
def test_a_checkpoint_is_about_as_large_as_its_name_says(
    name: str, size: tuple[float, float], tmp_path: Path, book: Book
) -> None:
    billions, bits = size
    assert resident(book, scenario(book, published(tmp_path, name))) == pytest.approx(
        billions * 1e9 * bits / 8, rel=0.05
    )


def test_deepseek_v3_without_its_mtp_layer_is_as_large_as_its_files(tmp_path: Path, book: Book) -> None:
    total = 688_586_727_753  # of the index, with the layer for the next token but one
    expert, attention, tables = 3 * 7168 * 2048, 187_107_328, 2 * 129_280 * 7168
    mtp = 257 * expert + attention + 2 * 2 * 7168 * 7168 + 2 * 256 * 7168 + 2 * tables
    made = scenario(book, published(tmp_path, "deepseek-ai--DeepSeek-V3"))
    assert resident(book, made) == pytest.approx(total - mtp, rel=1e-3)


NAMES = sorted(
    path.name.removesuffix("_config.json")
    for path in CONFIGS.glob("*_config.json")
    if not path.name.endswith("_hf_quant_config.json") and ("FP4" in path.name or "FP8" in path.name)
)


@pytest.mark.parametrize("name", NAMES)
def test_every_public_checkpoint_of_a_family_that_is_read_is_priced(name: str, tmp_path: Path, book: Book) -> None:
    path = published(tmp_path, name)
    try:
        made = scenario(book, path)
    except ConfigError as error:
        if "quantization_config" in str(error) or NAME_IT in str(error):
            raise
        pytest.skip(str(error).removeprefix(str(path)))
    general = element_bytes(made.precision.weights, book)
    assert made.precision.weights.id in (("nvfp4",) if "NVFP4" in name else ("fp8", "fp8-block"))
    parameters = price(made, book).totals["parameters"]
    assert general * parameters < resident(book, made) < 0.75 * 2 * parameters
    assert made.precision.stored.get("lm_head", 4.5 / 8) == 4.5 / 8  # a head is in bf16 or listed
