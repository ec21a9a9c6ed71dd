"""``flopmap levers``: what each change to a scenario buys, and the best of them together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopmap.choices.combine import levers
from flopmap.choices.crossover import default_axis
from flopmap.cli.why import add_scenario, scenario_fields
from flopmap.quantity import QuantityError, parse_count
from flopmap.records.book import load, to_json
from flopmap.report import choices as report
from flopmap.scenario import Request, make
from flopmap.step import ScenarioError

if TYPE_CHECKING:
    import argparse

    from flopmap.cli.main import Parser

EXAMPLES = """\
examples:
  flopmap levers meta-llama/Llama-3.1-8B --on h100-sxm --batch-size 64 --context-len 8k
  flopmap levers Qwen/Qwen3-8B --on a100 --engine vllm --enforce-eager --batch-size 8 --best 2
  flopmap levers deepseek-ai/DeepSeek-V3 --on b200 --context-len 4k --json
"""
BEST = 3


def add_arguments(parser: Parser, _name: str) -> None:
    """The flags of a scenario, and how many levers to pull together."""
    parser.epilog = EXAMPLES
    parser.add_argument("model", metavar="MODEL", help="a bundled model's id, a folder, or a config.json")
    parser.add_argument("--on", metavar="PART", required=True, help="the part's id or any usual spelling")
    described = f"pull up to K levers together, the best first (default {BEST}; 0: only each by itself)"
    parser.add_argument("--best", metavar="K", default=str(BEST), help=described)
    add_scenario(parser)


def run(options: argparse.Namespace) -> int:
    """Pull the levers and print."""
    try:
        count = parse_count(options.best)
    except QuantityError as error:
        raise ScenarioError(f"--best {error}") from None
    book = load(tuple(options.book))
    request = Request(**{**scenario_fields(options), "model": options.model, "on": options.on, "phase": options.phase})
    result = levers(request, count, default_axis(make(request, book)), book)
    print(to_json(report.lever_data(result)) if options.json else "\n".join(report.lever_lines(result)))
    return 0
