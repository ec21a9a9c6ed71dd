"""Writes what torch and transformers say of every causal language model type: ``tests/oracle/causal/<type>.json``.

The types are those of transformers' MODEL_FOR_CAUSAL_LM_MAPPING. Each is built from its default config, cut to the
fewest layers that still show every kind of layer, and counted: parameters, and under FlopCounterMode the FLOP of a
prefill and of a decode step. What cannot be default stands in ``tests/oracle/causal/types.yaml`` with the reason. Like
``oracle.py`` this file imports nothing of flopmap. Each type runs in a process of its own, under a time and a memory
limit, so that none can take the others down.

    pip install torch==2.13.0 transformers==5.24.0 ruamel.yaml
    python benchmarks/oracle_types.py                          # all, the most served first; about half an hour
    python benchmarks/oracle_types.py --out /tmp/x mixtral     # some
    python benchmarks/oracle_types.py --variations FILE        # count the made-up configs of FILE anew, in place
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import inspect
import json
import logging
import multiprocessing
import os
import re
import sys
import time
import warnings
from collections import Counter
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
import transformers
from ruamel.yaml import YAML
from torch.nn.modules import module as hooks
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode
from transformers import initialization, masking_utils
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Fields = dict[str, Any]
Model = Any  # what transformers builds is untyped
Config = Any

ROOT = Path(__file__).resolve().parent.parent
PREFILL_TOKENS = 64
DECODE_CONTEXT = 64  # keys the new token attends, itself included
MOST_LAYERS = 16
MOST_TENSORS = 4000
TOKEN = 7  # an ordinary token in every vocabulary
POLL_SECONDS = 0.2
PRODUCTS = ("aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm")

# Config fields that count layers, and lists that hold layer indices (other lists hold one entry a layer).
LAYER_FIELDS = {
    *("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers", "depth"),
    *("num_encoder_layers", "num_decoder_layers", "num_blocks", "conf_num_hidden_layers"),
}
INDEX_LISTS = {
    *("moe_layers", "full_attn_idxs", "cross_attention_layers", "attn_layer_indices", "hybrid_layer_ids"),
    *("global_attn_indexes", "intermediate_layers_indices", "mlp_only_layers", "fullatt_block_indexes"),
}
# Fields that decide neither a shape nor a cost.
IRRELEVANT = re.compile(
    r".*(token|class|audio|image|video)_(id|ids|index)$|.*label.*|.*dropout.*|.*_pdrop$|.*layerdrop$|.*drop_rate$"
    r"|.*initializer.*|.*init_(std|range)$|.*_eps(ilon)?$|output_.*|return_dict|transformers_version|_name_or_path"
    r"|problem_type|chunk_size_feed_forward|architectures|use_cache|.*_loss.*|.*jitter.*|forced_.*|task_specific_params"
    r"|_attn_implementation.*|_experts_implementation.*|init_method.*|summary_.*|is_encoder_decoder|.*mask_(time|feature).*"
)
# What carries the past from one call to the next, by the name of the model's output and argument.
PAST = ("cache", "past_key_values", "cache_params", "state", "past_buckets_states", "mems")
# Operators that multiply and that FlopCounterMode does not know.
UNCOUNTED = re.compile(
    r"aten\.(_?grouped_mm|mv|addmv|dot|vdot|fft.*|_fft.*|linalg_(?!vector_norm).*|.*triangular.*|.*rnn.*|.*lstm.*|_scaled_dot.*)"
)


@dataclass(frozen=True)
class Way:
    """One way to run a model: on which device, and with or without a cache in the prefill."""

    device: str
    use_cache: bool
    rows: int = 1  # rows of tokens a sequence: one, or one a codebook


WAYS = (
    Way("meta", use_cache=False),
    Way("meta", use_cache=True),
    Way("cpu", use_cache=False),
    Way("cpu", use_cache=True),
)


class NoStateError(ValueError):
    """The model has no cache, so that no device can decode with one."""


class Ledger(FlopCounterMode):
    """FlopCounterMode that also says which module each FLOP belongs to, and which operators it could not count."""

    def __init__(self, model: Model) -> None:
        super().__init__(display=False)
        self.names = {id(part): name for name, part in model.named_modules()}
        self.stack = [""]
        self.own: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.operators: Counter[str] = Counter()
        self.touched: set[int] = set()
        self.handles: list[Any] = []

    def __enter__(self) -> Self:
        """Start to count and to follow the modules."""
        self.handles = [
            hooks.register_module_forward_pre_hook(self._enter_module),
            hooks.register_module_forward_hook(self._leave_module, always_call=True),
        ]
        super().__enter__()
        return self

    def __exit__(self, *failure: object) -> Any:
        """Stop both."""
        for handle in self.handles:
            handle.remove()
        return super().__exit__(*failure)

    def _enter_module(self, part: Model, _inputs: object) -> None:
        self.stack.append(self.names.get(id(part), self.stack[-1]))
        self.calls[self.stack[-1]] += 1

    def _leave_module(self, _part: Model, _inputs: object, _output: object) -> None:
        self.stack.pop()

    def _count_flops(self, func_packet: Any, out: Any, args: Any, kwargs: Any) -> Any:
        before = self.flop_counts["Global"].get(func_packet, 0)
        super()._count_flops(func_packet, out, args, kwargs)
        self.own[self.stack[-1]] += self.flop_counts["Global"].get(func_packet, 0) - before
        self.operators[str(func_packet)] += 1
        self.touched |= {storage(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)}
        return out

    def unused(self, model: Model) -> list[str]:
        """Return the parameters that no operator has seen, neither themselves nor a view of them."""
        return [name for name, tensor in model.named_parameters() if storage(tensor) not in self.touched]

    def report(self) -> Fields:
        """Return the total, the count of each operator, and what was not counted."""
        by_op = {str(operator): flop for operator, flop in self.flop_counts["Global"].items() if flop}
        uncounted = {name: calls for name, calls in self.operators.items() if is_uncounted(name)}
        assert sum(self.own.values()) == self.get_total_flops()
        found: Fields = {"total": self.get_total_flops(), "by_op": by_op, "dispatched": sum(self.operators.values())}
        return found | ({"uncounted": uncounted} if uncounted else {})


def storage(tensor: Any) -> int:
    """Return what identifies the storage of a tensor, on the meta device too, where it has no address."""
    number: int = tensor.untyped_storage()._cdata  # noqa: SLF001 - there is no public one
    return number


def is_uncounted(operator: str) -> bool:
    """Whether ``operator`` may do work that FlopCounterMode counts as nothing."""
    return not operator.startswith(("aten.", "prim")) or bool(UNCOUNTED.fullmatch(operator))


def first_line(failure: BaseException) -> str:
    """Return the class and the first line of an exception."""
    lines = str(failure).strip().splitlines() or [""]
    # a validator of transformers says what failed on its second line
    text = " ".join(line.strip() for line in lines[:2]) if lines[0].endswith(":") else lines[0]
    return f"{type(failure).__name__}: {text}"[:300]


def progress(text: str) -> None:
    """Say on stderr where the run is."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


# --- configs ---------------------------------------------------------------------------------------------------------


def nested(fields: Fields) -> Iterator[tuple[str, Fields]]:
    """Yield the configs nested in a config."""
    for key, value in fields.items():
        if isinstance(value, dict) and "model_type" in value:
            yield key, value


def layer_counts(fields: Fields) -> set[int]:
    """Return the layer counts that a config states."""
    return {value for name in LAYER_FIELDS if isinstance(value := fields.get(name), int) and value > 1}


def shortened(fields: Fields, layers: int) -> Fields:
    """Return a config cut to ``layers`` layers, its per-layer lists with it."""
    counts, result = layer_counts(fields), dict(fields)
    for key, value in fields.items():
        if key in LAYER_FIELDS and isinstance(value, int):
            result[key] = min(value, layers)
        elif isinstance(value, dict) and key == "per_layer_config":
            result[key] = {index: changed for index, changed in value.items() if int(index) < layers}
        elif isinstance(value, list) and key in INDEX_LISTS:
            result[key] = [index for index in value if index < layers]
        elif isinstance(value, list) and len(value) in counts and len(value) > layers:
            result[key] = value[:layers]
    return result | {key: shortened(inner, layers) for key, inner in nested(fields)}


def listed_kinds(fields: Fields, path: str = "") -> set[Any]:
    """Return the kinds of layers that the per-layer lists of a config name."""
    counts = layer_counts(fields)
    lists = {
        key: value
        for key, value in fields.items()
        if isinstance(value, list)
        and key not in INDEX_LISTS
        and len(value) in counts
        and not isinstance(value[0], list)
    }
    found = {(path, *combination) for combination in zip(*lists.values(), strict=False)} if lists else set()
    return found.union(*(listed_kinds(inner, f"{path}.{key}") for key, inner in nested(fields)))


def signature(layer: Model) -> Any:
    """Return what tells one kind of layer from another: its tensors, its modules, its switches."""
    # a star for every index: a shared block has one adapter a layer that uses it, however many these are
    tensors = {(starred(name), tuple(tensor.shape)) for name, tensor in layer.named_parameters()}
    switches = {
        (starred(name), type(part).__name__, key, value)
        for name, part in layer.named_modules()
        for key, value in {"": "", **vars(part)}.items()
        if isinstance(value, bool | str)
    }
    return frozenset(tensors), frozenset(switches)


def starred(name: str) -> str:
    """Return the name of a module or tensor with a star for every index in it."""
    return re.sub(r"(?<=\.)\d+(?=\.|$)", "*", name)


def stacks(model: Model) -> dict[str, list[Any]]:
    """Return the outermost lists of layers of a model, as the signatures of their layers."""
    found = {}
    for name, part in model.named_modules():
        if isinstance(part, torch.nn.ModuleList) and not re.search(r"\.\d+\.", name):
            found[name] = [signature(layer) for layer in part]
    return found


def kinds(model: Model) -> set[Any]:
    """Return every kind of layer that a model has."""
    built = {(name, layer) for name, layers in stacks(model).items() for layer in layers}
    return built | listed_kinds(model.config.to_dict())


def pattern(model: Model) -> Fields:
    """Write each list of layers as letters, one letter a kind."""
    drawn = {}
    for name, layers in stacks(model).items():
        order = list(dict.fromkeys(layers))
        drawn[name] = "".join(chr(ord("A") + order.index(layer)) for layer in layers)
    return drawn


def reduced(config: Config, model: Model) -> Config:
    """Return the config with the fewest layers, two or more, that still has every kind of layer of ``model``."""
    wanted, fields = kinds(model), config.to_dict()
    for layers in range(2, MOST_LAYERS + 1):
        try:
            short = type(config).from_dict(shortened(copy.deepcopy(fields), layers))
            if kinds(build(short)) >= wanted:
                return short
        except Exception as failure:  # noqa: BLE001 - not every number of layers is valid
            logging.getLogger(__name__).debug("%d layers: %s", layers, failure)
    message = f"no config of up to {MOST_LAYERS} layers shows all {len(wanted)} kinds of layer"
    raise ValueError(message)


def pruned(fields: Fields) -> Fields:
    """Drop the fields that decide neither a shape nor a cost."""
    kept = {key: value for key, value in fields.items() if not IRRELEVANT.fullmatch(key)}
    kept = {key: value for key, value in kept.items() if value is not None or key not in {"dtype", "torch_dtype"}}
    return kept | {key: pruned(inner) for key, inner in nested(kept)}


# --- models ----------------------------------------------------------------------------------------------------------


def build(config: Config, device: str = "meta") -> Model:
    """Build the causal language model of ``config``; on the CPU with weights of zero, which take no memory."""
    # batched_mm is the experts' form that the counter sees; on the CPU it would copy the weights for every token
    experts = "batched_mm" if device == "meta" else "eager"
    with torch.device(device), contextlib.nullcontext() if device == "meta" else initialization.no_init_weights():
        model = maker(config)(copy.deepcopy(config), attn_implementation="eager", experts_implementation=experts)
    if device == "cpu":
        model.tie_weights()  # a part of the initialisation, like the values
        zero_weights(model)
    return model.eval()


def maker(config: Config) -> Callable[..., Model]:
    """Return what makes a model of ``config``: mostly transformers' own choice."""
    auto: Model = transformers.AutoModelForCausalLM
    if type(config) in auto._model_mapping:  # noqa: SLF001 - to ask and not to catch
        made: Callable[..., Model] = auto.from_config
        return made
    # a decoder's config, whose type is that of the whole model: transformers.models.musicgen.configuration_musicgen
    kind = type(config).__module__.split(".")[2]
    unmapped = type(config).__name__.removesuffix("Config") + "ForCausalLM"  # mistral4 is nobody's automatic choice
    made = getattr(transformers, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(kind, unmapped))._from_config  # noqa: SLF001
    return made  # noqa: RET504 - typed above


def zero_weights(model: Model) -> None:
    """Replace every weight by zeros, tied ones by the same: pages that are never written are never allocated."""
    made: dict[int, Any] = {}
    for part in model.modules():
        for name, tensor in list(part._parameters.items()):  # noqa: SLF001 - torch has no other way to replace one
            if tensor is not None:
                zeros = made.get(id(tensor))
                if zeros is None:
                    # numpy's zeros are the system's, torch's are written
                    values = torch.from_numpy(np.zeros(tuple(tensor.shape), np.float32))
                    made[id(tensor)] = zeros = torch.nn.Parameter(values.to(tensor.dtype), requires_grad=False)
                part._parameters[name] = zeros  # noqa: SLF001


@contextlib.contextmanager
def one_sequence() -> Iterator[None]:
    """Answer for the meta device whether a batch is several packed sequences: no. It is all that most masks ask."""
    asked = masking_utils.find_packed_sequence_indices
    masking_utils.find_packed_sequence_indices = lambda position_ids: None  # noqa: ARG005
    try:
        yield
    finally:
        masking_utils.find_packed_sequence_indices = asked


def call(model: Model, tokens: int, way: Way, past: tuple[str, Any] | None = None) -> Any:
    """Run ``tokens`` new tokens after ``past``."""
    device = next(model.parameters()).device
    inputs: Fields = {"input_ids": torch.full((way.rows, tokens), TOKEN, dtype=torch.long, device=device)}
    accepted = accepted_names(model)
    if "shared_kv_states" in accepted:
        inputs = draft_inputs(model, tokens)
    elif "use_cache" in accepted:
        inputs["use_cache"] = way.use_cache
    if past is not None:
        inputs[past[0]] = past[1]
    with torch.no_grad(), torch.device(device), one_sequence() if device.type == "meta" else contextlib.nullcontext():
        return model(**inputs)


def draft_inputs(model: Model, tokens: int) -> Fields:
    """Return the inputs of a drafting model: hidden states of its target, and the keys and values that it shares."""
    device, shared = next(model.parameters()).device, {}
    for layer in model.model.layers:
        part = layer.self_attn
        heads = part.config.num_attention_heads // part.num_key_value_groups
        keys = torch.zeros((1, heads, DECODE_CONTEXT, part.head_dim), device=device)
        shared[part.layer_type] = (keys, keys)
    hidden = torch.zeros((1, tokens, 2 * model.backbone_hidden_size), device=device)
    positions = torch.arange(DECODE_CONTEXT - tokens, DECODE_CONTEXT, device=device)[None]
    return {"inputs_embeds": hidden, "position_ids": positions, "shared_kv_states": shared}


def accepted_names(model: Model) -> set[str]:
    """Return the names of the arguments of the model."""
    return set(inspect.signature(model.forward).parameters)


def past_of(model: Model, way: Way) -> tuple[str, Any]:
    """Return the state that a prefill leaves, under the name by which the model takes it back."""
    accepted = accepted_names(model)
    if "shared_kv_states" in accepted:
        return "shared_kv_states", draft_inputs(model, 1)["shared_kv_states"]
    output = call(model, DECODE_CONTEXT - 1, way)
    for name in PAST:
        value = getattr(output, name, None)
        if value is not None and name in accepted:
            return name, value
    if "cache" in accepted:  # some take a cache and do not return it
        cache = transformers.DynamicCache(config=model.config.get_text_config(decoder=True))
        call(model, DECODE_CONTEXT - 1, way, ("cache", cache))
        if any(True for _ in tensors_in(cache)):
            return "cache", cache
    raise NoStateError("the model returns no state that it takes back")


def tensors_in(value: Any, path: str = "", depth: int = 6) -> Iterator[list[Any]]:
    """Yield the name, shape and type of every tensor inside a cache."""
    if isinstance(value, torch.Tensor):
        yield [path, list(value.shape), str(value.dtype).removeprefix("torch.")]
    elif depth and isinstance(value, dict):
        for key, inner in value.items():
            yield from tensors_in(inner, f"{path}.{key}", depth - 1)
    elif depth and isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from tensors_in(inner, f"{path}.{index}", depth - 1)
    elif (
        depth
        and type(value).__module__.startswith("transformers.")
        and not isinstance(value, transformers.PreTrainedConfig)
    ):
        yield from tensors_in(vars(value), path, depth - 1)


# --- truths ----------------------------------------------------------------------------------------------------------


def parameters(model: Model) -> Fields:
    """Count the parameters, each tensor once, and list them."""
    named = list(model.named_parameters())
    heads = (model.get_input_embeddings(), output_embeddings(model))
    weights = [getattr(head, "weight", None) for head in heads]
    saved = set(model.state_dict())
    truth: Fields = {
        "parameters": sum(tensor.numel() for _, tensor in named),
        "tied": weights[0] is weights[1] if weights[1] is not None else None,
        "buffers": [[name, list(tensor.shape)] for name, tensor in model.named_buffers() if name in saved],
    }
    if len(named) <= MOST_TENSORS:
        truth["tensors"] = [[name, list(tensor.shape)] for name, tensor in named]
    return truth


def output_embeddings(model: Model) -> Any:
    """Return the head of the model, or None where it has none by that name."""
    try:
        return model.get_output_embeddings()
    except (AttributeError, NotImplementedError):
        return None


class Runs:
    """The runs of one model: the first way that works, and why the others did not."""

    def __init__(self, config: Config, model: Model, rows: int) -> None:
        self.config = config
        self.models = {"meta": model}
        self.rows = rows

    def model(self, device: str) -> Model:
        """Return the model on a device, built when first asked for."""
        if device not in self.models:
            self.models[device] = build(self.config, device)
        return self.models[device]

    def first(
        self, run: Callable[[Model, Way], tuple[Fields, Ledger]], ways: tuple[Way, ...]
    ) -> tuple[Fields, Ledger | None]:
        """Return the count of the first of ``ways`` in which ``run`` works."""
        failures = {}
        for way in ways:
            try:
                truth, ledger = run(self.model(way.device), replace(way, rows=self.rows))
            except Exception as failure:  # noqa: BLE001 - whatever a model raises is an answer here
                failures[f"{way.device}, use_cache={way.use_cache}"] = first_line(failure)
                if isinstance(failure, NoStateError):
                    break
            else:
                return truth | ({"failed": failures} if failures else {}), ledger
        return {"total": None, "failed": failures}, None


def prefill(model: Model, way: Way) -> tuple[Fields, Ledger]:
    """Count a prefill: no past, logits of every token."""
    with Ledger(model) as ledger:
        output = call(model, PREFILL_TOKENS, way)
    truth = {"tokens": PREFILL_TOKENS, "device": way.device, "use_cache": way.use_cache, **ledger.report()}
    logits = getattr(output, "logits", None)
    return truth | ({"logits": list(logits.shape)} if logits is not None else {}), ledger


def decode(model: Model, way: Way) -> tuple[Fields, Ledger]:
    """Count one token after a cache, and list what the cache holds."""
    past = past_of(model, way)
    state = list(tensors_in(past[1]))
    with Ledger(model) as ledger:
        call(model, 1, way, past)
    truth = {"tokens": 1, "context": DECODE_CONTEXT, "device": way.device, **ledger.report()}
    return truth | {"past": past[0], "state": state}, ledger


def modules(model: Model, ledgers: list[Ledger | None]) -> list[list[Any]]:
    """List the modules that own a matrix or count FLOP of their own: name, class, then calls and FLOP of each run."""
    rows = []
    for name, part in model.named_modules():
        owns = any(tensor.ndim > 1 for tensor in part.parameters(recurse=False))
        counts = [(ledger.calls[name], ledger.own[name]) if ledger else (None, None) for ledger in ledgers]
        if owns or any(flop for _, flop in counts):
            rows.append([name, type(part).__name__, *(number for pair in counts for number in pair)])
    return rows


def remarks(rows: list[list[Any]]) -> list[str]:
    """Say what a reader of the counts would not expect: what decode repeats, and what a pass runs several times."""
    whole = {
        starred(name) for name, _, _, first, _, second in rows if first and first == second and "pooler" not in name
    }
    again: dict[int, set[str]] = {}
    for name, kind, calls, *_ in rows:
        if kind == "Linear" and calls and calls > 1:
            parent = starred(name).partition("*")[0].rstrip(".") or name
            again.setdefault(calls, set()).add(parent)
    notes = [f"a decode step runs over the whole context in {', '.join(sorted(whole))}"] if whole else []
    return notes + [
        f"called {calls} times a pass: linear modules of {', '.join(sorted(again[calls]))}" for calls in sorted(again)
    ]


def flop_truth(runs: Runs, model: Model) -> Fields:
    """Count both runs and say which module did what."""
    prefilled, first = runs.first(prefill, WAYS)
    ways = WAYS if prefilled.get("device", "meta") == "meta" else WAYS[2:]
    decoded, second = runs.first(decode, tuple(way for way in ways if way.use_cache))
    unused = sorted(set(map(starred, first.unused(runs.model(prefilled["device"]))))) if first else []
    rows = modules(model, [first, second])
    notes = remarks(rows)
    notes += ["some tensors are built but not used by a text prefill: see unused"] if unused else []
    notes += ["some operators are not counted: see uncounted"] if "uncounted" in prefilled else []
    truth: Fields = {
        "flop": {"prefill": prefilled if first else None, "decode": decoded if second else None},
        "modules": rows,
        "unused": unused,
        "notes": notes,
    }
    why = {
        "prefill": prefilled.get("failed") if not first else None,
        "decode": decoded.get("failed") if not second else None,
    }
    why = {name: failed for name, failed in why.items() if failed}
    return truth | ({"why": why} if why else {})


def unbuilt(fields: Fields) -> list[str]:
    """Say which parts of a config transformers does not build."""
    heads = fields.get("num_nextn_predict_layers") or fields.get("mtp_num_hidden_layers")
    notes = [f"the config's {heads} multi-token prediction layers are not built"] if heads else []
    return notes + [note for _, inner in nested(fields) for note in unbuilt(inner)]


def truth_of(kind: str, special: Fields, save: Callable[[Fields], None]) -> None:
    """Measure one type, and save it twice: with its parameters, then with its FLOP."""
    changes, notes, truth = special.get("set", {}), list(special.get("notes", [])), header(kind)
    try:
        default = build(transformers.CONFIG_MAPPING[kind]())
        truth["default"] = {
            "parameters": sum(tensor.numel() for tensor in default.parameters()),
            "layers": pattern(default),
        }
    except Exception as failure:  # noqa: BLE001 - whatever it raises is the answer
        truth["default"] = {"error": first_line(failure)}
    try:
        config = transformers.CONFIG_MAPPING[kind](**copy.deepcopy(changes))
        config = getattr(config, special["part"]) if "part" in special else config
        full: Model = build(config)
        if getattr(config, "is_decoder", None) is False and full.config.is_decoder is False:
            config.is_decoder, full = True, None
            notes.append("is_decoder set to true, as a causal language model needs")
        if not special.get("whole"):
            config = reduced(config, full or build(config))
        model = build(config)
    except Exception as failure:  # noqa: BLE001 - as above
        save(truth | {"built": False, "why": first_line(failure), "notes": notes})
        return
    truth |= {
        "built": True,
        "class": type(model).__name__,
        "config": pruned(config.to_dict()) | {"architectures": [type(model).__name__]},  # as a saved config says
        "layers": pattern(model),
    }
    truth |= {"changed": changes} if changes else {}
    truth |= parameters(model)
    save(truth | {"flop": None, "why": "not counted yet", "notes": notes})
    notes += unbuilt(truth["config"])
    counted = flop_truth(Runs(config, model, special.get("rows", 1)), model)
    save(truth | counted | {"notes": notes + counted["notes"]})


def header(kind: str) -> Fields:
    """Say what is measured and with what."""
    versions = {"torch": torch.__version__.partition("+")[0], "transformers": transformers.__version__}
    return {"type": kind, "class": MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[kind], "versions": versions, "attention": "eager"}


# --- files and processes ---------------------------------------------------------------------------------------------


def write(path: Path, truth: Fields) -> None:
    """Write one type: a line a field, so that a person can find one and a diff shows which changed."""
    lines = [
        f"{json.dumps(key)}:{json.dumps(truth[key], sort_keys=True, separators=(',', ':'))}" for key in sorted(truth)
    ]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def recounted(entry: Fields) -> Fields:
    """Return an entry of a file of variations with its parameters and matrix products counted from its config.

    ``matrix`` is null where no way of running the model on the meta device can be counted.
    """
    model = build(transformers.AutoConfig.for_model(**({"pad_token_id": None} | entry["config"])))
    count, _ = Runs(model.config, model, rows=1).first(prefill, WAYS[:2])
    by_op = count.get("by_op")
    matrix = sum(flop for name, flop in by_op.items() if name in PRODUCTS) if by_op else None
    return {**entry, "parameters": sum(tensor.numel() for tensor in model.parameters()), "matrix": matrix}


def recount(path: Path) -> None:
    """Count the configs of a file of variations anew and write them back, one a line."""
    entries = []
    for entry in json.loads(path.read_text("utf-8")):
        progress(entry["id"])
        entries.append(json.dumps(recounted(entry), separators=(",", ":")))
    path.write_text("[\n" + ",\n".join(entries) + "\n]\n", "utf-8")


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process, 0 when it is gone."""
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def child(kind: str, path: Path) -> None:
    """Measure one type; what it prints on the way is of no interest."""
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    special = specials()["types"].get(kind) or {}
    truth_of(kind, special, lambda truth: write(path, truth))


def supervise(kind: str, path: Path, options: argparse.Namespace) -> str:
    """Measure one type in a process of its own and return why it was stopped, empty if it was not."""
    started = time.monotonic()
    # a fork, not a new process: torch and transformers are imported once for all types
    process = multiprocessing.get_context("fork").Process(target=child, args=(kind, path))
    process.start()
    stopped = ""
    while process.exitcode is None and not stopped:
        process.join(POLL_SECONDS)
        if time.monotonic() - started > options.timeout:
            stopped = f"stopped after {options.timeout:g} s"
        elif resident_bytes(process.pid or 0) > options.memory * 1e9:
            stopped = f"stopped at {options.memory:g} GB of memory"
    if process.exitcode is None:
        process.kill()
        process.join()
    return stopped or ("" if process.exitcode == 0 else f"exit status {process.exitcode}")


def parent(kinds_: list[str], options: argparse.Namespace) -> None:
    """Measure each type; where the process was stopped, say so in its file."""
    for number, kind in enumerate(kinds_, 1):
        path = options.out / f"{kind}.json"
        path.unlink(missing_ok=True)
        started = time.monotonic()
        stopped = supervise(kind, path, options)
        truth = json.loads(path.read_text(encoding="utf-8")) if path.exists() else header(kind) | {"built": False}
        if stopped:
            write(path, truth | {"why": stopped})
        flop = truth.get("flop") or {}
        runs = " ".join(f"{name}={(run or {}).get('total')}" for name, run in flop.items())
        seconds = time.monotonic() - started
        progress(
            f"{number}/{len(kinds_)} {kind}: built={truth['built']} parameters={truth.get('parameters')} {runs} "
            f"{stopped or ('' if flop else truth.get('why', ''))} {seconds:.0f} s"
        )


def ordered(asked: list[str]) -> list[str]:
    """Return the types to measure, the most served first."""
    first: list[str] = specials()["first"]
    ranks = {
        kind: next((rank for rank, glob in enumerate(first) if fnmatch(kind, glob)), len(first))
        for kind in asked or MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    }
    return sorted(ranks, key=lambda kind: ranks[kind])


def specials() -> Fields:
    """Read which types come first, and what is not default in some."""
    loaded: Fields = YAML(typ="safe", pure=True).load(ROOT / "tests/oracle/causal/types.yaml")
    return loaded


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Write tests/oracle/causal/*.json from torch and transformers.")
    parser.add_argument("types", nargs="*", metavar="TYPE", help="model types (default: all that transformers maps)")
    parser.add_argument("--out", type=Path, default=ROOT / "tests/oracle/causal", help="folder to write to")
    parser.add_argument("--timeout", type=float, default=60, help="seconds a type may take")
    parser.add_argument("--memory", type=float, default=6, help="GB a type may take")
    parser.add_argument("--variations", type=Path, metavar="FILE", help="count the configs of FILE anew, and no type")
    return parser.parse_args()


def main() -> None:
    """Measure the types asked for, each in a process of its own, or a file of variations."""
    options = arguments()
    if options.variations:
        recount(options.variations)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    parent(ordered(options.types), options)


if __name__ == "__main__":
    main()
