"""Configs as people have them: two spellings, nested text models, folders and files, and what each family assumes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from flopmap.model.architecture import Attention, FeedForward, Norm
from flopmap.model.config import ConfigError, MissingFileError
from flopmap.model.reading import Checkpoint, from_config, read_model, read_path
from flopmap.records.types import Model

if TYPE_CHECKING:
    from pathlib import Path

    from flopmap.model.architecture import Architecture
    from flopmap.records.book import Book

SMALL = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 6,
    "num_attention_heads": 32,
    "vocab_size": 1000,
}
GPT2 = {"n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 100}
OPT = {"hidden_size": 64, "ffn_dim": 128, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 100}


def config_of(family: str, **fields: Any) -> dict[str, Any]:
    base = {"gpt2": GPT2, "opt": OPT}.get(family, SMALL)
    return {"model_type": family, **base, **fields}


def read(family: str, **fields: Any) -> Architecture:
    return from_config(config_of(family, **fields), "config.json").architecture


def windows(architecture: Architecture) -> list[int | None]:
    return [layer.attention.window for layer in architecture.layers if isinstance(layer.attention, Attention)]


def attention_of(architecture: Architecture) -> Attention:
    attention = architecture.layers[0].attention
    assert isinstance(attention, Attention)
    return attention


def feed_forward_of(architecture: Architecture) -> FeedForward:
    feed_forward = architecture.layers[0].feed_forward
    assert isinstance(feed_forward, FeedForward)
    return feed_forward


def same(one: Checkpoint, other: Checkpoint) -> bool:
    return (one.architecture, one.dtype, one.quantization) == (other.architecture, other.dtype, other.quantization)


# -- spellings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3", "phi3", "gemma", "gemma2", "cohere"])
def test_the_spellings_of_transformers_4_and_5_are_equal(family: str) -> None:
    old = config_of(family, torch_dtype="bfloat16", rope_theta=500000.0, rope_scaling={"type": "linear", "factor": 2.0})
    rope = {"rope_theta": 500000.0, "rope_type": "linear", "factor": 2.0}
    new = config_of(family, dtype="bfloat16", rope_parameters=rope)
    assert same(from_config(old, "a"), from_config(new, "b"))


def test_partial_rotation_is_read_in_both_spellings() -> None:
    old = read("phi3", partial_rotary_factor=0.5)
    new = read("phi3", rope_parameters={"partial_rotary_factor": 0.5, "rope_theta": 1e4})
    assert old == new
    assert attention_of(old).rotary_dim == 4
    assert attention_of(read("phi3")).rotary_dim == 8


def test_phi_rotates_half_of_a_head_unless_it_says_otherwise() -> None:
    assert attention_of(read("phi")).rotary_dim == 4
    assert attention_of(read("phi", rope_parameters={"rope_theta": 1e4, "rope_type": "default"})).rotary_dim == 4
    assert attention_of(read("phi", partial_rotary_factor=0.25)).rotary_dim == 2


def test_layer_types_and_the_older_pattern_fields_are_equal() -> None:
    types = ["sliding_attention" if index % 2 == 0 else "full_attention" for index in range(6)]
    assert read("gemma2", sliding_window=64) == read("gemma2", sliding_window=64, layer_types=types)
    types = ["full_attention"] * 4 + ["sliding_attention"] * 2
    flags = {"use_sliding_window": True, "sliding_window": 64}
    assert read("qwen2", max_window_layers=4, **flags) == read("qwen2", layer_types=types, **flags)


def test_gpt2_takes_its_own_names_and_the_common_ones() -> None:
    common = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 100}
    assert from_config({"model_type": "gpt2", **common}, "a").architecture == read("gpt2")


@pytest.mark.parametrize(
    ("written", "dtype"),
    [("bfloat16", "bf16"), ("float16", "fp16"), ("half", "fp16"), ("float32", "fp32"), (None, None)],
)
def test_data_types(written: str | None, dtype: str | None) -> None:
    assert from_config(config_of("llama", torch_dtype=written), "a").dtype == dtype
    assert from_config(config_of("llama", dtype=written), "a").dtype == dtype


# -- where a config is ------------------------------------------------------------------------------------------------


def test_a_folder_and_its_file_are_equal(tmp_path: Path, book: Book) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config_of("llama")))
    assert read_model(str(tmp_path), book) == read_model(str(path), book)
    assert read_model(str(tmp_path), book).name == str(path)


def test_a_bundled_model_and_its_config_are_equal(tmp_path: Path, book: Book) -> None:
    for name in book.ids("models"):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(book.record(Model, name).config))
        bundled = read_model(name, book)
        assert bundled.name == name
        assert same(bundled, read_model(str(path), book))
        for alias in book.record(Model, name).aliases:
            assert read_model(alias, book) == bundled


def test_a_missing_file_is_told_apart_from_a_wrong_one(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError):
        read_path(str(tmp_path / "config.json"))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError) as error:
        read_path(str(tmp_path / "config.json"))
    assert not isinstance(error.value, MissingFileError)


def test_a_nested_text_model_is_read_from_inside() -> None:
    inner = config_of("llama", torch_dtype="float16")
    outer = {"model_type": "some_vision_model", "text_config": inner, "vision_config": {"hidden_size": 7}}
    nested = from_config(outer, "a")
    assert same(nested, from_config(inner, "a"))
    assert nested.not_counted == ("vision_config of a 'some_vision_model' (only its text model is counted)",)


def test_a_nested_text_model_may_leave_its_type_and_ties_to_the_outside() -> None:
    flat = read("gemma3_text", tie_word_embeddings=False)
    inner = {key: value for key, value in config_of("gemma3_text").items() if key != "model_type"}
    outer = {"model_type": "gemma3", "tie_word_embeddings": False, "text_config": inner}
    assert from_config(outer, "a").architecture == flat
    assert not flat.tied


def test_gemma_3_knows_its_own_sizes() -> None:
    bare = from_config({"model_type": "gemma3", "text_config": {"hidden_size": 2560, "sliding_window": 1024}}, "a")
    architecture = bare.architecture
    assert (architecture.hidden, architecture.vocab, len(architecture.layers)) == (2560, 262208, 26)
    attention = attention_of(architecture)
    assert (attention.heads, attention.kv_heads, attention.head_dim) == (8, 4, 256)
    assert feed_forward_of(architecture).width == 9216
    assert architecture.tied


# -- what each family assumes -----------------------------------------------------------------------------------------

# family: kv heads of 32, head_dim of 256 / 32, tied, norms a layer, gated, qkv bias, out bias, query-key norm
DEFAULTS: dict[str, tuple[int, int, bool, int, bool, bool, bool, str]] = {
    "llama": (32, 8, False, 2, True, False, False, "none"),
    "mistral": (8, 8, False, 2, True, False, False, "none"),
    "qwen2": (32, 8, False, 2, True, True, False, "none"),
    "qwen3": (32, 128, False, 2, True, False, False, "shared"),
    "phi": (32, 8, False, 1, False, True, True, "none"),
    "phi3": (32, 8, False, 2, True, False, False, "none"),
    "gemma": (16, 256, True, 2, True, False, False, "none"),
    "gemma2": (4, 256, True, 4, True, False, False, "none"),
    "gemma3_text": (4, 256, True, 4, True, False, False, "shared"),
    "cohere": (32, 8, True, 1, True, False, False, "none"),
}
RMS, LAYER_NORM, LAYER_NORM_WITHOUT_BIAS = Norm(), Norm(kind="layer", bias=True), Norm(kind="layer")


@pytest.mark.parametrize("family", DEFAULTS)
def test_what_a_family_assumes_of_absent_fields(family: str) -> None:
    architecture = read(family)
    layer = architecture.layers[0]
    attention = attention_of(architecture)
    assert DEFAULTS[family] == (
        attention.kv_heads,
        attention.head_dim,
        architecture.tied,
        layer.norms,
        feed_forward_of(architecture).gated,
        attention.qkv_bias,
        attention.out_bias,
        attention.qk_norm,
    )
    assert attention.value_dim == attention.head_dim
    assert architecture.family == family
    assert architecture.positions == 0
    assert architecture.embedding_width == architecture.hidden


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma", "gemma2", "cohere"])
def test_a_bias_of_attention_is_on_all_four_projections(family: str) -> None:
    attention = attention_of(read(family, attention_bias=True))
    assert attention.qkv_bias
    assert attention.out_bias


@pytest.mark.parametrize("family", ["mistral", "phi3"])
def test_a_bias_that_the_class_ignores_is_ignored(family: str) -> None:
    assert read(family, attention_bias=True, mlp_bias=True) == read(family)


def test_only_llama_has_a_bias_in_its_feed_forward_by_choice() -> None:
    assert feed_forward_of(read("llama", mlp_bias=True)).bias
    assert not feed_forward_of(read("llama")).bias


def test_norms_of_each_family() -> None:
    for family in ("llama", "mistral", "qwen2", "qwen3", "phi3", "gemma", "gemma2", "gemma3_text"):
        assert read(family).norm == RMS
    for family in ("phi", "gpt2", "opt"):
        assert read(family).norm == LAYER_NORM
    assert read("cohere").norm == LAYER_NORM_WITHOUT_BIAS


def test_head_dim_wins_over_the_hidden_size() -> None:
    for family in ("llama", "mistral", "qwen3", "gemma2"):
        attention = attention_of(read(family, head_dim=48))
        assert (attention.head_dim, attention.value_dim, attention.query_width) == (48, 48, 32 * 48)
    assert read("llama", hidden_size=257, head_dim=8).hidden == 257


def test_ties_are_as_the_config_says() -> None:
    for family in (*DEFAULTS, "gpt2", "opt"):
        assert read(family, tie_word_embeddings=True).tied
        assert not read(family, tie_word_embeddings=False).tied


def test_phi_has_a_bias_on_its_head_and_norms_its_heads_when_asked() -> None:
    assert read("phi").head_bias
    assert not read("phi3").head_bias
    attention = attention_of(read("phi", qk_layernorm=True))
    assert (attention.qk_norm, attention.qk_norm_kind) == ("shared", LAYER_NORM)


def test_cohere_norms_each_head_by_its_own_weights_when_asked() -> None:
    attention = attention_of(read("cohere", use_qk_norm=True))
    assert (attention.qk_norm, attention.qk_norm_kind) == ("per-head", LAYER_NORM_WITHOUT_BIAS)


def test_gemma_scales_embeddings_and_the_second_caps_scores_and_logits() -> None:
    for family in ("gemma", "gemma2", "gemma3_text"):
        assert read(family).embedding_scaled
    assert attention_of(read("gemma2")).capped
    assert read("gemma2").logits_capped
    uncapped = read("gemma2", attn_logit_softcapping=None, final_logit_softcapping=None)
    assert not attention_of(uncapped).capped
    assert not uncapped.logits_capped
    assert not attention_of(read("gemma3_text")).capped


def test_gpt2_is_ungated_with_learned_positions() -> None:
    architecture = read("gpt2")
    attention = attention_of(architecture)
    assert (
        feed_forward_of(architecture).width,
        feed_forward_of(architecture).gated,
        feed_forward_of(architecture).bias,
    ) == (256, False, True)
    assert (attention.kv_heads, attention.head_dim, attention.rotary_dim) == (4, 16, 0)
    assert (architecture.positions, architecture.tied, architecture.final_norm) == (1024, True, True)
    assert feed_forward_of(read("gpt2", n_inner=100, n_positions=77)).width == 100
    assert feed_forward_of(read("gpt2", n_inner=None)).width == 256
    assert read("gpt2", n_positions=77).positions == 77


def test_opt_has_an_offset_of_two_and_may_have_a_narrow_embedding() -> None:
    architecture = read("opt")
    assert (architecture.positions, architecture.tied, architecture.final_norm) == (2050, True, True)
    assert not feed_forward_of(architecture).smooth  # relu
    narrow = read("opt", word_embed_proj_dim=32, do_layer_norm_before=False)
    assert (narrow.embedding_width, narrow.hidden, narrow.final_norm) == (32, 64, False)
    assert not read("opt", _remove_final_layer_norm=True).final_norm
    plain = read("opt", enable_bias=False, layer_norm_elementwise_affine=False)
    assert not attention_of(plain).qkv_bias
    assert not feed_forward_of(plain).bias
    assert not plain.norm.affine


# -- windows ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama", "phi", "gemma", "cohere", "gpt2", "opt"])
def test_families_that_see_everything(family: str) -> None:
    assert set(windows(read(family, sliding_window=64))) == {None}


def test_mistral_has_a_window_unless_it_is_null() -> None:
    assert windows(read("mistral")) == [4096] * 6
    assert windows(read("mistral", sliding_window=None)) == [None] * 6
    assert windows(read("mistral", sliding_window=64)) == [64] * 6


def test_phi_3_has_a_window_on_every_layer_where_one_is_given() -> None:
    assert windows(read("phi3")) == [None] * 6
    assert windows(read("phi3", sliding_window=None)) == [None] * 6
    assert windows(read("phi3", sliding_window=64)) == [64] * 6


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_qwen_has_windows_only_when_told_and_only_on_later_layers(family: str) -> None:
    assert windows(read(family, sliding_window=64)) == [None] * 6
    assert windows(read(family, sliding_window=64, use_sliding_window=False, max_window_layers=2)) == [None] * 6
    told = {"sliding_window": 64, "use_sliding_window": True}
    assert windows(read(family, **told)) == [None] * 6  # the first 28 layers see everything
    assert windows(read(family, **told, max_window_layers=2)) == [None, None, 64, 64, 64, 64]
    assert windows(read(family, **told, max_window_layers=0)) == [64] * 6
    assert windows(read(family, use_sliding_window=True, max_window_layers=5)) == [None] * 5 + [4096]


def test_gemma_2_has_a_window_on_every_other_layer() -> None:
    assert windows(read("gemma2")) == [4096, None] * 3
    assert windows(read("gemma2", sliding_window=64, num_hidden_layers=5)) == [64, None, 64, None, 64]


def test_gemma_3_sees_everything_on_every_sixth_layer() -> None:
    architecture = read("gemma3_text", num_hidden_layers=13, sliding_window=512)
    assert windows(architecture) == [*[512] * 5, None, *[512] * 5, None, 512]
    assert windows(read("gemma3_text", sliding_window=64, sliding_window_pattern=3)) == [64, 64, None] * 2
    assert windows(read("gemma3_text")) == [4096] * 5 + [None]


def test_layer_types_win_over_every_rule() -> None:
    types = ["full_attention", "sliding_attention", "sliding_attention", *["full_attention"] * 3]
    expected = [None, 64, 64, None, None, None]
    for family in ("mistral", "phi3", "gemma2", "gemma3_text"):
        assert windows(read(family, sliding_window=64, layer_types=types)) == expected
    told = {"use_sliding_window": True, "max_window_layers": 0}
    assert windows(read("qwen3", sliding_window=64, layer_types=types, **told)) == expected
