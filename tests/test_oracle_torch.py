"""The truth tables made anew by torch and transformers for a sample of types: they say what the committed ones say.

`make oracle` runs these; they need the exact versions that the tables state.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ORACLE = ROOT / "tests" / "oracle"
# one of each kind of layer: grouped, latent, experts, state space, linear, convolution, encoder's decoder
TYPES = ["llama", "deepseek_v3", "mixtral", "mamba2", "qwen3_next", "lfm2", "gemma3_text", "bart"]
ENCODERS = ["masked/bert", "sequence/xlm-roberta", "plain/modernbert", "seq2seq/t5", "seq2seq/glmasr", "speech/whisper"]
IMAGES = ["qwen2_5_vl", "llava"]

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None or importlib.util.find_spec("transformers") is None,
        reason="needs torch and transformers: make oracle",
    ),
]


def made(script: str, *words: str) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / script), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]


def test_causal_types(tmp_path: Path) -> None:
    made("oracle_types.py", *TYPES, "--out", str(tmp_path))
    for name in TYPES:
        anew, committed = (json.loads((place / f"{name}.json").read_text()) for place in (tmp_path, ORACLE / "causal"))
        assert anew["versions"] == committed["versions"]
        assert anew == committed


def test_encoders_and_encoder_decoders(tmp_path: Path) -> None:
    made("oracle_encoders.py", *ENCODERS, "--out", str(tmp_path / "encoders.json"))
    committed = {entry["id"]: entry for entry in json.loads((ORACLE / "encoders.json").read_text())}
    for entry in json.loads((tmp_path / "encoders.json").read_text()):
        assert entry == committed[entry["id"]]


def test_variations_of_mixtures(tmp_path: Path) -> None:
    committed = json.loads((ORACLE / "variations-experts.json").read_text())[::12]
    path = tmp_path / "variations.json"
    path.write_text(json.dumps(committed))
    made("oracle_types.py", "--variations", str(path))
    assert json.loads(path.read_text()) == committed


def test_towers_of_images(tmp_path: Path) -> None:
    made("oracle_images.py", *IMAGES, "--out", str(tmp_path))
    for name in IMAGES:
        places = (tmp_path, ORACLE / "image_text")
        anew, committed = (json.loads((place / f"{name}.json").read_text()) for place in places)
        assert anew == committed
