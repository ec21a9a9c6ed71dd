"""A wrong command line: one clear line on stderr, nothing on stdout, exit code 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.support import LLAMA_8B, WHY, flopmap, refused, write_config

if TYPE_CHECKING:
    from pathlib import Path

    from flopmap.records.book import Book

COUNT = "(accepted: 2048, 8k, 1m)"
TIME = "(accepted: 28ms, 1.2s, 350us)"
RANGE = "out of range (accepted: 1 to 1000000000)"
PLAN = "out of range (accepted: 1 to 1000000)"
SPEED = "is not a throughput in tokens per second (accepted: 227.8, 227.8tok/s)"

# flags after `flopmap why meta-llama/Llama-3.1-8B --on h100-sxm`, and what comes after `flopmap why: error: `
DRAFTERS = "draft_model, eagle, eagle3, medusa, mtp, ngram"
NGRAM = "--speculative-config method=ngram,num_speculative_tokens=3"
NEEDS_RATE = "of drafts needs --acceptance-rate, since a cycle yields more than one token"
WRONG_DRAFTS = {
    "eagle": "'eagle' is neither JSON nor KEY=VALUE",
    "{method": "not JSON: JSON is malformed: object keys must be strings (byte 1)",
    "method=ngram": "num_speculative_tokens is missing (accepted: 1 to 64)",
    "method=ngram,num_speculative_tokens=0": "num_speculative_tokens 0 is out of range (accepted: 1 to 64)",
    "method=ngram,num_speculative_tokens=65": "num_speculative_tokens 65 is out of range (accepted: 1 to 64)",
    '{"method":"ngram","num_speculative_tokens":true}': (
        "num_speculative_tokens true is out of range (accepted: 1 to 64)"
    ),
    "method=guess,num_speculative_tokens=3": f"method 'guess' is not understood (accepted: {DRAFTERS})",
    "k=3": "'k' is not understood (accepted: method, model, num_speculative_tokens)",
    "num_speculative_tokens=3": "no method: a model is needed, by id or path",
    "method=eagle3,num_speculative_tokens=3": "method eagle3: a model is needed, by id or path",
    "num_speculative_tokens=999999999999": (
        "num_speculative_tokens '999999999999' is out of range (accepted: 1 to 64)"
    ),
    "method=eagle,model=yuhuili/EAGLE3-LLaMA3.1-Instruct-8B,num_speculative_tokens=3": (
        "method eagle: yuhuili/EAGLE3-LLaMA3.1-Instruct-8B drafts by another (accepted: eagle3)"
    ),
    "method=draft_model,model=yuhuili/EAGLE3-LLaMA3.1-Instruct-8B,num_speculative_tokens=3": (
        "method draft_model: yuhuili/EAGLE3-LLaMA3.1-Instruct-8B drafts by another (accepted: eagle3)"
    ),
    '{"draft_tensor_parallel_size":8,"num_speculative_tokens":3}': (
        "'draft_tensor_parallel_size' is not understood (accepted: method, model, num_speculative_tokens)"
    ),
    "method=draft_model,model=Qwen/Qwen3-0.6B,num_speculative_tokens=3": (
        "Qwen/Qwen3-0.6B has a vocabulary of 151936 and the model one of 128256; "
        "drafts are checked token by token, so they must be the same"
    ),
    "model=GSAI-ML/LLaDA-8B-Instruct,num_speculative_tokens=3": (
        "GSAI-ML/LLaDA-8B-Instruct is no decoder, so it drafts nothing"
    ),
}
WRONG_FLAGS = {
    "--batch-size 0": f"--batch-size 0: {RANGE}",
    "--batch-size -1": f"argument --batch-size: '-1' is not a count {COUNT}",
    "--batch-size 1.5": f"argument --batch-size: '1.5' is not a whole count {COUNT}",
    "--batch-size abc": f"argument --batch-size: 'abc' is not a count {COUNT}",
    "--batch-size nan": f"argument --batch-size: 'nan' is not a count {COUNT}",
    "--batch-size inf": f"argument --batch-size: 'inf' is not a count {COUNT}",
    "--batch-size 1e300": f"argument --batch-size: '1e300' is not a whole count {COUNT}",
    "--batch-size 1e999": f"argument --batch-size: '1e999' is not a whole count {COUNT}",
    "--batch-size 2000000000": f"--batch-size 2000000000: {RANGE}",
    "--batch-size": "argument --batch-size: expected one argument",
    "--context-len 0": f"--context-len 0: {RANGE}",
    "--input-len 0": f"--input-len 0: {RANGE}",
    "--output-len 0": f"--output-len 0: {RANGE}",
    "--cached-len 2000000000": "--cached-len 2000000000: out of range (accepted: 0 to 1000000000)",
    "--cached-len -1": f"argument --cached-len: '-1' is not a count {COUNT}",
    "--tpot 0ms": "argument --tpot: '0ms' is not a positive number",
    "--tpot -5ms": f"argument --tpot: '-5ms' is not a time {TIME}",
    "--tpot 28": f"argument --tpot: '28' is not a time {TIME}",
    "--tpot 28parsecs": f"argument --tpot: '28parsecs' is not a time {TIME}",
    "--tpot nan": f"argument --tpot: 'nan' is not a time {TIME}",
    "--tpot 1e999s": "argument --tpot: '1e999s' is not a positive number",
    "--throughput 0": "argument --throughput: '0' is not a positive number",
    "--throughput -1": f"argument --throughput: '-1' {SPEED}",
    "--throughput 10parsecs": f"argument --throughput: '10parsecs' {SPEED}",
    "--tpot 1ms --ttft 1s": "argument --ttft: not allowed with argument --tpot",
    "--throughput 9 --step-time 1s": "argument --step-time: not allowed with argument --throughput",
    "--ttft 1s --phase decode": "--ttft measures prefill, but --phase is decode",
    "--tpot 1ms --phase prefill": "--tpot measures decode, but --phase is prefill",
    "--itl 1ms --phase prefill": "--itl measures decode, but --phase is prefill",
    "--dtype fp8": "--dtype fp8: not a format of activations (accepted: bf16, fp16, fp32)",
    "--dtype fp9": "--dtype fp9: not a format of activations (accepted: bf16, fp16, fp32)",
    "--kv-cache-dtype awq": "--kv-cache-dtype awq: not a format of kv (accepted: bf16, fp16, fp32, fp8, int8)",
    "--convention mask": "argument --convention: 'mask' is not NAME=VALUE (such as mask=full)",
    "--convention =full": "argument --convention: '=full' is not NAME=VALUE (such as mask=full)",
    "--convention mask=": "argument --convention: 'mask=' is not NAME=VALUE (such as mask=full)",
    "--convention mask=some": "--convention mask=some: unknown (accepted: exact, half, full)",
    "-tp 0": f"--tensor-parallel-size 0: {PLAN}",
    "-pp 0": f"--pipeline-parallel-size 0: {PLAN}",
    "-dp 1000001": f"--data-parallel-size 1000001: {PLAN}",
    "-ep 0": f"--expert-parallel-size 0: {PLAN}",
    "-tp 3": "-tp 3: 32 heads cannot be divided by 3 (nearest: -tp 2)",
    "-tp 8 --on h100:4": "-tp 8: 8 parts, but --on gives 4 (nearest: -tp 4)",
    "-pp 64": "-pp 64: there are 32 layers (nearest: -pp 32)",
    "-ep 2": "-ep 2: llama models have no experts",
    "--tensor-parallel-size two": f"argument -tp/--tensor-parallel-size: 'two' is not a count {COUNT}",
    "--enable-expert-parallel": "--enable-expert-parallel: llama models have no experts",
    **{
        f"--speculative-config {settings}": f"--speculative-config: {message}"
        for settings, message in WRONG_DRAFTS.items()
    },
    "--acceptance-rate 0.7": "--acceptance-rate 0.7: there are no drafts without --speculative-config",
    "--acceptance-rate high": "argument --acceptance-rate: 'high' is not a number (such as 0.7)",
    f"{NGRAM} --acceptance-rate 1.5": "--acceptance-rate 1.5: out of range (accepted: 0 to 1)",
    f"{NGRAM} --acceptance-rate -0.1": "--acceptance-rate -0.1: out of range (accepted: 0 to 1)",
    f"{NGRAM} --acceptance-rate nan": "--acceptance-rate nan: out of range (accepted: 0 to 1)",
    f"{NGRAM} --tpot 9ms": f"--tpot {NEEDS_RATE}",
    f"{NGRAM} --throughput 9": f"--throughput {NEEDS_RATE}",
    "--block-length 4": "--block-length 4: llama models write token by token, without denoising",
    "--diffusion-steps 4": "--diffusion-steps 4: llama models write token by token, without denoising",
    "--max-loras 4": "--max-loras 4: there are no adapters without --lora-rank or --lora-modules",
    "--lora-rank 0": "--lora-rank 0: out of range (accepted: 1 to 4096)",
    "--lora-rank 8 --max-loras 0": "--max-loras 0: out of range (accepted: 1 to 10000)",
    "--lora-modules q,v": "--lora-modules q,v: --lora-rank is needed with it",
    "--lora-modules q,zzz --lora-rank 8": (
        "--lora-modules zzz: no matrix of this model (accepted: "
        "all-linear, down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj)"
    ),
    "--btach-size 1": "unrecognized arguments: --btach-size 1 (did you mean --batch-size?)",
    "--zzz": "unrecognized arguments: --zzz (see flopmap why --help)",
    "surplus": "unrecognized arguments: surplus",
    "--json --markdown": "argument --markdown: not allowed with argument --json",
    "--explain lm_head --json": "argument --json: not allowed with argument --explain",
    "--markdown --explain lm_head": "argument --explain: not allowed with argument --markdown",
    "-tp 2 --lora-rank 8": "--lora-rank: not counted yet under a plan over several parts (TP 2); give one part",
    "--on h100:0": "--on h100:0: '0' is not a count of parts (accepted: 1 to 1000000)",
    "--on h100:x": "--on h100:x: 'x' is not a count of parts (accepted: 1 to 1000000)",
    "--on h100:-1": "--on h100:-1: '-1' is not a count of parts (accepted: 1 to 1000000)",
    "--on h100:": "--on h100:: '' is not a count of parts (accepted: 1 to 1000000)",
    "--on h100:²": "--on h100:²: '²' is not a count of parts (accepted: 1 to 1000000)",
    "--on h100:1000001": "--on h100:1000001: '1000001' is not a count of parts (accepted: 1 to 1000000)",
    "--on zzzzzzzz": "unknown part 'zzzzzzzz' (all: flopmap parts)",
    "--engine zzzzzzzz": "unknown engine 'zzzzzzzz' (all: flopmap engines)",
    "--engine vlm": "unknown engine 'vlm'; nearest: vllm (all: flopmap engines)",
}


@pytest.mark.parametrize(("flags", "message"), WRONG_FLAGS.items(), ids=list(WRONG_FLAGS))
def test_a_wrong_flag_is_one_line_and_exit_code_2(flags: str, message: str) -> None:
    refused(2, f"flopmap why: error: {message}", *WHY, *flags.split())


def test_an_empty_value_is_refused() -> None:
    refused(2, f"flopmap why: error: argument --batch-size: '' is not a count {COUNT}", *WHY, "--batch-size", "")
    refused(2, f"flopmap why: error: argument --tpot: '' is not a time {TIME}", *WHY, "--tpot", "")
    message = "flopmap why: error: --on '': give PART or PART:COUNT, such as h100-sxm"
    refused(2, message, "why", LLAMA_8B, "--on", "")


def test_four_hundred_digits_are_one_short_line() -> None:
    answer = flopmap(*WHY, "--batch-size", "9" * 400)
    assert answer.code == 2
    assert answer.err.startswith("flopmap why: error: argument --batch-size: '9999999999")
    assert answer.err.endswith(f" is not a whole count {COUNT}\n")
    assert answer.err.count("\n") == 1
    assert answer.out == ""


def test_an_unknown_part_comes_with_the_nearest() -> None:
    answer = flopmap("why", LLAMA_8B, "--on", "h100-smx")
    assert answer.code == 2
    assert answer.err.startswith("flopmap why: error: unknown part 'h100-smx'; nearest: h100-sxm, ")
    assert answer.err.endswith(" (all: flopmap parts)\n")
    assert answer.out == ""


def test_an_unknown_model_comes_with_the_nearest() -> None:
    near = "meta-llama/Llama-3.1-8B, meta-llama/Llama-3.1-70B, meta-llama/Llama-3.1-405B"
    message = f"flopmap why: error: unknown model 'meta-llama/Llama-3.1-9B'; nearest: {near} (all: flopmap models)"
    refused(2, message, "why", "meta-llama/Llama-3.1-9B", "--on", "h100")


@pytest.mark.parametrize("name", ["", "zzzzzzzz"])
def test_a_name_like_no_model_is_unknown(name: str) -> None:
    refused(2, f"flopmap why: error: unknown model {name!r} (all: flopmap models)", "why", name, "--on", "h100")


@pytest.mark.parametrize("name", ["a" * 5000, "x\0y", "a/b/c/d", "~", "..", "meta-llama/", "~nobody-here/config.json"])
def test_a_strange_model_name_is_one_line(name: str) -> None:
    answer = flopmap("why", name, "--on", "h100")
    assert answer.code == 2
    assert answer.err.startswith("flopmap why: error: ")
    assert answer.err.count("\n") == 1
    assert answer.out == ""


@pytest.mark.parametrize("name", ["nowhere.json", "nowhere.gguf", "nowhere.safetensors", "/nowhere/config.json"])
def test_a_file_that_is_not_there_is_named(name: str) -> None:
    refused(2, f"flopmap why: error: {name}: no such file", "why", name, "--on", "h100")
    refused(2, f"flopmap models: error: {name}: no such file", "models", name)


def test_a_folder_without_a_config_is_named(tmp_path: Path) -> None:
    message = f"flopmap why: error: {tmp_path}/config.json: no such file"
    refused(2, message, "why", str(tmp_path), "--on", "h100")


def test_a_data_type_that_the_part_has_not(book: Book) -> None:
    refused(
        2,
        "flopmap why: error: --dtype bf16: v100-sxm2 does not compute in bf16 (accepted: fp16, fp32)",
        *("why", LLAMA_8B, "--on", "v100-sxm2", "--dtype", "bf16"),
    )
    assert "v100-sxm2" in book.ids("parts")


def test_an_unknown_quantization_lists_the_formats_of_weights(book: Book) -> None:
    known = ", ".join(book.ids("formats"))
    message = f"flopmap why: error: --quantization magic: not a format of weights (accepted: {known})"
    refused(2, message, *WHY, "--quantization", "magic")
    refused(2, message.replace("magic", "zz"), *WHY, "-q", "zz")


def test_an_unknown_convention_lists_the_names(book: Book) -> None:
    names = ", ".join(sorted(book.conventions))
    message = f"flopmap why: error: --convention taste=good: unknown (accepted: {names})"
    refused(2, message.replace("taste=good", "taste"), *WHY, "--convention", "taste=good")


def test_a_nominal_size_needs_one_on_record(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    message = f"flopmap why: error: --convention parameters=nominal: {path} has no nominal size on record"
    refused(2, message, "why", path, "--on", "h100", "--convention", "parameters=nominal")


def test_an_unknown_op_lists_the_ops_of_the_step() -> None:
    ops = (
        "embedding, attention.norm, attention.qkv, attention.rope, attention.kv_write, attention.decode, "
        "attention.out, attention.residual, mlp.norm, mlp.gate_up, mlp.activation, mlp.down, mlp.residual, "
        "final_norm, lm_head, sampling"
    )
    message = f"flopmap why: error: --explain moe.router: no such op in this step (it has: {ops})"
    refused(2, message, *WHY, "--explain", "moe.router")


@pytest.mark.parametrize("command", ["why", "parts", "check"])
def test_a_book_that_is_not_there_is_named(command: str) -> None:
    words = WHY if command == "why" else (command,)
    refused(2, f"flopmap {command}: error: /nowhere: no such folder", *words, "--book", "/nowhere")


def test_what_is_required_is_named() -> None:
    refused(2, "flopmap why: error: the following arguments are required: MODEL, --on", "why")
    refused(2, "flopmap why: error: the following arguments are required: --on", "why", LLAMA_8B)
    refused(2, "flopmap why: error: the following arguments are required: MODEL", "why", "--on", "h100")


def test_an_unknown_phase_lists_the_phases() -> None:
    answer = flopmap(*WHY, "--phase", "train")
    assert answer.code == 2
    assert answer.err.startswith("flopmap why: error: argument --phase: invalid choice: 'train' (choose from ")
    assert all(phase in answer.err for phase in ("decode", "prefill", "mixed"))
    assert answer.err.count("\n") == 1


def test_an_unknown_command_comes_with_the_nearest() -> None:
    refused(2, "flopmap: error: unknown command 'wy' (did you mean why?)", "wy")
    refused(2, "flopmap: error: unknown command 'modles' (did you mean models?)", "modles", "--json")


def test_an_unknown_command_unlike_any_lists_them_all() -> None:
    from flopmap.cli.main import COMMANDS

    refused(2, f"flopmap: error: unknown command 'zzz' (commands: {', '.join(COMMANDS)})", "zzz")


def test_a_misspelt_flag_without_a_command_comes_with_the_nearest() -> None:
    refused(2, "flopmap: error: unrecognized arguments: --verison (did you mean --version?)", "--verison")


def test_no_arguments_print_the_commands() -> None:
    from flopmap.cli.main import COMMANDS

    answer = flopmap()
    assert answer.code == 0
    assert answer.err == ""
    assert answer.out.startswith("usage: flopmap COMMAND ...\n\nWhy is my LLM inference slow,")
    assert all(f"\n  {name} " in answer.out for name in COMMANDS)
    assert answer.out == flopmap("--help").out


@pytest.mark.parametrize("command", ["why", "check", "parts", "models", "classes", "engines", "formats", "traps"])
def test_the_help_of_every_command_has_an_example(command: str) -> None:
    answer = flopmap(command, "--help")
    assert answer.code == 0
    assert answer.err == ""
    assert f"usage: flopmap {command} " in answer.out
    assert "example" in answer.out
    assert f"  flopmap {command}" in answer.out or f"example: flopmap {command}" in answer.out
    assert "--json" in answer.out


def test_the_version() -> None:
    from flopmap import __version__

    assert flopmap("--version") == (0, f"flopmap {__version__}\n", "")
