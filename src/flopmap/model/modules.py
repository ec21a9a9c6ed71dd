"""The names that checkpoints give to the matrices of an architecture, and lists of such names as configs write them."""

from __future__ import annotations

import fnmatch
import functools
import re
from typing import TYPE_CHECKING, NamedTuple

from flopmap.model.architecture import Attention, Experts, FeedForward, LatentAttention, Linear
from flopmap.quantity import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from flopmap.model.architecture import Architecture, Layer

MAX_EXPRESSION = 500
MAX_REPEATS = 6
MAX_EXPRESSIONS = 4000
PREFIXES = ("", "model.", "model.language_model.", "language_model.model.", "backbone.")
LAYER = re.compile(r"(?:^|.*\.)(?:layers|h|blocks)\.(?=[\d*\[?])")
WILD = re.compile(r"[*?\[]")
OTHER_PARTS = ("mtp", "visual", "vision", "audio", "embed_vision", "multi_modal_projector", "mm_projector")
ATTENTION = ("self_attn", "attention", "attn", "self_attention", "mixer")
MIXER = ("linear_attn", "mixer", "mamba", "self_attn", "conv", "temporal_block", "attention")
DENSE = ("mlp", "feed_forward", "ffn", "mixer")
SPARSE = (*DENSE, "block_sparse_moe", "moe")
SHARED = tuple(f"{outer}.{inner}" for outer in SPARSE for inner in ("shared_experts", "shared_expert", "shared_mlp"))
FUSED = ("qkv_proj", "query_key_value", "Wqkv", "c_attn")
GATE_UP = ("gate_up_proj",)
LEAVES = {
    "attention.q": ("q_proj", "wq", *FUSED),
    "attention.k": ("k_proj", "wk", *FUSED),
    "attention.v": ("v_proj", "wv", *FUSED),
    "attention.out": ("o_proj", "out_proj", "wo", "dense", "c_proj"),
    "attention.q_a": ("q_a_proj", "wq_a"),
    "attention.q_b": ("q_b_proj", "wq_b"),
    "attention.kv_a": ("kv_a_proj_with_mqa", "wkv_a", "wkv"),
    "attention.kv_b": ("kv_b_proj", "wkv_b"),
    "attention.gate": ("q_proj", "g_proj", "gate_proj"),
    "indexer.q": ("indexer.wq_b", "index_q_proj"),
    "indexer.k": ("indexer.wk", "index_k_proj"),
    "gate": ("gate_proj", "w1", *GATE_UP),
    "up": ("up_proj", "w3", "fc1", "c_fc", "dense_h_to_4h", *GATE_UP),
    "down": ("down_proj", "w2", "fc2", "c_proj", "dense_4h_to_h"),
    "mixer.in": ("in_proj", "in_proj_qkvz", "in_proj_qkv"),
    "mixer.qkvz": ("in_proj_qkvz", "in_proj_qkv", "in_proj_z"),
    "mixer.qkv": ("in_proj_qkv", "qkv_proj", "q_proj"),
    "mixer.ba": ("in_proj_ba", "in_proj_b", "in_proj_a"),
    "mixer.out": ("out_proj", "o_proj"),
    "mixer.b": ("b_proj",),
    "mixer.decay_row_a": ("f_a_proj",),
    "mixer.decay_row_b": ("f_b_proj",),
    "mixer.gate_row_a": ("g_a_proj",),
    "mixer.gate_row_b": ("g_b_proj",),
    "mixer.gate_row": ("g_proj",),
    "mixer.x": ("x_proj",),
    "mixer.dt": ("dt_proj",),
}
WHOLE = {  # matrices that stand in no container
    "attention.blocks.score": ("self_attention_res_proj",),
    "mlp.blocks.score": ("mlp_res_proj",),
    "output.blocks.score": ("output_attn_res_proj",),
}
HEADS = ("lm_head", "head", "output", "embed_out")


class Module(NamedTuple):
    """A matrix (``copies`` of it: experts): the op that multiplies by it, and the names it may have in its layer."""

    op: str
    d_in: int
    d_out: int
    names: tuple[str, ...]
    copies: int = 1

    @property
    def size(self) -> int:
        """Elements of all copies."""
        return self.d_in * self.d_out * self.copies


def modules(architecture: Architecture) -> Iterator[tuple[int | None, Module]]:
    """Every matrix that a quantisation may touch, with the index of its layer (None outside of the layers)."""
    known: dict[Layer, list[Module]] = {}
    for index, layer in enumerate(architecture.layers):
        if layer not in known:
            known[layer] = list(_of_layer(layer, architecture))
        for module in known[layer]:
            yield index, module
    width, hidden = architecture.embedding_width, architecture.hidden
    if width != hidden:
        yield None, Module("project_in", width, hidden, ("project_in",))
        yield None, Module("project_out", hidden, width, ("project_out",))
    for piece in (*architecture.before, *architecture.after):
        if isinstance(piece, Linear) and not piece.shared:
            yield None, Module(piece.name, piece.d_in, piece.d_out, WHOLE.get(piece.name, (piece.name,)))
    yield None, Module("lm_head", width, architecture.head_vocab or architecture.vocab, HEADS)


def _of_layer(layer: Layer, architecture: Architecture) -> Iterator[Module]:
    hidden = architecture.hidden
    if isinstance(layer.attention, Attention):
        yield from _attention(layer.attention, hidden)
    elif isinstance(layer.attention, LatentAttention):
        yield from _latent(layer.attention, hidden)
    for piece in layer.pieces:
        if isinstance(piece, Linear) and not piece.shared:
            containers = ATTENTION if piece.name.startswith("attention") else MIXER
            leaves = LEAVES.get(piece.name, (piece.name.rsplit(".", 1)[-1],))
            names = WHOLE.get(piece.name) or _joined(containers, leaves)
            yield Module(piece.name, piece.d_in, piece.d_out, names)
    half = layer.feed_forward
    if isinstance(half, FeedForward):
        yield from _feed_forward("mlp", half, hidden, DENSE)
    elif isinstance(half, Experts):
        beside = architecture.family.startswith("gemma4")  # there ``mlp`` is a dense half beside the experts
        yield from _experts(half, hidden, () if beside else SPARSE)


def _joined(containers: Iterable[str], leaves: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{container}.{leaf}" for container in containers for leaf in leaves)


def _attention(attention: Attention, hidden: int) -> Iterator[Module]:
    row = attention.input_width or hidden
    apart = len({attention.qkv_bias, attention.key_bias, attention.value_bias} - {None}) > 1
    widths = {"q": attention.query_width, "k": attention.key_width, "v": attention.value_width}
    for letter, width in widths.items():
        op = f"attention.{letter}" if apart else "attention.qkv"
        yield Module(op, row, width, _joined(ATTENTION, LEAVES[f"attention.{letter}"]))
    yield Module("attention.out", attention.output_width, hidden, _joined(ATTENTION, LEAVES["attention.out"]))


def _latent(attention: LatentAttention, hidden: int) -> Iterator[Module]:
    heads, latent, rank = attention.heads, attention.latent, attention.query_rank
    query = heads * (attention.nope_dim + attention.rope_dim)
    shapes = {
        "attention.kv_a": (hidden, latent + attention.rope_dim),
        "attention.kv_b": (latent, heads * (attention.nope_dim + attention.value_dim)),
        "attention.out": (heads * attention.value_dim, hidden),
    }
    shapes |= {"attention.q": (hidden, query)} if rank is None else {}
    shapes |= {"attention.q_a": (hidden, rank), "attention.q_b": (rank, query)} if rank is not None else {}
    if attention.indexer:
        indexer = attention.indexer
        shapes["indexer.q"] = (indexer.query_width, indexer.heads * indexer.head_dim)
        shapes["indexer.k"] = (hidden, indexer.head_dim)
        yield Module("indexer.weights", hidden, indexer.heads, ("self_attn.indexer.weights_proj",))
    for op, (d_in, d_out) in shapes.items():
        yield Module(op, d_in, d_out, _joined(ATTENTION, LEAVES[op]))


def _feed_forward(op: str, half: FeedForward, hidden: int, containers: tuple[str, ...]) -> Iterator[Module]:
    first = f"{op}.gate_up" if half.gated else f"{op}.up"
    if half.gated:
        yield Module(first, hidden, half.width, _joined(containers, LEAVES["gate"]))
    yield Module(first, hidden, half.width, _joined(containers, LEAVES["up"]))
    yield Module(f"{op}.down", half.width, hidden, _joined(containers, LEAVES["down"]))


def _experts(half: Experts, hidden: int, outside: tuple[str, ...]) -> Iterator[Module]:
    inner = half.latent or hidden
    shapes = {"gate": (inner, half.width), "up": (inner, half.width), "down": (half.width, inner)}
    containers = ("experts", *(f"{outer}.experts" for outer in outside))
    for part in ("gate", "up", "down") if half.gated else ("up", "down"):
        leaves = (*LEAVES[part], *(f"0.{leaf}" for leaf in LEAVES[part]))
        names = _joined(containers, leaves) + _joined(("moe",), LEAVES[part])
        yield Module("moe.experts", *shapes[part], names, half.experts)
    if half.shared_width:
        shared = FeedForward(width=half.shared_width, gated=half.gated)
        yield from _feed_forward("moe.shared", shared, hidden, (*SHARED, "shared_mlp", "share_expert"))
    if half.shared_gate:
        yield Module("moe.shared_gate", hidden, 1, ("mlp.shared_expert_gate",))
    if half.latent:
        yield Module("moe.latent_in", hidden, inner, _joined(SPARSE, ("fc1_latent_proj", "routed_expert_down_proj")))
        yield Module("moe.latent_out", inner, hidden, _joined(SPARSE, ("fc2_latent_proj", "routed_expert_up_proj")))


class Names:
    """Modules by name as configs list them: whole names, parts of names, wildcards, expressions (``re:``).

    A name stands for all modules inside of it. What leads to the layers (``model.``, ``backbone.``) is left out, and so
    are parts of a model that are no layers of the decoder.
    """

    def __init__(self, listed: Iterable[str], refuse: Callable[[str], Exception]) -> None:
        self.parts: set[str] = set()
        self.of_layer: dict[str, set[str]] = {}  # names inside of a layer, by the layer's number
        self.starts: dict[str, tuple[str, ...]] = {}  # how such names begin
        self.numbers: tuple[str, ...] = ()  # how numbers of layers begin
        self.anywhere: list[re.Pattern[str]] = []
        self.by_layer: list[re.Pattern[str]] = []
        self.known: dict[tuple[str, ...], bool] = {}
        for name in listed:
            if len(name) > MAX_EXPRESSION:
                raise refuse(f"a name of {len(name)} characters ({shown(name)})")
            if name.startswith("re:") or any(letter in name for letter in "\\^$(|"):
                text = name.removeprefix("re:")
                self._patterns(text).append(_expression(text, refuse))
            elif not any(part.startswith(OTHER_PARTS) for part in name.split(".")):
                self._add(LAYER.sub("layers.", name, count=1).removesuffix(".*").strip("."))
        if len(self.by_layer) + len(self.anywhere) > MAX_EXPRESSIONS:
            raise refuse(f"more than {MAX_EXPRESSIONS} wildcards and expressions")

    def _patterns(self, text: str) -> list[re.Pattern[str]]:
        """The list that a pattern belongs to: whether it may tell one layer from another."""
        return self.by_layer if "layers" in text or re.search(r"\d|\\d|\[", text) else self.anywhere

    def _add(self, text: str) -> None:
        layer, _, rest = text.removeprefix("layers.").partition(".")
        if text.endswith(".lm_head"):
            self.parts.add("lm_head")
        elif text.startswith("layers.") and layer.isdecimal() and not WILD.search(rest):
            self.of_layer.setdefault(layer, set()).add(rest)
        elif text.startswith("layers.") and layer.isdecimal() and not WILD.search(rest[:-1]):
            self.starts[layer] = (*self.starts.get(layer, ()), rest[:-1])
        elif text.startswith("layers.") and layer[:-1].isdecimal() and layer[-1] == "*" and not rest:
            self.numbers += (layer[:-1],)
        elif WILD.search(text):
            self._patterns(text).append(re.compile(fnmatch.translate(f"*.{text}.*")))
        else:
            self.parts.add(text)

    def has(self, index: int | None, names: tuple[str, ...]) -> bool:
        """Whether one of the names that a module of this layer may have is meant."""
        if names not in self.known:
            self.known[names] = not self.parts.isdisjoint(_inside(names)) or self._match("", names, self.anywhere)
        if self.known[names] or index is None:
            return self.known[names]
        layer = str(index)
        if self.numbers and layer.startswith(self.numbers):
            return True
        if layer in self.of_layer and not self.of_layer[layer].isdisjoint(_above(names)):
            return True
        if layer in self.starts and any(name.startswith(self.starts[layer]) for name in names):
            return True
        return self._match(f"layers.{layer}.", names, self.by_layer)

    @staticmethod
    def _match(layer: str, names: tuple[str, ...], patterns: list[re.Pattern[str]]) -> bool:
        """Whether a pattern matches one of the names, whatever leads to the layers. (Wildcards match between dots.)."""
        if not patterns:
            return False
        full = [prefix + layer + name for name in names for prefix in PREFIXES]
        return any(pattern.match(name) or pattern.match(f".{name}.") for pattern in patterns for name in full)


@functools.cache
def _above(names: tuple[str, ...]) -> frozenset[str]:
    """Names and those of the modules around them, up to the layer itself."""
    parts = [name.split(".") for name in names]
    return frozenset(".".join(part[:end]) for part in parts for end in range(len(part) + 1))


@functools.cache
def _inside(names: tuple[str, ...]) -> frozenset[str]:
    """Every run of the parts of names."""
    parts = [name.split(".") for name in names]
    return frozenset(
        ".".join(part[start:end]) for part in parts for end in range(1, len(part) + 1) for start in range(end)
    )


def _expression(text: str, refuse: Callable[[str], Exception]) -> re.Pattern[str]:
    """An expression that cannot run long on a name: few repeats, none of a group."""
    repeats = len(re.findall(r"[*+{]", text.replace("\\*", "").replace("\\+", "")))
    if len(text) > MAX_EXPRESSION or repeats > MAX_REPEATS or re.search(r"\)[*+{]|[*+}][*+{]|\\\d", text):
        raise refuse(f"the expression {shown(text)}")
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError):
        raise refuse(f"the expression {shown(text)}") from None
