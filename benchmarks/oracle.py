"""Writes what torch and transformers say of the dense models: ``tests/oracle/*.json``.

An oracle is of use only while it is independent: this file imports nothing of flopmap. It builds each model on the meta
device (shapes without memory) from the configs of the book and from the made-up ones of
``tests/oracle/variations.yaml``, counts the parameters, runs prefills and one decode step under FlopCounterMode, and
measures the key-value cache that a prefill left behind. It takes some minutes.

    pip install torch==2.13.0 transformers==5.24.0 ruamel.yaml
    python benchmarks/oracle.py                        # both files
    python benchmarks/oracle.py --only gpt2 --print    # look, do not write
"""

from __future__ import annotations

import argparse
import json
import logging
import platform
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from ruamel.yaml import YAML
from torch.utils.flop_counter import FlopCounterMode

if TYPE_CHECKING:
    from collections.abc import Iterator

Config = dict[str, Any]
Truth = dict[str, Any]
Model = Any  # what transformers builds is untyped

ROOT = Path(__file__).resolve().parent.parent
GEMM = ("aten.mm", "aten.addmm")
ATTENTION = "aten.bmm"
BF16_BYTES = 2
KV_PROBE_TOKENS = 8
SAVED_FIELDS = {"dtype", "head_dim", "layer_types", "num_key_value_heads", "rope_parameters", "tie_word_embeddings"}
TOKEN_IDS = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"))

CONVENTIONS = {
    "mac": "1 MAC is 2 FLOP; matrix products only; biases, norms, softmax and activations count nothing",
    "parameters": (
        "every parameter tensor once: a tied head adds nothing; "
        "embedding, positions, head, matrices, norms and biases add up to it"
    ),
    "decode": (
        "one new token that attends `context` keys, itself included; batch 1; "
        "a layer with window w attends min(context, w)"
    ),
    "prefill": (
        "`tokens` tokens, empty cache, logits of every position, "
        "attention as the full square on every layer (windows are masked, not skipped)"
    ),
    "kv_bytes_per_token": (
        "keys and values of all layers at 2 bytes an element, from the cache that a prefill of 8 tokens leaves"
    ),
    "layers_counted": "all of them: nothing is extrapolated",
}


@dataclass(frozen=True)
class Lengths:
    """The lengths, in tokens, at which a model is counted."""

    context: int
    prefills: tuple[int, ...]


BOOK_LENGTHS = Lengths(context=2048, prefills=(512, 2048))
VARIATION_LENGTHS = Lengths(context=128, prefills=(64,))


def causal_config(config: Config) -> transformers.PreTrainedConfig:
    """Return the transformers config of the text decoder that ``config`` describes, nested ``text_config`` or not."""
    fields = {key: value for key, value in config.items() if key != "architectures"}
    inner = fields.get("text_config")
    if inner is not None:
        outer = {key: fields[key] for key in ("tie_word_embeddings",) if key in fields}
        fields = outer | {"model_type": fields["model_type"] + "_text"} | inner
    return transformers.AutoConfig.for_model(**(fields | TOKEN_IDS))


def build(config: Config) -> Model:
    """Build the causal language model of ``config`` on the meta device."""
    auto: Model = transformers.AutoModelForCausalLM
    with torch.device("meta"):
        return auto.from_config(causal_config(config)).eval()


def parameter_kind(name: str) -> str:
    """Sort a parameter by its name: position table, norm, bias or matrix."""
    if "wpe" in name or "embed_positions" in name:
        return "positions"
    if "norm" in name or ".ln_" in name:
        return "norms"
    return "biases" if name.endswith("bias") else "matrices"


def count_parameters(model: Model) -> Truth:
    """Count the parameters by kind; a tensor that two names share counts once, under the input embedding."""
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    kinds = dict.fromkeys(("embedding", "positions", "head", "matrices", "norms", "biases"), 0)
    for name, tensor in model.named_parameters():
        kind = "embedding" if tensor is embedding else "head" if tensor is head else parameter_kind(name)
        kinds[kind] += tensor.numel()
    return {"total": sum(kinds.values()), **kinds, "head_tied": head is embedding}


def run(model: Model, tokens: int, cache: Any = None) -> Any:
    """Run ``tokens`` new tokens after ``cache`` and return the cache."""
    ids = torch.zeros((1, tokens), dtype=torch.long, device="meta")
    with torch.no_grad(), torch.device("meta"):
        return model(input_ids=ids, cache=cache, use_cache=True).past_key_values


def count_flop(model: Model, tokens: int, cache: Any = None) -> Truth:
    """Count the FLOP of ``tokens`` new tokens after ``cache``: in all, in GEMMs, in attention.

    Raises ValueError when torch met an operator that this file does not know, rather than sorting it wrongly.
    """
    with FlopCounterMode(display=False) as counter:
        run(model, tokens, cache)
    counts = {str(operator): flop for operator, flop in counter.get_flop_counts()["Global"].items()}
    unknown = set(counts) - {*GEMM, ATTENTION}
    if unknown:
        message = f"FlopCounterMode counted {sorted(unknown)}, which is neither a known GEMM nor attention"
        raise ValueError(message)
    gemm = sum(counts.get(operator, 0) for operator in GEMM)
    return {"flop": counter.get_total_flops(), "gemm_flop": gemm, "attention_flop": counts.get(ATTENTION, 0)}


def kv_bytes_per_token(model: Model) -> int:
    """Measure the bytes a token that the cache grows by, at 2 bytes an element, below any window."""
    layers = run(model, KV_PROBE_TOKENS).layers
    elements: int = sum(layer.keys.numel() + layer.values.numel() for layer in layers)
    return elements * BF16_BYTES // KV_PROBE_TOKENS


def positions_of(config: Config) -> int:
    """Return how many positions the model of ``config`` can take."""
    inner = config.get("text_config", config)
    return int(inner.get("max_position_embeddings") or inner.get("n_positions") or BOOK_LENGTHS.context)


def truth_of(config: Config, lengths: Lengths) -> Truth:
    """Build one model and measure all that the oracle states about it."""
    model = build(config)
    context = min(lengths.context, positions_of(config))
    past = run(model, context - 1)
    decode = {"context": context, **count_flop(model, 1, past)}
    prefills = sorted({min(tokens, positions_of(config)) for tokens in lengths.prefills})
    return {
        "parameters": count_parameters(model),
        "decode": decode,
        "prefill": [{"tokens": tokens, **count_flop(model, tokens)} for tokens in prefills],
        "kv_bytes_per_token": kv_bytes_per_token(model),
        "layers": model.config.num_hidden_layers,
    }


def read_yaml(path: Path) -> Config:
    """Read one YAML 1.2 file."""
    loaded: Config = YAML(typ="safe", pure=True).load(path)
    return loaded


def book_configs(models: Path, families: set[str], only: str) -> Iterator[tuple[str, Config]]:
    """Yield the id and config of every model record of ``families`` under ``models`` whose id contains ``only``."""
    for path in sorted(models.rglob("*.yaml")):
        identifier = path.relative_to(models).as_posix().removesuffix(".yaml")
        config = read_yaml(path)["config"]
        if only in identifier and config.get("text_config", config).get("model_type") in families:
            yield identifier, config


def progress(text: str) -> None:
    """Say on stderr where the run is."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def dense(models: Path, varied: Path, only: str) -> list[Truth]:
    """Return one entry a model record, of the families that the YAML file ``varied`` has variations of."""
    families = {described["base"]["model_type"] for described in read_yaml(varied).values()}
    entries = []
    for identifier, config in book_configs(models, families, only):
        progress(identifier)
        entries.append({"id": identifier, "model_type": config["model_type"], **truth_of(config, BOOK_LENGTHS)})
    return entries


def as_saved(config: Config) -> Config:
    """Respell a v4 config as transformers 5 saves it, keeping the fields that decide shape or cost."""
    saved = transformers.AutoConfig.for_model(**(config | TOKEN_IDS)).to_dict()
    kept = (config.keys() | SAVED_FIELDS) & saved.keys()
    return {key: saved[key] for key in sorted(kept)} | {"dtype": config["torch_dtype"]}


def variation_configs(path: Path, only: str) -> Iterator[tuple[str, Config]]:
    """Yield the name and config of every variation in the YAML file ``path`` whose name contains ``only``."""
    for family, described in read_yaml(path).items():
        for variation in described["variations"]:
            name = f"{family}/{variation['name']}"
            config = described["base"] | variation.get("set", {})
            config = {key: value for key, value in config.items() if key not in variation.get("drop", ())}
            if only in name:
                yield name, as_saved(config) if variation.get("v5") else config


def variations(path: Path, only: str) -> list[Truth]:
    """Return one entry a made-up config: the config as a file would spell it, and the same truths."""
    entries = []
    for name, config in variation_configs(path, only):
        progress(name)
        entries.append({"id": name, "config": config, **truth_of(config, VARIATION_LENGTHS)})
    return entries


def document(entries: list[Truth]) -> str:
    """Lay out a file of the oracle: its versions and conventions, then one entry a line."""
    versions = {
        "torch": torch.__version__.partition("+")[0],
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }
    lines = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in entries)
    head = json.dumps({"versions": versions, "conventions": CONVENTIONS}, indent=1)
    return f'{head[:-2]},\n "entries": [\n{lines}\n]}}\n'


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Write tests/oracle/*.json from torch and transformers.")
    parser.add_argument("--models", type=Path, default=ROOT / "src/flopmap/book/models", help="folder of model records")
    parser.add_argument("--out", type=Path, default=ROOT / "tests/oracle", help="folder to write to")
    parser.add_argument("--only", default="", metavar="TEXT", help="only ids that contain TEXT (implies --print)")
    parser.add_argument("--print", action="store_true", help="print the entries and write nothing")
    return parser.parse_args()


def main() -> None:
    """Count every model and write, or print, both files."""
    options = arguments()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=FutureWarning)
    files = {
        "dense.json": dense(options.models, options.out / "variations.yaml", options.only),
        "variations.json": variations(options.out / "variations.yaml", options.only),
    }
    for name, entries in files.items():
        if options.print or options.only:
            sys.stdout.write(document(entries))
        else:
            (options.out / name).write_text(document(entries), encoding="utf-8")
            progress(f"wrote {name}: {len(entries)} entries")


if __name__ == "__main__":
    main()
