"""A command line that starts a server (vLLM, SGLang, trtllm-serve, llama-server) as fields of a request."""

from __future__ import annotations

import re
import shlex
from typing import Any, NamedTuple

from flopmap.step import ScenarioError

# flags by their spelling: the field that they set; None is understood and changes no floor
COMMON: dict[str, str | None] = {"host": None, "port": None, "api-key": None, "trust-remote-code": None, "seed": None}
VLLM: dict[str, str | None] = {
    **COMMON,
    "model": "model",
    "tensor-parallel-size": "tensor_parallel_size",
    "tp": "tensor_parallel_size",
    "pipeline-parallel-size": "pipeline_parallel_size",
    "pp": "pipeline_parallel_size",
    "data-parallel-size": "data_parallel_size",
    "dp": "data_parallel_size",
    "enable-expert-parallel": "enable_expert_parallel",
    "dtype": "dtype",
    "quantization": "quantization",
    "q": "quantization",
    "kv-cache-dtype": "kv_cache_dtype",
    "enforce-eager": "enforce_eager",
    "max-model-len": None,
    "gpu-memory-utilization": None,
    "served-model-name": None,
    "max-num-seqs": None,
    "disable-log-requests": None,
    "download-dir": None,
    "tokenizer": None,
}
SGLANG: dict[str, str | None] = {
    **COMMON,
    "model-path": "model",
    "model": "model",
    "tp": "tensor_parallel_size",
    "tp-size": "tensor_parallel_size",
    "tensor-parallel-size": "tensor_parallel_size",
    "dp": "data_parallel_size",
    "dp-size": "data_parallel_size",
    "pp-size": "pipeline_parallel_size",
    "ep-size": "expert_parallel_size",
    "ep": "expert_parallel_size",
    "expert-parallel-size": "expert_parallel_size",
    "pp": "pipeline_parallel_size",
    "pipeline-parallel-size": "pipeline_parallel_size",
    "data-parallel-size": "data_parallel_size",
    "dtype": "dtype",
    "quantization": "quantization",
    "kv-cache-dtype": "kv_cache_dtype",
    "disable-cuda-graph": "enforce_eager",
    "mem-fraction-static": None,
    "context-length": None,
    "served-model-name": None,
    "max-running-requests": None,
}
TRTLLM: dict[str, str | None] = {
    **COMMON,
    "model": "model",
    "tp_size": "tensor_parallel_size",
    "tp-size": "tensor_parallel_size",
    "pp_size": "pipeline_parallel_size",
    "pp-size": "pipeline_parallel_size",
    "ep_size": "expert_parallel_size",
    "ep-size": "expert_parallel_size",
    "backend": None,
    "max_batch_size": None,
    "max_num_tokens": None,
    "max_seq_len": None,
    "kv_cache_free_gpu_memory_fraction": None,
}
LLAMA: dict[str, str | None] = {
    **COMMON,
    "m": "model",
    "model": "model",
    "hf-repo": "model",
    "hf": "model",
    "ctk": "kv_cache_dtype",
    "cache-type-k": "kv_cache_dtype",
    "ctv": None,
    "cache-type-v": None,
    "c": None,
    "ctx-size": None,
    "ngl": None,
    "n-gpu-layers": None,
    "gpu-layers": None,
    "np": None,
    "parallel": None,
    "fa": None,
    "flash-attn": None,
    "t": None,
    "threads": None,
    "b": None,
    "ub": None,
    "batch-size": None,
    "ubatch-size": None,
}
COMMANDS = (
    (re.compile(r"\bvllm(?: +serve|\.entrypoints\.\S+)(?: |$)"), "vllm", VLLM),
    (re.compile(r"\bsglang(?:\.launch_server| +serve)(?: |$)"), "sglang", SGLANG),
    (re.compile(r"\btrtllm-serve(?: +serve)?(?: |$)"), "tensorrt-llm", TRTLLM),
    (re.compile(r"\bllama-server(?: |$)"), "llama.cpp", LLAMA),
)
SWITCHES = {
    "enforce-eager",
    "enable-expert-parallel",
    "disable-cuda-graph",
    "trust-remote-code",
    "disable-log-requests",
}
CONTINUED = re.compile(r"\\\r?\n")
FORMATS = {"fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "half": "fp16", "bfloat16": "bf16", "float16": "fp16", "f16": "fp16"}
ACCEPTED = "vllm serve, python -m sglang.launch_server, trtllm-serve, llama-server"
MOST = 100_000
SIZE = re.compile(r"[1-9][0-9]{0,8}")


class Served(NamedTuple):
    """The fields of a request that a command sets, and the flags of it that are not understood."""

    fields: dict[str, Any]
    not_understood: tuple[str, ...]


def read_command(text: str) -> Served:
    """Read a command line. Raises :class:`ScenarioError` for what starts no server that is known."""
    joined = CONTINUED.sub(" ", text.strip())
    found = [(match.end(), engine, known) for pattern, engine, known in COMMANDS if (match := pattern.search(joined))]
    if not found or len(joined) > MOST:
        raise ScenarioError(f"--from-command {joined[:60]!r}: no server that is known (accepted: {ACCEPTED})")
    end, engine, known = min(found, key=lambda each: each[0])
    try:
        words = shlex.split(joined[end:], comments=True)
    except ValueError as error:
        raise ScenarioError(f"--from-command: {str(error).lower()}") from None
    return _read(words, engine, known)


def _read(words: list[str], engine: str, known: dict[str, str | None]) -> Served:
    fields: dict[str, Any] = {"engine": engine}
    unknown: list[str] = []
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if word in ("&&", "|", ";", "&"):
            break
        if not word.startswith("-"):
            fields.setdefault("model", word)
            continue
        name, equals, value = word.lstrip("-").partition("=")
        name = name if name in known else name.replace("_", "-")
        if not equals and name not in SWITCHES and index < len(words) and not words[index].startswith("-"):
            value = words[index]
            index += 1
        if name not in known:
            unknown.append(f"{word} {value}".strip() if not equals else word)
        elif field := known[name]:
            _set(fields, field, name, value)
    return Served(fields, tuple(unknown))


def _set(fields: dict[str, Any], field: str, name: str, value: str) -> None:
    if field.endswith("_size"):
        if not SIZE.fullmatch(value):
            raise ScenarioError(f"--from-command: --{name} {value!r} is not a size (accepted: 1, 2, 8)")
        fields[field] = int(value)
    elif field in ("enforce_eager", "enable_expert_parallel"):
        fields[field] = True
    elif not value:
        raise ScenarioError(f"--from-command: --{name} has no value")
    elif value != "auto":
        fields[field] = FORMATS.get(value, value)
