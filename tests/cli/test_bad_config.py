"""A config file that is wrong: one line that names the file, the field, the value and what is accepted; exit code 1."""

from __future__ import annotations

import json
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pytest

from flopmap.model.families import KNOWN
from tests.cli.support import TINY, flopmap, refused, text, write_config

COUNT = len(KNOWN)
ACTIVATIONS = "relu, relu2, silu, swish, gelu, gelu_new, gelu_fast, gelu_pytorch_tanh, gelu_tanh, quick_gelu"
HEADS = (
    "names that end in MTModel, ForCausalLM, ForConditionalGeneration, GenerationDecoder, LMHeadModel, "
    "ModelWithLMHead, ForMaskedLM, ForSequenceClassification, Model"
)
RANGE = "(accepted: 1 to 2147483647)"
DIGITS = 10**299  # written with 300 digits

NOT_JSON = {
    "empty": (b"", "Input data was truncated"),
    "truncated": (b'{"model_type": "llama", "hidden_si', "Input data was truncated"),
    "binary": (b"\x00\x01\xff\xfe" * 10, "JSON is malformed: invalid character (byte 0)"),
    "utf-16": ('{"model_type": "llama"}'.encode("utf-16"), "JSON is malformed: invalid character (byte 0)"),
    "yaml": (b"model_type: llama\n", "JSON is malformed: invalid character (byte 0)"),
    "two values": (b"{} {}", "JSON is malformed: trailing characters (byte 4)"),
    "NaN and a fault": (b'{"hidden_size": NaN', "JSON is malformed: invalid character (byte 16)"),
    "bad utf-8": (b'{"model_type": "\xff"}', None),
    "100,000 brackets": (b"[" * 100_000, "nested too deeply"),
    "100,000 closed brackets": (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
    "100,000 objects": (b'{"a": ' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
}
NO_OBJECT = {"[1, 2]": "[1, 2]", "3": "3", "null": "null", '"llama"': "'llama'", "true": "true"}
WRONG_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"hidden_size": -1}, f"hidden_size: -1 is out of range {RANGE}"),
    ({"hidden_size": 0}, f"hidden_size: 0 is out of range {RANGE}"),
    ({"hidden_size": 2**31}, f"hidden_size: 2147483648 is out of range {RANGE}"),
    ({"hidden_size": 1.5}, f"hidden_size: 1.5 is not a whole number {RANGE}"),
    ({"hidden_size": "64"}, f"hidden_size: '64' is not a whole number {RANGE}"),
    ({"hidden_size": True}, f"hidden_size: true is not a whole number {RANGE}"),
    ({"hidden_size": [64]}, f"hidden_size: [64] is not a whole number {RANGE}"),
    ({"hidden_size": {}}, f"hidden_size: {{}} is not a whole number {RANGE}"),
    ({"hidden_size": 1e300}, f"hidden_size: 1e+300 is not a whole number {RANGE}"),
    ({"hidden_size": DIGITS}, f"hidden_size: 1{'0' * 56}... is out of range {RANGE}"),
    # Python writes these into JSON, and real configs hold an Infinity in fields that do not matter here
    ({"hidden_size": float("nan")}, f"hidden_size: nan is not a whole number {RANGE}"),
    ({"hidden_size": float("inf")}, f"hidden_size: inf is not a whole number {RANGE}"),
    ({"hidden_size": None}, "hidden_size: is missing (a whole number from 1 to 2147483647 is needed)"),
    ({"vocab_size": None}, "vocab_size: is missing (a whole number from 1 to 2147483647 is needed)"),
    ({"vocab_size": False}, f"vocab_size: false is not a whole number {RANGE}"),
    ({"intermediate_size": 0}, f"intermediate_size: 0 is out of range {RANGE}"),
    ({"num_hidden_layers": 5000}, "num_hidden_layers: 5000 is out of range (accepted: 1 to 4096)"),
    ({"num_hidden_layers": 0}, "num_hidden_layers: 0 is out of range (accepted: 1 to 4096)"),
    ({"num_attention_heads": "4"}, f"num_attention_heads: '4' is not a whole number {RANGE}"),
    ({"num_key_value_heads": 0}, f"num_key_value_heads: 0 is out of range {RANGE}"),
    ({"num_key_value_heads": 3}, "num_key_value_heads: 3 does not divide num_attention_heads 4"),
    ({"num_key_value_heads": 8}, "num_key_value_heads: 8 does not divide num_attention_heads 4"),
    ({"head_dim": -8}, f"head_dim: -8 is out of range {RANGE}"),
    ({"hidden_size": 65}, "num_attention_heads: 4 does not divide hidden_size 65, and head_dim is not given"),
    ({"layer_types": ["full_attention"]}, "layer_types: has 1 entries for 2 layers"),
    (
        {"layer_types": ["full_attention", "mamba"]},
        "layer_types: 'mamba' is not understood (understood: full_attention, sliding_attention)",
    ),
    ({"layer_types": "full_attention"}, "layer_types: 'full_attention' is not a list of strings"),
    ({"layer_types": [1, 2]}, "layer_types: [1, 2] is not a list of strings"),
    ({"hidden_act": "magic"}, f"hidden_act: 'magic' is not understood (understood: {ACTIVATIONS})"),
    ({"hidden_activation": "magic"}, f"hidden_activation: 'magic' is not understood (understood: {ACTIVATIONS})"),
    ({"hidden_act": 3}, "hidden_act: 3 is not a string"),
    ({"tie_word_embeddings": "yes"}, "tie_word_embeddings: 'yes' is not true or false"),
    ({"attention_bias": 1}, "attention_bias: 1 is not true or false"),
    ({"partial_rotary_factor": -1}, "partial_rotary_factor: -1 is not a positive number"),
    ({"rope_parameters": 3}, "rope_parameters: 3 is not a table"),
    ({"text_config": "llama"}, "text_config: 'llama' is not a table"),
    (
        {"torch_dtype": "float8"},
        "torch_dtype: 'float8' is not understood (understood: bfloat16, float16, float32, half)",
    ),
    (
        {"torch_dtype": None, "dtype": "int3"},
        "dtype: 'int3' is not understood (understood: bfloat16, float16, float32, half)",
    ),
    ({"torch_dtype": 3}, "torch_dtype: 3 is not a string"),
    (
        {"model_type": "llamaa"},
        (
            f"model_type: 'llamaa' is not understood; nearest: {', '.join(get_close_matches('llamaa', KNOWN, n=3))} "
            f"(all {COUNT} families: flopmap models --families)"
        ),
    ),
    (
        {"model_type": "zzz"},
        f"model_type: 'zzz' is not understood (all {COUNT} families: flopmap models --families)",
    ),
    ({"model_type": 3}, "model_type: 3 is not a string"),
    ({"model_type": None}, "model_type: is missing, so this is no model config that is understood"),
    (
        {"architectures": ["LlamaForTokenClassification"]},
        f"architectures: 'LlamaForTokenClassification' is not understood (understood: {HEADS})",
    ),
    (
        {"architectures": ["LlamaForQuestionAnswering"]},
        f"architectures: 'LlamaForQuestionAnswering' is not understood (understood: {HEADS})",
    ),
    ({"architectures": "LlamaForCausalLM"}, "architectures: 'LlamaForCausalLM' is not a list of strings"),
    ({"quantization_config": "awq"}, "quantization_config: 'awq' is not a table"),
]
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_intermediate_size", "kv_lora_rank")


def refused_file(path: str, message: str, code: int = 1) -> None:
    refused(code, f"flopmap why: error: {path}: {message}", "why", path, "--on", "h100-sxm", "--json")


@pytest.mark.parametrize("kind", NOT_JSON)
def test_a_file_that_is_not_json(kind: str, tmp_path: Path) -> None:
    content, reason = NOT_JSON[kind]
    path = tmp_path / "config.json"
    path.write_bytes(content)
    if reason is not None:
        refused_file(str(path), f"not JSON: {reason}")
    answer = flopmap("why", str(tmp_path), "--on", "h100")
    assert answer.code == 1
    assert answer.out == ""
    assert answer.err.startswith(f"flopmap why: error: {path}: not JSON: ")
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize(("content", "shown"), NO_OBJECT.items())
def test_json_that_is_no_object(content: str, shown: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(content)
    refused_file(str(path), f"{shown} is no model config (a JSON object is needed)")


@pytest.mark.parametrize("content", ["{}", '{"name": "left-pad", "version": "1.0.0"}'])
def test_an_object_that_is_no_config(content: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(content)
    refused_file(str(path), "model_type: is missing, so this is no model config that is understood")


@pytest.mark.parametrize(
    ("changes", "message"), WRONG_FIELDS, ids=[json.dumps(changes)[:60] for changes, _ in WRONG_FIELDS]
)
def test_a_wrong_field(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    refused_file(write_config(tmp_path, **changes), message)


@pytest.mark.parametrize("field", EXPERTS)
def test_experts_and_latent_attention_in_a_dense_family(field: str, tmp_path: Path) -> None:
    message = f"{field}: experts or latent attention in a 'llama' config are not understood"
    refused_file(write_config(tmp_path, **{field: 8}), message)


@pytest.mark.parametrize("field", ["model_type", "hidden_act", "torch_dtype"])
def test_a_long_value_is_cut(field: str, tmp_path: Path) -> None:
    path = write_config(tmp_path, **{field: "x" * 500})
    answer = flopmap("why", path, "--on", "h100")
    assert answer.code == 1
    assert answer.err.startswith(f"flopmap why: error: {path}: {field}: '{'x' * 56}... is not understood (")
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize("changes", [{"architectures": ["a\nb" * 99]}, {"layer_types": ["a\nb" * 99, "c"]}])
def test_a_value_of_several_lines_stays_on_one(changes: dict[str, Any], tmp_path: Path) -> None:
    answer = flopmap("why", write_config(tmp_path, **changes), "--on", "h100")
    assert answer.code == 1
    assert answer.err.count("\n") == 1
    assert len(answer.err) < 350 + len(str(tmp_path))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"quant_method": "magic"}, ["magic"]),
        ({"quant_method": "aqlm", "nbits_per_codebook": 16}, ["aqlm"]),
        ({"bits": 4}, ["null"]),
        ({"quant_method": ["a"]}, ["['a']"]),
        ({"quant_method": {}}, ["{}"]),
        ({"quant_method": "a\nb" * 99}, ["a\\nb"]),
    ],
    ids=["unknown", "aqlm", "no method", "a list", "an object", "several lines"],
)
def test_a_quantization_that_is_not_understood(settings: dict[str, Any], named: list[str], tmp_path: Path) -> None:
    path = write_config(tmp_path, quantization_config=settings)
    answer = flopmap("why", path, "--on", "h100-sxm", "--json")
    assert answer.code == 1
    assert answer.out == ""
    assert answer.err.startswith(f"flopmap why: error: {path}: quantization_config: ")
    assert answer.err.endswith("; name the weights' format with --quantization\n")
    assert answer.err.count("\n") == 1
    assert all(word in answer.err for word in (*named, "is not understood (understood: awq", "fp8", "gptq", "mxfp4"))
    assert text("why", path, "--on", "h100-sxm", "--quantization", "awq")


@pytest.mark.parametrize(
    ("settings", "weights"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8-block"),
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "awq"),
        ({"quant_method": "awq", "bits": 4, "group_size": 32}, "awq"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "gptq"),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1, "desc_act": True}, "gptq"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({}, None),
        (None, None),
    ],
    ids=str,
)
def test_a_quantization_that_is_understood(settings: Any, weights: str | None, tmp_path: Path) -> None:
    path = write_config(tmp_path, quantization_config=settings)
    answer = flopmap("why", path, "--on", "h100-sxm", "--json")
    assert answer.code == 0
    assert json.loads(answer.out)["scenario"]["quantization"] == weights


def test_a_config_of_100_mb_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(100_000_000)
    refused_file(str(path), "100000000 bytes is too large for a config (at most 10000000)")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="this system has no endless file")
def test_an_endless_file_is_refused() -> None:
    import resource

    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (4 * 2**30, limits[1]))  # so that a reader without a bound fails here
    try:
        refused_file("/dev/zero", "too large for a config (at most 10000000 bytes)")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def test_weight_files_that_are_cut_or_alone(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    refused_file(str(path), "truncated or wrong: the version of 4 bytes, and 0 are left")
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"GGUF")
    needed = f"{tmp_path}/config.json is needed, since safetensors do not say what the architecture is"
    refused_file(str(path), needed)


def test_a_folder_in_the_place_of_the_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    answer = flopmap("why", str(tmp_path), "--on", "h100")
    assert answer.code == 1
    assert answer.err == f"flopmap why: error: {tmp_path}/config.json: cannot be read: Is a directory\n"


def test_a_config_without_fields_that_have_defaults_is_fine(tmp_path: Path) -> None:
    fields = {key: value for key, value in TINY.items() if key not in ("architectures", "num_key_value_heads")}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(fields))
    assert flopmap("why", str(path), "--on", "h100").code == 0


def test_an_explicit_head_dim_needs_no_division(tmp_path: Path) -> None:
    path = write_config(tmp_path, hidden_size=65, head_dim=16)
    assert flopmap("why", path, "--on", "h100").code == 0


def test_the_largest_config_that_is_allowed_is_priced(tmp_path: Path) -> None:
    most = 2**31 - 1
    sizes = {"hidden_size": most, "head_dim": most, "intermediate_size": most, "vocab_size": most}
    heads = {"num_attention_heads": most, "num_key_value_heads": 1, "num_hidden_layers": 4096}
    path = write_config(tmp_path, **sizes, **heads)
    answer = flopmap("why", path, "--on", "h100", "--batch-size", "1000000000", "--context-len", "1000000000")
    assert answer.code == 0
    assert answer.out.startswith("Does not fit: ")
    assert "inf" not in answer.out
    assert "nan" not in answer.out
