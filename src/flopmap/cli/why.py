"""``flopmap why``: price one step and explain it."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from flopmap.diagnosis.verdict import judge
from flopmap.quantity import (
    QuantityError,
    parse_count,
    parse_number,
    parse_seconds,
    parse_size,
    parse_tokens_per_second,
)
from flopmap.records.book import load, to_json
from flopmap.scenario import PHASE_NAMES, Request
from flopmap.step import ScenarioError

if TYPE_CHECKING:
    from collections.abc import Callable

    from flopmap.cli.main import Parser

EXAMPLES = """\
examples:
  flopmap why meta-llama/Llama-3.1-8B --on h100-sxm --batch-size 1 --context-len 2048 --tpot 12.5ms
  flopmap why ./config.json --on rtx-4090 --phase prefill --input-len 8k --ttft 1.4s
  flopmap why Qwen/Qwen3-8B --on a100 --engine vllm --enforce-eager --batch-size 8 --context-len 1024 --throughput 227.8
  flopmap why meta-llama/Llama-2-70b-hf --on h100-sxm --convention parameters=nominal --convention mask=full
  flopmap why meta-llama/Llama-3.1-8B --on h100-sxm --acceptance-rate 0.7 \\
    --speculative-config model=yuhuili/EAGLE3-LLaMA3.1-Instruct-8B,num_speculative_tokens=3
  flopmap why deepseek-ai/DeepSeek-V3 --on h200-sxm:8 -tp 8 -ep 8 --batch-size 64
  flopmap why gpt2 --on l4 --explain mlp.down
  flopmap why --from-command "vllm serve Qwen/Qwen3-8B --enforce-eager" --on a100-sxm-80gb --batch-size 8 --tpot 35ms
"""
MEASUREMENTS = {"tpot": "decode", "itl": "decode", "ttft": "prefill", "step_time": None, "throughput": None}

SCENARIO_FLAGS = tuple(name for name in Request.__struct_fields__ if name not in ("model", "on", "conventions"))
UNSAID = (None, "auto", False)  # what a flag is that nobody gave


def add_arguments(parser: Parser, _name: str) -> None:
    """The flags of a scenario (vLLM's names where it has them), of a measurement, and of the output."""
    parser.epilog = EXAMPLES
    parser.add_argument("model", metavar="MODEL", nargs="?", help="a bundled model's id, a folder, or a config.json")
    parser.add_argument("--on", metavar="PART", help="a part or machine: h100-sxm, h100-sxm:8, p5.48xlarge")
    served = "take model, engine, formats and plan from the command that starts the server; flags win over it"
    parser.add_argument("--from-command", metavar="COMMAND", help=served)
    add_scenario(parser)
    measured = parser.add_argument_group("what you measured (one of them)").add_mutually_exclusive_group()
    measured.add_argument(
        "--tpot", metavar="TIME", type=typed(parse_seconds), help="time per output token, such as 28ms"
    )
    measured.add_argument("--itl", metavar="TIME", type=typed(parse_seconds), help="inter-token latency")
    measured.add_argument(
        "--ttft", metavar="TIME", type=typed(parse_seconds), help="time to first token, without queueing"
    )
    measured.add_argument(
        "--step-time", metavar="TIME", type=typed(parse_seconds), help="time of one step of any phase"
    )
    speed = "tokens per second of the whole batch: output tokens in decode, prompt tokens in prefill"
    measured.add_argument("--throughput", metavar="TOKENS/S", type=typed(parse_tokens_per_second), help=speed)
    output = parser.output
    output.add_argument("--markdown", action="store_true", help="print Markdown, for an issue")
    output.add_argument("--explain", metavar="OP", help="trace every figure of an op to its formula and source")


def add_scenario(parser: argparse.ArgumentParser) -> None:
    """The flags of a scenario and of a plan."""
    _scenario_arguments(parser)
    _decoding_arguments(parser)
    _plan_arguments(parser)


def _scenario_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("scenario")
    group.add_argument(
        "--phase", choices=PHASE_NAMES, help="default: decode (encode for an encoder); prefill with --ttft"
    )
    group.add_argument("--batch-size", metavar="N", type=typed(parse_count), help="sequences in the step (default 1)")
    group.add_argument(
        "--context-len",
        metavar="N",
        type=typed(parse_count),
        help="tokens that a decode step attends to, with its own",
    )
    group.add_argument("--input-len", metavar="N", type=typed(parse_count), help="prompt tokens (8k is 8192)")
    group.add_argument(
        "--output-len", metavar="N", type=typed(parse_count), help="output tokens; sets the mean context of decode"
    )
    group.add_argument(
        "--cached-len",
        metavar="N",
        type=typed(parse_count),
        default=0,
        help="prompt tokens that the cache already holds",
    )
    group.add_argument("--images", metavar="N", type=typed(parse_count), help="images of a sequence, beside its text")
    group.add_argument(
        "--image-size", metavar="WxH", type=typed(parse_size), help="pixels of an image (default 1024x1024)"
    )
    group.add_argument(
        "--video-frames", metavar="N", type=typed(parse_count), help="each image is a video of N frames instead"
    )
    heard = "seconds of sound of a sequence, beside its text"
    group.add_argument("--audio-seconds", metavar="S", type=typed(parse_number), help=heard)
    group.add_argument("--dtype", default="auto", help="data type of activations and math (default: the config's)")
    group.add_argument(
        "-q", "--quantization", metavar="FORMAT", help="format of the layers' weights, such as fp8 or awq"
    )
    group.add_argument(
        "--kv-cache-dtype", metavar="FORMAT", default="auto", help="format of the KV cache (default: as --dtype)"
    )
    group.add_argument("--engine", help="an engine's id, such as vllm (default: one that adds nothing)")
    group.add_argument("--enforce-eager", action="store_true", help="launch every kernel by itself, without graphs")
    described = "count another way: mask=half, clock=rated ...; an unknown name lists them"
    group.add_argument(
        "--convention", metavar="NAME=VALUE", action="append", default=[], type=typed(_convention), help=described
    )


def _decoding_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("drafts, denoising, adapters")
    drafted = (
        "speculative decoding, JSON or KEY=VALUE: method (mtp, eagle, eagle3, medusa, draft_model, ngram), "
        "model (the drafter's id or path), num_speculative_tokens"
    )
    group.add_argument("--speculative-config", metavar="JSON", help=drafted)
    accepted = "probability that a drafted token is accepted, 0 to 1 (without it: the range)"
    group.add_argument("--acceptance-rate", metavar="P", type=typed(_rate), help=accepted)
    block = "tokens that a diffusion language model fills together (default: the model's)"
    group.add_argument("--block-length", metavar="N", type=typed(parse_count), help=block)
    steps = "passes in which it fills a block (default: a token each)"
    group.add_argument("--diffusion-steps", metavar="N", type=typed(parse_count), help=steps)
    group.add_argument("--lora-rank", metavar="R", type=typed(parse_count), help="rank of LoRA adapters")
    targets = "matrices with an adapter: q,v, all-linear (default), or PEFT's adapter_config.json, which has the rank"
    group.add_argument("--lora-modules", metavar="NAMES", help=targets)
    group.add_argument("--max-loras", metavar="N", type=typed(parse_count), help="adapters loaded (default 1)")


def _rate(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise QuantityError(f"{text!r} is not a number (such as 0.7)") from None


def _plan_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "plan over the parts of --on PART:N (default: tensor ranks, stages beyond a domain)"
    )
    for flags, described in (
        (("-tp", "--tensor-parallel-size"), "ranks that share every layer"),
        (("-pp", "--pipeline-parallel-size"), "stages of whole layers, one after another"),
        (("-dp", "--data-parallel-size"), "ranks that share the batch"),
        (("-ep", "--expert-parallel-size"), "ranks that share the experts, each with whole ones"),
    ):
        group.add_argument(*flags, metavar="N", type=typed(parse_count), help=described)
    group.add_argument("--enable-expert-parallel", action="store_true", help="experts over all tensor and data ranks")


def typed(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """A parser whose own message argparse shows."""

    def read(text: str) -> Any:
        try:
            return parse(text)
        except QuantityError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def _convention(text: str) -> tuple[str, str]:
    name, equals, choice = text.partition("=")
    if not equals or not name or not choice:
        raise QuantityError(f"{text!r} is not NAME=VALUE (such as mask=full)")
    return name, choice


def run(options: argparse.Namespace) -> int:
    """Judge the scenario and print it."""
    measured, phase = _measurement(options)
    if options.from_command:
        _take_command(options)
    missing = [name for name, given in (("MODEL", options.model), ("--on", options.on)) if given is None]
    if missing:
        raise ScenarioError(f"the following arguments are required: {', '.join(missing)}")
    fields = scenario_fields(options)
    request = Request(**{**fields, "model": options.model, "on": options.on, "phase": options.phase or phase})
    book = load(tuple(options.book))
    verdict = judge(request, book, measured)
    if options.explain:
        from flopmap.report.explain import explain

        print(explain(options.explain, verdict.pricing, book))
    elif options.json:
        from flopmap.report.data import verdict_data

        print(to_json(verdict_data(verdict)))
    elif options.markdown:
        from flopmap.report.markdown import render

        print(render(verdict), end="")
    else:
        from flopmap.report.terminal import write

        write(verdict, sys.stdout)
    return 0


def scenario_fields(options: argparse.Namespace) -> dict[str, Any]:
    """The fields of a request that the flags of a scenario set."""
    fields = {name: getattr(options, name) for name in SCENARIO_FLAGS}
    return {**fields, "conventions": tuple(options.convention)}


def _take_command(options: argparse.Namespace) -> None:
    """Set what the server's command says and no flag does; what is not understood is said on stderr."""
    from flopmap.diagnosis.serve_command import read_command

    served = read_command(options.from_command)
    for name, value in served.fields.items():
        if getattr(options, name) in UNSAID:
            setattr(options, name, value)
    for flag in served.not_understood:
        print(f"flopmap why: --from-command: not understood: {flag}", file=sys.stderr)


def _measurement(options: argparse.Namespace) -> tuple[tuple[str, float] | None, str | None]:
    """The measurement, if any, and the phase that it implies."""
    for name, phase in MEASUREMENTS.items():
        number = getattr(options, name)
        if number is not None:
            if phase and options.phase and options.phase not in (phase, "mixed"):
                raise ScenarioError(f"--{name} measures {phase}, but --phase is {options.phase}")
            return (name.replace("_", "-"), number), phase
    return None, None
