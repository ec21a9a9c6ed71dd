"""``flopmap compare``: scenarios side by side along one field."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopmap.choices.axes import AXES, changed
from flopmap.choices.compare import compare
from flopmap.choices.crossover import METRICS, default_axis
from flopmap.cli.crossover import counted, split
from flopmap.cli.why import add_scenario, scenario_fields
from flopmap.records.book import load, to_json
from flopmap.report import choices as report
from flopmap.scenario import Request, make
from flopmap.step import ScenarioError

if TYPE_CHECKING:
    import argparse

    from flopmap.cli.main import Parser

EXAMPLES = """\
examples:
  flopmap compare meta-llama/Llama-2-70b-hf --on h200-sxm,mi300x,b200-sxm --batch-size 32 --context-len 4k
  flopmap compare meta-llama/Llama-3.1-8B --on l4,l40s,h100-sxm --phase prefill --input-len 512 --columns step,mfu,bound
  flopmap compare meta-llama/Llama-3.1-8B --on h100-sxm --vary quantization=bf16,fp8,awq --batch-size 64
  flopmap compare meta-llama/Llama-3.1-8B --on h100-sxm --vary batch-size=1,16,256 --axis context
  flopmap compare meta-llama/Llama-3.1-8B,Qwen/Qwen3-8B --on l40s
"""


def add_arguments(parser: Parser, _name: str) -> None:
    """The flags of a scenario, and the one field in which the scenarios differ."""
    parser.epilog = EXAMPLES
    parser.add_argument("model", metavar="MODEL[,MODEL]", help="a model, or several to compare")
    parser.add_argument("--on", metavar="PART[,PART]", required=True, help="a part, or several to compare")
    asked = parser.add_argument_group("comparison")
    asked.add_argument(
        "--vary", metavar="FIELD=V,V", help="compare values of another field, such as quantization=fp8,awq"
    )
    asked.add_argument("--metric", choices=METRICS, default="time", help="rank by time or price of a token")
    described = "along what the ranking may flip (default: batch in decode, prompt else)"
    asked.add_argument("--axis", choices=tuple(AXES), help=described)
    listed = f"what to print, of {', '.join(report.COLUMNS)}"
    asked.add_argument("--columns", metavar="NAME,NAME", default=",".join(report.USUAL), help=listed)
    add_scenario(parser)


def run(options: argparse.Namespace) -> int:
    """Rank and print."""
    columns = options.columns.split(",")
    for name in columns:
        if name not in report.COLUMNS:
            raise ScenarioError(f"--columns {name}: unknown (accepted: {', '.join(report.COLUMNS)})")
    field, values = _varied(options)
    book = load(tuple(options.book))
    base = Request(**{**scenario_fields(options), "model": options.model, "on": options.on, "phase": options.phase})
    requests = [(value, changed(base, field, counted(value))) for value in values]
    axis = options.axis or default_axis(make(requests[0][1], book))
    result = compare(requests, field, options.metric, axis, book)
    print(
        to_json(report.comparison_data(result)) if options.json else "\n".join(report.comparison_lines(result, columns))
    )
    return 0


def _varied(options: argparse.Namespace) -> tuple[str, list[str]]:
    """The one field that has several values, and these."""
    lists = {"model": options.model.split(","), "on": options.on.split(",")}
    several = {field: values for field, values in lists.items() if len(values) > 1}
    if options.vary:
        field, values = split(options.vary, "--vary")
        several[field] = values.split(",")
    if len(several) != 1:
        given = ", ".join(several) or "none"
        raise ScenarioError(f"one field has several values, of MODEL, --on and --vary (given: {given})")
    ((field, found),) = several.items()
    if len(set(found)) < len(found) or not all(found):
        raise ScenarioError(f"{field} {','.join(found)}: values are empty or come twice")
    return field, found
