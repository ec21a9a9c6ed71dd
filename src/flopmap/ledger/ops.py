"""A model as the operations of a step: every op class it runs, with its shapes and how often.

Shapes only. What an op costs is in its record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from flopmap.model.architecture import (
    Attention,
    Convolution,
    CrossAttention,
    DenseConvolution,
    Experts,
    FeedForward,
    Linear,
    Recurrence,
    Row,
    SharedKeys,
    Table,
    Vector,
)
from flopmap.step import CROSSED, MAIN, Phase

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from flopmap.model.architecture import Architecture, Indexer, LatentAttention, Layer, Norm, Piece, Stack


MATRICES = ("weight-gemm", "shared-gemm", "lm-head", "embedding", "moe-router", "moe-experts")
SANDWICH_NORMS = 4  # before and after each half of the layer


class Op(msgspec.Struct, frozen=True, kw_only=True):
    """An op class bound to shapes. ``weights`` says which format its matrix is stored in.

    ``stack`` names the layers whose tokens it works on. An ``idle`` op is held in memory and does not run in the step;
    one that runs ``again`` holds nothing of its own.
    """

    name: str
    op_class: str
    count: int = 1
    shapes: tuple[tuple[str, int], ...] = ()
    phase: Phase | None = None
    window: int | None = None
    chunked: bool = False
    weights: Literal["weights", "activations"] = "activations"
    stack: str = MAIN
    idle: bool = False
    again: bool = False


def operations(
    architecture: Architecture,
    phases: tuple[Phase, ...],
    running: Collection[str] = (MAIN, CROSSED),
    nominal: float | None = None,
) -> list[Op]:
    """The ops of one step, in the order they run; like ops of several layers are one op with a count.

    ``phases`` are those of the main layers, ``running`` the stacks that run; the others are idle. ``nominal`` puts one
    matrix of that many parameters in place of every matrix of the main layers.
    """
    ops = [op for stack in architecture.stacks for op in _of_stack(stack)]
    ops += [*_before(architecture), *_of_layers(architecture, phases, running), *_after(architecture)]
    ops = [op if op.stack in running else msgspec.structs.replace(op, idle=True) for op in ops]
    if nominal is None:
        return ops
    kept = [op for op in ops if op.op_class not in MATRICES or op.stack != MAIN]
    whole = Op(
        name="model",
        op_class="weight-gemm",
        shapes=(("d_in", 1), ("d_out", int(nominal)), ("bias", 0)),
        weights="weights",
    )
    return [whole, *kept]


def _of_stack(stack: Stack) -> Iterator[Op]:
    """The ops of a stack, under its name."""
    ops = [*map(_piece, stack.before), *_of_layers(stack, ("encode",)), *map(_piece, stack.after)]
    for op in ops:
        weights = op.weights if stack.quantized else "activations"
        yield msgspec.structs.replace(op, name=f"{stack.name}.{op.name}", stack=op.stack or stack.name, weights=weights)


def _of_layers(
    architecture: Architecture | Stack, phases: tuple[Phase, ...], running: Collection[str] = (CROSSED,)
) -> list[Op]:
    kinds: dict[Layer, int] = {}
    for layer in architecture.layers:
        kinds[layer] = kinds.get(layer, 0) + 1
    merged: dict[Op, int] = {}
    for layer, count in kinds.items():
        skipped = layer.only_crosses and CROSSED not in running
        for op in _of_layer(architecture, layer, phases):
            op = msgspec.structs.replace(op, idle=True) if skipped else op  # noqa: PLW2901 - the same op
            merged[op] = merged.get(op, 0) + op.count * count
    return [msgspec.structs.replace(op, count=count) for op, count in merged.items()]


def _of_layer(architecture: Architecture | Stack, layer: Layer, phases: tuple[Phase, ...]) -> Iterator[Op]:
    hidden, norm = architecture.hidden, architecture.norm
    if layer.norms:
        yield _norm("attention.norm", norm, hidden)
    if isinstance(layer.attention, Attention):
        yield from _owned(layer, _attention(layer.attention, hidden, phases))
    elif layer.attention is not None:
        yield from _latent_attention(layer.attention, hidden, phases)
    for piece in layer.pieces:
        if isinstance(piece, SharedKeys):
            yield from _shared_keys(piece, phases)
        elif isinstance(piece, Experts):
            yield from _experts(piece, hidden)
        elif isinstance(piece, CrossAttention):
            yield from _cross_attention(piece, hidden, phases)
        else:
            yield from _recurrence(piece, phases) if isinstance(piece, Recurrence) else (_piece(piece),)
    if layer.norms == SANDWICH_NORMS:
        yield _norm("attention.post_norm", norm, hidden)
    if layer.attention is not None or any(not isinstance(piece, CrossAttention) for piece in layer.pieces):
        yield _elementwise("attention.residual", "residual", hidden)
    if layer.feed_forward is None:
        return
    if layer.norms > 1:
        yield _norm("mlp.norm", norm, hidden)
    if isinstance(layer.feed_forward, FeedForward):
        yield from _owned(layer, _feed_forward("mlp", layer.feed_forward, hidden))
    else:
        yield from _experts(layer.feed_forward, hidden)
    if layer.norms == SANDWICH_NORMS:
        yield _norm("mlp.post_norm", norm, hidden)
    yield _elementwise("mlp.residual", "residual", hidden)


def _owned(layer: Layer, ops: Iterator[Op]) -> Iterator[Op]:
    """The ops of a half; its matrices are counted elsewhere where an earlier layer holds them."""
    for op in ops:
        shared = layer.shared and op.op_class == "weight-gemm"
        yield msgspec.structs.replace(op, op_class="shared-gemm") if shared else op


def _attention(attention: Attention, hidden: int, phases: tuple[Phase, ...]) -> Iterator[Op]:
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
        yield _gemm("attention.out", attention.output_width, hidden, bias=attention.out_bias)


def _is_causal(attention: Attention, phase: Phase) -> bool:
    return attention.causal or (attention.between_blocks and phase == "prefill")


def _class(phase: Phase, kind: str) -> str:
    """The op class of attention in a phase; a causal model encodes as it reads a prompt."""
    return f"{'decode' if phase == 'decode' else 'prefill'}-{kind}"


def _cross_attention(cross: CrossAttention, hidden: int, phases: tuple[Phase, ...]) -> Iterator[Op]:
    """Queries and output a token; keys and values of the source's tokens when the source runs."""
    attention, name = cross.attention, cross.name
    value = attention.qkv_bias if attention.value_bias is None else attention.value_bias
    key = attention.qkv_bias if attention.key_bias is None else attention.key_bias
    shapes = (("kv_heads", attention.kv_heads), ("head_dim", attention.head_dim), ("value_dim", attention.value_dim))
    if cross.norm:
        yield _norm(f"{name}.norm", cross.norm, hidden)
    yield _gemm(f"{name}.q", hidden, attention.query_width, bias=attention.qkv_bias)
    made = (
        _gemm(f"{name}.k", cross.source_width, attention.key_width, bias=key),
        _gemm(f"{name}.v", cross.source_width, attention.value_width, bias=value),
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
    yield _gemm(f"{name}.out", attention.output_width, hidden, bias=attention.out_bias)
    yield _elementwise(f"{name}.residual", "residual", hidden)


def _qkv(attention: Attention, hidden: int) -> Iterator[Op]:
    """One projection to queries, keys and values; three where only some of them have a bias."""
    if attention.reuses_cache:
        yield _gemm("attention.q", hidden, attention.query_width, bias=attention.qkv_bias)
        return
    if attention.values_are_keys:
        yield _gemm("attention.qk", hidden, attention.query_width + attention.key_width, bias=attention.qkv_bias)
        return
    widths = (attention.query_width, attention.key_width, attention.value_width)
    key = attention.qkv_bias if attention.key_bias is None else attention.key_bias
    value = attention.qkv_bias if attention.value_bias is None else attention.value_bias
    if attention.qkv_bias == key == value:
        yield _gemm("attention.qkv", hidden, sum(widths), bias=attention.qkv_bias)
        return
    for name, width, bias in zip(("q", "k", "v"), widths, (attention.qkv_bias, key, value), strict=True):
        yield _gemm(f"attention.{name}", hidden, width, bias=bias)


def _head_norms(attention: Attention) -> Iterator[Op]:
    """The norms of query and key heads. A shared weight vector is one head wide."""
    if attention.qk_norm == "none":
        return
    shared = attention.head_dim if attention.qk_norm == "shared" else None
    yield _norm("attention.q_norm", attention.qk_norm_kind, attention.query_width, shared)
    if not attention.reuses_cache:
        yield _norm("attention.k_norm", attention.qk_norm_kind, attention.key_width, shared)


def _latent_attention(attention: LatentAttention, hidden: int, phases: tuple[Phase, ...]) -> Iterator[Op]:
    """MLA: projections to and from the latent, then attention over it (decode) or over expanded heads (prefill)."""
    heads, latent, rope = attention.heads, attention.latent, attention.rope_dim
    query = heads * (attention.nope_dim + rope)
    if attention.query_rank is None:
        yield _gemm("attention.q", hidden, query)
    else:
        yield _gemm("attention.q_a", hidden, attention.query_rank, bias=attention.bias)
        yield _norm("attention.q_norm", attention.norm, attention.query_rank)
        yield _gemm("attention.q_b", attention.query_rank, query)
    yield _gemm("attention.kv_a", hidden, latent + rope, bias=attention.bias)
    yield _norm("attention.kv_norm", attention.norm, latent)
    yield _gemm("attention.kv_b", latent, heads * (attention.nope_dim + attention.value_dim))
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
    yield _gemm("attention.out", heads * attention.value_dim, hidden, bias=attention.bias)


def _indexer(indexer: Indexer, hidden: int, phases: tuple[Phase, ...]) -> Iterator[Op]:
    """The indexer of sparse attention: its projections, its own small cache, and a score for every pair."""
    heads, dim = indexer.heads, indexer.head_dim
    yield _gemm("indexer.q", indexer.query_width, heads * dim)
    yield _gemm("indexer.k", hidden, dim)
    if indexer.query_norm:
        yield _norm("indexer.q_norm", indexer.query_norm, heads * dim, dim)
    yield _norm("indexer.k_norm", indexer.key_norm, dim)
    if indexer.weighted:
        yield _gemm("indexer.weights", hidden, heads)
    rope = (("heads", heads), ("kv_heads", 1), ("rotary_dim", indexer.rope_dim))
    yield Op(name="indexer.rope", op_class="rope", shapes=rope)
    yield Op(name="indexer.k_write", op_class="kv-write", shapes=(("kv_heads", 1), ("head_dim", dim), ("value_dim", 0)))
    for phase in phases:
        scored = (("heads", heads), ("head_dim", dim), ("weighted", int(indexer.weighted)), ("rate", 1))
        yield Op(name=f"indexer.{phase}", op_class="sparse-index", shapes=scored, phase=phase)


def _shared_keys(keys: SharedKeys, phases: tuple[Phase, ...]) -> Iterator[Op]:
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


def _feed_forward(name: str, feed_forward: FeedForward, hidden: int) -> Iterator[Op]:
    width, gated = feed_forward.width, int(feed_forward.gated)
    yield _gemm(f"{name}.gate_up" if gated else f"{name}.up", hidden, width * (1 + gated), bias=feed_forward.bias)
    yield _activation(f"{name}.activation", width, gated=feed_forward.gated, smooth=feed_forward.smooth)
    yield _gemm(f"{name}.down", width, hidden, bias=feed_forward.bias)


def _experts(experts: Experts, hidden: int) -> Iterator[Op]:
    """Router, routed experts, shared experts, and the weighted sum of what they give."""
    if experts.router:
        router = (("d_in", hidden), ("experts", experts.experts), ("bias", int(experts.router_bias)))
        yield Op(name=f"{experts.name}.router", op_class="moe-router", shapes=router)
    inner = experts.latent or hidden
    if experts.latent:
        yield _gemm(f"{experts.name}.latent_in", hidden, inner, bias=experts.shared_bias)
    shapes = (
        ("d_in", inner),
        ("width", experts.width),
        ("experts", experts.experts),
        ("top_k", experts.top_k),
        ("gated", int(experts.gated)),
        ("bias", int(experts.bias)),
    )
    yield Op(name=f"{experts.name}.experts", op_class="moe-experts", shapes=shapes, weights="weights")
    routed = experts.top_k * experts.width
    yield _activation(f"{experts.name}.activation", routed, gated=experts.gated, smooth=experts.smooth)
    if experts.shared_width:
        shared = FeedForward(
            width=experts.shared_width, gated=experts.gated, bias=experts.shared_bias, smooth=experts.smooth
        )
        yield from _feed_forward(f"{experts.name}.shared", shared, hidden)
    if experts.shared_gate:
        yield _gemm(f"{experts.name}.shared_gate", hidden, 1)
    yield _elementwise(f"{experts.name}.combine", "residual", experts.top_k * inner)
    if experts.latent:
        yield _gemm(f"{experts.name}.latent_out", inner, hidden, bias=experts.shared_bias)


def _recurrence(piece: Recurrence, phases: tuple[Phase, ...]) -> Iterator[Op]:
    """A state's update, token by token in decode; in prefill by chunks where its decay allows."""
    state = (("state_elements", piece.elements), ("state_flop", piece.flop), ("state_exps", piece.exps))
    for phase in phases:
        if phase != "decode" and piece.scans_in_chunks:
            yield Op(name=f"{piece.name}.scan", op_class="state-scan", shapes=state[:1], phase=phase)
        else:
            yield Op(name=f"{piece.name}.{phase}", op_class="state-update", shapes=state, phase=phase)


def _piece(piece: Piece) -> Op:
    """The op of what is no part of the usual blocks."""
    if isinstance(piece, Linear):
        if piece.head:
            head = (("d_in", piece.d_in), ("d_out", piece.d_out), ("bias", int(piece.bias)), ("stored", 1))
            return Op(name=piece.name, op_class="lm-head", shapes=head)
        op = _gemm(piece.name, piece.d_in, piece.d_out, bias=piece.bias)
        return msgspec.structs.replace(op, op_class="shared-gemm") if piece.shared else op
    if isinstance(piece, Row):
        return _norm(piece.name, piece.norm, piece.width, piece.norm_width)
    if isinstance(piece, Vector):
        return Op(
            name=piece.name, op_class="elementwise", shapes=(("norm_width", piece.parameters), ("width", piece.width))
        )
    if isinstance(piece, Table):
        rows = (("rows", piece.rows), ("width", piece.width), ("scaled", 0), ("stored", 1))
        return Op(name=piece.name, op_class="embedding", shapes=rows)
    if isinstance(piece, Convolution):
        shapes = (("channels", piece.channels), ("kernel", piece.kernel), ("per_channel", piece.per_channel))
        return Op(name=piece.name, op_class="short-convolution", shapes=(*shapes, ("bias", int(piece.bias))))
    if isinstance(piece, DenseConvolution):
        read = (("kernel", piece.kernel), ("stride", piece.stride), ("bias", int(piece.bias)))
        widths = (("d_in", piece.d_in), ("d_out", piece.d_out))
        return Op(name=piece.name, op_class="dense-convolution", shapes=(*widths, *read))
    raise TypeError(f"{piece} is a piece of a layer")


def _before(architecture: Architecture) -> Iterator[Op]:
    width, scaled = architecture.embedding_width, int(architecture.embedding_scaled)
    if architecture.vocab and architecture.embedding != "none":
        rows = (("rows", architecture.vocab), ("width", width), ("scaled", scaled))
        stored = ("stored", int(architecture.embedding == "own"))
        yield Op(name="embedding", op_class="embedding", shapes=(*rows, stored))
    if architecture.positions:
        shapes = (("rows", architecture.positions), ("width", architecture.hidden), ("scaled", 0), ("stored", 1))
        yield Op(name="position_embedding", op_class="embedding", shapes=shapes)
    if width != architecture.hidden:
        yield _gemm("project_in", width, architecture.hidden)
    yield from map(_piece, architecture.before)


def _after(architecture: Architecture) -> Iterator[Op]:
    yield from map(_piece, architecture.after)
    if architecture.final_norm:
        yield _norm("final_norm", architecture.norm, architecture.hidden)
    if not architecture.head:
        return
    width = architecture.head_width or architecture.embedding_width
    if architecture.head_width is None and width != architecture.hidden:
        yield _gemm("project_out", architecture.hidden, width)
    stored, words = int(not architecture.tied), architecture.head_vocab or architecture.vocab
    head = (("d_in", width), ("d_out", words), ("bias", int(architecture.head_bias)), ("stored", stored))
    yield Op(name="lm_head", op_class="lm-head", shapes=head)
    capped = ("capped", int(architecture.logits_capped))
    yield Op(name="sampling", op_class="sampling", shapes=(("vocab", words), capped))


def _gemm(name: str, d_in: int, d_out: int, *, bias: bool = False) -> Op:
    return Op(
        name=name,
        op_class="weight-gemm",
        shapes=(("d_in", d_in), ("d_out", d_out), ("bias", int(bias))),
        weights="weights",
    )


def _norm(name: str, norm: Norm, width: int, norm_width: int | None = None) -> Op:
    shapes = (("width", width), ("norm_width", (norm_width or width) if norm.affine else 0))
    if norm.kind == "rms":
        return Op(name=name, op_class="rms-norm", shapes=shapes)
    return Op(name=name, op_class="layer-norm", shapes=(*shapes, ("bias", int(norm.bias))))


def _activation(name: str, width: int, *, gated: bool, smooth: bool) -> Op:
    return Op(
        name=name, op_class="activation", shapes=(("width", width), ("gated", int(gated)), ("smooth", int(smooth)))
    )


def _elementwise(name: str, op_class: str, width: int) -> Op:
    return Op(name=name, op_class=op_class, shapes=(("width", width),))
