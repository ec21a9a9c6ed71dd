"""The pieces of recurrent mixers, and how a config says which layer has which."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopmap.model.architecture import Convolution, Linear, Norm, Piece, Recurrence, Row, Vector
from flopmap.model.config import MAX_LAYERS, Config
from flopmap.model.families.common import RELU, SMOOTH
from flopmap.quantity import shown

if TYPE_CHECKING:
    from collections.abc import Callable

LINEAR, FULL, SLIDING = "linear_attention", "full_attention", "sliding_attention"
RENAMED = {"mamba": LINEAR, "attention": FULL, "qwen_sparse_attention": "indexed_attention"}  # their older names
# vector FLOP an element of the state and token: decay, update, and the product that reads the output
SELECTIVE_FLOP = 6  # the decay of each element is its own exponential
SCALAR_DECAY_FLOP = 5  # one decay a head
DELTA_FLOP = 7  # what the state already holds for the key is read first


def state_space(
    hidden: int,
    inner: int,
    *,
    state: int,
    rank: int,
    kernel: int,
    bias: bool,
    conv_bias: bool,
    heads: int = 1,
    norms: tuple[Norm, Norm] | None = None,
) -> tuple[Piece, ...]:
    """Mamba-1: a state of ``state`` elements a channel; ``norms`` are those of the step and of B and C."""
    rows: tuple[Piece, ...] = ()
    if norms is not None:
        rows = (Row(name="mixer.dt_norm", norm=norms[0], width=rank),)
        rows += tuple(Row(name=f"mixer.{name}_norm", norm=norms[1], width=state) for name in ("b", "c"))
    return (
        Linear(name="mixer.in", d_in=hidden, d_out=2 * inner, bias=bias),
        Convolution(name="mixer.conv", channels=inner, kernel=kernel, bias=conv_bias),
        Linear(name="mixer.x", d_in=inner // heads, d_out=heads * (rank + 2 * state)),
        *rows,
        Linear(name="mixer.dt", d_in=rank, d_out=inner, bias=True),
        Vector(name="mixer.decay", parameters=inner * state),
        Vector(name="mixer.skip", parameters=inner, width=inner),
        Recurrence(name="mixer.state", elements=inner * state, flop=SELECTIVE_FLOP, exps=1),
        Vector(name="mixer.gate", parameters=0, width=inner),
        Linear(name="mixer.out", d_in=inner, d_out=hidden, bias=bias),
    )


def state_space_heads(
    hidden: int,
    heads: int,
    head_dim: int,
    *,
    groups: int,
    state: int,
    kernel: int,
    bias: bool,
    conv_bias: bool,
    out_bias: bool | None = None,
    norm: bool = True,
) -> tuple[Piece, ...]:
    """Mamba-2: one decay a head; B and C are those of a group of heads."""
    inner = heads * head_dim
    channels = inner + 2 * groups * state
    return (
        Linear(name="mixer.in", d_in=hidden, d_out=inner + channels + heads, bias=bias),
        Convolution(name="mixer.conv", channels=channels, kernel=kernel, bias=conv_bias),
        Vector(name="mixer.decay", parameters=3 * heads, width=inner),
        Recurrence(name="mixer.state", elements=inner * state, flop=SCALAR_DECAY_FLOP),
        Vector(name="mixer.gate", parameters=0, width=inner),
        *((Row(name="mixer.norm", norm=Norm(), width=inner),) if norm else ()),
        Linear(name="mixer.out", d_in=inner, d_out=hidden, bias=bias if out_bias is None else out_bias),
    )


def gated_delta(
    hidden: int, *, key_heads: int, value_heads: int, key_dim: int, value_dim: int, kernel: int
) -> tuple[Piece, ...]:
    """A gated delta net: the state of a value head is a matrix of a key by a value."""
    keys, values = key_heads * key_dim, value_heads * value_dim
    return (
        Linear(name="mixer.qkvz", d_in=hidden, d_out=2 * keys + 2 * values),
        Linear(name="mixer.ba", d_in=hidden, d_out=2 * value_heads),
        Convolution(name="mixer.conv", channels=2 * keys + values, kernel=kernel),
        Vector(name="mixer.decay", parameters=2 * value_heads, width=value_heads),
        Recurrence(name="mixer.state", elements=values * key_dim, flop=DELTA_FLOP),
        Row(name="mixer.norm", norm=Norm(), width=values, norm_width=value_dim),
        Vector(name="mixer.gate", parameters=0, width=values),
        Linear(name="mixer.out", d_in=values, d_out=hidden),
    )


def layer_kinds(
    config: Config, understood: tuple[str, ...], default: Callable[[int], str] | None = None, count: int | None = None
) -> list[str]:
    """The kind of each layer, from the config's list or else by the family's rule; names of transformers 4 too."""
    field = next((name for name in ("layer_types", "layers_block_type") if config.has(name)), "layer_types")
    kinds = [RENAMED.get(kind, kind) for kind in config.strings(field)]
    count = count or config.integer("num_hidden_layers", high=MAX_LAYERS)
    if not kinds and default is None:
        raise config.error(field, f"is missing (a list of {', '.join(understood)} is needed)")
    kinds = kinds or [default(index) for index in range(count) if default]
    if len(kinds) != count:
        raise config.error(field, f"has {len(kinds)} entries for {count} layers")
    unknown = set(kinds) - set(understood)
    if unknown:
        raise config.error(field, f"{shown(min(unknown))} is not understood (understood: {', '.join(understood)})")
    return kinds


def with_defaults(config: Config, **defaults: int) -> Config:
    """The config with the class's own values for what a nested text model leaves out when it equals them."""
    return Config({**defaults, **config.fields}, config.name)


def smooth(config: Config, field: str, default: str) -> bool:
    """Whether the activation that a field names has an exponential."""
    name = config.string(field, default=default)
    if name not in (*RELU, *SMOOTH):
        raise config.error(field, f"{shown(name)} is not understood (understood: {', '.join((*RELU, *SMOOTH))})")
    return name in SMOOTH


def key_heads(config: Config, default: int) -> int | None:
    """The key heads of a class whose absent field is ``default`` and whose null is the query heads."""
    return None if "num_key_value_heads" in config.fields else default


def step_rank(config: Config, field: str) -> int:
    """The rank of the step's projection: a number, or a sixteenth of the hidden width."""
    if config.fields.get(field, "auto") == "auto":
        return -(-config.integer("hidden_size") // 16)
    return config.integer(field)


def expanded(config: Config, field: str) -> int:
    """The inner width of a mixer: twice the hidden width by default."""
    inner = int(config.number(field, default=2) * config.integer("hidden_size"))
    if not inner:
        raise config.error(field, f"{shown(config.fields[field])} leaves no inner width")
    return inner


def integers(config: Config, field: str) -> list[int]:
    """A list of indices, empty when absent."""
    value = config.fields.get(field)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, int) and not isinstance(item, bool) for item in value):
        raise config.error(field, f"{shown(value)} is not a list of whole numbers")
    return value


def must_divide(config: Config, field: str, part: int, whole: int) -> int:
    """``whole`` over ``part``. Raises :class:`ConfigError` about the field when it does not come out even."""
    if whole % part:
        raise config.error(field, f"{part} does not divide {whole}")
    return whole // part


def refuse(config: Config, *fields: str) -> None:
    """Raise :class:`ConfigError` for the first of the fields that is set: the family has no such thing here."""
    for field in fields:
        value = config.fields.get(field)
        if value:
            raise config.error(field, f"{shown(value)} is not understood in a {config.string('model_type')} config")
