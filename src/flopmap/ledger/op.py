"""One op of a step: an op class bound to shapes, and the ops that every kind of layer is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from flopmap.step import MAIN, Level, Phase

if TYPE_CHECKING:
    from flopmap.model.architecture import Norm


class Op(msgspec.Struct, frozen=True, kw_only=True):
    """An op class bound to shapes. ``weights`` says which format its matrix is stored in.

    ``stack`` names the layers whose tokens it works on. An ``idle`` op is held in memory and does not run in the step;
    one that runs ``again`` holds nothing of its own. What it sends goes over the links of its ``level``.
    """

    name: str
    op_class: str
    count: int = 1
    shapes: tuple[tuple[str, float], ...] = ()
    phase: Phase | None = None
    window: int | None = None
    chunked: bool = False
    weights: Literal["weights", "activations"] = "activations"
    stack: str = MAIN
    idle: bool = False
    again: bool = False
    level: Level = "scale-up"


def gemm_op(name: str, d_in: int, d_out: int, *, bias: bool = False) -> Op:
    """A matrix of the layers, and its bias."""
    return Op(
        name=name,
        op_class="weight-gemm",
        shapes=(("d_in", d_in), ("d_out", d_out), ("bias", int(bias))),
        weights="weights",
    )


def norm_op(name: str, norm: Norm, width: int, norm_width: int | None = None) -> Op:
    """A norm over ``width`` elements; its weight vector is one for several heads where ``norm_width`` is given."""
    shapes = (("width", width), ("norm_width", (norm_width or width) if norm.affine else 0))
    if norm.kind == "rms":
        return Op(name=name, op_class="rms-norm", shapes=shapes)
    return Op(name=name, op_class="layer-norm", shapes=(*shapes, ("bias", int(norm.bias))))


def activation_op(name: str, width: float, *, gated: bool, smooth: bool) -> Op:
    """The function between the matrices of a feed-forward."""
    return Op(
        name=name, op_class="activation", shapes=(("width", width), ("gated", int(gated)), ("smooth", int(smooth)))
    )


def elementwise_op(name: str, op_class: str, width: float) -> Op:
    """An op class that works element by element."""
    return Op(name=name, op_class=op_class, shapes=(("width", width),))
