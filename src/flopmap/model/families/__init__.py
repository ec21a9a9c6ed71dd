"""How each family's config maps onto the parts of an architecture: a module a kind of family, a function a family."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import msgspec

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
        "jais2",
        "ministral",
        "ministral3",
        "nemotron",
        "olmo",
        "olmo2",
        "olmo3",
        "paddleocr_vl_text",
        "seed_oss",
        "smollm3",
        "stablelm",
        "starcoder2",
    ),
    "modern_more": (
        "diffllama",
        "doge",
        "dory",
        "emu3",
        "emu3_text_model",
        "glm4v_text",
        "glm_ocr_text",
        "hrm_text",
        "internlm3",
        "iquestcoder",
        "modernbert-decoder",
        "nanochat",
        "phi4_multimodal",
        "qwen2_5_vl_text",
        "qwen2_vl_text",
        "qwen3_vl_text",
    ),
    "gemma": (
        "gemma3n_text",
        "gemma4",
        "gemma4_text",
        "gemma4_unified",
        "gemma4_unified_text",
        "vaultgemma",
    ),
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
    "classic_alone": (
        "bart",
        "bigbird_pegasus",
        "blenderbot",
        "blenderbot-small",
        "m2m_100",
        "marian",
        "mbart",
        "mvp",
        "pegasus",
        "plbart",
        "trocr",
        "whisper",
    ),
    "classic_more": (
        "bert",
        "bert-generation",
        "big_bird",
        "camembert",
        "cpmant",
        "data2vec-text",
        "electra",
        "ernie",
        "git",
        "gpt-sw3",
        "megatron-bert",
        "rembert",
        "roberta",
        "roberta-prelayernorm",
        "roc_bert",
        "roformer",
        "xlm",
        "xlm-roberta",
        "xlm-roberta-xl",
        "xmod",
    ),
    "experts": (
        "ernie4_5_moe",
        "flex_olmo",
        "glm4_moe",
        "glm4v_moe_text",
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
        "qwen3_vl_moe_text",
        "sarvam_moe",
        "solar_open",
    ),
    "experts_more": (
        "afmoe",
        "aria_text",
        "beam",
        "cohere2_moe",
        "dbrx",
        "dots1",
        "exaone_moe",
        "flint",
        "hunyuan_v1_moe",
        "hy_v3",
        "kolibri1",
        "laguna",
        "mellum",
        "mimo_v2_flash",
    ),
    "sparse": (
        "axk2",
        "deepseek_ref",
        "deepseek_v4",
        "dots3_note_text",
        "hy_v4",
        "jetmoe",
        "minimax_m3",
        "minimax_m3_vl_text",
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
    "recurrent": ("falcon_mamba", "mamba", "mamba2", "rwkv", "xlstm"),
    "hybrid": (
        "bamba",
        "falcon_h1",
        "granitemoehybrid",
        "jamba",
        "nemotron_h",
        "zamba",
        "zamba2",
    ),
    "t5": ("mt5", "t5", "umt5"),
    "pictures_alone": (
        "aimv2_vision_model",
        "beit",
        "clip_vision_model",
        "data2vec-vision",
        "deit",
        "dinov2",
        "dinov2_with_registers",
        "dinov3_vit",
        "ijepa",
        "siglip_vision_model",
        "vit",
        "vit_msn",
    ),
    "pictures_tiled": ("mllama_text_model",),
    "streams": ("qwen4_exp_text",),
    "inkling": ("inkling2_text", "inkling_text"),
    "convolution": ("lfm2", "lfm2_moe", "lfm3", "recurrent_gemma", "zaya"),
    "encoders": (
        "albert",
        "deberta-v2",
        "distilbert",
        "eurobert",
        "gte",
        "jina_embeddings_v3",
        "modernbert",
        "mpnet",
        "nomic_bert",
    ),
    "remote": (
        "bailing_moe",
        "bailing_moe_v2",
        "baichuan",
        "chatglm",
        "deepseek",
        "internlm2",
        "mimo",
        "minicpm",
        "nemotron-nas",
        "qwen",
        "step3p5",
        "step3p7",
    ),
    "kimi": ("bailing_hybrid", "kimi_linear"),
    "diffusion": ("Dream", "Fast_dLLM_Qwen", "llada", "llada2_moe", "sdar", "sdar_moe"),
    "drafters": ("eagle", "eagle3", "medusa"),
    "linear": (
        "lara_mini",
        "minimax",
        "olmo_hybrid",
        "qwen3_5_moe_text",
        "qwen3_5_text",
        "qwen3_next",
    ),
}
# types around a text model, with towers before it
AROUND: dict[str, tuple[str, ...]] = {
    "pictures": (
        "deepseek_vl",
        "gemma3",
        "idefics3",
        "lfm2_vl",
        "lighton_ocr",
        "llava",
        "llava_next",
        "llava_next_video",
        "llava_onevision",
        "mistral3",
        "paligemma",
        "shieldgemma2",
        "smolvlm",
        "video_llava",
        "vipllava",
    ),
    "pictures_native": (
        "cosmos3_omni",
        "exaone4_5",
        "glm46v",
        "glm4v",
        "glm4v_moe",
        "glm_ocr",
        "glmga",
        "kimi_k25",
        "minimax_m3_vl",
        "paddleocr_vl",
        "qwen2_5_vl",
        "qwen2_vl",
        "qwen3_5",
        "qwen3_5_moe",
        "qwen3_vl",
        "qwen3_vl_moe",
        "video_llama_3",
    ),
    "pictures_tiled": (
        "aria",
        "aya_vision",
        "cohere2_vision",
        "gemma4",
        "idefics2",
        "internvl",
        "llama4",
        "mllama",
        "ovis2",
        "qianfan_ocr",
    ),
    "sounds": (
        "audioflamingo3",
        "glmasr",
        "moss_transcribe_diarize",
        "musicflamingo",
        "qwen2_audio",
        "voxtral",
    ),
}
AROUND_INDEX = {family: module for module, families in AROUND.items() for family in families}
INDEX = {family: module for module, families in MODULES.items() for family in families}
OWN_NAMES = ("diffusion", "drafters")  # modules whose classes end otherwise
KNOWN = tuple(sorted({*INDEX, *AROUND_INDEX}))
EXPERT_FIELDS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_intermediate_size", "kv_lora_rank")
HEADS = ("MTModel", "ForCausalLM", "ForConditionalGeneration", "GenerationDecoder", "LMHeadModel", "ModelWithLMHead")
PICTURE_HEADS = ("Model", "ForImageClassification", "WithProjection")


def read_family(config: Config) -> Architecture:
    """The architecture of a config. Raises :class:`ConfigError` for a family that is not understood."""
    family = family_of(config)
    if not family:
        raise config.error("model_type", "is missing, so this is no model config that is understood")
    if family not in INDEX:
        raise config.error("model_type", f"{shown(family)} is not understood{_nearest(family)}")
    task = _task(config, INDEX[family])
    if INDEX[family] == "dense":
        for field in EXPERT_FIELDS:
            if config.fields.get(field):
                message = f"experts or latent attention in a {shown(family)} config are not understood"
                raise config.error(field, message)
    module = importlib.import_module(f"flopmap.model.families.{INDEX[family]}")
    architecture: Architecture = module.FAMILIES[family](config)
    if task == "generate" and INDEX[family] != "encoders":
        return architecture
    from flopmap.model.families.encoders import with_task

    return with_task(architecture, config, "masked" if task == "generate" else task)


def _task(config: Config, module: str) -> str:
    """What the class that a config names does: generate text, unless its name says otherwise."""
    if module in OWN_NAMES:
        return "generate"
    heads = PICTURE_HEADS if module == "pictures_alone" else HEADS
    tasks = {"ForMaskedLM": "masked", "ForSequenceClassification": "sequence", "Model": "plain"}
    for name in config.strings("architectures"):
        if name.endswith(heads):
            continue
        for ending, task in tasks.items():
            if name.endswith(ending):
                return task
        understood = f"understood: names that end in {', '.join((*heads, *tasks))}"
        raise config.error("architectures", f"{shown(name)} is not understood ({understood})")
    return "generate"


def read_around(config: Config, text: Architecture) -> Architecture:
    """A text model with the towers of the config around it. The family must be one of ``AROUND_INDEX``."""
    family = config.string("model_type")
    for name in config.strings("architectures"):
        if not name.endswith(HEADS):
            understood = f"understood: names that end in {', '.join(HEADS)}"
            raise config.error("architectures", f"{shown(name)} of a {shown(family)} is not understood ({understood})")
    module = importlib.import_module(f"flopmap.model.families.{AROUND_INDEX[family]}")
    whole: Architecture = module.AROUND[family](config, text)
    return msgspec.structs.replace(whole, family=family)


def family_of(config: Config) -> str:
    """The ``model_type``; EAGLE-3 heads carry that of their one layer."""
    if any("eagle3" in name.lower() for name in config.strings("architectures")):
        return "eagle3"
    return config.string("model_type")


def _nearest(family: str) -> str:
    """The families whose names look most alike, and where to find them all."""
    import difflib

    close = difflib.get_close_matches(family, KNOWN, n=3)
    hint = f"; nearest: {', '.join(close)}" if close else ""
    return f"{hint} (all {len(KNOWN)} families: flopmap models --families)"
