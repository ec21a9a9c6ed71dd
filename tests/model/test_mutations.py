"""Configs spoilt at random: a spoilt config is priced or refused in one line, and nothing else ever comes out."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flopmap.floor.roofline import price
from flopmap.model.architecture import Attention
from flopmap.model.config import ConfigError
from flopmap.model.families import INDEX, MODULES
from flopmap.model.reading import Checkpoint, from_config, read_path
from flopmap.records.book import load
from flopmap.records.types import Model
from flopmap.scenario import Request, make
from flopmap.step import ScenarioError

BOOK = load()
CONFIGS = {name: BOOK.record(Model, name).config for name in BOOK.ids("models")}
VALID: dict[str, dict[str, Any]] = {}
for config in CONFIGS.values():
    VALID.setdefault((config.get("text_config") or config).get("model_type", config["model_type"]), config)
FIELDS = sorted(
    {key for config in CONFIGS.values() for key in (*config, *(config.get("text_config") or {}))}
    | {"layer_types", "rope_parameters", "quantization_config", "text_config", "vision_config", "num_local_experts"}
    | {"dtype", "torch_dtype", "head_dim", "sliding_window", "use_sliding_window", "max_window_layers", "kv_lora_rank"}
    | {"partial_rotary_factor", "n_inner", "word_embed_proj_dim", "qk_layernorm", "use_qk_norm", "hidden_activation"}
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 70)
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=True, allow_infinity=True)
    | st.text(max_size=8)
    | st.sampled_from(["full_attention", "sliding_attention", "relu", "silu", "bfloat16", "float32", *INDEX])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=6,
)
changes = st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=6), values, max_size=4)
deletions = st.sets(st.sampled_from(FIELDS), max_size=3)


def spoilt(family: str, changed: dict[str, Any], deleted: set[str]) -> dict[str, Any]:
    """A valid config with fields put in, replaced and left out, in the text model's own part where there is one."""
    fields = {key: value for key, value in VALID[family].items() if key not in deleted}
    inner = fields.get("text_config")
    if isinstance(inner, dict):
        return {
            **fields,
            "text_config": {key: item for key, item in {**inner, **changed}.items() if key not in deleted},
        }
    return {**fields, **changed}


def one_line(refusal: str) -> bool:
    return "\n" not in refusal and len(refusal) < 400


def read_or_refused(fields: dict[str, Any]) -> Checkpoint | None:
    try:
        return from_config(fields, "config.json")
    except ConfigError as error:
        refusal = str(error)
    assert refusal.startswith("config.json: ")
    assert one_line(refusal)
    return None


@pytest.mark.parametrize("family", sorted(MODULES["dense"]))
@settings(max_examples=60, deadline=None)  # 720 inputs over the twelve families
@given(changed=changes, deleted=deletions)
def test_a_spoilt_config_is_read_or_refused(family: str, changed: dict[str, Any], deleted: set[str]) -> None:
    checkpoint = read_or_refused(spoilt(family, changed, deleted))
    if checkpoint is not None:
        architecture = checkpoint.architecture
        if changed.get("model_type", family) != family:  # another family's kinds of layer, or a tower and no layers
            return
        assert 0 < len(architecture.layers) <= 4096
        for layer in architecture.layers[:1]:
            attention = layer.attention
            assert isinstance(attention, Attention)
            assert attention.heads % attention.kv_heads == 0
            assert 0 <= attention.rotary_dim <= attention.head_dim
            assert attention.window is None or attention.window > 0


def floors_or_refusal(path: str, phase: str) -> tuple[tuple[float, ...], str]:
    """The three floors of a step, or why there are none."""
    try:
        pricing = price(make(Request(model=path, on="h100-sxm", phase=phase), BOOK), BOOK)
    except (ConfigError, ScenarioError) as error:
        return (), str(error)
    return (pricing.device_seconds, pricing.operation_seconds, pricing.engine_seconds), ""


@settings(max_examples=60, deadline=None)  # 60 inputs, each priced in three phases
@given(family=st.sampled_from(sorted(MODULES["dense"])), changed=changes, deleted=deletions)
def test_what_is_read_is_priced_or_refused(family: str, changed: dict[str, Any], deleted: set[str]) -> None:
    fields = spoilt(family, changed, deleted)
    if read_or_refused(fields) is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(fields))
        for phase in ("decode", "prefill", "mixed"):
            floors, refusal = floors_or_refusal(str(path), phase)
            assert one_line(refusal)
            assert refusal or 0 < floors[0] <= floors[1] <= floors[2] < float("inf")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.binary(max_size=60)
    | st.text(max_size=60).map(str.encode)
    | values.map(lambda value: json.dumps(value).encode())
)
def test_any_file_is_refused_in_one_line(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as error:
        read_path(str(path))
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


@settings(max_examples=50, deadline=None)
@given(cut=st.integers(0, 10**6), family=st.sampled_from(sorted(MODULES["dense"])))
def test_a_config_cut_short_is_no_json(cut: int, family: str) -> None:
    whole = json.dumps(VALID[family]).encode()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_bytes(whole[: cut % len(whole)])
        with pytest.raises(ConfigError, match="not JSON: "):
            read_path(str(path))
