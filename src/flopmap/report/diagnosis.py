"""A diagnosis of readings: as text, Markdown and data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flopmap.diagnosis.diagnose import changes, place
from flopmap.quantity import amount, percent, seconds, significant
from flopmap.records.book import to_data
from flopmap.report import content
from flopmap.report.data import SCHEMA_VERSION, verdict_data, whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flopmap.diagnosis.diagnose import Diagnosis, Judged
    from flopmap.diagnosis.readers.run import Measurement

KEPT = ("measured_seconds", "measured_over_floor", "bound_by", "meaning", "cause", "causes", "levers", "assumptions")
FACTS: tuple[str, ...] = (
    "phase",
    "batch",
    "batch_size",
    "max_concurrency",
    "input_len",
    "output_len",
    "cached_len",
    "requested_output_len",
)
FACTS += ("model", "part", "parts", "engine", "enforce_eager", "dtype", "quantization", "kv_cache_dtype")
FACTS += ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "expert_parallel_size")
FACTS += ("speculative", "queueing")
COUNTED = ("requests", "tokens", "sequences", "drafts", "preemptions", "calls")
MOST_FIGURES = 12
MOST_CHANGES = 12


def headline(diagnoses: Sequence[Diagnosis]) -> str:
    """The answer in one line."""
    judged = [step for each in diagnoses for step in each.judged]
    if len(judged) == 1:
        return content.headline(judged[0].verdict)
    figures = sum(len(each.run.measurements) for each in diagnoses)
    if not judged:
        wanted = {f"{name} ({how})": None for each in diagnoses for name, how in each.missing.items()}
        why = [reason for each in diagnoses for reason in each.unjudged]
        lacking = (
            f"missing: {', '.join(wanted)}" if wanted else why[0] if why else "no figure of it is the time of a step"
        )
        return f"{figures} figures read, no verdict; {lacking}"
    over = [step.verdict.over_floor or 0.0 for step in judged]
    causes = [step.verdict.causes[0].cause for step in judged if step.verdict.causes]
    most = max(causes, key=causes.count)
    first = content.headline(judged[0].verdict)
    return (
        f"{len(judged)} steps, {significant(min(over))}x to {significant(max(over))}x the floor; "
        f"likeliest cause of {causes.count(most)}: {most}; the first: {first}"
    )


def figure(measurement: Measurement) -> str:
    """A figure with its unit."""
    value = measurement.value
    shown = {
        "s": seconds(value),
        "share": percent(value),
        "bytes": amount(value, "B"),
        "bytes/s": amount(value, "B/s"),
    }.get(measurement.unit, f"{significant(value)} {measurement.unit}")
    if measurement.unit in COUNTED and value == int(value):
        shown = f"{value:,.0f} {measurement.unit}"
    return f"{measurement.name} {measurement.statistic} {shown}"


def lines(diagnoses: Sequence[Diagnosis]) -> list[str]:
    """Everything below the answer, as paragraphs of one line."""
    said: list[str] = []
    told: set[str] = set()
    alone = sum(len(each.judged) for each in diagnoses) == 1
    for each in diagnoses:
        figures = [figure(one) for one in each.run.measurements]
        more = f" and {len(figures) - MOST_FIGURES} more (--json)" if len(figures) > MOST_FIGURES else ""
        said.append(f"{place(each)} {each.run.tool}: {', '.join(figures[:MOST_FIGURES]) or 'no figure'}{more}")
        said += _once((f"  missing {name}: {how}" for name, how in each.missing.items()), told)
        for step in each.judged:
            said += _judged(step, alone)
        said += [f"  not judged: {reason}" for reason in each.unjudged]
        said += _once((f"  note: {note}" for note in each.run.notes), told)
    said += [f"change: {change}" for change in list(changes(diagnoses))[:MOST_CHANGES]]
    return said


def _once(sentences: Iterable[str], told: set[str]) -> list[str]:
    """Those that were not told yet: rows of a sweep share what is missing and what is to be minded."""
    fresh = [sentence for sentence in sentences if sentence not in told]
    told.update(fresh)
    return fresh


def _judged(step: Judged, alone: bool) -> list[str]:  # noqa: FBT001 - one caller
    verdict = step.verdict
    said = [f"  {step.figure}: {content.headline(verdict)}"] if not alone else [f"  judged: {step.figure}"]
    said += [f"  taken: {note}" for note in step.derived]
    said.append(f"  {content.subject(verdict)}")
    if alone:
        said += [f"  {line}" for line in content.paragraphs(verdict)[1:]]
    return said


def text(diagnoses: Sequence[Diagnosis]) -> str:
    """For a terminal: the answer, the readings, and of a single verdict its tables."""
    parts = [headline(diagnoses), *lines(diagnoses)]
    judged = [step.verdict for each in diagnoses for step in each.judged]
    written = "\n".join(parts) + "\n"
    if len(judged) == 1:
        import io

        from flopmap.report.terminal import write_evidence

        evidence = io.StringIO()
        write_evidence(judged[0], evidence)
        written += evidence.getvalue()
    return written


def markdown(diagnoses: Sequence[Diagnosis]) -> str:
    """For an issue."""
    from flopmap.report.markdown import escape, render

    body = "\n".join(f"- {escape(line.strip())}" for line in lines(diagnoses))
    judged = [step.verdict for each in diagnoses for step in each.judged]
    tables = f"\n{render(judged[0])}" if len(judged) == 1 else ""
    return f"**{escape(headline(diagnoses))}**\n\n{body}\n{tables}"


def diagnosis_data(diagnoses: Sequence[Diagnosis]) -> list[dict[str, Any]]:
    """A list of readings, each with its verdict: the first one's keys beside the reading's, all under ``verdicts``."""
    told = list(changes(diagnoses))
    listed = []
    for each in diagnoses:
        verdicts = [
            {"figure": step.figure, "derived": list(step.derived), **verdict_data(step.verdict)} for step in each.judged
        ]
        first: dict[str, Any] = verdicts[0] if verdicts else {}
        empty: dict[str, list[str]] = {"causes": [], "levers": [], "assumptions": []}
        listed.append(
            {
                "schema_version": SCHEMA_VERSION,
                "file": each.file,
                "line": each.run.line,
                "tool": each.run.tool,
                "measurements": [{**to_data(one), "value": whole(one.value)} for one in each.run.measurements],
                **{name: getattr(each.run, name) for name in FACTS},
                **{name: first.get(name, empty.get(name)) for name in KEPT},
                "verdicts": verdicts,
                "missing": each.missing,
                "not_judged": list(each.unjudged),
                "notes": list(each.run.notes),
                "changes": [line for line in told if line.startswith(f"{place(each)} against")],
            }
        )
    return listed
