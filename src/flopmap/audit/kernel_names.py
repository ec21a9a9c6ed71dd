"""What tables of kernel timings hold: their kernels as op classes of the book, their columns and their data types."""

from __future__ import annotations

from typing import NamedTuple


class Kernel(NamedTuple):
    """A kernel of tables: its op class, and the columns that are the op's shapes and its sequences.

    ``sequences`` of ``new`` tokens after ``past`` cached ones, all of it ``times`` over. A text is a formula of
    the canonical columns.
    """

    op_class: str
    shapes: dict[str, str]
    sequences: str = "batch"
    new: str = "new"
    past: str = "past"
    times: str = "1"


_HEADS = {"heads": "heads", "kv_heads": "kv_heads", "head_dim": "head_dim", "value_dim": "value_dim", "capped": "0"}
_LATENT = {"heads": "heads", "latent": "512", "rope_dim": "64", "nope_dim": "128", "value_dim": "128"}  # DeepSeek's
_EXPERTS = {
    "d_in": "hidden",
    "width": "inter / expert_tp",
    "gated": "gated",
    "experts": "experts / expert_parallel",
    "top_k": "top_k / expert_parallel",  # of a rank, on average
    "bias": "0",
    "ranks": "expert_parallel",
}
KERNELS = {
    "gemm": Kernel("weight-gemm", {"d_in": "k", "d_out": "n", "bias": "0"}, "1", "m", "0", times="groups"),
    "prefill attention": Kernel("prefill-attention", _HEADS),
    "decode attention": Kernel("decode-attention", _HEADS),
    "encoder attention": Kernel("bidirectional-attention", {**_HEADS, "kv_heads": "heads"}, past="0"),
    "MLA prefill": Kernel("prefill-latent-attention", _LATENT),
    "MLA decode": Kernel("decode-latent-attention", _LATENT),
    "MLA projection": Kernel(
        "weight-gemm", {"d_in": "128", "d_out": "512", "bias": "0"}, "1", "tokens", "0", times="heads"
    ),
    "experts": Kernel("moe-experts", _EXPERTS, "1", "tokens", "0"),
}
# What tables call them: the cell of the column `kernel` or `op_name`.
NAMES = {
    "gemm": "gemm",
    "linear:attn_pre_proj": "gemm",
    "linear:attn_post_proj": "gemm",
    "linear:mlp_up_proj": "gemm",
    "linear:mlp_down_proj": "gemm",
    "grouped_gemm_masked": "gemm",
    "grouped_gemm_contiguous": "gemm",
    "context_attention": "prefill attention",
    "mha_prefill_causal": "prefill attention",
    "gqa_prefill": "prefill attention",
    "generation_attention": "decode attention",
    "mha_decode": "decode attention",
    "gqa_decode": "decode attention",
    "encoder_attention": "encoder attention",
    "attention_prefill_noncausal": "encoder attention",
    "mla_context": "MLA prefill",
    "context_mla": "MLA prefill",
    "mla_prefill_causal": "MLA prefill",
    "mla_generation": "MLA decode",
    "generation_mla": "MLA decode",
    "mla_decode": "MLA decode",
    "mla_context_module": "MLA prefill",  # the projections around it only add to the time
    "mla_generation_module": "MLA decode",
    "mla_gen_pre": "MLA projection",
    "mla_gen_post": "MLA projection",
    "moe": "experts",
    "moe_context": "experts",
    "moe_generation": "experts",
    "wideep_moe": "experts",
    "wideep_moe_eplb": "experts",
}
# Their m is what an expert gets on average: in a run, some experts get more and some none, whose weights are not read.
AVERAGED = tuple(f"grouped_gemm_{way}_{phase}" for way in ("up", "down") for phase in ("decode", "prefill"))
# Canonical column: what tables call it. A column that a table lacks has the value of DEFAULTS.
COLUMNS = {
    "batch": ("batch_size",),
    "heads": ("num_heads",),
    "kv_heads": ("num_key_value_heads",),
    "window": ("window_size",),
    "tokens": ("num_tokens",),
    "hidden": ("hidden_size",),
    "inter": ("inter_size",),
    "top_k": ("topk",),
    "experts": ("num_experts",),
    "expert_tp": ("moe_tp_size",),
    "expert_parallel": ("moe_ep_size",),
}
DEFAULTS = {"groups": 1.0, "window": 0.0, "gated": 1.0, "expert_tp": 1.0, "expert_parallel": 1.0, "q_len": 1.0}
WORDS = (
    "hardware", "device", "kernel", "op_name", "kernel_source", "backend", "framework", "version", "dtype", "kv_dtype",
    "gemm_dtype", "attn_dtype", "mla_dtype", "moe_dtype", "bmm_dtype", "kv_cache_dtype", "distribution", "notes",
)  # fmt: skip
TYPE_COLUMNS = ("dtype", "gemm_dtype", "attn_dtype", "mla_dtype", "moe_dtype", "bmm_dtype")
# What tables call types: the formats of weights and of activations, and the data types they may be multiplied in.
TYPES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "bf16": ("bf16", "bf16", ("bf16", "fp16")),
    "fp16": ("fp16", "fp16", ("fp16", "bf16")),
    "fp8": ("fp8", "fp8", ("fp8", "fp16", "bf16")),
    "fp8_block": ("fp8-block", "fp8", ("fp8", "fp16", "bf16")),
    "nvfp4": ("nvfp4", "nvfp4", ("fp4", "fp8", "bf16")),
    "int8_wo": ("int8-weight-only", "bf16", ("fp16", "bf16")),
    "int4_wo": ("int4-group", "bf16", ("fp16", "bf16")),
    "sq": ("int8", "int8", ("int8",)),
    "w4a16_mxfp4": ("mxfp4", "bf16", ("fp16", "bf16")),
    "w4a8_mxfp4_mxfp8": ("mxfp4", "fp8", ("fp8", "bf16")),
    "w4afp8": ("int4-group", "fp8", ("fp8", "bf16")),
}
TYPE_NAMES = {"bfloat16": "bf16", "float16": "fp16", "fp8 (script) / see report": "fp8"}
