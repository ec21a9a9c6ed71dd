"""What a report says, before any layout: the answer, then tables of evidence. Terminal and Markdown draw the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flopmap.diagnosis.verdict import CAUSE_OF
from flopmap.ledger.ledger import DEVICE_BYTES
from flopmap.quantity import amount, percent, seconds, significant
from flopmap.report.data import KIND_NAMES, lora_data
from flopmap.step import MAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flopmap.diagnosis.verdict import Verdict

WORDS = {
    "memory_bandwidth": "memory bandwidth",
    "matrix_peak": "matrix peak",
    "vector_peak": "vector peak",
    "exp_rate": "exponential rate",
    "link_bandwidth": "link bandwidth",
    "link_latency": "link latency",
    "launch": "kernel launches",
    "host": "host time",
}
SHOWN_OPS = 8
SHOWN_TRAPS = 3
NAMES = ("Ampere", "Apple", "Blackwell")
LEAST_SHARE = 0.0005
HALF_PERCENT = 0.005


class Table(NamedTuple):
    """A titled table; the first column is text, the others are numbers."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def headline(verdict: Verdict) -> str:
    """The answer in one line."""
    floor = verdict.pricing.operation_seconds
    binding = WORDS[verdict.bound_by]
    share = percent(verdict.elasticity[verdict.bound_by])
    part = where_it_runs(verdict)
    if verdict.measured and verdict.over_floor is not None:
        measured = seconds(verdict.measured.seconds)
        if verdict.causes and verdict.causes[0].cause == "impossible input":
            device = seconds(verdict.pricing.device_seconds)
            return f"Impossible: {measured} a step beats the device floor of {device} on {part}"
        times = significant(verdict.over_floor)
        cause = verdict.causes[0].cause if verdict.causes else ""
        answer = (
            f"{measured} a {step_word(verdict)} is {times}x the floor of {seconds(floor)}; likeliest cause: {cause}"
        )
        return f"{answer} (of the floor itself, {binding} is {share})"
    speed = tokens_per_second(verdict, verdict.at_floor)
    answer = f"{seconds(floor)} a {step_word(verdict)} at the floor on {part} ({speed} tokens/s): "
    answer += f"{binding} binds, {share} of the time"
    if not verdict.memory.fits:
        return f"Does not fit{' (borderline)' if verdict.memory.borderline else ''}: {need(verdict)}; {answer}"
    return answer


def step_word(verdict: Verdict) -> str:
    """What a step is called: with drafts it is a cycle, in diffusion a pass."""
    scenario = verdict.pricing.scenario
    return "cycle" if verdict.drafts else "pass" if scenario.blocks and scenario.phase == "decode" else "step"


def tokens_per_second(verdict: Verdict, used: dict[str, float]) -> str:
    """Tokens a second; a range where nobody says how many drafts are accepted."""
    low, high = verdict.pricing.scenario.kept
    speed = used["tokens_per_second"]
    return significant(speed) if low == high else f"{significant(speed)} to {significant(speed * high / low)}"


def between(pair: tuple[float, float], write: Callable[[float], str] = significant) -> str:
    """A pair as one figure where both are the same."""
    return write(pair[0]) if pair[0] == pair[1] else f"{write(pair[0])} to {write(pair[1])}"


def need(verdict: Verdict) -> str:
    """What the scenario holds against what the part has."""
    memory = verdict.memory
    held = f"{amount(memory.weight_bytes, 'B')} of weights"
    cache = f" and {amount(memory.cache_bytes, 'B')} of cache" if memory.cache_bytes else ""
    return f"{held}{cache} in {amount(memory.capacity_bytes, 'B')}"


def unfit(verdict: Verdict) -> str:
    """That it does not fit, and how many parts the weights need at least."""
    least, plan = verdict.memory.least_parts, verdict.pricing.scenario.plan
    return f"does not fit; the weights need {least:,} parts or more" if least > 1 and not plan else "does not fit"


def subject(verdict: Verdict) -> str:
    """The scenario in one line."""
    scenario = verdict.pricing.scenario
    precision = scenario.precision
    formats = precision.activations.id
    if precision.weights is not precision.activations:
        formats += f", weights {precision.weights.id}"
    if precision.kv is not precision.activations:
        formats += f", cache {precision.kv.id}"
    what = [f"batch {scenario.batch_size:,}"]
    if scenario.context_len is not None:
        what.append(f"context {scenario.context_len:,}")
    if scenario.input_len is not None:
        what.append(
            f"prompt {scenario.input_len:,}" + (f" after {scenario.cached_len:,} cached" if scenario.cached_len else "")
        )
    if scenario.images and scenario.phase != "decode":
        what.append(f"{scenario.images:,} image{'s' * (scenario.images > 1)} of {scenario.media_tokens:,} tokens")
    if scenario.audio_seconds and scenario.phase != "decode":
        what.append(f"{scenario.audio_seconds:g} s of sound of {scenario.media_tokens:,} tokens")
    what += beside(verdict)
    engine = scenario.engine.id + (", eager" if scenario.eager else "")
    where = f"{scenario.model.name} ({formats}) on {where_it_runs(verdict)}"
    return f"{where} | {scenario.phase}, {', '.join(what)} | engine: {engine}"


def where_it_runs(verdict: Verdict) -> str:
    """The part, or the parts and their plan."""
    machine, plan = verdict.pricing.scenario.machine, verdict.pricing.scenario.plan
    return f"{plan.parts} x {machine.part.id}, {plan}" if plan else machine.part.id


def beside(verdict: Verdict) -> list[str]:
    """Drafts, blocks and adapters in few words."""
    scenario, words = verdict.pricing.scenario, []
    if scenario.speculation:
        rate = scenario.speculation.acceptance
        accepted = "acceptance unknown" if rate is None else f"{percent(rate)} accepted"
        words.append(f"{scenario.speculation.tokens} drafted ({scenario.speculation.method}), {accepted}")
    if scenario.blocks and scenario.phase == "decode":
        words.append(f"block {scenario.blocks.block} in {scenario.blocks.steps} passes")
    if scenario.adapters:
        words.append(f"{scenario.adapters.loaded} LoRA of rank {scenario.adapters.rank}")
    return words


def paragraphs(verdict: Verdict) -> list[str]:
    """The sentences below the answer."""
    lines = [subject(verdict)]
    towers = sum(line.seconds for line in verdict.pricing.lines if line.line.op.stack != MAIN)
    if towers:
        share = percent(towers / verdict.pricing.operation_seconds)
        lines.append(f"What runs before the main layers is {share} of the floor: {seconds(towers)}.")
    if verdict.measured:
        lines.append(f"That is {verdict.meaning}.")
        lines += [f"{percent(cause.weight)} {cause.cause}. To confirm: {cause.check}." for cause in verdict.causes]
        if not verdict.memory.fits:
            lines.append(f"It does not fit{' (borderline)' if verdict.memory.borderline else ''}: {need(verdict)}.")
    lines += [
        f"Beware: {lower(trap.title)} (flopmap traps {trap.id}). {trap.remedy}" for trap in verdict.traps[:SHOWN_TRAPS]
    ]
    return lines


def lower(title: str) -> str:
    """A title inside of a sentence: without its capital, unless that is a name's or a word of capitals."""
    capitals = title.partition(" ")[0][1:].strip("-").isupper()
    return title if capitals or title.startswith(NAMES) else title[0].lower() + title[1:]


def tables(verdict: Verdict) -> list[Table]:
    """All the evidence."""
    return [floors(verdict), by_op(verdict), governs(verdict), levers(verdict), account(verdict)]


def floors(verdict: Verdict) -> Table:
    """Floors, estimate and measurement on one axis."""
    pricing = verdict.pricing
    unit = pricing.operation_seconds
    named = [
        ("device floor", pricing.device_seconds),
        ("operation floor", unit),
        ("engine floor", pricing.engine_seconds),
    ]
    if verdict.estimate:
        named.append(("estimate", verdict.estimate.value))
    if verdict.measured:
        named.append(("measured", verdict.measured.seconds))
    longest = max(value for _, value in named)
    rows = [(name, seconds(value), f"{significant(value / unit)}x", bar(value / longest)) for name, value in named]
    if verdict.estimate:
        low, high = seconds(verdict.estimate.low), seconds(verdict.estimate.high)
        rows = [(row[0], f"{row[1]} ({low} to {high})", *row[2:]) if row[0] == "estimate" else row for row in rows]
    return Table("Time of a step", ("", "time", "x floor", ""), rows)


def bar(share: float, width: int = 24) -> str:
    """A bar of at least one mark."""
    return "#" * max(1, round(share * width))


def by_op(verdict: Verdict) -> Table:
    """Where the floor's time goes, longest first."""
    pricing = verdict.pricing
    running = [line for line in pricing.lines if not line.line.op.idle]
    lines = sorted(running, key=lambda line: -line.seconds)
    rows = [
        (
            f"{line.line.op.name} x{line.line.op.count}",
            seconds(line.seconds),
            percent(line.seconds / pricing.operation_seconds),
            amount(line.costs["matrix"], "FLOP"),
            amount(line.device_bytes, "B"),
            WORDS[line.bound_by],
        )
        for line in lines[:SHOWN_OPS]
    ]
    rest = lines[SHOWN_OPS:]
    if rest:
        time = sum(line.seconds for line in rest)
        flop, moved = sum(line.costs["matrix"] for line in rest), sum(line.device_bytes for line in rest)
        share = percent(time / pricing.operation_seconds)
        rows.append((f"{len(rest)} more", seconds(time), share, amount(flop, "FLOP"), amount(moved, "B"), ""))
    return Table("Where the floor goes", ("op", "time", "share", "matrix", "bytes", "bound by"), rows)


def governs(verdict: Verdict) -> Table:
    """Which property governs the time, and what doubling it gives."""
    rows = []
    for doubling in verdict.doublings:
        share = verdict.elasticity[doubling.property]
        if max(share, doubling.gain) < LEAST_SHARE:
            continue
        flips = ""
        if doubling.flips_at is not None and doubling.flips_to is not None:
            flips = f"at {significant(doubling.flips_at)}x, then {WORDS[doubling.flips_to]}"
        rows.append(
            (
                WORDS[doubling.property],
                percent(share),
                f"{seconds(doubling.step_seconds)} (-{percent(doubling.gain)})",
                flips,
            )
        )
    return Table("What governs it", ("property", "governs", "doubled", "bound flips"), rows)


def levers(verdict: Verdict) -> Table:
    """Changes to the scenario, by what they save at the engine floor."""
    rows = [
        (
            gain.title,
            seconds(gain.step_seconds),
            f"{round(-gain.gain * 100):+d}%" if abs(gain.gain) >= HALF_PERCENT else "0%",
            "" if gain.max_sequences is None else f"{gain.max_sequences:,}",
            "; ".join((*gain.gates, *gain.traps)),
        )
        for gain in verdict.levers
    ]
    return Table("What would change it", ("lever", "step", "time", "sequences that fit", "mind"), rows)


def account(verdict: Verdict) -> Table:
    """The totals: FLOP, bytes by kind, memory, utilisation."""
    pricing, memory = verdict.pricing, verdict.memory
    kinds = [(KIND_NAMES.get(kind, kind), pricing.totals[kind]) for kind in DEVICE_BYTES if pricing.totals[kind]]
    model = pricing.entire.totals
    rows = [
        ("parameters", f"{model['parameters']:,.0f}", f"{model['active']:,.0f} multiply a token"),
        *planned(verdict),
        ("matrix FLOP", amount(pricing.totals["matrix"], "FLOP"), f"{pricing.totals['matrix']:,.0f}"),
        (
            "bytes moved",
            amount(sum(value for _, value in kinds), "B"),
            ", ".join(f"{name} {amount(value, 'B')}" for name, value in kinds),
        ),
        ("launches", f"{pricing.totals['launches']:,.0f}", "kernels, one an op"),
        ("memory", need(verdict), "fits" if memory.fits else unfit(verdict)),
        ("cache a token", amount(memory.kv_bytes_per_token, "B"), f"{memory.kv_bytes_per_token:,.0f} B"),
    ]
    if memory.max_sequences is not None:
        rows.append(("sequences that fit", f"{memory.max_sequences:,}", "at this context, at most"))
    used = verdict.at_measured or verdict.at_floor
    when = "measured" if verdict.at_measured else "at the floor"
    rows.append(("MBU, MFU", f"{percent(used['mbu'])}, {percent(used['mfu'])}", when))
    rows.append(("throughput", f"{tokens_per_second(verdict, used)} tokens/s", when))
    rows += drafted(verdict) + adapted(verdict)
    return Table("Account of the step", ("", "", ""), rows)


def planned(verdict: Verdict) -> list[tuple[str, str, str]]:
    """What a part of a plan holds and sends; all that follows is one part's."""
    pricing, plan = verdict.pricing, verdict.pricing.scenario.plan
    if plan is None:
        return []
    links = ", ".join(
        f"{wire.name} {amount(wire.bytes_per_second, 'B/s')}" if wire.bytes_per_second else wire.name
        for wire in plan.wires
    )
    held = f"{pricing.held.totals['parameters']:,.0f}"
    return [
        (
            "on each part",
            held,
            "parameters; what follows is of one part, over all stages"
            if plan.pipeline > 1
            else "parameters; what follows is of one part",
        ),
        ("sent", amount(pricing.totals["link"], "B"), f"over {links}" if pricing.totals["link"] else ""),
    ]


def drafted(verdict: Verdict) -> list[tuple[str, str, str]]:
    """What drafts buy, or the tokens of a pass."""
    found, scenario = verdict.drafts, verdict.pricing.scenario
    if found is None:
        passed = [("tokens a pass", significant(scenario.kept[0]), "of each sequence")]
        return passed if scenario.blocks and scenario.phase == "decode" else []
    share = percent(found.drafter_seconds / verdict.pricing.operation_seconds)
    held = f"{found.drafter_parameters:,.0f} parameters, {amount(found.drafter_bytes, 'B')}"
    pays = "none is enough" if found.break_even is None else f"{percent(found.break_even)} accepted"
    rows = [
        ("tokens a cycle", between(found.tokens_per_cycle), "expected, of each sequence"),
        ("time a token", between(found.seconds_per_token, seconds), f"{seconds(found.plain_seconds)} without drafts"),
        ("speed-up", f"{between(found.speedup)}x", f"drafts pay from: {pays}"),
    ]
    return [*rows, ("drafter", held, f"{share} of the cycle")] if found.drafter_bytes else rows


def adapted(verdict: Verdict) -> list[tuple[str, str, str]]:
    """Parameters and matrices of the adapters."""
    data = lora_data(verdict.pricing)
    return [("one adapter", f"{data['parameters']:,} parameters", ", ".join(data["modules"]))] if data else []


def footnotes(verdict: Verdict) -> list[str]:
    """Assumptions, what is not counted, the conventions in force, and how to ask why."""
    notes = [f"assumed: {note}" for note in verdict.assumptions]
    notes += [f"not counted: {note}" for note in verdict.not_counted]
    conventions = " ".join(f"{name}={value}" for name, value in verdict.pricing.scenario.conventions.items())
    notes.append(f"conventions: {conventions}; a multiply-add is 2 FLOP, GB is 1e9")
    longest = max(verdict.pricing.lines, key=lambda line: line.seconds)
    notes.append(f"why a number: --explain {longest.line.op.name}")
    return notes


def cause_word(name: str) -> str:
    """The cause that a hardware property stands for."""
    return CAUSE_OF[name]
