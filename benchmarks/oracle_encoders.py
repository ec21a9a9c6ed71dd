"""Writes what torch and transformers say of encoders and encoder-decoders: ``tests/oracle/encoders.json``.

The types are those that transformers maps for masked language models, sequence classification, plain models (for the
types of the first two) and sequence-to-sequence. Each is built from its default config cut to a few layers:
parameters, and the FLOP of one pass over 64 tokens; of an encoder-decoder those of its encoder over 64 tokens, and of
the whole with 8 tokens of the decoder; of a model that hears those of its tower for 30 s of sound. Like its neighbours
this file imports nothing of flopmap.

    pip install torch==2.13.0 transformers==5.24.0 ruamel.yaml
    python benchmarks/oracle_encoders.py                     # all: some minutes
    python benchmarks/oracle_encoders.py --print masked/bert # one, with its tensors
    python benchmarks/oracle_encoders.py --variations FILE   # count the made-up configs of FILE anew, in place
"""

from __future__ import annotations

import argparse
import copy
import inspect
import json
import logging
import multiprocessing
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import transformers
from oracle_types import (
    TOKEN,
    Ledger,
    first_line,
    layer_counts,
    one_sequence,
    progress,
    pruned,
    shortened,
)
from transformers.models.auto import modeling_auto as auto

if TYPE_CHECKING:
    from collections.abc import Iterator

Fields = dict[str, Any]
Model = Any

ROOT = Path(__file__).resolve().parent.parent
TOKENS, TARGETS, LAYERS = 64, 8, 2
SECONDS = 120
FRAMES, SECONDS_OF_WINDOW, RATE = 3000, 30, 16_000  # of a window, and samples a second
SOUNDS = (0.1, 0.5, 7.3, 12.01, 29.99, 30, 30.01, 45, 61.7, 150)  # seconds
HEARS = ("audioflamingo3", "glmasr", "moss_transcribe_diarize", "musicflamingo", "qwen2_audio", "voxtral")
MAPPINGS = {
    "masked": auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    "sequence": auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    "plain": {
        kind: name if isinstance(name, str) else name[0]
        for kind, name in auto.MODEL_MAPPING_NAMES.items()
        if kind in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
        or kind in auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES
    },
    "seq2seq": auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    "speech": {"whisper": "WhisperForConditionalGeneration"},
}


def build(name: str, config: Any) -> Model:
    """Build a class by name on the meta device."""
    made = getattr(transformers, name)
    with torch.device("meta"):
        try:
            return made._from_config(copy.deepcopy(config), attn_implementation="eager").eval()  # noqa: SLF001
        except (ValueError, TypeError):
            return made(copy.deepcopy(config)).eval()


def config_of(kind: str) -> Any:
    """Return the default config of a type, cut to a few layers where that leaves a valid one."""
    whole = transformers.CONFIG_MAPPING[kind](pad_token_id=0)
    fields = whole.to_dict()
    if max(layer_counts(fields), default=0) <= LAYERS:
        return whole
    return type(whole).from_dict(shortened(copy.deepcopy(fields), LAYERS))


def passed(model: Model, **inputs: Any) -> Fields:
    """Count one pass: the products by operator, or why it could not be counted."""
    with Ledger(model) as ledger, torch.no_grad(), torch.device("meta"), one_sequence():
        try:
            model(**inputs)
        except Exception as failure:  # noqa: BLE001 - whatever a model raises is an answer here
            return {"why": first_line(failure)}
    report = ledger.report()
    return {name: report[name] for name in ("by_op", "uncounted") if name in report}


def ids(count: int) -> Any:
    """Return a row of tokens."""
    return torch.full((1, count), TOKEN, dtype=torch.long, device="meta")


def heard(model: Model) -> Fields:
    """Count the tower of a model that hears, and what leads to its words, for one window of 30 seconds."""
    parts = dict(model.model.named_children())
    tower = next(part for name, part in parts.items() if "audio" in name)
    projector = next(part for name, part in parts.items() if "projector" in name)
    width = next(part.in_features for part in projector.modules() if isinstance(part, torch.nn.Linear))
    sound = {"input_features": torch.zeros((1, tower.config.num_mel_bins, FRAMES), device="meta")}
    if "input_features_mask" in inspect.signature(tower.forward).parameters:
        sound["input_features_mask"] = torch.ones((1, FRAMES), dtype=torch.long, device="meta")
        # the window is full, and a mask that looks at values cannot be made without any
        vars(sys.modules[type(tower).__module__])["create_bidirectional_mask"] = lambda **_: None

    def whole(**inputs: Any) -> Any:
        return projector(tower(**inputs).last_hidden_state.reshape(-1, width))

    with Ledger(model) as ledger, torch.no_grad(), torch.device("meta"):
        whole(**sound)
    return {"by_op": ledger.report()["by_op"]}


def placeholders(model: Model) -> list[list[float]]:
    """Count the tokens that stand for sounds of some seconds, where the processor or the tower says how many."""
    kind = model.config.model_type
    tower = model.model.audio_tower
    made = getattr(transformers, type(model).__name__.replace("ForConditionalGeneration", "Processor"))
    if kind == "voxtral":  # its tokens come from another tokenizer
        return []
    processor = object.__new__(made)
    processor.audio_merge_size = 4
    extractor = transformers.WhisperFeatureExtractor(feature_size=tower.config.num_mel_bins)
    pairs: list[list[float]] = []
    for seconds in SOUNDS if kind != "qwen2_audio" else [short for short in SOUNDS if short <= SECONDS_OF_WINDOW]:
        sound, size = np.zeros(round(seconds * RATE), dtype=np.float32), SECONDS_OF_WINDOW * RATE
        windows = [sound[start : start + size] for start in range(0, len(sound), size)]
        made_of = extractor(windows, sampling_rate=RATE, padding="max_length", return_attention_mask=True)
        frames = torch.tensor(made_of["attention_mask"]).sum(-1)
        if kind == "qwen2_audio":
            count = tower._get_feat_extract_output_lengths(frames)[1]  # noqa: SLF001
        elif kind == "moss_transcribe_diarize":
            mapping = torch.zeros(len(windows), dtype=torch.long)
            count = processor._get_audio_token_length(frames, mapping)
            processor.audio_tokens_per_second, processor.time_marker_every_seconds = 12.5, 2
            processor.audio_token = "<"  # noqa: S105 - a token of text
            count = torch.tensor(len(processor.replace_audio_token({"num_audio_tokens": count}, 0)))
        else:
            count = processor._get_audio_token_length(frames.sum()[None])
        pairs.append([seconds, int(count)])
    return pairs


def counted(task: str, model: Model) -> Fields:
    """Count the passes of a model."""
    if task not in ("seq2seq", "speech"):
        return {"pass": passed(model, input_ids=ids(TOKENS))}
    encoder = model.get_encoder()
    if task == "speech":  # two frames a position, as many as the table of positions takes
        sound = torch.zeros((1, model.config.num_mel_bins, 2 * model.config.max_source_positions), device="meta")
        return {
            "encoder": passed(encoder, input_features=sound),
            "pass": passed(model, input_features=sound, decoder_input_ids=ids(TARGETS), use_cache=False),
        }
    tower: Fields = {}
    if model.config.model_type in HEARS:
        tower = {"tower": heard(model), "tokens": placeholders(model)}
    return tower | {
        "encoder": passed(encoder, input_ids=ids(TOKENS)),
        "pass": passed(model, input_ids=ids(TOKENS), decoder_input_ids=ids(TARGETS), use_cache=False),
    }


def truth_of(task: str, kind: str, name: str, config: Any) -> Fields:
    """Everything of one class with a config."""
    truth: Fields = {"id": f"{task}/{kind}", "class": name}
    try:
        model = build(name, config)
    except Exception as failure:  # noqa: BLE001 - whatever it raises is the answer
        return truth | {"built": False, "why": first_line(failure)}
    fields = pruned(model.config.to_dict()) | {"num_labels": model.config.num_labels}
    if "is_encoder_decoder" in model.config.to_dict():
        fields["is_encoder_decoder"] = model.config.is_encoder_decoder
    return truth | {
        "built": True,
        "config": fields | {"architectures": [name]},
        "parameters": sum(tensor.numel() for tensor in model.parameters()),
        **counted(task, model),
    }


def shown(task: str, kind: str, config: Any) -> Iterator[str]:
    """The tensors of a model, and the count, for a person."""
    model = build(MAPPINGS[task][kind], config)
    yield from (f"{name} {list(tensor.shape)}" for name, tensor in model.named_parameters())
    yield json.dumps(truth_of(task, kind, MAPPINGS[task][kind], config), indent=1)


def child(task: str, kind: str, pipe: Any) -> None:
    """Measure one type in a process of its own."""
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    try:
        truth = truth_of(task, kind, MAPPINGS[task][kind], config_of(kind))
    except Exception as failure:  # noqa: BLE001 - as above
        truth = {"id": f"{task}/{kind}", "class": MAPPINGS[task][kind], "built": False, "why": first_line(failure)}
    pipe.send(truth)


def measured(task: str, kind: str) -> Fields:
    """Measure one type under a limit of time."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=child, args=(task, kind, there))
    process.start()
    truth = here.recv() if here.poll(SECONDS) else None
    process.kill()
    process.join()
    stopped = {"id": f"{task}/{kind}", "class": MAPPINGS[task][kind], "built": False, "why": "stopped"}
    return truth or stopped


def write(path: Path, entries: list[Fields]) -> None:
    """Write entries, one a line."""
    lines = [json.dumps(entry, sort_keys=True, separators=(",", ":")) for entry in entries]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n", "utf-8")


def recount(path: Path) -> None:
    """Count the made-up configs of a file anew."""
    entries = []
    for entry in json.loads(path.read_text("utf-8")):
        config = transformers.AutoConfig.for_model(**{"pad_token_id": 0, **entry["config"]})
        task, _, kind = entry["id"].partition("/")
        found = truth_of(task, kind, entry["config"]["architectures"][0], config)
        entries.append(
            {key: found.get(key) for key in ("parameters", "pass", "encoder") if key in found}
            | entry
            | {key: found[key] for key in ("parameters", "pass", "encoder") if key in found}
        )
        progress(entry["id"])
    write(path, entries)


def main() -> None:
    """Measure all types, or those asked for."""
    parser = argparse.ArgumentParser(description="Write tests/oracle/encoders.json from torch and transformers.")
    parser.add_argument("ids", nargs="*", metavar="TASK/TYPE")
    parser.add_argument("--out", type=Path, default=ROOT / "tests/oracle/encoders.json")
    parser.add_argument("--print", action="store_true", help="print the tensors of the types asked for")
    parser.add_argument("--variations", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.variations:
        recount(options.variations)
        return
    every = [(task, kind) for task, mapping in MAPPINGS.items() for kind in mapping]
    wanted = [pair for pair in every if not options.ids or "/".join(pair) in options.ids]
    if options.print:
        for task, kind in wanted:
            sys.stdout.writelines(f"{line}\n" for line in shown(task, kind, config_of(kind)))
        return
    entries = []
    for number, (task, kind) in enumerate(wanted, 1):
        entries.append(measured(task, kind))
        progress(f"{number}/{len(wanted)} {task}/{kind}: {entries[-1].get('parameters') or entries[-1].get('why')}")
    write(options.out, entries)


if __name__ == "__main__":
    main()
