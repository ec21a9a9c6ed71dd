"""What a model is: parts that compose. Families map configs onto them; the ledger turns them into ops."""

from __future__ import annotations

from typing import Literal

import msgspec


class Norm(msgspec.Struct, frozen=True, kw_only=True):
    """A normalisation over a row: RMSNorm or LayerNorm, its weight vector (``affine``) and bias."""

    kind: Literal["rms", "layer"] = "rms"
    bias: bool = False
    affine: bool = True


class Attention(msgspec.Struct, frozen=True, kw_only=True):
    """Softmax attention. ``kv_heads`` equals ``heads`` (multi-head), divides it (grouped) or is 1 (multi-query).

    ``window``: a token sees itself and ``window - 1`` tokens before it; None is the whole context.
    ``qk_norm``: a norm on query and key heads, with one weight vector for all heads or one a head.
    """

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    rotary_dim: int = 0
    window: int | None = None
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: Literal["none", "shared", "per-head"] = "none"
    qk_norm_kind: Norm = Norm()
    capped: bool = False

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


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """One decoder layer. A parallel block has one norm for both halves; a sandwich has four."""

    attention: Attention
    feed_forward: FeedForward
    norms: int = 2


class Architecture(msgspec.Struct, frozen=True, kw_only=True):
    """A decoder-only language model. ``layers`` holds every layer in order.

    ``embedding_width`` differs from ``hidden`` where projections lead in and out of the layers;
    ``positions`` are rows of a learned position table (0 for rotary or none).
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
    logits_capped: bool = False
