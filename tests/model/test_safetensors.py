"""Safetensors: exact bytes from their headers, where they and the config disagree, and hostile files refused."""

from __future__ import annotations

import json
import math
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flopmap.model.config import ConfigError
from flopmap.model.reading import from_config, read_model
from flopmap.model.safetensors import BITS, read_file
from flopmap.model.tensors import matrices
from flopmap.records.types import Model
from tests.cli.support import TINY, data, refused
from tests.physics.support import priced

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from flopmap.records.book import Book

Shapes = dict[str, tuple[str, tuple[int, ...]]]


def entries(shapes: Shapes) -> tuple[dict[str, Any], int]:
    """The header of tensors one after another, and the bytes of their data."""
    offset, found = 0, {}
    for name, (dtype, shape) in shapes.items():
        end = offset + math.prod(shape) * BITS[dtype] // 8
        found[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    return found, offset


def write_raw(path: Path, raw: bytes, size: int = 0) -> str:
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        file.truncate(8 + len(raw) + size)
    return str(path)


def write(path: Path, shapes: Shapes) -> str:
    header, size = entries(shapes)
    return write_raw(path, json.dumps({"__metadata__": {"format": "pt"}, **header}).encode(), size)


def tiny(dtype: str = "BF16", changes: dict[str, tuple[str, tuple[int, ...]] | None] | None = None) -> Shapes:
    """The tensors of the tiny Llama: 2 layers of 64, 4 heads, 2 of keys, a feed-forward of 128, 100 tokens."""
    matrices_of_layer: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj.weight": (64, 64),
        "self_attn.k_proj.weight": (32, 64),
        "self_attn.v_proj.weight": (32, 64),
        "self_attn.o_proj.weight": (64, 64),
        "mlp.gate_proj.weight": (128, 64),
        "mlp.up_proj.weight": (128, 64),
        "mlp.down_proj.weight": (64, 128),
        "input_layernorm.weight": (64,),
        "post_attention_layernorm.weight": (64,),
    }
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (100, 64)}
    for index in range(2):
        shapes |= {f"model.layers.{index}.{name}": shape for name, shape in matrices_of_layer.items()}
    shapes |= {"model.norm.weight": (64,), "lm_head.weight": (100, 64)}
    found: Shapes = {name: (dtype, shape) for name, shape in shapes.items()}
    for name, change in (changes or {}).items():
        if change is None:
            del found[name]
        else:
            found[name] = change
    return found


def folder_of(folder: Path, shapes: Shapes, **fields: Any) -> str:
    (folder / "config.json").write_text(json.dumps({**TINY, **fields}))
    write(folder / "model.safetensors", shapes)
    return str(folder)


def nbytes(shapes: Shapes) -> int:
    return entries(shapes)[1]


# -- bytes ------------------------------------------------------------------------------------------------------------


def test_a_folder_in_16_bits_is_what_its_config_says(tmp_path: Path, book: Book) -> None:
    found = priced(book, folder_of(tmp_path, tiny()))
    assert found.totals["resident"] == nbytes(tiny()) == 173_696
    assert found.scenario.model.stored == dict.fromkeys(
        ("embedding", "attention.qkv", "attention.out", "mlp.gate_up", "mlp.down", "lm_head"), 2.0
    )
    measured = [note for note in found.scenario.assumptions if "file" in note]
    assert measured == ["weights as in the files: 21 tensors, 173.7 kB"]
    assert found.totals["resident"] == priced(book, str(tmp_path / "config.json")).totals["resident"]


def test_matrices_in_several_types_have_their_own_bytes(tmp_path: Path, book: Book) -> None:
    shapes = tiny(
        changes={"lm_head.weight": ("F32", (100, 64)), "model.layers.1.mlp.down_proj.weight": ("F32", (64, 128))}
    )
    found = priced(book, folder_of(tmp_path, shapes))
    assert found.totals["resident"] == nbytes(shapes) == 173_696 + 2 * (6400 + 8192)
    assert found.scenario.model.stored["lm_head"] == 4
    assert found.scenario.model.stored["mlp.down"] == 3


def packed() -> Shapes:
    """Every matrix of the layers as AWQ has it: 4 bits in 32-bit words, with scales and zero points of groups of 32."""
    found: Shapes = {}
    for name, (dtype, shape) in tiny("F16").items():
        if "proj" not in name:
            found[name] = (dtype, shape)
            continue
        rows, columns = shape
        stem = name.removesuffix("weight")
        found[f"{stem}qweight"] = ("I32", (columns, rows // 8))
        found[f"{stem}qzeros"] = ("I32", (columns // 32, rows // 8))
        found[f"{stem}scales"] = ("F16", (columns // 32, rows))
    return found


def test_scales_and_zero_points_are_bytes_of_their_matrix(tmp_path: Path, book: Book) -> None:
    quantization = {"quant_method": "awq", "bits": 4, "group_size": 32}
    folder = folder_of(tmp_path, packed(), quantization_config=quantization, torch_dtype="float16")
    model = read_model(folder, book)
    assert model.stored["mlp.down"] == (4 + (16 + 4) / 32) / 8
    norms = 5 * 64 * 2
    sizes = matrices(model.architecture)
    assert sum(model.stored[op] * size for op, size in sizes.items()) + norms == nbytes(packed())


def test_matrices_of_8_bits_keep_the_format_of_their_config_and_so_its_math(tmp_path: Path, book: Book) -> None:
    shapes: Shapes = {}
    for name, (dtype, shape) in tiny().items():
        shapes[name] = ("F8_E4M3" if "proj" in name else dtype, shape)
        if "proj" in name:
            shapes[f"{name}_scale"] = ("F32", (shape[0], 1))
    folder = folder_of(tmp_path, shapes, quantization_config={"quant_method": "fp8"})
    model = read_model(folder, book)
    assert model.stored == {"embedding": 2, "lm_head": 2}
    assert (
        "bytes a parameter in the files of what is counted by the record of the config's format, so that they are "
        "multiplied in its type: attention.out 1.062, attention.qkv 1.062, mlp.down 1.031, mlp.gate_up 1.062"
    ) in model.assumptions


def test_experts_in_blocks_are_measured_with_their_scales(tmp_path: Path, book: Book) -> None:
    """gpt-oss: two matrices of each expert, in blocks of 32 elements of 4 bits and an 8-bit scale."""
    fields = {
        "model_type": "gpt_oss",
        "architectures": ["GptOssForCausalLM"],
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "vocab_size": 100,
        "tie_word_embeddings": True,
    }
    shapes: Shapes = {
        "model.embed_tokens.weight": ("BF16", (100, 64)),
        "model.layers.0.mlp.experts.gate_up_proj_blocks": ("U8", (8, 128, 2, 16)),
        "model.layers.0.mlp.experts.gate_up_proj_scales": ("U8", (8, 128, 2)),
        "model.layers.0.mlp.experts.gate_up_proj_bias": ("BF16", (8, 128)),
        "model.layers.0.mlp.experts.down_proj_blocks": ("U8", (8, 64, 2, 16)),
        "model.layers.0.mlp.experts.down_proj_scales": ("U8", (8, 64, 2)),
        "model.layers.0.mlp.experts.down_proj_bias": ("BF16", (8, 64)),
        "model.layers.0.mlp.router.weight": ("BF16", (8, 64)),
        "model.layers.0.self_attn.q_proj.weight": ("BF16", (64, 64)),
        "model.layers.0.self_attn.k_proj.weight": ("BF16", (32, 64)),
        "model.layers.0.self_attn.v_proj.weight": ("BF16", (32, 64)),
        "model.layers.0.self_attn.o_proj.weight": ("BF16", (64, 64)),
    }
    model = read_model(folder_of(tmp_path, shapes, **fields), book)
    assert model.stored["moe.experts"] == 4.25 / 8
    assert model.stored["attention.qkv"] == 2
    assert not [note for note in model.assumptions if "by the config" in note or "not measured" in note]


def test_shards_are_read_by_their_index_and_from_any_of_them(tmp_path: Path, book: Book) -> None:
    whole = tmp_path / "whole"
    shards = tmp_path / "shards"
    whole.mkdir()
    shards.mkdir()
    expected = read_model(folder_of(whole, tiny()), book)
    parts = [dict(list(tiny().items())[:9]), dict(list(tiny().items())[9:])]
    index: dict[str, str] = {}
    for number, part in enumerate(parts, 1):
        name = f"model-{number:05d}-of-00002.safetensors"
        write(shards / name, part)
        index |= dict.fromkeys(part, name)
    (shards / "config.json").write_text(json.dumps(TINY))
    named = ("", "/model.safetensors.index.json", "/model-00002-of-00002.safetensors")
    without_index = read_model(str(shards), book)
    assert without_index.stored == expected.stored
    (shards / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": 1}, "weight_map": index})
    )
    write(shards / "consolidated.safetensors", tiny())  # the same once more: the index says which are the model
    for name in named:
        assert read_model(f"{shards}{name}", book).stored == expected.stored


@pytest.mark.parametrize("dtype", BITS)
def test_every_type_has_the_bytes_of_its_elements(dtype: str, tmp_path: Path) -> None:
    path = write(tmp_path / "model.safetensors", {"t": (dtype, (4, 6))})
    (tensor,) = read_file(path)
    assert (tensor.dtype, tensor.shape, tensor.nbytes) == (dtype, (4, 6), 24 * BITS[dtype] // 8)


def test_bits_of_an_element_are_in_its_name() -> None:
    assert (BITS["F4"], BITS["F6_E2M3"], BITS["F8_E8M0"], BITS["BF16"], BITS["C64"], BITS["BOOL"]) == (
        4,
        6,
        8,
        16,
        64,
        8,
    )


def test_scalars_empty_tensors_and_empty_files_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "model.safetensors", {"one": ("F32", ()), "none": ("F32", (0, 9)), "two": ("U8", (2,))})
    assert [(tensor.name, tensor.nbytes) for tensor in read_file(path)] == [("one", 4), ("none", 0), ("two", 2)]
    assert read_file(write(tmp_path / "model.safetensors", {})) == []


def test_tensors_may_come_in_any_order_of_their_data(tmp_path: Path) -> None:
    header, size = entries(tiny())
    backwards = json.dumps(dict(reversed(header.items()))).encode()
    path = write_raw(tmp_path / "model.safetensors", backwards, size)
    assert sum(tensor.nbytes for tensor in read_file(path)) == size


def test_free_text_may_hold_anything(tmp_path: Path) -> None:
    header, size = entries({"a": ("U8", (1,))})
    for free in ({"dtype": "any"}, {"shape": "3"}, {"data_offsets": "x", 'é\\"': "{}"}, {}):
        path = write_raw(tmp_path / "model.safetensors", json.dumps({"__metadata__": free, **header}).encode(), size)
        assert [tensor.name for tensor in read_file(path)] == ["a"]


# layers whose values are their keys have another op in the ledger, which the names of modules do not know yet
NAMED_OTHERWISE = {("google/gemma-4-26B-A4B", "attention.qkv")}


def test_every_bundled_model_has_its_matrices_by_name(book: Book) -> None:
    """The oracle of the names: parameters by op are those of the ledger's own arithmetic."""
    for name in book.ids("models"):
        architecture = from_config(book.record(Model, name).config, name).architecture
        counted: dict[str, float] = {}
        for line in priced(book, name).lines:
            shapes, costs = dict(line.line.op.shapes), line.costs
            parameters = costs["active"] or costs["parameters"]  # without biases where there are any
            if line.line.op.op_class == "moe-experts":
                parameters = parameters / shapes["top_k"] * shapes["experts"]
            if line.line.op.op_class != "shared-gemm":
                counted[line.line.op.name] = counted.get(line.line.op.name, 0) + parameters
        for op, size in matrices(architecture).items():
            assert (name, op) in NAMED_OTHERWISE or size == counted[op], (name, op)


def test_names_of_other_families_lead_to_the_same_ops(tmp_path: Path, book: Book) -> None:
    opt = {"model_type": "opt", "hidden_size": 64, "ffn_dim": 256, "num_hidden_layers": 1, "num_attention_heads": 4}
    sizes = {"vocab_size": 100, "max_position_embeddings": 30, "word_embed_proj_dim": 64, "torch_dtype": "float16"}
    inside: dict[str, tuple[int, ...]] = {
        f"self_attn.{name}_proj.{part}": (64, 64)[:ndim]
        for name in ("q", "k", "v", "out")
        for part, ndim in (("weight", 2), ("bias", 1))
    }
    inside |= {"fc1.weight": (256, 64), "fc1.bias": (256,), "fc2.weight": (64, 256), "fc2.bias": (64,)}
    inside |= {f"{name}_layer_norm.{part}": (64,) for name in ("self_attn", "final") for part in ("weight", "bias")}
    outside: dict[str, tuple[int, ...]] = {
        "model.decoder.embed_tokens.weight": (100, 64),
        "model.decoder.embed_positions.weight": (32, 64),
        "model.decoder.final_layer_norm.weight": (64,),
        "model.decoder.final_layer_norm.bias": (64,),
    }
    named = {f"model.decoder.layers.0.{name}": shape for name, shape in inside.items()} | outside
    shapes: Shapes = {name: ("F32" if len(shape) > 1 else "F16", shape) for name, shape in named.items()}
    (tmp_path / "config.json").write_text(json.dumps({**opt, **sizes}))
    write(tmp_path / "model.safetensors", shapes)
    found = priced(book, str(tmp_path))
    assert found.totals["resident"] == nbytes(shapes)
    assert [note for note in found.scenario.model.assumptions if "weights as in" not in note] == []


# -- where file and config disagree -----------------------------------------------------------------------------------


def notes(folder: Path, book: Book, shapes: Shapes, **fields: Any) -> list[str]:
    return list(read_model(folder_of(folder, shapes, **fields), book).assumptions[1:])


def test_layers_beyond_the_configs_are_named(tmp_path: Path, book: Book) -> None:
    """DeepSeek-V3 files carry a layer for speculative decoding that the config does not count."""
    extra: Shapes = {
        "model.layers.2.eh_proj.weight": ("BF16", (64, 128)),
        "model.layers.2.enorm.weight": ("BF16", (64,)),
    }
    (note,) = notes(tmp_path, book, tiny() | extra)
    assert note == (
        "16.51 kB of the file are not counted: beyond the 2 layers of the config "
        "(from 'model.layers.2.eh_proj.weight' on)"
    )


def test_towers_and_draft_heads_are_named(tmp_path: Path, book: Book) -> None:
    extra: Shapes = {"vision_tower.layers.0.mlp.fc1.weight": ("BF16", (64, 64)), "mtp.fc.weight": ("BF16", (64, 64))}
    (note,) = notes(tmp_path, book, tiny() | extra)
    assert note == (
        "16.38 kB of the file are not counted: no op of a decoder step holds them "
        "(from 'vision_tower.layers.0.mlp.fc1.weight' on)"
    )


def test_the_tensors_of_a_tower_are_held_against_its_config(tmp_path: Path, book: Book) -> None:
    # patches 3 x 2 x 2 to 8 and a bias, 4 positions, no layers but one; SigLIP and PaliGemma's one matrix
    tower = {"model_type": "siglip_vision_model", "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1,
             "num_attention_heads": 2, "image_size": 4, "patch_size": 2, "vision_use_head": False}  # fmt: skip
    # patch 12 x 8 + 8, positions 4 x 8, two norms, q k v out 8 x 8 + 8, feed-forward, last norm, connector 8 x 64 + 64
    parameters = 104 + 32 + 2 * 16 + 4 * 72 + (8 * 16 + 16 + 16 * 8 + 8) + 16 + (8 * 64 + 64)
    fields = {"model_type": "paligemma", "text_config": TINY, "vision_config": tower}
    shapes: Shapes = tiny() | {"model.vision_tower.all": ("BF16", (parameters,))}
    (note,) = notes(tmp_path, book, shapes, **fields)
    said = f"towers: {parameters} parameters, {2 * parameters / 1000:.4g} kB in the file"
    assert note == f"{said} (from 'model.vision_tower.all' on)"
    shapes = tiny() | {"model.vision_tower.all": ("BF16", (parameters - 1,))}
    (note,) = notes(tmp_path, book, shapes, **fields)
    assert note.startswith(f"towers: {parameters} parameters by the config, {parameters - 1} in the file")


def test_a_head_that_is_missing_is_named(tmp_path: Path, book: Book) -> None:
    shapes = tiny(changes={"lm_head.weight": None})
    assert notes(tmp_path, book, shapes) == ["lm_head: 6400 parameters by the config, and no tensor in the file"]
    assert notes(tmp_path, book, shapes, tie_word_embeddings=True) == []


def test_a_head_that_is_there_though_tied_is_named(tmp_path: Path, book: Book) -> None:
    assert notes(tmp_path, book, tiny(), tie_word_embeddings=True) == [
        "12.80 kB of the file are not counted: the LM head is tied to the embedding (from 'lm_head.weight' on)"
    ]


def test_another_shape_is_named(tmp_path: Path, book: Book) -> None:
    assert notes(tmp_path, book, tiny(), intermediate_size=256) == [
        f"mlp.{op}: {size} parameters by the config, {size // 2} in the file "
        f"(the tensors from 'model.layers.0.mlp.{first}_proj.weight' on)"
        for op, size, first in (("gate_up", 65536, "gate"), ("down", 32768, "down"))
    ]


def test_names_that_are_not_known_are_said(tmp_path: Path, book: Book) -> None:
    extra: Shapes = {f"model.layers.0.wonder.{letter}.weight": ("BF16", (2, 2)) for letter in "abcde"}
    (note,) = notes(tmp_path, book, tiny() | extra)
    assert note == (
        "40.00 B of the file have no op that is known by their names, and are not measured: "
        "'model.layers.0.wonder.a.weight', 'model.layers.0.wonder.b.weight', 'model.layers.0.wonder.c.weight' "
        "and 2 more"
    )


# -- what is refused --------------------------------------------------------------------------------------------------


def test_a_file_without_a_config_beside_it(tmp_path: Path) -> None:
    path = write(tmp_path / "model.safetensors", tiny())
    needed = f"{tmp_path}/config.json is needed, since safetensors do not say what the architecture is"
    refused(1, f"flopmap why: error: {path}: {needed}", "why", path, "--on", "h100")
    refused(2, f"flopmap why: error: {tmp_path}/config.json: no such file", "why", str(tmp_path), "--on", "h100")


def test_the_command_line_reads_it(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, tiny())
    for name in (folder, f"{folder}/model.safetensors"):
        assert data("why", name, "--on", "h100")["memory"]["weight_bytes"] == pytest.approx(173_696, rel=1e-3)


ENTRY = '"dtype":"U8","shape":[4],"data_offsets":[0,4]'
HUGE = 2**63

# header, bytes of data, what is said of it
HOSTILE: dict[str, tuple[str | bytes, int, str]] = {
    "no JSON": ("hello", 0, "header: not JSON: JSON is malformed: invalid character (byte 0)"),
    "no text": (b'{"\xff":1}', 0, "header: not JSON: Invalid UTF-8 encoded string"),
    "nothing": ("", 0, "header: not JSON: Input data was truncated"),
    "a list": ("[]", 0, "header: Expected `object`, got `array`"),
    "100,000 brackets": ("[" * 100_000, 0, "header: Expected `object`, got `array`"),
    "100,000 brackets inside": ('{"a":{"x":' + "[" * 100_000, 0, "header: not JSON: nested too deeply"),
    "no table": ('{"a":1}', 0, "tensor 'a': Expected object, got int"),
    "no shape": ('{"a":{"dtype":"U8"}}', 0, "tensor 'a': dtype, shape and data_offsets are needed"),
    "an unknown type": (
        '{"a":{"dtype":"U7","shape":[4],"data_offsets":[0,4]}}',
        4,
        "tensor 'a': unknown data type 'U7' - at dtype",
    ),
    "a length below zero": (
        '{"a":{"dtype":"U8","shape":[-2,-2],"data_offsets":[0,4]}}',
        4,
        "tensor 'a': Expected int >= 0 - at shape[0]",
    ),
    "a broken length": (
        '{"a":{"dtype":"U8","shape":[1.5],"data_offsets":[0,4]}}',
        4,
        "tensor 'a': Expected int, got float - at shape[0]",
    ),
    "3 offsets": (
        '{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4,8]}}',
        8,
        "tensor 'a': Expected array of at most length 2",
    ),
    "an offset below zero": (
        '{"a":{"dtype":"U8","shape":[4],"data_offsets":[-4,0]}}',
        4,
        "tensor 'a': data_offsets [-4, 0] are not within the 4 bytes of data",
    ),
    "offsets the wrong way": (
        '{"a":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}}',
        4,
        "tensor 'a': data_offsets [4, 0] are not within the 4 bytes of data",
    ),
    "beyond the file": (
        f'{{"a":{{{ENTRY}}}}}',
        3,
        "tensor 'a': data_offsets [0, 4] are not within the 3 bytes of data",
    ),
    "an offset of 2^63": (
        f'{{"a":{{"dtype":"U8","shape":[{HUGE}],"data_offsets":[0,{HUGE}]}}}}',
        4,
        f"tensor 'a': data_offsets [0, {HUGE}] are not within the 4 bytes of data",
    ),
    "another shape": (
        '{"a":{"dtype":"U8","shape":[2,3],"data_offsets":[0,4]}}',
        4,
        "tensor 'a': data_offsets [0, 4] do not hold U8 of shape [2, 3]",
    ),
    "half a byte": (
        '{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}}',
        4,
        "tensor 'a': data_offsets [0, 2] do not hold F4 of shape [3]",
    ),
    "2^190 elements": (
        f'{{"a":{{"dtype":"U8","shape":[{HUGE},{HUGE},{HUGE}],"data_offsets":[0,4]}}}}',
        4,
        f"tensor 'a': data_offsets [0, 4] do not hold U8 of shape [{HUGE}, {HUGE}, {str(HUGE)[:14]}...",
    ),
    "a million dimensions": (
        '{"a":{"dtype":"U8","shape":[' + "2," * 1_000_000 + '2],"data_offsets":[0,4]}}',
        4,
        f"tensor 'a': shape [{'2, ' * 18}2,... has more than 64 dimensions",
    ),
    "an overlap": (
        f'{{"a":{{{ENTRY}}},"b":{{"dtype":"U8","shape":[4],"data_offsets":[3,7]}}}}',
        8,
        "tensor 'b': its data overlaps that of 'a'",
    ),
    "the same place": (f'{{"a":{{{ENTRY}}},"b":{{{ENTRY}}}}}', 8, "tensor 'a': its data overlaps that of 'b'"),
    "a name twice": (f'{{"a":{{{ENTRY}}},"a":{{{ENTRY}}}}}', 8, "header: the name 'a' comes twice"),
    "a name twice, once in escapes": (
        f'{{"a":{{{ENTRY}}},"\\u0061":{{{ENTRY}}}}}',
        8,
        "header: the name 'a' comes twice",
    ),
    "a name twice, hidden by an escaped field": (
        f'{{"a":{{{ENTRY}}},"a":{{{ENTRY.replace("data_", "data" + chr(92) + "u005f")}}}}}',
        8,
        "header: the name 'a' comes twice",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_header_is_one_line(name: str, tmp_path: Path) -> None:
    raw, size, message = HOSTILE[name]
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    path = write_raw(tmp_path / "model.safetensors", raw if isinstance(raw, bytes) else raw.encode(), size)
    with pytest.raises(ConfigError) as error:
        read_file(path)
    text = str(error.value)
    assert text == f"{path}: {message}"
    refused(1, f"flopmap why: error: {text}", "why", path, "--on", "h100")


@pytest.mark.parametrize(
    ("start", "size", "message"),
    [
        (b"", 0, "not safetensors: 0 bytes are too few"),
        (b"\1\0\0", 3, "not safetensors: 3 bytes are too few"),
        (struct.pack("<Q", HUGE), 100, f"not safetensors: a header of {HUGE} bytes in a file of 100"),
        (struct.pack("<Q", 93), 100, "not safetensors: a header of 93 bytes in a file of 100"),
        (struct.pack("<Q", 100_000_001), 10**10, "a header of 100000001 bytes is too large (at most 100000000)"),
        (b"PK\3\4", 100, "header: not JSON: JSON is malformed: invalid character (byte 0)"),
    ],
)
def test_a_length_that_cannot_be(start: bytes, size: int, message: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.write(start)
        file.truncate(size)
    if start == b"PK\3\4":
        message = f"not safetensors: a header of {int.from_bytes(start, 'little')} bytes in a file of 100"
    refused(1, f"flopmap why: error: {path}: {message}", "why", str(path), "--on", "h100")


INDEXES: dict[str, tuple[Any, str]] = {
    "no map": ({}, "Object missing required field `weight_map`"),
    "a list": ([], "Expected `object`, got `array`"),
    "a number": ({"weight_map": {"a": 3}}, "Expected `str`, got `int` - at `$.weight_map[...]`"),
    "a way out": (
        {"weight_map": {"a": "../x.safetensors"}},
        "weight_map: '../x.safetensors' is no safetensors file beside the index",
    ),
    "a place": (
        {"weight_map": {"a": "/etc/passwd"}},
        "weight_map: '/etc/passwd' is no safetensors file beside the index",
    ),
    "another shard": (
        {"weight_map": {"absent": "model.safetensors"}},
        "weight_map: the tensor 'absent' is not in 'model.safetensors'",
    ),
}


@pytest.mark.parametrize("name", INDEXES)
def test_a_wrong_index_is_one_line(name: str, tmp_path: Path) -> None:
    index, message = INDEXES[name]
    folder = folder_of(tmp_path, tiny())
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps(index))
    refused(1, f"flopmap why: error: {path}: {message}", "why", folder, "--on", "h100")


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, tiny())
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "gone.safetensors"}}')
    refused(1, f"flopmap why: error: {folder}/gone.safetensors: no such file", "why", folder, "--on", "h100")


def test_a_tensor_in_two_shards_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    for name in "ab":
        write(tmp_path / f"{name}.safetensors", {"lm_head.weight": ("BF16", (100, 64))})
    message = f"flopmap why: error: {tmp_path}/b.safetensors: tensor 'lm_head.weight': is in a.safetensors too"
    refused(1, message, "why", str(tmp_path), "--on", "h100")


# -- bounds -----------------------------------------------------------------------------------------------------------


def test_a_million_tensors_take_3_seconds_and_500_megabytes(tmp_path: Path) -> None:
    count = 1_000_000
    parts = [
        f'"t.{i}.weight":{{"dtype":"BF16","shape":[4,4],"data_offsets":[{i * 32},{i * 32 + 32}]}}' for i in range(count)
    ]
    raw = ('{"__metadata__":{"format":"pt"},' + ",".join(parts) + "}").encode()
    path = write_raw(tmp_path / "model.safetensors", raw, 32 * count)
    script = (
        "import sys; from flopmap.model.safetensors import read_file; count = len(read_file(sys.argv[1])); "
        "print(count, next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])"
    )
    answer = subprocess.run((sys.executable, "-c", script, path), capture_output=True, text=True, check=True)
    found, kilobytes = answer.stdout.split()
    assert int(found) == count
    assert int(kilobytes) < 500_000


LARGEST = 99_000_000  # bytes of a header that is not refused for its size
BOUNDED: dict[str, tuple[Callable[[], str], str]] = {
    "objects": (lambda: '"a":{},' * (LARGEST // 7), "header: too many tensors (at most 1100000)"),
    "numbers": (lambda: '"a":1,' * (LARGEST // 6), "header: Expected `object`, got `int` - at `$[...]`"),
    "names in escapes": (
        lambda: "".join(f'"\\u0061{index:07}":{{}},{" " * 70}' for index in range(1_090_000)),
        "tensor 'a1089999': dtype, shape and data_offsets are needed",
    ),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_a_header_of_100_megabytes_stays_within_a_gigabyte(name: str, tmp_path: Path) -> None:
    parts, message = BOUNDED[name]
    path = write_raw(tmp_path / "model.safetensors", ("{" + parts().rstrip(", ") + "}").encode())
    script = (
        "import sys; from flopmap.model.safetensors import read_file\n"
        "try: read_file(sys.argv[1])\n"
        "except ValueError as error: print(error)\n"
        "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])"
    )
    answer = subprocess.run((sys.executable, "-c", script, path), capture_output=True, text=True, check=True)
    said, kilobytes = answer.stdout.splitlines()
    assert said == f"{path}: {message}"
    assert int(kilobytes) < 1_000_000


FUZZED = 500  # inputs of each kind; all have passed with 2,000
VALID = json.dumps(entries(tiny())[0]).encode()


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "config.json").write_text(json.dumps(TINY))
    return folder / "model.safetensors"


def only_a_config_error(path: Path, raw: bytes, size: int, book: Book) -> None:
    write_raw(path, raw, size)
    message = ""
    try:
        read_model(str(path), book)
    except ConfigError as error:
        message = str(error)
    assert "\n" not in message
    assert len(message) < 1000


def fuzz(function: Any) -> Any:
    quick = settings(max_examples=FUZZED, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    return quick(function)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=12,
)
OFFSETS = st.lists(st.integers(-1, 40) | st.integers(), min_size=1, max_size=3)
ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from([*BITS, "U7", ""]) | JSON,
        "shape": st.lists(st.integers(-1, 9) | st.integers(), max_size=4) | JSON,
        "data_offsets": OFFSETS | JSON,
    },
)


@fuzz
@given(raw=st.binary(max_size=400), size=st.integers(0, 99))
def test_any_bytes_as_a_header(scratch: Path, raw: bytes, size: int, book: Book) -> None:
    only_a_config_error(scratch, raw, size, book)


@fuzz
@given(header=st.dictionaries(st.sampled_from(sorted(tiny())) | st.text(max_size=30), ENTRIES | JSON, max_size=5))
def test_any_json_as_a_header(scratch: Path, header: Any, book: Book) -> None:
    only_a_config_error(scratch, json.dumps(header).encode(), 40, book)


@fuzz
@given(
    changes=st.lists(st.tuples(st.integers(0, len(VALID) - 1), st.integers(0, 255)), max_size=6),
    cut=st.integers(0, 2 * len(VALID)),
)
def test_a_valid_header_with_bytes_changed_or_cut(
    scratch: Path, changes: list[tuple[int, int]], cut: int, book: Book
) -> None:
    raw = bytearray(VALID)
    for position, byte in changes:
        raw[position] = byte
    only_a_config_error(scratch, bytes(raw[:cut]), nbytes(tiny()), book)
