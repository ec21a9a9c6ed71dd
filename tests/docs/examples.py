"""The examples of the documents: the commands in their console blocks, and the output pasted below them.

A block of ``console`` holds commands (``$ flopmap ...``), each with its output below it or with none. A last line
``...`` says that the output goes on. ``python tests/docs/examples.py`` renews what is pasted, and what is counted
(``counts.py``).
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from flopmap.cli.main import main

ROOT = Path(__file__).resolve().parent.parent.parent
COUNTED = ("README.md", "CHANGELOG.md", "docs/design.md")
DOCUMENTS = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
OVERLAY = "my-book"
MEASUREMENTS = """hardware,num_devices,engine,model,batch_or_concurrency,input_len,output_len,metric,value,unit,notes
h100-sxm,1,vLLM,meta-llama/Llama-3.1-8B,1,1024,512,tpot_ms,7.1,ms,batch_kind=static
"""
BENCH = ROOT / "tests" / "readers" / "fixtures" / "vllm-serve-old.txt"
TRACE = ROOT / "tests" / "traces" / "fixtures" / "decode.json"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 28,
    "num_attention_heads": 24,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
DEEPSEEK_V3 = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "num_nextn_predict_layers": 1,
    "vocab_size": 129280,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
}
PLAN = """grid:
  model: [meta-llama/Llama-3.1-8B, Qwen/Qwen3-8B]
  on: [h100-sxm, l40s]
  quantization: [null, fp8]
  batch_size: {from: 1, to: 256, factor: 2}
  context_len: [1024, 8192]
"""
CONFIGS = {"config.json": CONFIG, "DeepSeek-V3/config.json": DEEPSEEK_V3}


class Example(NamedTuple):
    """One command of a document, the output lines pasted below it, and whether the output goes on."""

    document: str
    command: str
    shown: tuple[str, ...]
    goes_on: bool

    @property
    def words(self) -> list[str]:
        """The arguments of ``flopmap``."""
        return shlex.split(self.command, comments=True)[1:]


def blocks(document: Path, language: str) -> list[str]:
    """The bodies of a document's fenced blocks of a language."""
    return [match["body"] for match in BLOCK.finditer(document.read_text()) if match["language"] == language]


def examples(document: Path) -> list[Example]:
    """The commands of a document that call flopmap, in order."""
    found = []
    for block in blocks(document, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *lines = part.rstrip("\n").split("\n")
            goes_on = lines[-1:] == ["..."]
            shown = tuple(lines[:-1] if goes_on else lines)
            called = command.removeprefix("uv run ")
            if called.startswith("flopmap "):
                found.append(Example(document.name, called, shown, goes_on))
    return found


def all_examples() -> list[Example]:
    """The commands of all documents."""
    return [example for document in DOCUMENTS for example in examples(document)]


def overlay_files() -> dict[str, str]:
    """The YAML files that CONTRIBUTING.md shows, by the path in their first line."""
    shown = blocks(ROOT / "CONTRIBUTING.md", "yaml")
    return {block.split("\n", 1)[0].removeprefix("# "): block for block in shown}


def furnish(folder: Path) -> None:
    """Put what the examples need into a folder: configs, results, a table, and the overlay of CONTRIBUTING.md."""
    configs = {name: json.dumps(fields) for name, fields in CONFIGS.items()}
    results = {"bench.txt": BENCH.read_text(), "measurements.csv": MEASUREMENTS, "trace.json": TRACE.read_text()}
    results["plan.yaml"] = PLAN
    for name, text in {**configs, **overlay_files(), **results}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def run(words: list[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of one command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as leave:
            code = int(leave.code or 0)
    return code, out.getvalue(), err.getvalue()


def output(example: Example) -> list[str]:
    """The lines that an example prints, without the spaces at their ends."""
    return [line.rstrip() for line in run(example.words)[1].rstrip("\n").split("\n")]


def renew(document: Path) -> None:
    """Put the present output below each command that has output pasted below it."""
    text = document.read_text()
    for example in examples(document):
        if not example.shown:
            continue
        lines = output(example)
        fresh = lines[: len(example.shown)] if example.goes_on else lines
        before, after = ("\n".join((f"$ {example.command}", *shown)) for shown in (example.shown, fresh))
        text = text.replace(before, after)
    rewrite(document, text)


def rewrite(document: Path, text: str) -> None:
    """Write a document that is not what it was."""
    if text != document.read_text():
        document.write_text(text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        furnish(Path(scratch))
        os.chdir(scratch)
        for name in DOCUMENTS:
            renew(name)
    sys.path.insert(0, str(ROOT))
    from flopmap.records.book import load
    from tests.docs.counts import facts, renewed

    known = facts(load(), ROOT)
    for counted in COUNTED:
        rewrite(ROOT / counted, renewed((ROOT / counted).read_text(), counted, known))
    sys.exit(0)
