"""``flopmap diagnose``: read what benchmarks, engines and servers print, and explain it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from flopmap.cli.why import add_scenario, scenario_fields, typed
from flopmap.diagnosis.diagnose import diagnose
from flopmap.diagnosis.readers.read import read_file
from flopmap.quantity import parse_count
from flopmap.records.book import load, to_json
from flopmap.step import ScenarioError

if TYPE_CHECKING:
    import argparse

    from flopmap.cli.main import Parser
    from flopmap.diagnosis.readers.run import Run

EXAMPLES = """\
examples:
  flopmap diagnose bench.txt --model meta-llama/Llama-3.1-8B --on h100-sxm
  flopmap diagnose before.json after.json --model Qwen/Qwen3-8B --on a100-sxm-80gb --enforce-eager
  flopmap diagnose trace.json.gz --model Qwen/Qwen3-8B --on mi300x
  llama-bench -m model.gguf | flopmap diagnose - --model ./model.gguf --on rtx-4090

reads: vllm bench serve, latency and throughput; logs and /metrics of vLLM and SGLang; SGLang bench_serving and
bench_one_batch; trtllm-bench; genai-perf and aiperf; guidellm; InferenceX; MLPerf LoadGen; llama-bench (md, json,
jsonl, csv, sql) and llama-batched-bench; llama.cpp timings; ollama --verbose and ps; MLX-LM; TGI benchmark; LMCache;
nvidia-smi and nvidia-smi topo -m; tables of the torch profiler and nvprof. Several in one paste are read one by one.
Traces, each a file of its own: torch profiler (vLLM, SGLang, Hugging Face) and JAX (Chrome JSON), nsys (SQLite export),
ncu and rocprof (CSV).
"""


def add_arguments(parser: Parser, _name: str) -> None:
    """Files, the scenario that they do not tell (a flag wins over a file), and the output."""
    parser.epilog = EXAMPLES
    parser.add_argument("files", metavar="FILE", nargs="+", help="a result, a log, or - for stdin; .gz is fine")
    parser.add_argument("--model", metavar="MODEL", help="a bundled model's id, a folder, or a config.json")
    parser.add_argument("--on", metavar="PART", help="the part's id or any usual spelling, such as h100-sxm")
    add_scenario(parser)
    parser.add_argument("--steps", metavar="N", type=typed(parse_count), help="steps in a trace that marks none")
    parser.output.add_argument("--markdown", action="store_true", help="print Markdown, for an issue")


def run(options: argparse.Namespace) -> int:
    """Read, judge and print."""
    from flopmap.report import diagnosis

    if options.steps == 0:
        raise ScenarioError("--steps 0: a trace holds at least one step")
    book = load(tuple(options.book))
    runs: list[tuple[str, Run]] = [
        (file, run) for file in options.files for run in read_file(file, book, options.steps)
    ]
    found = diagnose(runs, _flags(options), book)
    if options.json:
        print(to_json(diagnosis.diagnosis_data(found)))
    elif options.markdown:
        print(diagnosis.markdown(found), end="")
    else:
        sys.stdout.write(diagnosis.text(found))
    return 0


def _flags(options: argparse.Namespace) -> dict[str, Any]:
    """The fields that were given: those of no value are left to the files."""
    unsaid = {
        "dtype": "auto",
        "kv_cache_dtype": "auto",
        "enforce_eager": False,
        "enable_expert_parallel": False,
        "cached_len": 0,
        "conventions": (),
    }
    given = {"model": options.model, "on": options.on, **scenario_fields(options)}
    return {name: value for name, value in given.items() if value is not None and value != unsaid.get(name)}
