"""What drafts buy: the time of a token with them and without, and the acceptance from which on they pay.

And what they leave out: the layer that could draft and does not, and what a rejected draft costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from flopmap.decoding import FIRST, Speculation
from flopmap.floor.roofline import price
from flopmap.ledger.ledger import draft_lines, held_by
from flopmap.model.architecture import Attention, Recurrence
from flopmap.precision import mtp_precision
from flopmap.quantity import amount
from flopmap.records.formula import bind, value
from flopmap.records.resolve import law
from flopmap.records.types import Law
from flopmap.step import MAIN, Step

if TYPE_CHECKING:
    from flopmap.floor.roofline import Pricing
    from flopmap.records.book import Book
    from flopmap.scenario import Scenario

HALVINGS = 60


class Drafts(msgspec.Struct, frozen=True, kw_only=True):
    """Speculative decoding in numbers, of the engine floor. Pairs are of the fewest and the most drafts accepted.

    ``break_even`` is the acceptance at which a token takes as long as without drafts; None where none is enough.
    """

    tokens_per_cycle: tuple[float, float]
    seconds_per_token: tuple[float, float]
    speedup: tuple[float, float]
    plain_seconds: float
    break_even: float | None
    drafter_seconds: float
    drafter_parameters: float
    drafter_bytes: float


def drafts(pricing: Pricing, book: Book) -> Drafts | None:
    """The drafts of a decode step; None without, and in other phases, where none are checked."""
    scenario, speculation = pricing.scenario, pricing.scenario.speculation
    if speculation is None or scenario.phase != "decode":
        return None
    plain = replace(
        scenario,
        speculation=None,
        draft_precision=None,
        step=Step(
            groups=tuple(replace(group, new=1, positions=1) for group in scenario.step.groups if group.stack == MAIN)
        ),
    )
    laws = law(book.record(Law, "speculative-decoding"), {})
    known = {
        "drafted": speculation.tokens,
        "cycle_seconds": pricing.engine_seconds,
        "plain_seconds": price(plain, book).engine_seconds,
    }

    def at(acceptance: float) -> dict[str, float]:
        return {name: value(bind(tree, {**known, "acceptance": acceptance})) for name, tree in laws.items()}

    ends = [at(0.0), at(1.0)] if speculation.acceptance is None else [at(speculation.acceptance)] * 2
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if at(middle)["speedup"] >= 1 else (middle, high)
    held = held_by(line for line in pricing.ledger.lines if line.op.stack == FIRST)
    return Drafts(
        tokens_per_cycle=(ends[0]["tokens_per_cycle"], ends[1]["tokens_per_cycle"]),
        seconds_per_token=(ends[0]["seconds_per_token"], ends[1]["seconds_per_token"]),
        speedup=(ends[0]["speedup"], ends[1]["speedup"]),
        plain_seconds=known["plain_seconds"],
        break_even=high if at(1.0)["speedup"] >= 1 else None,
        drafter_seconds=sum(line.seconds for line in pricing.lines if line.line.op.stack.startswith(FIRST)),
        drafter_parameters=held["parameters"],
        drafter_bytes=held["resident"],
    )


def left_out(scenario: Scenario, book: Book) -> tuple[str, ...]:
    """What the model's files or its engine hold beside what is counted, with its size where that is known."""
    speculation, layers = scenario.speculation, set(scenario.model.architecture.layers)
    notes = []
    if scenario.model.predictor and not (speculation and speculation.method == "mtp"):
        layer = replace(scenario.model, architecture=scenario.model.predictor, predictor=None)
        own = Speculation(method="mtp", tokens=1, acceptance=None, drafter=layer)
        held = held_by(draft_lines(own, scenario, mtp_precision(scenario.precision, book), book))
        notes.append(
            f"the layer that predicts a further token: {held['parameters']:,.0f} parameters, "
            f"{amount(held['resident'], 'B')} (held with --speculative-config method=mtp)"
        )
    if speculation and any(isinstance(piece, Recurrence) for layer in layers for piece in layer.pieces):
        notes.append("copies of the recurrent state to return to when a draft is rejected")
    if scenario.phase == "prefill" and any(
        isinstance(layer.attention, Attention) and layer.attention.between_blocks for layer in layers
    ):
        notes.append("pairs of a prompt's token with those after it in its block")
    return tuple(notes)
