"""GGUF files: exact bytes from their headers, architectures from their metadata, and hostile files refused."""

from __future__ import annotations

import math
import os
import struct
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flopmap.model.architecture import Attention, LatentAttention
from flopmap.model.config import ConfigError
from flopmap.model.gguf import TYPES, read_file
from flopmap.model.gguf_model import ARCHITECTURES, read_gguf
from flopmap.model.reading import from_config, read_model
from tests.cli.support import data, refused
from tests.model.gguf_writer import (
    ALIGNMENT,
    Typed,
    Weight,
    header,
    llama_metadata,
    llama_weights,
    start,
    tensor,
    text,
    write,
)
from tests.physics.support import LLAMA_8B, priced, scenario_of

if TYPE_CHECKING:
    from pathlib import Path

    from flopmap.records.book import Book

EIGHT_B: dict[str, Any] = {
    "layers": 32,
    "hidden": 4096,
    "width": 14336,
    "heads": 32,
    "keys": 8,
    "vocab": 128_256,
}
SMALL: dict[str, Any] = {"layers": 8, "hidden": 512, "width": 1024, "heads": 8, "keys": 2, "vocab": 1000}


@pytest.fixture(scope="module")
def eight_b(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Llama 3.1 8B in the layout of Q4_K_M, with its vocabulary; 4.9 GB that are a hole in the file."""
    tokens = {"tokenizer.ggml.tokens": [f"t{index}" for index in range(128_256)]}
    metadata = {**llama_metadata(**EIGHT_B), **tokens}
    return write(tmp_path_factory.mktemp("gguf") / "llama.gguf", metadata, llama_weights(**EIGHT_B))


def small(folder: Path, weights: list[Weight] | None = None, **changes: Any) -> str:
    """A small Llama with keys of its metadata changed (None leaves one out)."""
    metadata = {**llama_metadata(**SMALL), **{name.replace("__", "."): value for name, value in changes.items()}}
    kept = {key: value for key, value in metadata.items() if value is not None}
    return write(folder / "model.gguf", kept, llama_weights(**SMALL) if weights is None else weights)


# -- bytes ------------------------------------------------------------------------------------------------------------


def test_the_tensors_of_an_8b_in_q4_k_m_have_the_bytes_that_such_files_have(eight_b: str) -> None:
    tensors = read_file(eight_b).tensors
    # 4.92 GB with the tokens and merges, which are 8 MB in such files
    assert sum(one.nbytes for one in tensors) == 4_912_898_304
    by_name = {one.name: one for one in tensors}
    assert by_name["token_embd.weight"].nbytes == 128_256 * 4096 // 256 * 144
    assert by_name["output.weight"].nbytes == 128_256 * 4096 // 256 * 210
    assert sum(one.dtype == "Q6_K" for one in tensors) == 16 + 16 + 1


def test_what_it_holds_in_memory_is_the_file_but_for_norms_in_half_their_bytes(eight_b: str, book: Book) -> None:
    norms, rotary = (2 * 32 + 1) * 4096, 64
    held = priced(book, eight_b).totals["resident"]
    assert held == 4_912_898_304 - norms * (4 - 2) - rotary * 4
    assert read_model(eight_b, book).assumptions == (
        "data type fp16: a GGUF file names none, and llama.cpp keeps its cache in fp16",
        "weights as in the file: 4.913 GB (74.4% Q4_K, 25.6% Q6_K, under 0.1% F32), 4.89 bits a parameter",
        "256.0 B of the file are not counted: no op of a decoder step holds them (from 'rope_freqs.weight' on)",
        "266240 parameters of norms, biases and routers (1.065 MB in the file) count as fp16",
    )


def test_its_architecture_is_that_of_the_config(eight_b: str, book: Book) -> None:
    assert read_model(eight_b, book).architecture == read_model(LLAMA_8B, book).architecture
    assert priced(book, eight_b).totals["parameters"] == 8_030_261_248


def test_a_decode_step_reads_each_matrix_in_its_own_bytes(eight_b: str, book: Book) -> None:
    lines = {line.line.op.name: line.costs for line in priced(book, eight_b).lines}
    down = 14336 * 4096
    assert lines["mlp.down"]["weights"] == 16 * down * 0.5625 + 16 * down * 0.8203125
    assert lines["mlp.gate_up"]["weights"] == 32 * 2 * down * 0.5625
    assert lines["lm_head"]["weights"] == 128_256 * 4096 * 0.8203125
    assert lines["embedding"]["weights"] == 4096 * 0.5625  # the row of one token


def test_the_command_line_reads_it(eight_b: str) -> None:
    answer = data("why", eight_b, "--on", "rtx-4090")
    assert answer["memory"]["weight_bytes"] == pytest.approx(4.912e9, rel=1e-3)
    assert answer["memory"]["fits"]


def test_its_matrices_multiply_as_fast_as_its_types_may(eight_b: str, book: Book) -> None:
    # llama.cpp multiplies Q4_K by activations of 8 bits: 661 TOPS, against 330 TFLOPS in half precision
    made = scenario_of(book, eight_b, on="rtx-4090")
    assert (made.precision.weights.id, made.precision.math) == ("q4_k", "int8")
    asked = scenario_of(book, LLAMA_8B, on="rtx-4090", dtype="fp16", quantization="q4_k")
    assert made.precision.math == asked.precision.math


def test_a_format_that_is_asked_for_wins_over_the_file(eight_b: str, book: Book) -> None:
    whole = priced(book, eight_b, quantization="fp8").totals["resident"]
    assert whole == priced(book, LLAMA_8B, dtype="fp16", quantization="fp8").totals["resident"]


@pytest.mark.parametrize("number", sorted(TYPES))
def test_every_type_has_the_bytes_of_its_blocks(number: int, tmp_path: Path) -> None:
    _, block, block_bytes = TYPES[number]
    size = 3 * block_bytes
    raw = start(1, 0) + tensor("t", (block, 3), number, 0)
    path = tmp_path / "one.gguf"
    path.write_bytes(raw + bytes(-len(raw) % ALIGNMENT) + bytes(size))
    (one,) = read_file(str(path)).tensors
    assert (one.name, one.shape, one.nbytes) == ("t", (block, 3), size)
    path.write_bytes(raw + bytes(-len(raw) % ALIGNMENT) + bytes(size - 1))
    with pytest.raises(ConfigError, match=f"its {size} bytes at 0 are not within the {size - 1} bytes of data"):
        read_file(str(path))


# bits a weight as llama.cpp's documents print them (docs/quantize, ggml-quants.h)
BITS = {"Q2_K": 2.625, "Q3_K": 3.4375, "Q4_K": 4.5, "Q5_K": 5.5, "Q6_K": 6.5625, "Q4_0": 4.5, "Q8_0": 8.5}
BITS |= {"IQ2_XXS": 2.0625, "IQ2_XS": 2.3125, "IQ3_XXS": 3.0625, "IQ1_S": 1.5625, "IQ4_NL": 4.5, "IQ4_XS": 4.25}
BITS |= {"IQ1_M": 1.75, "IQ3_S": 3.4375, "IQ2_S": 2.5625, "TQ1_0": 1.6875, "TQ2_0": 2.0625, "MXFP4": 4.25}


@pytest.mark.parametrize("name", BITS)
def test_bits_a_weight_are_those_that_are_published(name: str) -> None:
    block, block_bytes = next(rest for found, *rest in TYPES.values() if found == name)
    assert 8 * block_bytes / block == BITS[name]


def test_a_tied_model_has_its_head_in_the_embedding_and_holds_it_once(tmp_path: Path, book: Book) -> None:
    weights = llama_weights(**SMALL, tied=True)
    path = small(tmp_path, weights)
    priced_file = priced(book, path)
    assert priced_file.scenario.model.architecture.tied
    assert priced_file.scenario.model.stored["lm_head"] == 0.8203125
    norms = 17 * 512
    assert priced_file.totals["resident"] == sum(weight.nbytes for weight in weights) - 2 * norms


def test_shards_are_read_together_from_any_of_them(tmp_path: Path, book: Book) -> None:
    weights = llama_weights(**SMALL)
    whole = read_model(small(tmp_path), book)
    for number, part in enumerate((weights[:1], weights[1:40], weights[40:])):
        metadata = {"split.no": number, "split.count": 3, **(llama_metadata(**SMALL) if number == 0 else {})}
        write(tmp_path / f"m-{number + 1:05d}-of-00003.gguf", metadata, part)
    for number in (1, 2, 3):
        found = read_model(str(tmp_path / f"m-{number:05d}-of-00003.gguf"), book)
        assert (found.architecture, found.stored) == (whole.architecture, whole.stored)
    (tmp_path / "m-00002-of-00003.gguf").unlink()
    with pytest.raises(ConfigError, match=r"m-00002-of-00003\.gguf: no such file"):
        read_gguf(str(tmp_path / "m-00001-of-00003.gguf"))


def test_a_folder_with_one_model_is_that_model(tmp_path: Path, book: Book) -> None:
    file = small(tmp_path)
    assert read_model(str(tmp_path), book) == read_model(file, book)
    write(tmp_path / "other.gguf", llama_metadata(**SMALL), llama_weights(**SMALL))
    with pytest.raises(ConfigError, match=r"several GGUF files; give one of them: model\.gguf, other\.gguf"):
        read_model(str(tmp_path), book)


def test_both_versions_are_read(tmp_path: Path, book: Book) -> None:
    third = read_model(small(tmp_path), book)
    write(tmp_path / "model.gguf", llama_metadata(**SMALL), llama_weights(**SMALL), version=2)
    assert read_model(str(tmp_path / "model.gguf"), book) == third


# -- architectures ----------------------------------------------------------------------------------------------------


def common(
    arch: str, *, layers: int = 2, heads: int = 8, keys: int = 2, vocab: int = 512, **more: Any
) -> dict[str, Any]:
    named = {f"{arch}.{name.replace('__', '.')}": value for name, value in more.items()}
    return {
        "general.architecture": arch,
        f"{arch}.block_count": layers,
        f"{arch}.embedding_length": 256,
        f"{arch}.attention.head_count": heads,
        f"{arch}.attention.head_count_kv": keys,
        f"{arch}.context_length": 1024,
        f"{arch}.vocab_size": vocab,
        **named,
    }


def blocks(inside: dict[str, tuple[int, ...]], outside: dict[str, tuple[int, ...]], layers: int = 2) -> list[Weight]:
    """Matrices in F16 and vectors in F32, as llama.cpp converts them."""
    names = {f"blk.{index}.{name}": shape for index in range(layers) for name, shape in inside.items()} | outside
    return [Weight(name, shape, "F16" if len(shape) > 1 else "F32") for name, shape in names.items()]


OUTSIDE: dict[str, tuple[int, ...]] = {"token_embd.weight": (256, 512), "output_norm.weight": (256,)}
HEAD: dict[str, tuple[int, ...]] = {"output.weight": (256, 512)}
NORMS: dict[str, tuple[int, ...]] = {"attn_norm.weight": (256,), "ffn_norm.weight": (256,)}
POST: dict[str, tuple[int, ...]] = {"post_attention_norm.weight": (256,), "post_ffw_norm.weight": (256,)}
GATED: dict[str, tuple[int, ...]] = {
    "ffn_gate.weight": (256, 1024),
    "ffn_up.weight": (256, 1024),
    "ffn_down.weight": (1024, 256),
}


def projections(heads: int, keys: int, width: int, biases: str = "") -> dict[str, tuple[int, ...]]:
    rows = {"q": heads * width, "k": keys * width, "v": keys * width}
    found: dict[str, tuple[int, ...]] = {f"attn_{letter}.weight": (256, size) for letter, size in rows.items()}
    found |= {f"attn_{letter}.bias": (rows[letter],) for letter in biases if letter in rows}
    found["attn_output.weight"] = (heads * width, 256)
    return found | ({"attn_output.bias": (256,)} if "o" in biases else {})


def experts(width: int, count: int) -> dict[str, tuple[int, ...]]:
    return {
        "ffn_gate_inp.weight": (256, count),
        "ffn_gate_exps.weight": (256, width, count),
        "ffn_up_exps.weight": (256, width, count),
        "ffn_down_exps.weight": (width, 256, count),
    }


QK_NORMS: dict[str, tuple[int, ...]] = {"attn_q_norm.weight": (64,), "attn_k_norm.weight": (64,)}
BIASES: dict[str, tuple[int, ...]] = {name.replace("weight", "bias"): shape for name, shape in NORMS.items()}
MIXED = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 128}
UNGATED: dict[str, tuple[int, ...]] = {
    "ffn_up.weight": (256, 1024),
    "ffn_up.bias": (1024,),
    "ffn_down.weight": (1024, 256),
    "ffn_down.bias": (256,),
}
LATENT: dict[str, tuple[int, ...]] = {
    "attn_q_a.weight": (256, 64),
    "attn_q_a_norm.weight": (64,),
    "attn_q_b.weight": (64, 8 * 48),
    "attn_kv_a_mqa.weight": (256, 32 + 16),
    "attn_kv_a_norm.weight": (32,),
    "attn_output.weight": (8 * 24, 256),
}
SHARED: dict[str, tuple[int, ...]] = {
    "ffn_gate_shexp.weight": (256, 128),
    "ffn_up_shexp.weight": (256, 128),
    "ffn_down_shexp.weight": (128, 256),
}
MLA = {
    "attention__q_lora_rank": 64,
    "attention__kv_lora_rank": 32,
    "rope__dimension_count": 16,
    "expert_shared_count": 1,
    "leading_dense_block_count": 0,
    "feed_forward_length": 1024,
    **MIXED,
}
WINDOW = {"attention__sliding_window": 128}
WIDE = {"attention__key_length": 64, "attention__value_length": 64}
FF = {"feed_forward_length": 1024}
LAYER_NORMS = OUTSIDE | {"output_norm.bias": (256,)}

# the family that it becomes, its metadata, its tensors
MODELS: dict[str, tuple[str, dict[str, Any], list[Weight]]] = {
    "llama": ("llama", common("llama", **FF), blocks({**NORMS, **projections(8, 2, 32), **GATED}, OUTSIDE | HEAD)),
    "llama with experts": (
        "mixtral",
        common("llama", feed_forward_length=128, expert_count=4, expert_used_count=2),
        blocks({**NORMS, **projections(8, 2, 32), **experts(128, 4)}, OUTSIDE | HEAD),
    ),
    "qwen2": ("qwen2", common("qwen2", **FF), blocks({**NORMS, **projections(8, 2, 32, "qkv"), **GATED}, OUTSIDE)),
    "qwen3": (
        "qwen3",
        common("qwen3", **FF, **WIDE),
        blocks({**NORMS, **QK_NORMS, **projections(8, 2, 64), **GATED}, OUTSIDE | HEAD),
    ),
    "gemma": ("gemma", common("gemma", **FF, **WIDE), blocks({**NORMS, **projections(8, 2, 64), **GATED}, OUTSIDE)),
    "gemma2": (
        "gemma2",
        common("gemma2", **FF, **WIDE, **WINDOW),
        blocks({**NORMS, **POST, **projections(8, 2, 64), **GATED}, OUTSIDE),
    ),
    "gemma3": (
        "gemma3_text",
        common("gemma3", **FF, **WIDE, **WINDOW),
        blocks({**NORMS, **POST, **QK_NORMS, **projections(8, 2, 64), **GATED}, OUTSIDE),
    ),
    "phi2": (
        "phi",
        common("phi2", keys=8, rope__dimension_count=16, **FF),
        blocks(
            {
                "attn_norm.weight": (256,),
                "attn_norm.bias": (256,),
                "attn_qkv.weight": (256, 768),
                "attn_qkv.bias": (768,),
                "attn_output.weight": (256, 256),
                "attn_output.bias": (256,),
                **UNGATED,
            },
            LAYER_NORMS | HEAD | {"output.bias": (512,)},
        ),
    ),
    "phi3": (
        "phi3",
        common("phi3", rope__dimension_count=32, **FF, **WINDOW),
        blocks(
            {
                **NORMS,
                "attn_qkv.weight": (256, 384),
                "attn_output.weight": (256, 256),
                "ffn_up.weight": (256, 2048),
                "ffn_down.weight": (1024, 256),
            },
            OUTSIDE | HEAD,
        ),
    ),
    "gpt2": (
        "gpt2",
        common("gpt2", keys=8, **FF),
        blocks(
            {
                **NORMS,
                **BIASES,
                "attn_qkv.weight": (256, 768),
                "attn_qkv.bias": (768,),
                "attn_output.weight": (256, 256),
                "attn_output.bias": (256,),
                **UNGATED,
            },
            LAYER_NORMS | {"position_embd.weight": (256, 1024)},
        ),
    ),
    "starcoder2": (
        "starcoder2",
        common("starcoder2", **FF),
        blocks({**NORMS, **BIASES, **projections(8, 2, 32, "qkvo"), **UNGATED}, LAYER_NORMS),
    ),
    "qwen2moe": (
        "qwen2_moe",
        common("qwen2moe", keys=8, expert_shared_feed_forward_length=128, **MIXED),
        blocks(
            {
                **NORMS,
                **projections(8, 8, 32, "qkv"),
                **experts(128, 4),
                **SHARED,
                "ffn_gate_inp_shexp.weight": (256,),
            },
            OUTSIDE | HEAD,
        ),
    ),
    "qwen3moe": (
        "qwen3_moe",
        common("qwen3moe", **MIXED, **WIDE),
        blocks({**NORMS, **QK_NORMS, **projections(8, 2, 64), **experts(128, 4)}, OUTSIDE | HEAD),
    ),
    "gpt-oss": (
        "gpt_oss",
        common("gpt-oss", **MIXED, **WIDE, **WINDOW),
        blocks(
            {
                "attn_norm.weight": (256,),
                "post_attention_norm.weight": (256,),
                **projections(8, 2, 64, "qkvo"),
                "attn_sinks.weight": (8,),
                **experts(128, 4),
                "ffn_gate_inp.bias": (4,),
                "ffn_gate_exps.bias": (128, 4),
                "ffn_up_exps.bias": (128, 4),
                "ffn_down_exps.bias": (256, 4),
            },
            OUTSIDE | HEAD,
        ),
    ),
    "deepseek2": (
        "deepseek_v3",
        common("deepseek2", attention__key_length=48, attention__value_length=24, **MLA),
        blocks(
            {**NORMS, **LATENT, **experts(128, 4), **SHARED, "attn_kv_b.weight": (32, 8 * 56)},
            OUTSIDE | HEAD,
        ),
    ),
    "deepseek2 with the latent as its key": (
        "deepseek_v3",
        common(
            "deepseek2",
            keys=1,
            attention__key_length=48,
            attention__value_length=32,
            attention__key_length_mla=48,
            attention__value_length_mla=24,
            **MLA,
        ),
        blocks(
            {
                **NORMS,
                **LATENT,
                **experts(128, 4),
                **SHARED,
                "attn_k_b.weight": (32, 32, 8),
                "attn_v_b.weight": (32, 24, 8),
            },
            OUTSIDE | HEAD,
        ),
    ),
}


def test_every_architecture_that_is_understood_is_tried() -> None:
    assert {metadata["general.architecture"] for _, metadata, _ in MODELS.values()} == set(ARCHITECTURES)


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_the_elements_of_the_tensors_and_bytes_theirs(name: str, tmp_path: Path, book: Book) -> None:
    family, metadata, weights = MODELS[name]
    path = write(tmp_path / "m.gguf", metadata, weights)
    found = priced(book, path)
    assert found.scenario.model.architecture.family == family
    assert found.totals["parameters"] == sum(math.prod(weight.shape) for weight in weights)
    assert not [note for note in found.scenario.assumptions if "by the config" in note or "not counted" in note]
    vectors = [weight for weight in weights if weight.kind == "F32"]
    measured_vectors = sum(math.prod(weight.shape) for weight in vectors if "inp_shexp" not in weight.name)
    assert found.totals["resident"] == sum(weight.nbytes for weight in weights) - 2 * measured_vectors


def test_metadata_and_config_give_the_same_architecture(tmp_path: Path) -> None:
    fields = {
        "model_type": "qwen3",
        "hidden_size": 256,
        "intermediate_size": 1024,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "vocab_size": 512,
    }
    _, metadata, weights = MODELS["qwen3"]
    found = read_gguf(write(tmp_path / "m.gguf", metadata, weights))
    assert found.architecture == from_config(fields, "config.json").architecture


def test_windows_and_latents_are_read(tmp_path: Path) -> None:
    _, metadata, weights = MODELS["gemma2"]
    layers = read_gguf(write(tmp_path / "m.gguf", metadata, weights)).architecture.layers
    assert [layer.attention.window for layer in layers if isinstance(layer.attention, Attention)] == [128, None]
    _, metadata, weights = MODELS["deepseek2"]
    attention = read_gguf(write(tmp_path / "m.gguf", metadata, weights)).architecture.layers[0].attention
    assert isinstance(attention, LatentAttention)
    shape = (attention.latent, attention.nope_dim, attention.rope_dim, attention.value_dim, attention.query_rank)
    assert shape == (32, 32, 16, 24, 64)


def test_the_vocabulary_is_the_rows_of_the_embedding(tmp_path: Path) -> None:
    path = small(tmp_path, llama__vocab_size=None, tokenizer__ggml__tokens=["a", "b", "c"])
    assert read_gguf(path).architecture.vocab == 1000


def test_what_disagrees_is_said(tmp_path: Path, book: Book) -> None:
    """A file with a layer more, a layer less, or another width than its metadata says."""
    weights = llama_weights(**SMALL)
    notes = read_model(small(tmp_path, weights, llama__block_count=7), book).assumptions
    assert (
        "1.410 MB of the file are not counted: beyond the 7 layers of the config (from 'blk.7.attn_norm.weight' on)"
        in notes
    )
    notes = read_model(small(tmp_path, weights, llama__feed_forward_length=2048), book).assumptions
    assert (
        "mlp.down: 8388608 parameters by the config, 4194304 in the file "
        "(the tensors from 'blk.0.ffn_down.weight' on)" in notes
    )
    odd = [*weights, Weight("blk.0.ffn_wonder.weight", (512, 512), "F16")]
    notes = read_model(small(tmp_path, odd), book).assumptions
    assert (
        "524.3 kB of the file have no op that is known by their names, and are not measured: "
        "'blk.0.ffn_wonder.weight'" in notes
    )
    without = [weight for weight in weights if "attn_output" not in weight.name]
    notes = read_model(small(tmp_path, without), book).assumptions
    assert "attention.out: 2097152 parameters by the config, and no tensor in the file" in notes


# -- what is refused --------------------------------------------------------------------------------------------------

SPOILT: dict[str, tuple[dict[str, Any], str]] = {
    "no architecture": (
        {"general__architecture": None},
        "general.architecture: is missing, so this is no model that is understood",
    ),
    "a number": ({"general__architecture": 3}, "general.architecture: is not a short string"),
    "another": (
        {"general__architecture": "clip"},
        f"general.architecture: 'clip' is not understood (understood in a GGUF file: {', '.join(ARCHITECTURES)})",
    ),
    "no width": ({"llama__embedding_length": None}, "llama.embedding_length: is missing (a whole number is needed)"),
    "no layers": ({"llama__block_count": None}, "llama.block_count: is missing (a whole number is needed)"),
    "text": ({"llama__block_count": "8"}, "llama.block_count: '8' is not a whole number"),
    "true": ({"llama__block_count": True}, "llama.block_count: true is not a whole number"),
    "half": ({"llama__block_count": 0.5}, "llama.block_count: 0.5 is not a whole number"),
    "no heads": (
        {"llama__attention__head_count": 0},
        "num_attention_heads: 0 is out of range (accepted: 1 to 2147483647)",
    ),
    "layers that differ": (
        {"llama__attention__head_count_kv": [2, 2, 4, 4, 2, 2, 2, 2]},
        "llama.attention.head_count_kv: [2, 2, 4, 4, 2, 2, 2, 2] differs between layers, which is not understood",
    ),
    "values of another width": (
        {"llama__attention__key_length": 64, "llama__attention__value_length": 32},
        "llama.attention.value_length: differs from attention.key_length, which is not understood",
    ),
    "many layers": ({"llama__block_count": 4097}, "num_hidden_layers: 4097 is out of range (accepted: 1 to 4096)"),
    "shards": (
        {"split__count": 3},
        "is one of 3 shards, and its name does not end in -00001-of-00003.gguf, so the others are not found",
    ),
    "no shards": ({"split__count": "x"}, "split.count: 'x' is no count of shards (at most 1000)"),
    "alignment": ({"general__alignment": 48}, "general.alignment: 48 is no power of two up to 1048576"),
    "alignment of nothing": ({"general__alignment": 0}, "general.alignment: 0 is no power of two up to 1048576"),
}


@pytest.mark.parametrize("name", SPOILT)
def test_metadata_that_is_not_understood(name: str, tmp_path: Path) -> None:
    changes, message = SPOILT[name]
    path = small(tmp_path, **changes)
    refused(1, f"flopmap why: error: {path}: {message}", "why", path, "--on", "h100")


DEEP = struct.pack("<IQ", 9, 1) * 100_000 + struct.pack("<IQ", 4, 0)
HUGE = 2**63
KEY = text("k")

# bytes of a file, and what is said of it
HOSTILE: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "not GGUF: it begins with ''"),
    "zip": (b"PK\x03\x04" + bytes(40), "not GGUF: it begins with 'PK\\x03\\x04'"),
    "an older one": (b"ggjt" + bytes(40), "not GGUF: it begins with 'ggjt'"),
    "the magic alone": (b"GGUF", "truncated or wrong: the version of 4 bytes, and 0 are left"),
    "version 1": (start(0, 0, version=1), "GGUF version 1 is not read (versions 2 and 3 are)"),
    "version 4": (start(0, 0, version=4), "GGUF version 4 is not read (versions 2 and 3 are)"),
    "big-endian": (
        b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
        "a big-endian GGUF file is not read (little-endian ones are)",
    ),
    "no counts": (b"GGUF\x03\0\0\0", "truncated or wrong: the count of tensors of 8 bytes, and 0 are left"),
    "2^63 tensors": (start(HUGE, 0), f"{HUGE} tensors do not fit a file of 24 bytes"),
    "2^63 keys": (start(0, HUGE), f"{HUGE} keys do not fit a file of 24 bytes"),
    "a million tensors": (start(1_000_000, 0) + bytes(99), "1000000 tensors do not fit a file of 123 bytes"),
    "a key of 2^63": (
        start(0, 1) + struct.pack("<Q", HUGE) + bytes(9),
        f"truncated or wrong: a key of {HUGE} bytes, and 9 are left",
    ),
    "a key of 70,000": (
        start(0, 1) + text("k" * 70_000) + bytes(9),
        "a key of 70000 bytes is too long (at most 65535)",
    ),
    "a key that is no text": (start(0, 1) + text(b"\xff") + bytes(9), "a key is not UTF-8"),
    "a string of 2^63": (
        start(0, 1) + KEY + struct.pack("<IQ", 8, HUGE),
        f"truncated or wrong: the value of 'k' of {HUGE} bytes, and 0 are left",
    ),
    "an unknown type": (start(0, 1) + KEY + struct.pack("<I", 13), "the value of 'k' has the unknown type 13"),
    "half a value": (
        start(0, 1) + KEY + struct.pack("<IH", 4, 1),
        "truncated or wrong: the value of 'k' of 4 bytes, and 2 are left",
    ),
    "an array of 2^63": (
        start(0, 1) + KEY + struct.pack("<IIQ", 9, 4, HUGE),
        f"truncated or wrong: the array 'k' of {HUGE * 4} bytes, and 0 are left",
    ),
    "2^63 strings": (
        start(0, 1) + KEY + struct.pack("<IIQ", 9, 8, HUGE),
        f"truncated or wrong: the array 'k' of {HUGE} elements, and 0 bytes left",
    ),
    "an array of an unknown type": (
        start(0, 1) + KEY + struct.pack("<IIQ", 9, 77, 1),
        "the array 'k' has elements of the unknown type 77",
    ),
    "100,000 arrays in each other": (
        start(0, 1) + KEY + struct.pack("<I", 9) + DEEP,
        "the array 'k' is nested too deeply (at most 4)",
    ),
    "a key twice": (start(0, 2) + (KEY + struct.pack("<I?", 7, 1)) * 2, "the key 'k' comes twice"),
    "a tensor of 9 dimensions": (
        start(1, 0) + tensor("t", (1,) * 9, 0, 0),
        "tensor 't': 9 dimensions (at most 4)",
    ),
    "an unknown type of tensor": (start(1, 0) + tensor("t", (32,), 4, 0), "tensor 't': unknown type 4"),
    "rows that are no blocks": (
        start(1, 0) + tensor("t", (255, 2), 12, 0),
        "tensor 't': rows of 255 are no whole blocks of Q4_K (256 elements)",
    ),
    "an offset beside the alignment": (
        start(1, 0) + tensor("t", (32,), 0, 8) + bytes(200),
        "tensor 't': its offset 8 is not aligned to 32",
    ),
    "a tensor beyond the file": (
        start(1, 0) + tensor("t", (32,), 0, 0) + bytes(96),
        "tensor 't': its 128 bytes at 0 are not within the 89 bytes of data",
    ),
    "a tensor of 2^252": (
        start(1, 0) + tensor("t", (HUGE,) * 4, 0, 0) + bytes(96),
        f"tensor 't': its {4 * HUGE**4} bytes at 0 are not within the 81 bytes of data",
    ),
    "no data at all": (
        start(1, 0) + tensor("t", (32,), 0, 0),
        "tensor 't': its 128 bytes at 0 are not within the 0 bytes of data",
    ),
    "two tensors in one place": (
        start(2, 0) + tensor("t", (32,), 0, 0) + tensor("u", (32,), 0, 96) + bytes(500),
        "tensor 'u': its data overlaps that of 't'",
    ),
    "a tensor twice": (start(2, 0) + tensor("t", (8,), 0, 0) * 2 + bytes(500), "the tensor 't' comes twice"),
    "half a tensor": (start(1, 0) + text("t") + bytes(15), "truncated or wrong: tensor 't' of 8 bytes, and 7 are left"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_one_line(name: str, tmp_path: Path) -> None:
    raw, message = HOSTILE[name]
    path = tmp_path / "model.gguf"
    path.write_bytes(raw)
    refused(1, f"flopmap why: error: {path}: {message}", "why", str(path), "--on", "h100")


@pytest.mark.parametrize(
    ("counts", "tail", "message"),
    [
        ((1_000_001, 0), b"", "1000001 tensors are too many (at most 1000000)"),
        ((0, 100_001), b"", "100001 keys are too many (at most 100000)"),
        (
            (0, 1),
            KEY + struct.pack("<IIQ", 9, 8, 2_000_001),
            "the array 'k': more than 2000000 strings in arrays",
        ),
        ((0, 1), KEY + struct.pack("<IIQ", 9, 10, 2**27), "the header is too large (at most 100000000 bytes)"),
        ((1, 1), KEY + struct.pack("<IIQ", 9, 0, 99_999_950), "the header is too large (at most 100000000 bytes)"),
    ],
)
def test_a_hole_of_ten_gigabytes_is_refused_at_once(
    counts: tuple[int, int], tail: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.gguf"
    with path.open("wb") as file:
        file.write(start(*counts) + tail)
        file.truncate(10**10)
    began = time.process_time()
    with pytest.raises(ConfigError) as error:
        read_file(str(path))
    assert str(error.value) == f"{path}: {message}"
    assert time.process_time() - began < 0.5


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    path = str(tmp_path / "pipe.gguf")
    refused(1, f"flopmap why: error: {path}: is no regular file", "why", path, "--on", "h100")
    folder = tmp_path / "folder.gguf"
    folder.mkdir()
    message = f"flopmap why: error: {folder}/config.json: no such file"
    refused(2, message, "why", str(folder), "--on", "h100")


def test_every_kind_of_value_is_passed_over(tmp_path: Path) -> None:
    kinds = "BbHhIifd?Qq"
    numbers = {"B": 0, "b": 1, "H": 2, "h": 3, "I": 4, "i": 5, "f": 6, "?": 7, "Q": 10, "q": 11, "d": 12}
    values = {f"x.{numbers[kind]}": Typed(numbers[kind], struct.pack(f"<{kind}", 1)) for kind in kinds}
    nested = {"x.nested": [[1, 2], [3]], "x.texts": [["a", "bc"], []], "x.empty": [], "x.long": "y" * 10_000}
    kept = read_file(small(tmp_path, None, **{key.replace(".", "__"): item for key, item in (values | nested).items()}))
    assert kept.metadata["x.11"] == 1
    assert kept.metadata["x.7"] is True
    assert kept.metadata["llama.block_count"] == 8


def test_a_large_vocabulary_is_passed_over_quickly(eight_b: str) -> None:
    began = time.process_time()
    kept = read_file(eight_b).metadata
    assert time.process_time() - began < 1
    assert sys.getsizeof(kept["tokenizer.ggml.tokens"]) < 100


# -- fuzzing ----------------------------------------------------------------------------------------------------------

FUZZED = 500  # inputs of each of the three kinds; all three have passed with 2,000
TINY = llama_weights(layers=1, hidden=256, width=256, heads=4, keys=2, vocab=8)
VALID = header(llama_metadata(layers=1, hidden=256, width=256, heads=4, keys=2, vocab=8), TINY)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "fuzz.gguf"


def only_a_config_error(path: Path, raw: bytes, size: int) -> None:
    with path.open("wb") as file:
        file.write(raw)
        file.truncate(max(size, len(raw)))
    message = ""
    try:
        read_gguf(str(path))
    except ConfigError as error:
        message = str(error)
    assert "\n" not in message
    assert len(message) < 1000


def fuzz(function: Any) -> Any:
    quick = settings(max_examples=FUZZED, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    return quick(function)


@fuzz
@given(tail=st.binary(max_size=400), tensors=st.integers(0, 2**64 - 1) | st.integers(0, 9), keys=st.integers(0, 9))
def test_any_bytes_behind_the_magic(scratch: Path, tail: bytes, tensors: int, keys: int) -> None:
    only_a_config_error(scratch, start(tensors, keys) + tail, 0)


@fuzz
@given(
    changes=st.lists(st.tuples(st.integers(0, len(VALID[0]) - 1), st.integers(0, 255)), min_size=1, max_size=8),
    cut=st.integers(0, 2 * len(VALID[0])),
)
def test_a_valid_file_with_bytes_changed_or_cut(scratch: Path, changes: list[tuple[int, int]], cut: int) -> None:
    raw = bytearray(VALID[0])
    for position, byte in changes:
        raw[position] = byte
    only_a_config_error(scratch, bytes(raw[:cut]), len(raw) + VALID[1] if cut >= len(raw) else 0)


@fuzz
@given(
    fields=st.dictionaries(
        st.sampled_from(sorted({key for _, metadata, _ in MODELS.values() for key in metadata})),
        st.booleans() | st.integers(0, 2**32 - 1) | st.integers(0, 9) | st.text(max_size=9) | st.just([]),
        max_size=6,
    ),
    name=st.sampled_from(sorted(MODELS)),
)
def test_metadata_with_any_values(scratch: Path, fields: dict[str, Any], name: str) -> None:
    _, metadata, weights = MODELS[name]
    raw, size = header({**metadata, **fields}, weights)
    only_a_config_error(scratch, raw, len(raw) + size)


def test_memory_is_bounded(tmp_path: Path) -> None:
    """As many strings as are allowed, within 100 MB and a few seconds."""
    path = tmp_path / "model.gguf"
    with path.open("wb") as file:
        file.write(start(0, 1) + KEY + struct.pack("<IIQ", 9, 8, 1_999_999))
        file.truncate(10**9)
    script = (
        "import sys; from flopmap.model.gguf import read_file; read_file(sys.argv[1]); "
        "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])"
    )
    answer = subprocess.run((sys.executable, "-c", script, str(path)), capture_output=True, text=True, check=True)
    assert int(answer.stdout) < 100_000
