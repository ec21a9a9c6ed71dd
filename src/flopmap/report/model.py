"""A model by itself: its shape, where its parameters are, what a token costs, and its layers drawn as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from flopmap.floor.drafts import left_out
from flopmap.floor.roofline import price
from flopmap.floor.summary import cache_per_token, memory
from flopmap.model.architecture import Attention, Experts, FeedForward, Layer
from flopmap.model.reading import read_model
from flopmap.quantity import amount, percent
from flopmap.report.data import whole
from flopmap.scenario import Request, make

if TYPE_CHECKING:
    from flopmap.floor.roofline import Pricing
    from flopmap.model.architecture import Architecture
    from flopmap.records.book import Book
    from flopmap.scenario import Scenario

CONTEXTS = (2048, 32768, 131072)
TEXTS = (128, 512, 8192)  # what encoders read
ANY_PART = "h100-sxm"  # counts do not depend on the part
PLACES = {"embedding": "embedding", "position_embedding": "embedding", "lm_head": "LM head"}


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """What a model counts to: bytes in its own format, FLOP of a decoded token by context, and of an image's towers.

    ``flop_to_encode`` is of a pass over a text by its tokens, where a model encodes text (or sound) by itself.
    """

    name: str
    family: str
    parameters: int
    active_parameters: int
    parameters_by_place: dict[str, int]
    weight_format: str
    weight_bytes: int
    kv_bytes_per_token: float
    cross_bytes_per_encoded_token: float
    state_bytes_per_sequence: float
    flop_per_token: dict[int, int]
    flop_to_encode: dict[int, int]
    flop_per_image: int
    hidden: int
    vocab: int
    layers: str
    legend: dict[str, str]
    assumptions: tuple[str, ...]
    not_counted: tuple[str, ...]


def account(name: str, book: Book) -> Account:
    """The account of a model given by id, alias or path. Raises what :func:`flopmap.scenario.make` raises."""
    checkpoint = read_model(name, book)
    architecture = checkpoint.architecture
    image = _price(Request(model=name, on=ANY_PART, phase="encode", images=1), book) if architecture.images else None
    encodings = _encodings(name, architecture, book)
    first = _decode(name, 1, book) if architecture.generative else image or next(iter(encodings.values()))
    longest = architecture.positions or CONTEXTS[-1]
    contexts = [context for context in CONTEXTS if context <= longest] or [longest]
    pricings = {context: _decode(name, context, book) for context in contexts} if architecture.generative else {}
    held = memory(first, book)
    towers = [stack.layers for stack in architecture.stacks if stack.layers]
    drawn, legend = pattern(architecture.layers or towers[0])
    return Account(
        name=first.scenario.model.name,
        family=architecture.family,
        parameters=whole(first.totals["parameters"]),
        active_parameters=whole(first.totals["active"]),
        parameters_by_place=_by_place(first),
        weight_format=_formats(first.scenario),
        weight_bytes=whole(held.weight_bytes),
        kv_bytes_per_token=held.kv_bytes_per_token,
        cross_bytes_per_encoded_token=cache_per_token(first, encoded=True),
        state_bytes_per_sequence=held.state_bytes_per_sequence,
        flop_per_token={context: whole(pricing.totals["matrix"]) for context, pricing in pricings.items()},
        flop_to_encode={tokens: whole(pricing.totals["matrix"]) for tokens, pricing in encodings.items()},
        flop_per_image=whole(image.totals["matrix"]) if image else 0,
        hidden=architecture.hidden,
        vocab=architecture.vocab,
        layers=drawn,
        legend=legend,
        assumptions=(*checkpoint.assumptions, *_passes(architecture)),
        not_counted=(*checkpoint.not_counted, *left_out(first.scenario, book)),
    )


def _encodings(name: str, architecture: Architecture, book: Book) -> dict[int, Pricing]:
    """Passes over texts of some lengths; over the one length that the model always encodes, where it fixes that."""
    encodes = bool(architecture.sources) if architecture.generative else True
    if architecture.images is not None or not encodes:
        return {}
    (*_, last) = architecture.stacks or (None,)
    if last is not None and last.tokens is not None:
        return {last.tokens: _price(Request(model=name, on=ANY_PART, phase="encode"), book)}
    longest = architecture.longest or TEXTS[-1]
    return {
        tokens: _price(Request(model=name, on=ANY_PART, phase="encode", input_len=tokens), book)
        for tokens in TEXTS
        if tokens <= longest
    }


def _decode(name: str, context: int, book: Book) -> Pricing:
    return _price(Request(model=name, on=ANY_PART, phase="decode", batch_size=1, context_len=context), book)


def _price(request: Request, book: Book) -> Pricing:
    return price(make(request, book), book)


def _passes(architecture: Architecture) -> tuple[str, ...]:
    """What a decoded token of a diffusion language model is."""
    if architecture.denoising is None:
        return ()
    what = f"a block of {architecture.denoising.block} tokens after the cache"
    return (f"a token a pass; a pass reads {what if architecture.denoising.cached else 'the whole sequence'}",)


def _formats(scenario: Scenario) -> str:
    """``fp8-block, others in moe.router``: the general format, and the ops whose matrices are in another."""
    precision = scenario.precision
    if precision.stored:
        return f"{precision.weights.id}; in formats of their own: {', '.join(sorted(precision.stored))}"
    return precision.weights.id


def _by_place(pricing: Pricing) -> dict[str, int]:
    """Parameters by the place of their op: embedding, attention, mlp, moe, norms, LM head, other."""
    places: dict[str, int] = {}
    for line in pricing.lines:
        number = line.costs["parameters"]
        if not number:
            continue
        name = line.line.op.name
        norm = line.line.op.op_class in ("rms-norm", "layer-norm")
        place = "norms" if norm else PLACES.get(name, name.split(".", 1)[0])
        places[place] = places.get(place, 0) + whole(number)
    return dict(sorted(places.items(), key=lambda item: -item[1]))


# -- layers -----------------------------------------------------------------------------------------------------------


def pattern(layers: tuple[Layer, ...]) -> tuple[str, dict[str, str]]:
    """The layers as letters, repeats drawn together: ``10 x (5 A, B), 2 A``; and what each letter stands for."""
    letters: dict[str, str] = {}
    described = {layer: describe(layer) for layer in set(layers)}
    for layer in layers:
        letters.setdefault(described[layer], chr(ord("A") + len(letters)) if len(letters) < LETTERS else "?")
    row = [letters[described[layer]] for layer in layers]
    period = next((size for size in range(1, len(row) // 2 + 1) if _repeats(row, size)), len(row))
    times, rest = divmod(len(row), period)
    parts = [_runs(row)] if times == 1 or period == 1 else [f"{times} x ({_runs(row[:period])})"]
    if rest and times > 1 and period > 1:
        parts.append(_runs(row[-rest:]))
    return ", ".join(parts), {letter: words for words, letter in letters.items()}


LETTERS = 26
SHOWN_PIECES = 3


def _repeats(row: list[str], size: int) -> bool:
    return all(letter == row[index % size] for index, letter in enumerate(row))


def _runs(row: list[str]) -> str:
    """Equal neighbours as a count: ``5 A, B``."""
    runs: list[tuple[str, int]] = []
    for letter in row:
        if runs and runs[-1][0] == letter:
            runs[-1] = (letter, runs[-1][1] + 1)
        else:
            runs.append((letter, 1))
    return ", ".join(letter if count == 1 else f"{count} {letter}" for letter, count in runs)


def describe(layer: Layer) -> str:
    """A layer in a few words."""
    words = []
    attention, half = layer.attention, layer.feed_forward
    if isinstance(attention, Attention):
        reach = f", window {attention.window:,}" if attention.window else ""
        words.append(f"attention {attention.heads} x {attention.head_dim} over {attention.kv_heads} key heads{reach}")
    elif attention is not None:
        words.append(f"latent attention {attention.heads} heads over {attention.latent} + {attention.rope_dim}")
    if layer.pieces:
        names = [getattr(piece, "name", type(piece).__name__.lower()) for piece in layer.pieces]
        more = " ..." if len(names) > SHOWN_PIECES else ""
        words.append(f"{', '.join(names[:SHOWN_PIECES])}{more}")
    if isinstance(half, FeedForward):
        words.append(f"feed-forward {half.width:,}{'' if half.gated else ' ungated'}")
    elif isinstance(half, Experts):
        shared = f", shared {half.shared_width:,}" if half.shared_width else ""
        words.append(f"{half.top_k} of {half.experts} experts of {half.width:,}{shared}")
    return "; ".join(words) or "nothing that costs"


# -- text -------------------------------------------------------------------------------------------------------------


def lines(found: Account) -> list[str]:
    """An account as text."""
    places = ", ".join(f"{place} {percent(n / found.parameters)}" for place, n in found.parameters_by_place.items())
    flop = ", ".join(f"{amount(value, 'FLOP')} at {context:,}" for context, value in found.flop_per_token.items())
    state = (
        f", {amount(found.state_bytes_per_sequence, 'B')} of state a sequence" if found.state_bytes_per_sequence else ""
    )
    crossed = f", {found.cross_bytes_per_encoded_token:,.0f} B a token that is encoded"
    encoded = ", ".join(
        f"{amount(flop, 'FLOP')} for {tokens:,} tokens" for tokens, flop in found.flop_to_encode.items()
    )
    cached = f"{found.kv_bytes_per_token:,.0f} B a token{crossed if found.cross_bytes_per_encoded_token else ''}"
    return [
        f"{found.parameters:,} parameters, {found.active_parameters:,} of them multiply a token ({found.family})",
        f"  where: {places}",
        f"  weights: {amount(found.weight_bytes, 'B')} ({found.weight_format})",
        f"  cache: {cached}{state}",
        *([f"  a decoded token: {flop}"] if flop else []),
        *([f"  encoding: {encoded}"] if encoded else []),
        *(
            [f"  an image of 1024x1024: {amount(found.flop_per_image, 'FLOP')} in towers"]
            if found.flop_per_image
            else []
        ),
        f"  hidden {found.hidden:,}, vocabulary {found.vocab:,}, layers: {found.layers}",
        *(f"    {letter}: {words}" for letter, words in found.legend.items()),
        *(f"  assumed: {note}" for note in found.assumptions),
        *(f"  not counted: {what}" for what in found.not_counted),
    ]


def differences(one: Account, other: Account) -> list[tuple[str, str, str]]:
    """What differs between two models: the field and both values."""
    left, right = _flat(one), _flat(other)
    names = [*left, *(name for name in right if name not in left)]
    return [(name, left.get(name, "-"), right.get(name, "-")) for name in names if left.get(name) != right.get(name)]


def _flat(found: Account) -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in msgspec.to_builtins(found).items():
        if isinstance(value, dict):
            flat |= {f"{name} {key}": _text(item) for key, item in value.items()}
        else:
            flat[name] = _text(value)
    return flat


def _text(value: Any) -> str:
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)
