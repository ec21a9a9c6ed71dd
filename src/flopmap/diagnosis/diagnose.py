"""From what a tool measured to a verdict: which step a figure is the time of, and what is missing to price it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from flopmap.diagnosis.readers.run import Run
from flopmap.diagnosis.traces.profile import shares
from flopmap.diagnosis.verdict import CAUSE_OF, Cause, Verdict, judge
from flopmap.machine.machine import MachineError
from flopmap.model.config import ConfigError, MissingFileError
from flopmap.records.book import UnknownRecordError
from flopmap.records.types import Format, Reading
from flopmap.scenario import Request, make
from flopmap.step import ScenarioError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from flopmap.diagnosis.traces.profile import Profile
    from flopmap.records.book import Book

PLAN = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "expert_parallel_size")
SHARED = ("model", "part", "engine", "enforce_eager", *PLAN)  # a format is of one run, as llama-bench tries several
MOST_JUDGED = 200
FLAGS = {"model": "--model", "on": "--on", "batch_size": "--batch-size", "context_len": "--context-len"}


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that is the time of a step, and its verdict; ``derived`` says how the step came from the figures."""

    figure: str
    verdict: Verdict
    derived: tuple[str, ...]


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """A run, the verdicts on it, and why others of its figures have none. ``missing`` says which flag gives what."""

    file: str
    run: Run
    judged: tuple[Judged, ...] = ()
    unjudged: tuple[str, ...] = ()
    missing: dict[str, str] = {}


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A figure taken for a step: what ``judge`` takes, and the fields of the request that it decides."""

    figure: str
    measured: tuple[str, float]
    fields: dict[str, Any]
    derived: tuple[str, ...] = ()


def diagnose(runs: Sequence[tuple[str, Run]], flags: Mapping[str, Any], book: Book) -> list[Diagnosis]:
    """The diagnosis of each run (with its file). ``flags`` are fields of a request that the user gave; they win.

    Raises the error of a flag that is wrong; a name in a file that is not known is only missing.
    """
    if "model" in flags and "on" in flags:
        make(Request(**{name: value for name, value in flags.items() if name in Request.__struct_fields__}), book)
    known = {name: stated([run for file, run in runs if file == name]) for name in {file for file, _ in runs}}
    diagnoses, judged = [], 0
    for file, run in runs:
        found = _diagnose(file, run, known[file], flags, book) if judged < MOST_JUDGED else _passed(file, run)
        judged += len(found.judged)
        diagnoses.append(found)
    return diagnoses


def _passed(file: str, run: Run) -> Diagnosis:
    return Diagnosis(file=file, run=run, unjudged=(f"{MOST_JUDGED} figures are judged already",))


def stated(runs: Sequence[Run]) -> dict[str, Any]:
    """What the runs of one file say with one voice of model, part, engine, formats and plan."""
    known: dict[str, Any] = {}
    for name in SHARED:
        values = {getattr(run, name) for run in runs} - {None}
        if len(values) == 1:
            known[name] = values.pop()
    return known


def _diagnose(file: str, run: Run, known: Mapping[str, Any], flags: Mapping[str, Any], book: Book) -> Diagnosis:
    steps, unjudged = steps_of(run, flags)
    if not steps:
        return Diagnosis(file=file, run=run, unjudged=tuple(unjudged))
    fields, missing = _fields(run, known, flags, book)
    if missing:
        return Diagnosis(file=file, run=run, unjudged=tuple(unjudged), missing=missing)
    judged = []
    for step in steps:
        request = Request(**{**step.fields, **fields})
        if request.phase != step.fields["phase"]:
            unjudged.append(f"{step.figure} is of {step.fields['phase']}, but --phase is {request.phase}")
            continue
        try:
            verdict = judge(request, book, step.measured)
        except ScenarioError as error:  # of the text: those of flags are raised before
            unjudged.append(f"{step.figure}: {error}")
            continue
        if run.profile:
            verdict = _traced(verdict, run.profile, book)
        judged.append(Judged(figure=step.figure, verdict=verdict, derived=step.derived))
    return Diagnosis(file=file, run=run, judged=tuple(judged), unjudged=tuple(unjudged), missing=missing)


def _traced(verdict: Verdict, profile: Profile, book: Book) -> Verdict:
    """A verdict whose causes are measured: shares of this step, in place of those of public cases."""
    if verdict.over_device is not None and verdict.over_device < 1:
        return verdict  # impossible: of something else than was said
    checks = book.record(Reading, "measured-over-floor").checks
    found = shares(profile, verdict.pricing.operation_seconds)
    named = {CAUSE_OF[verdict.bound_by] if name == "floor" else name: share for name, share in found.items()}
    ranked = sorted(named.items(), key=lambda item: -item[1])
    causes = tuple(Cause(cause=cause, weight=weight, check=checks[cause]) for cause, weight in ranked)
    return replace(
        verdict, causes=causes, meaning="the sum of these parts, which are of its trace and not of public cases"
    )


def _fields(
    run: Run, known: Mapping[str, Any], flags: Mapping[str, Any], book: Book
) -> tuple[dict[str, Any], dict[str, str]]:
    """The fields that flags and text give together, and what is missing."""
    from flopmap.machine.machine import read_machine
    from flopmap.model.reading import read_model

    fields: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for name, field, reader in (("model", "model", read_model), ("part", "on", read_machine)):
        if field in flags:
            fields[field] = flags[field]
            continue
        text = getattr(run, name) or known.get(name)
        if text is None:
            missing[name] = f"give {FLAGS[field]}"
            continue
        try:
            reader(text, book)
            fields[field] = text
        except (UnknownRecordError, MissingFileError, MachineError, ConfigError):
            missing[name] = f"{text!r} is not on record: give {FLAGS[field]}"
    for name in ("engine", "enforce_eager", "dtype", "quantization", "kv_cache_dtype"):
        value = getattr(run, name)
        value = known.get(name) if value is None else value
        if value is not None and _on_record(name, value, book):
            fields[name] = value
    sizes = {name: getattr(run, name) or known.get(name) for name in PLAN}
    fields |= {name: size for name, size in sizes.items() if size}
    return {**fields, **{name: value for name, value in flags.items() if name in Request.__struct_fields__}}, missing


def _on_record(name: str, value: Any, book: Book) -> bool:
    if name == "enforce_eager":
        return True
    if name == "engine":
        return book.find("engines", value) is not None
    use = {"dtype": "activations", "quantization": "weights", "kv_cache_dtype": "kv"}[name]
    return book.find("formats", value) is not None and use in book.record(Format, value).applies_to


# -- which figure is the time of a step -------------------------------------------------------------------------------


def steps_of(run: Run, flags: Mapping[str, Any]) -> tuple[list[Step], list[str]]:
    """The figures that are the time of a step, and why others are not."""
    steps: list[Step] = []
    unjudged: list[str] = []
    if run.profile:
        return list(_profiled(run, run.profile, flags, unjudged)), unjudged
    decode = _decode(run, flags, unjudged)
    steps += [decode] if decode else []
    prefill = _prefill(run, flags, unjudged)
    steps += [prefill] if prefill else []
    if not steps and not unjudged and run.measurements:
        unjudged.append("no figure of it is the time of a step")
    return steps, unjudged


def _profiled(run: Run, profile: Profile, flags: Mapping[str, Any], unjudged: list[str]) -> Iterator[Step]:
    """The mean step of a trace."""
    time = run.get("step_time")
    phase = flags.get("phase") or run.phase
    if profile.steps is None or not time:
        unjudged.append("the trace marks no steps: give --steps to hold it against the floor of one")
    elif (run.parts or 1) > 1:
        unjudged.append(f"the trace is of one of {run.parts} parts: plans over several parts are not counted yet")
    elif phase is None:
        unjudged.append("the trace does not mark what its steps are: give --phase, --batch-size and the length")
    else:
        shape = ("batch_size", *(("context_len",) if phase == "decode" else ("input_len", "cached_len")))
        marked = {name: value for name in shape if (value := getattr(run, name)) is not None}
        derived = () if profile.wall else ("the time between kernels is not in the trace",)
        yield Step(figure="step_time", measured=("step", time), fields={"phase": phase, **marked}, derived=derived)


def _decode(run: Run, flags: Mapping[str, Any], unjudged: list[str]) -> Step | None:
    """Of several figures the first here: a mean over tokens, then a step's time, then a throughput of known batch."""
    found = _best(run, ("tpot", "itl", "step_time"))
    derived: list[str] = []
    length = run.get("acceptance_length")
    if found and run.phase != "prefill":
        figure, seconds = found
        batch = _batch(run, seconds, derived) if "batch_size" not in flags else int(flags["batch_size"])
        if run.speculative and figure.endswith(("tpot", "step_time")):
            if length is None:
                unjudged.append(
                    f"{figure}: with speculative decoding a step yields several tokens, and how many is not stated"
                )
                return None
            seconds *= length
            derived.append(
                f"a step yields {length:g} tokens, so it takes that many TPOT"
                "; the draft and verified tokens are not in the floor"
            )
        return Step(
            figure=figure,
            measured=("tpot", seconds),
            fields=_context(run, batch, flags, derived),
            derived=tuple(derived),
        )
    speed = run.get("output_throughput")
    if not speed or run.phase == "prefill":
        return None
    size = flags.get("batch_size") or (run.batch_size if run.phase == "decode" else None)
    if size is None:
        unjudged.append("output throughput: the sequences of a step are not known (give --batch-size); " + _mixed(run))
        return None
    if run.phase != "decode":
        derived.append("the throughput is of a whole run: the time of its prompts counts as time of decode steps")
    if run.speculative:
        if length is None:
            unjudged.append("output throughput: with speculative decoding, the tokens of a step are not stated")
            return None
        speed /= length
        derived.append(f"a step yields {length:g} tokens; the draft and verified tokens are not in the floor")
    fields = _context(run, int(size), flags, derived)
    return Step(figure="output_throughput", measured=("throughput", speed), fields=fields, derived=tuple(derived))


def _mixed(run: Run) -> str:
    return "it mixes prompts and decode" if run.phase is None else "give it and the context"


def _best(run: Run, names: Sequence[str]) -> tuple[str, float] | None:
    for name in names:
        for statistic in ("mean", "median"):
            value = run.get(name, statistic)
            if value:
                return f"{statistic} {name}", value
    return None


def _batch(run: Run, seconds: float, derived: list[str]) -> int:
    """Sequences that decode together: as stated, or by Little's law."""
    if run.batch_size:
        return run.batch_size
    speed = run.get("output_throughput")
    limit = run.max_concurrency
    if limit == 1:
        return 1
    if speed:
        flying = max(1, round(speed * seconds))
        if limit and flying > limit:
            flying = limit
        derived.append(
            f"batch {flying}: output tokens/s times the time of a token (Little's law)"
            + (f", at most {limit}" if limit else "")
        )
        return flying
    concurrency = run.get("concurrency", "mean", "last")
    batch = max(1, round(concurrency)) if concurrency else limit or 1
    derived.append(f"batch {batch}: " + ("the concurrency, which is an upper bound" if batch > 1 else "none is stated"))
    return batch


def _context(run: Run, batch: int, flags: Mapping[str, Any], derived: list[str]) -> dict[str, Any]:
    if "context_len" in flags:
        return {"phase": "decode", "batch_size": batch}
    given = flags.get("input_len") or run.input_len or 0
    out = flags.get("output_len") or run.output_len or 0
    if not given and not out:
        return {"phase": "decode", "batch_size": batch}
    context = max(1, round(given + out / 2))
    derived.append(f"context {context:,}: the prompt and half of the output, {given:,} and {out:,} tokens")
    return {"phase": "decode", "batch_size": batch, "context_len": context}


def _prefill(run: Run, flags: Mapping[str, Any], unjudged: list[str]) -> Step | None:
    length = flags.get("input_len") or run.input_len
    fields = {
        "phase": "prefill",
        "batch_size": run.batch_size or 1,
        "input_len": length,
        "cached_len": run.cached_len or 0,
    }
    found = _best(run, ("ttft",))
    if found and run.phase is None:
        if run.queueing is not False:
            unjudged.append(
                f"{found[0]}: requests may have waited before their prefill; measure one at a time to judge it"
            )
            return None
        if length is None:
            unjudged.append(f"{found[0]}: the length of the prompt is not known (give --input-len)")
            return None
        return Step(figure=found[0], measured=("ttft", found[1]), fields={**fields, "batch_size": 1})
    if run.phase != "prefill" or length is None:
        return None
    taken = _best(run, ("prefill_time",)) or ("total prefill_time", run.get("prefill_time", "total") or 0.0)
    if taken[1]:
        return Step(figure=taken[0], measured=("ttft", taken[1]), fields=fields)
    speed = run.get("input_throughput")
    if not speed:
        return None
    return Step(figure="input_throughput", measured=("throughput", speed), fields=fields)


# -- several ----------------------------------------------------------------------------------------------------------


def changes(diagnoses: Sequence[Diagnosis]) -> Iterator[str]:
    """What changed from the first judged step to each later one of the same phase, in words."""
    judged = [(each, step) for each in diagnoses for step in each.judged]
    firsts: dict[str, tuple[Diagnosis, Judged]] = {}
    for each, step in judged:
        phase = step.verdict.pricing.scenario.phase
        if phase not in firsts:
            firsts[phase] = (each, step)
            continue
        yield _change(firsts[phase], (each, step))


def _change(first: tuple[Diagnosis, Judged], later: tuple[Diagnosis, Judged]) -> str:
    one, two = first[1].verdict, later[1].verdict
    assert one.measured is not None and two.measured is not None  # noqa: S101, PT018 - a judged step is measured
    time = two.measured.seconds / one.measured.seconds
    floor = two.pricing.operation_seconds / one.pricing.operation_seconds
    what = ", ".join(_differences(one.request, two.request)) or "the same scenario"
    old, new = (
        one.measured.seconds - one.pricing.operation_seconds,
        two.measured.seconds - two.pricing.operation_seconds,
    )
    beyond = f"; time above the floor {old * 1e3:.3g} ms, then {new * 1e3:.3g} ms" if old > 0 and new > 0 else ""
    return f"{place(later[0])} against {place(first[0])} ({what}): step {time:.3g}x, its floor {floor:.3g}x{beyond}"


def _differences(one: Request, two: Request) -> Iterator[str]:
    for name in Request.__struct_fields__:
        before, after = getattr(one, name), getattr(two, name)
        if before != after:
            yield f"{name} {before} -> {after}"


def place(diagnosis: Diagnosis) -> str:
    """The file and line of a run."""
    return f"{diagnosis.file}:{diagnosis.run.line}"
