"""A model from a GGUF file: its architecture from the metadata, its bytes from the tensors.

llama.cpp has its own names for what transformers calls otherwise; here they become the config that the families read.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec.structs import replace

from flopmap.model.config import MAX_LAYERS, ConfigError
from flopmap.model.gguf import Header, Long, read_shards
from flopmap.model.reading import Checkpoint, from_config
from flopmap.model.tensors import MATRIX, UNUSED, VECTOR, Place, Tensor, elements, matrices, measure
from flopmap.quantity import amount, shown

if TYPE_CHECKING:
    from collections.abc import Callable

DTYPE = "fp16"  # what llama.cpp keeps its cache in unless told otherwise
DTYPE_BYTES = 2.0
PLAIN = ("F16", "BF16", "F32", "F64")
EMBEDDING, HEAD = "token_embd.weight", "output.weight"

# what every architecture may have: our name, theirs behind the architecture's
COMMON = {
    "num_hidden_layers": "block_count",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "sliding_window": "attention.sliding_window",
}
EXPERTS = {
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
}
LATENT = {
    "n_routed_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "n_shared_experts": "expert_shared_count",
    "first_k_dense_replace": "leading_dense_block_count",
    "q_lora_rank": "attention.q_lora_rank",
    "kv_lora_rank": "attention.kv_lora_rank",
    "qk_rope_head_dim": "rope.dimension_count",
}


class Reader:
    """The metadata of a file by the names of its architecture, with errors that name the key."""

    def __init__(self, header: Header, arch: str) -> None:
        self.header = header
        self.arch = arch
        self.shapes = {tensor.name: tensor.shape for tensor in header.tensors}

    def error(self, key: str, message: str) -> NoReturn:
        """A one-line error about a key."""
        raise ConfigError(f"{self.header.path}: {key}: {message}")

    def integer(self, name: str) -> int | None:
        """A whole number, or one that a list has for every layer; None when absent."""
        key = f"{self.arch}.{name}"
        value = self.header.metadata.get(key)
        if isinstance(value, list):
            if len(set(value)) != 1:
                self.error(key, f"{shown(value)} differs between layers, which is not understood")
            value = value[0]
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            self.error(key, f"{shown(value)} is not a whole number")
        return value

    def needed(self, name: str) -> int:
        """A whole number that must be there."""
        value = self.integer(name)
        if value is None:
            self.error(f"{self.arch}.{name}", "is missing (a whole number is needed)")
        return value

    def fields(self, names: dict[str, str]) -> dict[str, Any]:
        """The fields of a config that the file has, by our names."""
        found = {ours: self.integer(theirs) for ours, theirs in names.items()}
        return {ours: value for ours, value in found.items() if value is not None}

    def has(self, tensor: str) -> bool:
        """Whether the file has a tensor."""
        return tensor in self.shapes


# -- architectures ----------------------------------------------------------------------------------------------------


def _llama(reader: Reader) -> dict[str, Any]:
    """Llama and Mistral (whose window llama.cpp does not use), and Mixtral where there are experts."""
    if not reader.integer("expert_count"):
        bias = {"attention_bias": reader.has("blk.0.attn_q.bias"), "mlp_bias": reader.has("blk.0.ffn_up.bias")}
        return {"model_type": "llama", "sliding_window": None, **bias}
    fields = reader.fields({"num_local_experts": "expert_count", "num_experts_per_tok": "expert_used_count"})
    return {"model_type": "mixtral", "sliding_window": None, **fields}


def _gemma2(reader: Reader) -> dict[str, Any]:
    return {"model_type": "gemma2", "sliding_window": reader.needed("attention.sliding_window")}


def _gemma3(reader: Reader) -> dict[str, Any]:
    return {"model_type": "gemma3_text", "sliding_window": reader.needed("attention.sliding_window")}


def _phi2(reader: Reader) -> dict[str, Any]:
    return {"model_type": "phi", **_rotated(reader)}


def _phi3(reader: Reader) -> dict[str, Any]:
    return {"model_type": "phi3", **_rotated(reader)}


def _rotated(reader: Reader) -> dict[str, Any]:
    width, rotated = reader.needed("embedding_length"), reader.integer("rope.dimension_count")
    head = reader.integer("attention.key_length") or width // max(1, reader.needed("attention.head_count"))
    return {"partial_rotary_factor": rotated / head} if rotated and head else {}


def _gpt2(reader: Reader) -> dict[str, Any]:
    return {"model_type": "gpt2", "n_positions": reader.needed("context_length")}


def _starcoder2(reader: Reader) -> dict[str, Any]:
    return {"model_type": "starcoder2", "use_bias": reader.has("blk.0.attn_q.bias")}


def _qwen2moe(reader: Reader) -> dict[str, Any]:
    shared = {"shared_expert_intermediate_size": reader.needed("expert_shared_feed_forward_length")}
    return {"model_type": "qwen2_moe", **reader.fields(EXPERTS), **shared}


def _qwen3moe(reader: Reader) -> dict[str, Any]:
    return {"model_type": "qwen3_moe", **reader.fields(EXPERTS)}


def _gpt_oss(reader: Reader) -> dict[str, Any]:
    fields = reader.fields({"num_local_experts": "expert_count", "num_experts_per_tok": "expert_used_count"})
    width = {"intermediate_size": reader.needed("expert_feed_forward_length")}
    window = {"sliding_window": reader.needed("attention.sliding_window")}
    return {"model_type": "gpt_oss", **fields, **width, **window}


def _deepseek2(reader: Reader) -> dict[str, Any]:
    """DeepSeek V2 and V3. Files that keep the latent as the key have the expanded widths under names of their own."""
    key = reader.integer("attention.key_length_mla") or reader.needed("attention.key_length")
    value = reader.integer("attention.value_length_mla") or reader.needed("attention.value_length")
    rope = reader.needed("rope.dimension_count")
    if key <= rope:
        reader.error(f"{reader.arch}.attention.key_length", f"{key} is not above the {rope} elements that are rotated")
    heads = {"qk_nope_head_dim": key - rope, "v_head_dim": value, "num_key_value_heads": None, "head_dim": None}
    return {"model_type": "deepseek_v3", **reader.fields(LATENT), **heads}


def _of_type(model_type: str) -> Callable[[Reader], dict[str, Any]]:
    return lambda _: {"model_type": model_type}


ARCHITECTURES: dict[str, Callable[[Reader], dict[str, Any]]] = {
    "llama": _llama,
    "qwen2": _of_type("qwen2"),
    "qwen3": _of_type("qwen3"),
    "gemma": _of_type("gemma"),
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "phi2": _phi2,
    "phi3": _phi3,
    "gpt2": _gpt2,
    "starcoder2": _starcoder2,
    "qwen2moe": _qwen2moe,
    "qwen3moe": _qwen3moe,
    "deepseek2": _deepseek2,
    "gpt-oss": _gpt_oss,
}


def config_of(header: Header) -> dict[str, Any]:
    """The config, in transformers' names, of a file. Raises :class:`ConfigError` where it cannot be told."""
    arch = header.metadata.get("general.architecture")
    if not isinstance(arch, str):
        message = "is missing, so this is no model that is understood" if arch is None else "is not a short string"
        raise ConfigError(f"{header.path}: general.architecture: {message}")
    if arch not in ARCHITECTURES:
        understood = f"understood in a GGUF file: {', '.join(ARCHITECTURES)}"
        raise ConfigError(f"{header.path}: general.architecture: {shown(arch)} is not understood ({understood})")
    reader = Reader(header, arch)
    for name in ("embedding_length", "block_count", "attention.head_count"):
        reader.needed(name)
    if arch not in ("qwen3moe", "gpt-oss", "qwen2moe"):
        reader.needed("feed_forward_length")
    fields = {**reader.fields(COMMON), **ARCHITECTURES[arch](reader)}
    widths = {reader.integer("attention.value_length"), reader.integer("attention.key_length")} - {None}
    if arch != "deepseek2" and len(widths) > 1:
        reader.error(f"{arch}.attention.value_length", "differs from attention.key_length, which is not understood")
    return {**fields, "vocab_size": _vocabulary(reader), "tie_word_embeddings": not reader.has(HEAD)}


def _vocabulary(reader: Reader) -> int:
    """Rows of the embedding, which may be padded beyond the tokens that there are."""
    shape = reader.shapes.get(EMBEDDING)
    if shape is not None and len(shape) > 1:
        return shape[1]
    size, tokens = reader.integer("vocab_size"), reader.header.metadata.get("tokenizer.ggml.tokens")
    if size is None and isinstance(tokens, Long):
        return tokens.length
    if size is None:
        reader.error(EMBEDDING, f"is missing, and neither {reader.arch}.vocab_size nor the tokens are there")
    return size


# -- tensors ----------------------------------------------------------------------------------------------------------

OPS = {
    "attn_qkv": ("attention.qkv",),
    "attn_q": ("attention.qkv", "attention.q"),
    "attn_k": ("attention.qkv", "attention.k"),
    "attn_v": ("attention.qkv", "attention.v"),
    "attn_q_a": ("attention.q_a",),
    "attn_q_b": ("attention.q_b",),
    "attn_kv_a_mqa": ("attention.kv_a",),
    "attn_kv_b": ("attention.kv_b",),
    "attn_k_b": ("attention.kv_b",),
    "attn_v_b": ("attention.kv_b",),
    "attn_output": ("attention.out",),
    "ffn_gate": ("mlp.gate_up", "moe.experts"),
    "ffn_up": ("mlp.gate_up", "mlp.up", "moe.experts"),
    "ffn_down": ("mlp.down", "moe.experts"),
    "ffn_gate_exps": ("moe.experts",),
    "ffn_up_exps": ("moe.experts",),
    "ffn_down_exps": ("moe.experts",),
    "ffn_gate_up_exps": ("moe.experts",),
    "ffn_gate_shexp": ("moe.shared.gate_up",),
    "ffn_up_shexp": ("moe.shared.gate_up",),
    "ffn_down_shexp": ("moe.shared.down",),
    "ffn_gate_inp_shexp": ("moe.shared_gate",),
    "token_embd": ("embedding",),
    "position_embd": ("position_embedding",),
    "output": ("lm_head",),
}
VECTORS = ("norm", "norm_2", "sinks", "ffn_gate_inp", "exp_probs_b")  # routers are counted as vectors are
TABLES = ("rope_freqs", "rope_factors_long", "rope_factors_short", "attn_rot_embd")


def place(tensor: Tensor, known: dict[str, int]) -> Place:
    """Where a tensor belongs, among the ops that the architecture has."""
    name, layer = tensor.name, None
    if name.startswith("blk."):
        _, number, name = [*name.split(".", 2), "", ""][:3]
        layer = int(number) if number.isdecimal() and len(number) < len(str(MAX_LAYERS)) + 3 else None
    stem, _, part = name.partition(".")
    if stem in TABLES:
        return Place("", UNUSED, layer)
    if part.endswith("bias") or stem.endswith(VECTORS):
        return Place("", VECTOR, layer)
    candidates = OPS.get(stem, ())
    return Place(next((op for op in candidates if op in known), (*candidates, "")[0]), MATRIX, layer)


def read_gguf(path: str) -> Checkpoint:
    """The model of a GGUF file, or of all its shards.

    Raises :class:`ConfigError` where the file is none, or where its architecture is not understood.
    """
    header = read_shards(path)
    checkpoint = from_config(config_of(header), header.path)
    known = matrices(checkpoint.architecture)
    measured = measure(checkpoint.architecture, ((tensor, place(tensor, known)) for tensor in header.tensors))
    notes = [
        f"data type {DTYPE}: a GGUF file names none, and llama.cpp keeps its cache in {DTYPE}",
        f"weights as in the file: {_types(header)}",
        *measured.notes,
    ]
    if measured.vector_parameters:
        held = f"{amount(measured.vector_bytes, 'B')} in the file"
        notes.append(f"{measured.vector_parameters} parameters of norms, biases and routers ({held}) count as {DTYPE}")
    stored = {**dict.fromkeys(known, DTYPE_BYTES), **measured.stored}
    return replace(checkpoint, weights=_most(header), stored=stored, dtype=DTYPE, assumptions=tuple(notes))


def _most(header: Header) -> str | None:
    """The format of most of the file's bytes, which decides what its matrices multiply in; None where it is plain."""
    sizes = Counter[str]()
    for tensor in header.tensors:
        sizes[tensor.dtype] += tensor.nbytes
    [(most, _)] = sizes.most_common(1)
    return None if most in PLAIN else most.lower()


def _types(header: Header) -> str:
    """How much is in which type: ``4.913 GB (74.4% Q4_K, 25.6% Q6_K, under 0.1% F32)``, and bits a parameter."""
    by_type: dict[str, int] = {}
    for tensor in header.tensors:
        by_type[tensor.dtype] = by_type.get(tensor.dtype, 0) + tensor.nbytes
    whole, count = sum(by_type.values()), sum(map(elements, header.tensors))
    shares = sorted(by_type.items(), key=lambda item: -item[1])
    least = whole // 1000
    text = ", ".join(
        f"{nbytes / whole:.1%} {dtype}" if nbytes > least else f"under 0.1% {dtype}" for dtype, nbytes in shares
    )
    return f"{amount(whole, 'B')} ({text}), {8 * whole / max(count, 1):.2f} bits a parameter"
