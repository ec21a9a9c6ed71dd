"""What the tests of the command line share: one call in this process, and a small config to spoil."""

from __future__ import annotations

import contextlib
import io
import json
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from flopmap.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

LLAMA_8B = "meta-llama/Llama-3.1-8B"
LLAMA_70B = "meta-llama/Llama-2-70b-hf"
WHY = ("why", LLAMA_8B, "--on", "h100-sxm")
TINY: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "torch_dtype": "bfloat16",
}


class Answer(NamedTuple):
    """What a command said."""

    code: int
    out: str
    err: str


def flopmap(*words: str) -> Answer:
    """One command in this process. An exception is not caught: a traceback fails the test that caused it."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code: Any = main(list(words))
        except SystemExit as leave:
            code = leave.code
    return Answer(0 if code is None else code, out.getvalue(), err.getvalue())


def data(*words: str) -> Any:
    """The JSON of a command that succeeds. NaN and Infinity are no JSON."""
    answer = flopmap(*words, "--json")
    assert answer.code == 0, answer.err
    return json.loads(answer.out, parse_constant=_no_json)


def why(*words: str) -> Any:
    """The JSON of ``why`` for the 8B on an H100."""
    return data(*WHY, *words)


def text(*words: str) -> str:
    """The report of a command that succeeds."""
    answer = flopmap(*words)
    assert answer.code == 0, answer.err
    assert answer.err == ""
    return answer.out


def refused(code: int, message: str, *words: str) -> None:
    """The command fails with this exit code, this whole text on stderr, and nothing on stdout."""
    answer = flopmap(*words)
    assert answer == Answer(code, "", message + "\n"), answer


def write_config(folder: Path, **changes: Any) -> str:
    """The path of a tiny config with some fields changed."""
    path = folder / "config.json"
    path.write_text(json.dumps({**TINY, **changes}))
    return str(path)


def _no_json(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is no JSON")
