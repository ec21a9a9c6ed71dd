"""Mixtures of experts over softmax attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopmap.model.architecture import Architecture, Experts, Layer, Norm
from flopmap.model.families.common import is_smooth, read_attention, read_decoder, read_layers

if TYPE_CHECKING:
    from collections.abc import Callable

    from flopmap.model.config import Config


def mixtral(config: Config) -> Architecture:
    """Mixtral: every layer is a mixture; a null or absent window is none."""
    experts = Experts(
        experts=config.integer("num_local_experts", default=8),
        top_k=config.integer("num_experts_per_tok", default=2),
        width=config.integer("intermediate_size"),
        smooth=is_smooth(config, "silu"),
    )
    layer = Layer(attention=read_attention(config, kv_heads=8), feed_forward=experts)
    return read_decoder(config, read_layers(config, layer, config.optional("sliding_window"), lambda _: True), Norm())


FAMILIES: dict[str, Callable[[Config], Architecture]] = {"mixtral": mixtral}
