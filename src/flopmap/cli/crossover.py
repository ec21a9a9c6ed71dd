"""``flopmap crossover``: where a bound or a preference flips."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flopmap.choices.axes import AXES, changed
from flopmap.choices.crossover import METRICS, by_format, crossovers, default_axis, prefer
from flopmap.cli.why import add_scenario, scenario_fields
from flopmap.quantity import QuantityError, parse_count
from flopmap.records.book import load, to_json
from flopmap.report import choices as report
from flopmap.scenario import Request, make
from flopmap.step import ScenarioError

if TYPE_CHECKING:
    import argparse

    from flopmap.cli.main import Parser
    from flopmap.records.book import Book

EXAMPLES = """\
examples:
  flopmap crossover meta-llama/Llama-3.1-8B --on h100-sxm --context-len 128
  flopmap crossover meta-llama/Llama-3.1-8B --on h100-sxm --at context-len=1,128,256,384,394
  flopmap crossover meta-llama/Llama-3.1-8B --on h100-sxm --phase prefill --input-len 8k --axis prompt
  flopmap crossover deepseek-ai/DeepSeek-V3 --on b200-sxm --axis context
  flopmap crossover meta-llama/Llama-3.1-8B --on h100-sxm --axis format
  flopmap crossover meta-llama/Llama-3.1-8B --on h100-sxm --against on=l40s --metric price --axis batch
"""
FORMAT = "format"


def add_arguments(parser: Parser, _name: str) -> None:
    """The flags of a scenario, the axis, and what to hold it against."""
    parser.epilog = EXAMPLES
    parser.add_argument("model", metavar="MODEL", help="a bundled model's id, a folder, or a config.json")
    parser.add_argument("--on", metavar="PART", required=True, help="the part's id or any usual spelling")
    asked = parser.add_argument_group("what flips, and along what")
    described = "what is varied (default: batch in decode, prompt else); format lists weight GEMMs by format"
    asked.add_argument("--axis", choices=(*AXES, FORMAT), help=described)
    asked.add_argument("--at", metavar="FIELD=V,V", help="the step's flip for each value of another field")
    against = "a second scenario, by the fields that differ, such as on=l4 or quantization=awq: where preference flips"
    asked.add_argument("--against", metavar="FIELD=VALUE", action="append", help=against)
    asked.add_argument("--metric", choices=METRICS, default="time", help="with --against: time or price of a token")
    add_scenario(parser)


def run(options: argparse.Namespace) -> int:
    """Solve and print."""
    book = load(tuple(options.book))
    request = Request(**{**scenario_fields(options), "model": options.model, "on": options.on, "phase": options.phase})
    axis = options.axis or default_axis(make(request, book))
    data, lines = _answer(request, axis, options, book)
    print(to_json(data) if options.json else "\n".join(lines))
    return 0


def _answer(request: Request, axis: str, options: argparse.Namespace, book: Book) -> tuple[Any, list[str]]:
    if axis == FORMAT:
        rows = by_format(make(request, book), book)
        return {"schema_version": 1, "formats": rows}, report.format_lines(rows, request.on)
    if options.against:
        other = request
        for pair in options.against:
            other = changed(other, *split(pair, "--against"))
        names = (request.on if other.on != request.on else request.model, ", ".join(options.against))
        found = prefer(request, other, axis, options.metric, book)
        return report.preference_data(found, names), report.preference_lines(found, request, other, names)
    if options.at:
        field, values = split(options.at, "--at")
        results = [
            (value, crossovers(changed(request, field, counted(value)), axis, book)) for value in values.split(",")
        ]
        data = [{"at": value, **report.crossover_data(result)} for value, result in results]
        return data, report.series_lines(field, results)
    result = crossovers(request, axis, book)
    return report.crossover_data(result), report.crossover_lines(result)


def split(text: str, flag: str) -> tuple[str, str]:
    """A field, spelt as a flag or as a name, and its value."""
    field, equals, value = text.partition("=")
    if not (equals and field and value):
        raise ScenarioError(f"{flag} {text}: not FIELD=VALUE (such as on=l4)")
    return field.strip().lstrip("-").replace("-", "_"), value.strip()


def counted(text: str) -> Any:
    """A count such as 8k as its number, any other text as it is."""
    try:
        return parse_count(text)
    except QuantityError:
        return text
