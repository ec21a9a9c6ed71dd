"""How each family's config maps onto the parts of an architecture: a module a kind of family, a function a family."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from flopmap.quantity import shown

if TYPE_CHECKING:
    from flopmap.model.architecture import Architecture
    from flopmap.model.config import Config

# which module knows a model_type; only that one is imported
MODULES: dict[str, tuple[str, ...]] = {
    "dense": (
        "cohere",
        "gemma",
        "gemma2",
        "gemma3_text",
        "gpt2",
        "llama",
        "mistral",
        "opt",
        "phi",
        "phi3",
        "qwen2",
        "qwen3",
    ),
    "modern": (
        "apertus",
        "apertus1p5_text",
        "arcee",
        "bitnet",
        "cohere2",
        "cohere_compass_text",
        "cwm",
        "ernie4_5",
        "exaone",
        "exaone4",
        "glm",
        "glm4",
        "granite",
        "granite_swa",
        "helium",
        "hunyuan_v1_dense",
        "hyperclovax",
        "internlm3",
        "iquestcoder",
        "jais2",
        "ministral",
        "ministral3",
        "nanochat",
        "nemotron",
        "olmo",
        "olmo2",
        "olmo3",
        "persimmon",
        "seed_oss",
        "smollm3",
        "stablelm",
        "starcoder2",
    ),
    "modern_more": (),
    "classic": (
        "biogpt",
        "bloom",
        "codegen",
        "ctrl",
        "falcon",
        "gpt_bigcode",
        "gpt_neo",
        "gpt_neox",
        "gpt_neox_japanese",
        "gptj",
        "moshi",
        "mpt",
        "openai-gpt",
        "persimmon",
        "xglm",
    ),
    "experts": (
        "ernie4_5_moe",
        "flex_olmo",
        "glm4_moe",
        "gpt_oss",
        "granitemoe",
        "granitemoe_swa",
        "granitemoeshared",
        "llama4_text",
        "minimax_m2",
        "mixtral",
        "olmoe",
        "phimoe",
        "qwen2_moe",
        "qwen3_moe",
        "sarvam_moe",
        "solar_open",
    ),
    "latent": (
        "axk1",
        "deepseek_v2",
        "deepseek_v3",
        "deepseek_v32",
        "glm4_moe_lite",
        "glm_moe_dsa",
        "kimi_k2",
        "longcat_flash",
        "minicpm3",
        "mistral4",
        "sarvam_mla",
        "youtu",
    ),
    "recurrent": ("falcon_mamba", "mamba", "mamba2", "rwkv"),
    "hybrid": (
        "bamba",
        "falcon_h1",
        "granitemoehybrid",
        "jamba",
        "lfm2",
        "lfm2_moe",
        "nemotron_h",
        "recurrent_gemma",
    ),
    "linear": ("kimi_linear", "minimax", "olmo_hybrid", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next"),
}
INDEX = {family: module for module, families in MODULES.items() for family in families}
EXPERT_FIELDS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_intermediate_size", "kv_lora_rank")
HEADS = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")


def read_family(config: Config) -> Architecture:
    """The architecture of a config. Raises :class:`ConfigError` for a family that is not understood."""
    family = config.string("model_type")
    if not family:
        raise config.error("model_type", "is missing, so this is no model config that is understood")
    if family not in INDEX:
        raise config.error("model_type", f"{shown(family)} is not understood{_nearest(family)}")
    for name in config.strings("architectures"):
        if not name.endswith(HEADS):
            understood = f"understood: names that end in {', '.join(HEADS)}"
            raise config.error("architectures", f"{shown(name)} is not understood ({understood})")
    if INDEX[family] == "dense":
        for field in EXPERT_FIELDS:
            if config.fields.get(field):
                message = f"experts or latent attention in a {shown(family)} config are not understood"
                raise config.error(field, message)
    module = importlib.import_module(f"flopmap.model.families.{INDEX[family]}")
    architecture: Architecture = module.FAMILIES[family](config)
    return architecture


def _nearest(family: str) -> str:
    """The families whose names look most alike, and where to find them all."""
    import difflib

    close = difflib.get_close_matches(family, INDEX, n=3)
    hint = f"; nearest: {', '.join(close)}" if close else ""
    return f"{hint} (all {len(INDEX)} families: flopmap models --families)"
