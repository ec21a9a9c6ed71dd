"""Attention of every kind as the ops of a step: projections, caches, scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from flopmap.ledger.op import Op, elementwise_op, gemm_op, norm_op
from flopmap.step import MAIN, Phase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopmap.model.architecture import Attention, CrossAttention, Indexer, LatentAttention, SharedKeys


def attention_ops(attention: Attention, hidden: int, phases: tuple[Phase, ...]) -> Iterator[Op]:
    """Projections, norms and rotation of heads, the write to the cache, and scores in each phase."""
    heads = (("heads", attention.heads), ("kv_heads", attention.kv_heads))
    widths = (("head_dim", attention.head_dim), ("value_dim", attention.value_dim))
    if attention.projected:
        yield from _qkv(attention, attention.input_width or hidden)
    yield from _head_norms(attention)
    if attention.rotary_dim:
        keys = 0 if attention.reuses_cache else attention.kv_heads
        rotated = (heads[0], ("kv_heads", keys), ("rotary_dim", attention.rotary_dim))
        yield Op(name="attention.rope", op_class="rope", shapes=rotated)
    suffix = f"[{'chunk' if attention.chunked else 'window'} {attention.window}]" if attention.window else ""
    if not attention.reuses_cache and phases != ("encode",):
        written = (heads[1], *widths)
        yield Op(name=f"attention.kv_write{suffix}", op_class="kv-write", shapes=written, window=attention.window)
    if attention.indexer:
        yield from _indexer(attention.indexer, hidden, phases)
    suffix = suffix or (f"[best {attention.selected}]" if attention.selected else "")
    suffix = suffix or ("[window]" if attention.within else "")
    for phase in phases:
        yield Op(
            name=f"attention.{phase}{suffix}",
            op_class=_class(phase, "attention") if _is_causal(attention, phase) else "bidirectional-attention",
            count=attention.passes,
            shapes=(*heads, *widths, ("capped", int(attention.capped))),
            phase=phase,
            window=attention.window or attention.selected,
            chunked=attention.chunked,
            stack=attention.within or MAIN,
        )
    if attention.projected:
        yield gemm_op("attention.out", attention.output_width, hidden, bias=attention.out_bias)


def _is_causal(attention: Attention, phase: Phase) -> bool:
    return attention.causal or (attention.between_blocks and phase == "prefill")


def _class(phase: Phase, kind: str) -> str:
    """The op class of attention in a phase; a causal model encodes as it reads a prompt."""
    return f"{'decode' if phase == 'decode' else 'prefill'}-{kind}"


def cross_attention_ops(cross: CrossAttention, hidden: int, phases: tuple[Phase, ...]) -> Iterator[Op]:
    """Queries and output a token; keys and values of the source's tokens when the source runs."""
    attention, name = cross.attention, cross.name
    value = attention.qkv_bias if attention.value_bias is None else attention.value_bias
    key = attention.qkv_bias if attention.key_bias is None else attention.key_bias
    shapes = (("kv_heads", attention.kv_heads), ("head_dim", attention.head_dim), ("value_dim", attention.value_dim))
    if cross.norm:
        yield norm_op(f"{name}.norm", cross.norm, hidden)
    yield gemm_op(f"{name}.q", hidden, attention.query_width, bias=attention.qkv_bias)
    made = (
        gemm_op(f"{name}.k", cross.source_width, attention.key_width, bias=key),
        gemm_op(f"{name}.v", cross.source_width, attention.value_width, bias=value),
        Op(name=f"{name}.kv_write", op_class="cross-write", shapes=shapes),
    )
    for op in made:
        yield msgspec.structs.replace(op, stack=cross.source)
    for norm in _head_norms(attention):
        source = cross.source if norm.name.endswith("k_norm") else MAIN
        yield msgspec.structs.replace(norm, name=norm.name.replace("attention", name), stack=source)
    for phase in phases:
        attended = (("heads", attention.heads), *shapes)
        yield Op(name=f"{name}.{phase}", op_class="cross-attention", shapes=attended, phase=phase)
    yield gemm_op(f"{name}.out", attention.output_width, hidden, bias=attention.out_bias)
    yield elementwise_op(f"{name}.residual", "residual", hidden)


def _qkv(attention: Attention, hidden: int) -> Iterator[Op]:
    """One projection to queries, keys and values; three where only some of them have a bias."""
    if attention.reuses_cache:
        yield gemm_op("attention.q", hidden, attention.query_width, bias=attention.qkv_bias)
        return
    if attention.values_are_keys:
        yield gemm_op("attention.qk", hidden, attention.query_width + attention.key_width, bias=attention.qkv_bias)
        return
    widths = (attention.query_width, attention.key_width, attention.value_width)
    key = attention.qkv_bias if attention.key_bias is None else attention.key_bias
    value = attention.qkv_bias if attention.value_bias is None else attention.value_bias
    if attention.qkv_bias == key == value:
        yield gemm_op("attention.qkv", hidden, sum(widths), bias=attention.qkv_bias)
        return
    for name, width, bias in zip(("q", "k", "v"), widths, (attention.qkv_bias, key, value), strict=True):
        yield gemm_op(f"attention.{name}", hidden, width, bias=bias)


def _head_norms(attention: Attention) -> Iterator[Op]:
    """The norms of query and key heads. A shared weight vector is one head wide."""
    if attention.qk_norm == "none":
        return
    shared = attention.head_dim if attention.qk_norm == "shared" else None
    yield norm_op("attention.q_norm", attention.qk_norm_kind, attention.query_width, shared)
    if not attention.reuses_cache:
        yield norm_op("attention.k_norm", attention.qk_norm_kind, attention.key_width, shared)


def latent_attention_ops(attention: LatentAttention, hidden: int, phases: tuple[Phase, ...]) -> Iterator[Op]:
    """MLA: projections to and from the latent, then attention over it (decode) or over expanded heads (prefill)."""
    heads, latent, rope = attention.heads, attention.latent, attention.rope_dim
    query = heads * (attention.nope_dim + rope)
    if attention.query_rank is None:
        yield gemm_op("attention.q", hidden, query)
    else:
        yield gemm_op("attention.q_a", hidden, attention.query_rank, bias=attention.bias)
        yield norm_op("attention.q_norm", attention.norm, attention.query_rank)
        yield gemm_op("attention.q_b", attention.query_rank, query)
    yield gemm_op("attention.kv_a", hidden, latent + rope, bias=attention.bias)
    yield norm_op("attention.kv_norm", attention.norm, latent)
    yield gemm_op("attention.kv_b", latent, heads * (attention.nope_dim + attention.value_dim))
    if attention.rotated:
        rotary = (("heads", heads), ("kv_heads", 1), ("rotary_dim", rope))
        yield Op(name="attention.rope", op_class="rope", shapes=rotary)
    shapes = (
        ("heads", heads),
        ("latent", latent),
        ("rope_dim", rope),
        ("nope_dim", attention.nope_dim),
        ("value_dim", attention.value_dim),
    )
    window, suffix = attention.window, f"[window {attention.window}]" if attention.window else ""
    if phases != ("encode",):
        yield Op(name=f"attention.latent_write{suffix}", op_class="latent-write", shapes=shapes, window=window)
    if attention.indexer:
        yield from _indexer(attention.indexer, hidden, phases)
    suffix = suffix or (f"[best {attention.selected}]" if attention.selected else "")
    for phase in phases:
        name, op_class = f"attention.{phase}{suffix}", _class(phase, "latent-attention")
        yield Op(name=name, op_class=op_class, shapes=shapes, phase=phase, window=window or attention.selected)
    yield gemm_op("attention.out", heads * attention.value_dim, hidden, bias=attention.bias)


def _indexer(indexer: Indexer, hidden: int, phases: tuple[Phase, ...]) -> Iterator[Op]:
    """The indexer of sparse attention: its projections, its own small cache, and a score for every pair."""
    heads, dim = indexer.heads, indexer.head_dim
    yield gemm_op("indexer.q", indexer.query_width, heads * dim)
    yield gemm_op("indexer.k", hidden, dim)
    if indexer.query_norm:
        yield norm_op("indexer.q_norm", indexer.query_norm, heads * dim, dim)
    yield norm_op("indexer.k_norm", indexer.key_norm, dim)
    if indexer.weighted:
        yield gemm_op("indexer.weights", hidden, heads)
    rope = (("heads", heads), ("kv_heads", 1), ("rotary_dim", indexer.rope_dim))
    yield Op(name="indexer.rope", op_class="rope", shapes=rope)
    yield Op(name="indexer.k_write", op_class="kv-write", shapes=(("kv_heads", 1), ("head_dim", dim), ("value_dim", 0)))
    for phase in phases:
        scored = (("heads", heads), ("head_dim", dim), ("weighted", int(indexer.weighted)), ("rate", 1))
        yield Op(name=f"indexer.{phase}", op_class="sparse-index", shapes=scored, phase=phase)


def shared_keys_ops(keys: SharedKeys, phases: tuple[Phase, ...]) -> Iterator[Op]:
    """The write of rows that all heads share, and the scores of queries against them."""
    shapes = (("heads", keys.heads), ("head_dim", keys.head_dim), ("rate", keys.rate))
    written = (("buffer", keys.buffer), ("width", keys.buffered))
    yield Op(name=f"{keys.name}.write", op_class="shared-write", shapes=(*shapes[1:], *written), window=keys.held)
    for phase in phases:
        if keys.values:
            yield Op(
                name=f"{keys.name}.{phase}", op_class="shared-attention", shapes=shapes, phase=phase, window=keys.window
            )
        else:
            yield Op(
                name=f"{keys.name}.{phase}", op_class="sparse-index", shapes=(*shapes, ("weighted", 0)), phase=phase
            )
