"""``flopmap sweep``: every point of a grid over scenarios, into a file."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from flopmap.choices.plan import read_plan
from flopmap.choices.sweep import SUFFIXES, SweepError, sweep, workers
from flopmap.cli.why import typed
from flopmap.quantity import parse_count
from flopmap.records.book import to_json
from flopmap.step import ScenarioError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from flopmap.choices.plan import Plan
    from flopmap.choices.sweep import Done
    from flopmap.cli.main import Parser

EXAMPLES = """\
a plan:
  grid:
    model: [meta-llama/Llama-3.1-8B, Qwen/Qwen3-8B]
    on: [h100-sxm, l40s]
    quantization: [null, fp8]
    batch_size: {from: 1, to: 256, factor: 2}
    context_len: [1024, 8192]
  outputs: [engine_seconds, tokens_per_second, memory_bytes, fits]    # the default has the three floors

examples:
  flopmap sweep plan.yaml --out rows.csv
  flopmap sweep plan.yaml --out rows.jsonl --jobs 8
  flopmap sweep plan.yaml --out rows.csv --resume
"""


def add_arguments(parser: Parser, _name: str) -> None:
    """The plan and where its rows go."""
    parser.epilog = EXAMPLES
    parser.add_argument("plan", metavar="PLAN.yaml", help="a grid over the fields of a scenario")
    parser.add_argument("--out", metavar="FILE", required=True, help=f"where the rows go: {' or '.join(SUFFIXES)}")
    parser.add_argument("--resume", action="store_true", help="go on with a run that was killed")
    parser.add_argument("--jobs", metavar="N", type=typed(parse_count), help="processes (default: one a core)")


def run(options: argparse.Namespace) -> int:
    """Sweep; the exit code is 1 when rows are invalid."""
    path = Path(options.out)
    if path.suffix not in SUFFIXES:
        raise ScenarioError(f"--out {options.out}: the kind of file is not known (accepted: {', '.join(SUFFIXES)})")
    if options.jobs == 0:
        raise ScenarioError("--jobs 0: out of range (accepted: 1 and more)")
    plan = read_plan(options.plan)
    jobs, units = workers(options.jobs), sum(1 for _ in plan.units())
    with contextlib.ExitStack() as stack:
        executor = None
        if jobs > 1 and units > 1:
            import multiprocessing
            from concurrent.futures import ProcessPoolExecutor

            context = multiprocessing.get_context("spawn")
            executor = stack.enter_context(ProcessPoolExecutor(min(jobs, units), mp_context=context))
        try:
            done = sweep(
                plan,
                path,
                executor=executor,
                resume=options.resume,
                overlays=tuple(options.book),
                progress=_progress(plan),
            )
        except SweepError as error:
            raise ScenarioError(str(error)) from None
    if options.json:
        found = {"rows": done.rows, "invalid": done.invalid, "first_invalid": done.first or None}
        print(to_json({"schema_version": 1, "file": str(path), **found}))
    else:
        invalid = f", {done.invalid:,} of them invalid (the first: {done.first})" if done.invalid else ""
        print(f"{done.rows:,} rows in {path}{invalid}")
    return 1 if done.invalid else 0


def _progress(plan: Plan) -> Callable[[Done], None]:
    """Write how far it is on stderr, on one line of a terminal."""

    def show(done: Done) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{done.rows:,} of {plan.points:,} rows, {done.invalid:,} invalid")
            sys.stderr.flush()

    return show
