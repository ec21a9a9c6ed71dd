"""A model from what people have in hand: a config.json, a folder with one, weight files, or a bundled record's id."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import msgspec

from flopmap.model.architecture import Architecture
from flopmap.model.config import Config, ConfigError, MissingFileError
from flopmap.model.families import AROUND_INDEX, family_of, read_around, read_family
from flopmap.model.families.drafters import read_predictor
from flopmap.quantity import shown
from flopmap.records.book import Book, UnknownRecordError
from flopmap.records.types import Model

MAX_CONFIG_BYTES = 10_000_000
WHOLE = ("phi4_multimodal",)  # families whose towers are counted as held
PREDICTORS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")
BESIDE = (
    "text_config",
    "attn_config",
    "ffn_config",
    "init_config",
    "per_layer_config",
    "quantization_config",
    "generation_config",
    "preprocessor_config",
    "video_preprocessor_config",
)
DRAFTERS = ("gemma4_assistant", "gemma4_unified_assistant")  # they read the cache of the model that they draft for
STATE_DTYPES = ("mamba_ssm_cache_dtype", "mamba_ssm_dtype")
TEXT_FAMILIES = {  # what a nested text_config is when it does not say so
    "aria": "aria_text",
    "gemma3": "gemma3_text",
    "glm4v_moe": "glm4v_moe_text",
    "kimi_k25": "kimi_k2",
    "llama4": "llama4_text",
    "minimax_m3_vl": "minimax_m3_vl_text",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen2_vl": "qwen2_vl_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
}
SAFETENSORS = (".safetensors", ".safetensors.index.json")
WEIGHTS = (".gguf", *SAFETENSORS)
DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "half": "fp16"}


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A model as read: its architecture, and what its config says of formats; ``not_counted`` is what is left out.

    ``weights`` is the format of most weights of a file whose tensors were measured, where it is not ``dtype``.

    ``predictor`` is its layer that predicts a further token (MTP), which is held only where it drafts.

    ``stored`` are bytes a parameter of the ops (by name) whose matrices are not in the model's general format: modules
    that a quantised checkpoint leaves alone, or every matrix of a file whose tensors were measured.
    """

    name: str
    architecture: Architecture
    predictor: Architecture | None = None
    weights: str | None = None
    stored: dict[str, float] = {}
    dtype: str | None = None
    state_dtype: str | None = None
    quantization: dict[str, Any] | None = None
    nominal_parameters: float | None = None
    source: str = ""
    not_counted: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    processor: bool = False


def read_model(name: str, book: Book) -> Checkpoint:
    """Read a model by path, record id or alias.

    Raises :class:`ConfigError` when the file is not a config that is understood, and
    :class:`UnknownRecordError` when no file and no record has this name.
    """
    if book.find("models", name) is None and looks_like_path(name):
        return read_path(name)
    try:
        record = book.record(Model, name)
    except UnknownRecordError as error:
        raise UnknownRecordError("models", name, error.nearest) from None
    checkpoint = from_config(record.config, record.id)
    source = record.sources[0] if record.sources else ""
    return msgspec.structs.replace(
        checkpoint, name=record.id, nominal_parameters=record.nominal_parameters, source=source
    )


HEADS = ("eagle", "eagle3", "medusa")


def read_head(name: str, method: str | None, sizes: dict[str, int], book: Book) -> Checkpoint | None:
    """A head that drafts for another model, whose ``sizes`` it has where its config gives none.

    Without a ``method`` the config says which it is; None where it is a model of its own. Raises as :func:`read_model`.
    """
    if book.find("models", name) is not None:
        fields = book.record(Model, name).config
    elif looks_like_path(name):
        path = json_of(name, "config.json")
        if path.endswith(WEIGHTS) or not os.path.exists(path):
            return None
        fields = read_json(path)
    else:
        raise UnknownRecordError("models", name, book.nearest("models", name))
    config = Config(fields, name)
    inner = config.table("model") or fields  # as checkpoints of EAGLE were converted
    said = "medusa" if "medusa_num_heads" in fields else family_of(config)
    kind = said if said in HEADS else method
    if kind is None:
        return None
    return from_config({**sizes, **inner, "model_type": kind, "architectures": []}, name)


def json_of(name: str, inside: str) -> str:
    """The path of a file, or of the one ``inside`` of a folder."""
    path = os.path.expanduser(name)
    return os.path.join(path, inside) if os.path.isdir(path) else path


def looks_like_path(name: str) -> bool:
    """Whether a name means a file or folder, which may be missing, and no id."""
    return os.path.exists(name) or name.startswith((".", "/", "~")) or name.endswith((".json", *WEIGHTS))


def read_path(name: str) -> Checkpoint:
    """Read a ``config.json``, a GGUF file, or safetensors with the ``config.json`` beside them (or a folder of those).

    Raises :class:`ConfigError`, and :class:`MissingFileError` where the file is not there.
    """
    path = os.path.expanduser(name)
    if path.endswith(WEIGHTS) and not os.path.exists(path):
        raise MissingFileError(f"{path}: no such file")
    if path.endswith(".gguf") and not os.path.isdir(path):
        from flopmap.model.gguf_model import read_gguf

        return read_gguf(path)
    if path.endswith(SAFETENSORS) and not os.path.isdir(path):
        from flopmap.model.safetensors_model import read_beside_config

        return read_beside_config(path)
    if os.path.isdir(path):
        if _has_safetensors(path):
            from flopmap.model.safetensors_model import read_folder_of

            return read_folder_of(path)
        alone = _only_gguf(path)
        if alone:
            return read_path(alone)
        path = os.path.join(path, "config.json")
    return read_config(path)


def _has_safetensors(folder: str) -> bool:
    """Whether a folder holds a checkpoint in safetensors beside its config."""
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    return "config.json" in names and any(name.endswith(SAFETENSORS) for name in names)


def _only_gguf(folder: str) -> str | None:
    """The GGUF file of a folder without a config, any of its shards. Raises where there are several models."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return None
    files = [name for name in names if name.endswith(".gguf")]
    if not files or "config.json" in names:
        return None
    if len({name.rpartition("-of-")[0][: -len("-00001")] or name for name in files}) > 1:
        raise ConfigError(f"{folder}: several GGUF files; give one of them: {', '.join(files)}")
    return os.path.join(folder, files[0])


def read_config(path: str) -> Checkpoint:
    """Read a ``config.json``, with the ``hf_quant_config.json`` that ModelOpt leaves beside it."""
    fields = read_json(path)
    beside = os.path.join(os.path.dirname(path), "hf_quant_config.json")
    if os.path.basename(path) == "config.json" and not fields.get("quantization_config") and os.path.exists(beside):
        settings = Config(read_json(beside), beside).table("quantization")
        fields["quantization_config"] = {"quant_method": "modelopt", **settings}
    return from_config(_with_processor(fields, path), path)


def _with_processor(fields: dict[str, Any], path: str) -> dict[str, Any]:
    """The fields with the settings of the processors of images and videos that lie beside them, if any do."""
    if os.path.basename(path) != "config.json":
        return fields
    for name in ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json"):
        beside, key = os.path.join(os.path.dirname(path), name), name.removesuffix(".json")
        if os.path.exists(beside):
            settings: Any = read_json(beside)
            if key == "processor_config":
                key, settings = "preprocessor_config", settings.get("image_processor")
            if key not in fields and isinstance(settings, dict):
                fields = {**fields, key: settings}
    return fields


def read_json(path: str) -> dict[str, Any]:
    """The JSON object of a file."""
    try:
        data = _bytes_of(path)
        fields = decoded(data)
    except FileNotFoundError:
        raise MissingFileError(f"{path}: no such file") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except RecursionError:
        raise ConfigError(f"{path}: not JSON: nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ConfigError(f"{path}: {shown(fields)} is no model config (a JSON object is needed)")
    return fields


def decoded(data: bytes) -> Any:
    """JSON, also as Python writes it: real configs hold Infinity (a time step's limit). Raises as msgspec does."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        if b"Infinity" not in data and b"NaN" not in data:
            raise
        import json

        with contextlib.suppress(ValueError):
            return json.loads(data)
        raise


def _bytes_of(path: str) -> bytes:
    """The file's bytes, never more than a config may have (a pipe or a device has no size to ask for)."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_CONFIG_BYTES:
            raise ConfigError(f"{path}: {size} bytes is too large for a config (at most {MAX_CONFIG_BYTES})")
        data = file.read(MAX_CONFIG_BYTES + 1)
    if len(data) > MAX_CONFIG_BYTES:
        raise ConfigError(f"{path}: too large for a config (at most {MAX_CONFIG_BYTES} bytes)")
    return data


def from_config(fields: dict[str, Any], name: str) -> Checkpoint:
    """Read the fields of a config in transformers 4 or 5 spelling, the text model's where it is nested."""
    outer = Config(fields, name)
    around = outer.string("model_type") in AROUND_INDEX and bool(_towers(fields))
    text = outer.table("text_config") or (_flat(fields) if around else {})
    if outer.string("model_type") in DRAFTERS:
        message = f"{shown(outer.string('model_type'))} is not understood: it drafts for another model and has no cache"
        raise outer.error("model_type", message)
    inner = Config(_nested(fields, text), name) if text else outer
    architecture = read_family(inner)
    if around:
        architecture = read_around(outer, architecture)
    field, dtype = inner.named_string("dtype", "torch_dtype")
    if not dtype:
        field, dtype = outer.named_string("dtype", "torch_dtype")
    if dtype and dtype not in DTYPES:
        raise inner.error(field, f"{shown(dtype)} is not understood (understood: {', '.join(DTYPES)})")
    quantization = outer.table("quantization_config") or inner.table("quantization_config")
    if quantization and inner.has("expert_dtype"):  # DeepSeek-V4 says there what its experts are stored in
        quantization = {**quantization, "expert_dtype": inner.fields["expert_dtype"]}
    predictor = read_predictor(inner, architecture)
    return Checkpoint(
        name=name,
        architecture=architecture,
        predictor=predictor,
        dtype=DTYPES.get(dtype),
        quantization=quantization or None,
        state_dtype=DTYPES.get(inner.string(*STATE_DTYPES)),
        not_counted=_not_counted(inner, outer if text else None, predictors=predictor is None),
        processor=outer.has("preprocessor_config"),
    )


def _not_counted(inner: Config, outer: Config | None, *, predictors: bool) -> tuple[str, ...]:
    """What a checkpoint holds beside the language model that is counted; ``predictors``: those of a form not known."""
    left = [
        f"{field} {inner.fields[field]}: layers that predict further tokens"
        for field in PREDICTORS
        if predictors and isinstance(inner.fields.get(field), int) and inner.fields[field] > 0
    ]
    towers = _towers(outer.fields) if outer else []
    if outer is not None and towers and outer.string("model_type") in AROUND_INDEX:
        return tuple(left)
    if outer is None and inner.fields.get("model_type") not in WHOLE:
        left += [
            f"{field} (only the text decoder is counted)"
            for field, value in inner.fields.items()
            if field.endswith("_config") and field not in BESIDE and isinstance(value, dict)
        ]
    if outer is not None:
        around = ", ".join(towers) or "what is around it"
        left.append(f"{around} of a {shown(outer.string('model_type'))} (only its text model is counted)")
    return tuple(left)


def _towers(fields: dict[str, Any]) -> list[str]:
    """The configs of towers that a config holds."""
    return [key for key, value in fields.items() if key.endswith("_config") and key not in BESIDE and value]


def _flat(fields: dict[str, Any]) -> dict[str, Any]:
    """The text model of a config that has its fields beside those of the towers, as Qwen2-VL's does."""
    return {key: value for key, value in fields.items() if not key.endswith("_config") and key != "model_type"}


def _nested(fields: dict[str, Any], text: dict[str, Any]) -> dict[str, Any]:
    """A nested text model, with what the config around it decides: its kind when it does not say, and what is tied."""
    family = fields.get("model_type")
    around = {"model_type": TEXT_FAMILIES[family]} if isinstance(family, str) and family in TEXT_FAMILIES else {}
    tied = {key: fields[key] for key in ("tie_word_embeddings",) if key in fields}
    return {**around, **text, **tied}
