"""Hybrids with several residual streams, which each half mixes before it and feeds after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from flopmap.model.architecture import Architecture, Layer, Linear, Norm, Piece, Row, SharedKeys, Vector
from flopmap.model.families.common import biased, read_attention, read_decoder
from flopmap.model.families.linear import delta_of, output_gate, qwen_experts
from flopmap.model.families.mixers import FULL, LINEAR, layer_kinds, refuse, with_defaults

if TYPE_CHECKING:
    from collections.abc import Callable

    from flopmap.model.config import Config

INDEXED = "indexed_attention"


def qwen4_exp(config: Config) -> Architecture:
    """Qwen4-Exp: Qwen 3.5's halves between four residual streams; attention reads only the best blocks of keys.

    Tables of n-grams (``ple_layer_ids``) are not understood.
    """
    refuse(config, "ple_layer_ids")
    config = with_defaults(config, hidden_size=2048, num_hidden_layers=40, num_attention_heads=16, vocab_size=248_320)
    hidden, bias = config.integer("hidden_size"), config.flag("attention_bias", default=False)
    budget = config.integer("indexer_budget")
    attention = biased(read_attention(config, kv_heads=2, head_dim=256), qkv=bias, out=bias)
    attention = replace(attention, qk_norm="shared", selected=budget)
    experts = qwen_experts(config, top_k=10, experts=512)
    if experts is None:
        raise config.error("num_experts", "0 is not understood in a qwen4_exp config")
    streams = (*_streams(config, "attention"), *_streams(config, "mlp"))
    pieces = (*streams, *output_gate(attention, hidden, bias=bias), *_block_index(config))
    indexed = Layer(attention=attention, pieces=pieces, feed_forward=experts, norms=0)
    delta = delta_of(config, key_heads=16, value_heads=32, key_dim=128, value_dim=128)
    every = config.integer("full_attention_interval", default=4)
    kinds = layer_kinds(config, (LINEAR, INDEXED, FULL), lambda index: LINEAR if (index + 1) % every else INDEXED)
    layers = tuple(
        Layer(pieces=(*streams, *delta), feed_forward=experts, norms=0) if kind == LINEAR else indexed for kind in kinds
    )
    decoder = read_decoder(config, layers, Norm())
    return replace(decoder, final_norm=False, after=_streams(config, "final")[:-1])


def _streams(config: Config, name: str) -> tuple[Piece, ...]:
    """The norm of all streams, a low-rank mix of them into one row, and the weights that feed a half's output back."""
    count, rank = config.integer("hc_count", default=4, low=2), config.integer("hc_lowrank", default=320)
    width = count * config.integer("hidden_size")
    return (
        Row(name=f"{name}.streams_norm", norm=Norm(), width=width),
        Linear(name=f"{name}.streams_down", d_in=width, d_out=rank),
        Linear(name=f"{name}.streams_up", d_in=rank, d_out=width),
        Vector(name=f"{name}.streams_mix", parameters=0, width=4 * width),
        Linear(name=f"{name}.streams_inject", d_in=width, d_out=count),
    )


def _block_index(config: Config) -> tuple[Piece | SharedKeys, ...]:
    """The indexer: a key for every few tokens, the mean of theirs; an incomplete block waits."""
    heads, dim = config.integer("indexer_n_heads"), config.integer("indexer_head_dim")
    ratio = config.integer("indexer_compress_ratio")
    if config.integer("indexer_kv_heads") != 1:
        raise config.error("indexer_kv_heads", "only 1 is understood")
    if config.integer("indexer_budget") % ratio:
        raise config.error("indexer_budget", f"must be a multiple of indexer_compress_ratio {ratio}")
    return (
        Linear(name="indexer.qk", d_in=config.integer("hidden_size"), d_out=(heads + 1) * dim),
        Row(name="indexer.q_norm", norm=Norm(), width=heads * dim, norm_width=dim),
        Row(name="indexer.k_norm", norm=Norm(), width=dim),
        SharedKeys(
            name="indexer", heads=heads, head_dim=dim, rate=ratio, values=False, buffer=ratio * dim, buffered=dim
        ),
    )


FAMILIES: dict[str, Callable[[Config], Architecture]] = {"qwen4_exp_text": qwen4_exp}
