"""What a model is: parts that compose. Families map configs onto them; the ledger turns them into ops."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from flopmap.model.media import Images, Sounds


class Norm(msgspec.Struct, frozen=True, kw_only=True):
    """A normalisation over a row: RMSNorm or LayerNorm, its weight vector (``affine``) and bias."""

    kind: Literal["rms", "layer"] = "rms"
    bias: bool = False
    affine: bool = True


class Indexer(msgspec.Struct, frozen=True, kw_only=True):
    """Scores every cached token for every query, so that attention can read only the best (sparse attention).

    Its queries come from a row of ``query_width`` elements; its key, one a token, is normed, rotated and cached.
    ``weighted``: a projection of the token weighs the scores of the heads, which are summed.
    """

    heads: int
    head_dim: int
    query_width: int
    rope_dim: int
    weighted: bool = True
    query_norm: Norm | None = None
    key_norm: Norm = Norm(kind="layer", bias=True)


class Attention(msgspec.Struct, frozen=True, kw_only=True):
    """Softmax attention. ``kv_heads`` equals ``heads`` (multi-head), divides it (grouped) or is 1 (multi-query).

    ``window``: a token sees itself and ``window - 1`` tokens before it (``chunked``: those of its chunk of ``window``
    tokens); None is the whole context.
    ``qk_norm``: a norm on query and key heads, with one weight vector for all heads or one a head (``per-head``: over
    each head; ``whole``: over all heads at once). Key and value biases follow ``qkv_bias`` unless they are given.
    ``input_width`` differs from the hidden width where attention reads another row than the layer's own.
    ``reuses_cache``: queries attend to what an earlier layer cached, so there are no keys and values of its own.
    ``values_are_keys``: values are the keys before norm and rotation, without a projection; both are cached.
    ``passes`` over the cache: differential attention attends once to each half of the value heads.
    Without ``causal`` a token also sees those after it; its window then reaches as far ahead as behind.
    ``within`` names the windows that the tokens are cut into: sequences of their own, as a picture's windows are.
    Where it is causal ``between_blocks``, tokens of a block see each other, and a prompt is read as causal attention
    reads it.
    """

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    rotary_dim: int = 0
    window: int | None = None
    chunked: bool = False
    qkv_bias: bool = False
    value_bias: bool | None = None
    key_bias: bool | None = None
    out_bias: bool = False
    qk_norm: Literal["none", "shared", "per-head", "whole"] = "none"
    qk_norm_kind: Norm = Norm()
    capped: bool = False
    input_width: int | None = None
    projected: bool = True
    selected: int | None = None
    indexer: Indexer | None = None
    reuses_cache: bool = False
    values_are_keys: bool = False
    passes: int = 1
    causal: bool = True
    within: str | None = None
    between_blocks: bool = False

    @property
    def query_width(self) -> int:
        """Elements of a token's queries, over all heads."""
        return self.heads * self.head_dim

    @property
    def key_width(self) -> int:
        """Elements of a token's keys, over all heads."""
        return self.kv_heads * self.head_dim

    @property
    def value_width(self) -> int:
        """Elements of a token's values, over all heads."""
        return self.kv_heads * self.value_dim

    @property
    def output_width(self) -> int:
        """Elements of a token's attention output, over all heads."""
        return self.heads * self.value_dim


class FeedForward(msgspec.Struct, frozen=True, kw_only=True):
    """A feed-forward of ``width``; ``gated`` has two input matrices, ``smooth`` an exponential in its activation."""

    width: int
    gated: bool
    bias: bool = False
    smooth: bool = True


class LatentAttention(msgspec.Struct, frozen=True, kw_only=True):
    """Multi-head latent attention (MLA): keys and values of all heads are projections of one latent vector a token.

    ``query_rank`` None projects queries directly. A query or key head has ``nope_dim`` elements without and
    ``rope_dim`` with rotation; the rotated part of the key is one for all heads and is cached beside the latent (as it
    is where nothing is ``rotated``).
    ``selected``: a query attends to that many of the cached tokens at most, which ``indexer`` (or that of a layer
    before) chose; all of them stay in the cache. ``window`` is as in :class:`Attention`.
    """

    heads: int
    query_rank: int | None
    latent: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    bias: bool = False
    norm: Norm = Norm()
    window: int | None = None
    selected: int | None = None
    indexer: Indexer | None = None
    rotated: bool = True


class Experts(msgspec.Struct, frozen=True, kw_only=True):
    """A mixture of experts: each token goes through ``top_k`` of ``experts`` feed-forwards, and through shared ones.

    ``shared_width`` is the width of all shared experts together (0 for none); ``shared_gate`` scales them by a learned
    gate. Where ``latent`` is not 0, routed experts work on a projection of that width, and another leads back.
    ``router`` is False where the layer's pieces hold a router that is more than one matrix.
    ``ranks`` hold the experts between them, and take the tokens of as many ``replicas`` of the rest of the model.
    """

    name: str = "moe"
    experts: int
    top_k: int
    width: int
    gated: bool = True
    bias: bool = False
    smooth: bool = True
    router_bias: bool = False
    shared_width: int = 0
    shared_gate: bool = False
    shared_bias: bool = False
    latent: int = 0
    router: bool = True
    ranks: int = 1
    replicas: int = 1


class Linear(msgspec.Struct, frozen=True, kw_only=True):
    """A projection that is no part of the usual blocks. ``shared`` has its parameters counted elsewhere.

    ``head``: a part of the LM head, for the positions whose logits are wanted alone. ``summed``: a rank's share of the
    rows, whose products are added up over ranks.
    """

    name: str
    d_in: int
    d_out: int
    bias: bool = False
    shared: bool = False
    head: bool = False
    summed: bool = False


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A normalisation that is no part of the usual blocks; ``norm_width`` differs where heads share a weight vector."""

    name: str
    norm: Norm
    width: int
    norm_width: int | None = None


class Vector(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters that a token's row is multiplied with or added to, element by element (or held and not used)."""

    name: str
    parameters: int
    width: int = 0


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table beside the vocabulary's, of which every token takes one row: segments, positions narrower than hidden."""

    name: str
    rows: int
    width: int


class Convolution(msgspec.Struct, frozen=True, kw_only=True):
    """A short causal convolution over ``channels``, each over ``per_channel`` inputs; the last taps are state."""

    name: str
    channels: int
    kernel: int
    per_channel: int = 1
    bias: bool = False


class DenseConvolution(msgspec.Struct, frozen=True, kw_only=True):
    """A convolution that mixes its channels: a GEMM over ``kernel`` inputs, of which each token takes ``stride``."""

    name: str
    d_in: int
    d_out: int
    kernel: int
    stride: int = 1
    bias: bool = True


class Recurrence(msgspec.Struct, frozen=True, kw_only=True):
    """A state that every token updates: ``elements`` a sequence, at ``flop`` vector FLOP an element and token.

    ``exps`` are the exponentials of an element's own decay.
    """

    name: str
    elements: int
    flop: int
    exps: int = 0

    @property
    def scans_in_chunks(self) -> bool:
        """Whether matrix products over chunks of a prompt can do the work: not where each element has its own decay."""
        return self.flop > 0 and self.exps == 0


class SharedKeys(msgspec.Struct, frozen=True, kw_only=True):
    """Cached rows that all heads score: as keys and values of an attention, or (``values`` false) to choose from.

    There is a row for every ``rate`` tokens, made of them; ``buffer`` are the elements that wait to be made one, of
    which a token adds ``buffered``. A query attends to the rows of ``window`` tokens (None: of all); ``held`` is what
    the cache keeps of them.
    """

    name: str
    heads: int
    head_dim: int
    rate: int = 1
    window: int | None = None
    held: int | None = None
    values: bool = True
    buffer: int = 0
    buffered: int = 0


class CrossAttention(msgspec.Struct, frozen=True, kw_only=True):
    """Attention to the tokens that the stack ``source`` gave, ``source_width`` wide, with its own norm and residual.

    Keys and values are made when the source runs, once a sequence, and cached.
    """

    name: str = "cross"
    source: str
    source_width: int
    attention: Attention
    norm: Norm | None = None


Piece: TypeAlias = Linear | Row | Vector | Table | Convolution | DenseConvolution | Recurrence


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """One decoder layer: attention, a feed-forward, and whatever else the family has (``pieces``).

    A parallel block has one norm for both halves; a sandwich has four; 0 where the pieces bring their own. ``shared``:
    attention and feed-forward read the matrices of an earlier layer, where they are counted.
    """

    attention: Attention | LatentAttention | None = None
    feed_forward: FeedForward | Experts | None = None
    norms: int = 2
    pieces: tuple[Piece | Experts | SharedKeys | CrossAttention, ...] = ()
    shared: bool = False

    @property
    def only_crosses(self) -> bool:
        """Whether it attends to another stack alone, and is skipped where that gave nothing."""
        return self.attention is None and any(isinstance(piece, CrossAttention) for piece in self.pieces)


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    """Layers over a sequence of their own that run before the main ones: an encoder, a vision tower, a connector.

    ``reads`` is what its tokens are made of, ``tokens`` their number where it is fixed. ``before`` and ``after`` are
    pieces around the layers. A change of the number of tokens (a merge of patches, a convolution with a stride) begins
    another stack. ``quantized``: its matrices are in the model's format of weights, else in that of activations.
    """

    name: str
    reads: Literal["text", "image", "audio"] = "text"
    tokens: int | None = None
    hidden: int
    norm: Norm = Norm()
    layers: tuple[Layer, ...] = ()
    before: tuple[Piece, ...] = ()
    after: tuple[Piece, ...] = ()
    quantized: bool = False


class Denoising(msgspec.Struct, frozen=True, kw_only=True):
    """How a diffusion language model writes: pass after pass over a ``block`` of masked tokens until all are filled.

    ``cached``: what is before the block stays in the cache. Else every pass reads the whole sequence.
    """

    block: int
    cached: bool


class Architecture(msgspec.Struct, frozen=True, kw_only=True):
    """A language model: its main layers in order, and the ``stacks`` that run before them.

    ``embedding_width`` differs from ``hidden`` where projections lead in and out of the layers; with a ``head_width``
    the pieces of ``after`` lead out, to a head that takes that width;
    ``positions`` are rows of a learned position table (0 for rotary or none). ``before`` and ``after`` are pieces
    outside the layers. An encoder is not ``generative``: it has no cache, and a ``head`` only where it predicts words.
    ``images`` is how its processor makes tokens of a picture; where that is all it reads, ``vocab`` is 0. ``sounds`` is
    how it makes those of a sound.
    What drafts for another model takes the ``target``'s embedding, or has none. ``head_vocab``: the head's own words.
    ``vocab_ranks`` share the table of the embedding and the head's matrix.
    """

    family: str
    hidden: int
    vocab: int
    layers: tuple[Layer, ...]
    norm: Norm
    final_norm: bool = True
    tied: bool = False
    embedding_width: int
    embedding_scaled: bool = False
    positions: int = 0
    head_bias: bool = False
    head_width: int | None = None
    logits_capped: bool = False
    generative: bool = True
    head: bool = True
    head_vocab: int | None = None
    embedding: Literal["own", "target", "none"] = "own"
    denoising: Denoising | None = None
    stacks: tuple[Stack, ...] = ()
    before: tuple[Piece, ...] = ()
    after: tuple[Piece, ...] = ()
    images: Images | None = None
    sounds: Sounds | None = None
    vocab_ranks: int = 1

    @property
    def longest(self) -> int:
        """Rows of the table of positions, wherever it stands; 0 where positions need none."""
        pieces = (*self.before, *(piece for stack in self.stacks for piece in stack.before))
        tables = [piece.rows for piece in pieces if isinstance(piece, Table) and piece.name == "position_embedding"]
        return self.positions or min(tables, default=0)

    @property
    def sources(self) -> frozenset[str]:
        """The stacks that the main layers attend to: an encoder-decoder's encoder."""
        pieces = [piece for layer in set(self.layers) for piece in layer.pieces if isinstance(piece, CrossAttention)]
        return frozenset(piece.source for piece in pieces) & {stack.name for stack in self.stacks}
