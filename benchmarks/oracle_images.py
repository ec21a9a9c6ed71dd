"""Writes what torch and transformers say of every image-text type: ``tests/oracle/image_text/<type>.json``.

The types are those of transformers' MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING, and encoders of images alone. Each is built
from its default config with few layers; the parameters of the whole model are counted, then the type's own processor
makes an image and FlopCounterMode counts the tower and the connector (``get_image_features``). What cannot be default
stands in ``tests/oracle/image_text/types.yaml``. As in ``oracle_types.py``, whose functions this uses, nothing of
flopmap is imported and each type runs in a process of its own.

    pip install torch==2.13.0 torchvision==0.28.0 transformers==5.24.0 ruamel.yaml pillow
    python benchmarks/oracle_images.py                          # all
    python benchmarks/oracle_images.py --out /tmp/x qwen2_vl    # some
"""

from __future__ import annotations

import argparse
import copy
import inspect
import json
from pathlib import Path
from typing import Any

import oracle_types as base
import torch
import transformers
from PIL import Image
from ruamel.yaml import YAML
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

Fields = dict[str, Any]
FOLDER = base.ROOT / "tests/oracle/image_text"
IMAGE = (640, 420)  # width and height
ENCODERS = (
    *("vit", "clip_vision_model", "siglip_vision_model", "siglip2_vision_model", "dinov2", "dinov2_with_registers"),
    *("deit", "beit", "ijepa", "aimv2_vision_model", "dinov3_vit", "data2vec-vision", "vit_msn"),
)
RENAMED = {("video_llava", "pixel_values_images"): "pixel_values"}
# settings of a processor that decide no shape
COLOURS = ("image_mean", "image_std", "image_processor_type", "processor_class", "resample", "data_format")


def maker(config: Any) -> Any:
    """Return what makes a model of ``config``."""
    kind = type(config).model_type
    auto = transformers.AutoModel if kind in ENCODERS else transformers.AutoModelForImageTextToText
    return auto.from_config


base.maker = maker


def tower(model: Any) -> Any:
    """Return the method that encodes images."""
    for owner in (getattr(model, "model", None), getattr(model, "thinker", None), model):
        if owner is not None and hasattr(owner, "get_image_features"):
            return owner.get_image_features
    return None


def processor(kind: str, settings: Fields) -> Any:
    """Return the image processor of a type."""
    name = settings.pop("class", None) or IMAGE_PROCESSOR_MAPPING_NAMES[kind]
    if isinstance(name, dict):
        name = name.get("torchvision") or name["pil"]
    if isinstance(name, tuple):
        name = next(entry for entry in reversed(name) if entry)
    return getattr(transformers, name)(**settings)


def encode(model: Any, kind: str, special: Fields, size: tuple[int, int]) -> tuple[Fields, Fields]:
    """Count what the tower does with an image of this size; return the counts and the processor's settings."""
    made = processor(kind, dict(special.get("processor", {})))
    image = Image.new("RGB", size)
    inputs = dict(made(images=[image], return_tensors="pt", **special.get("call", {})))
    settings = {key: value for key, value in made.to_dict().items() if key not in COLOURS and value is not None}
    if kind == "video_llama_3":
        inputs["image_merge_sizes"] = torch.tensor([made.merge_size])
    inputs = {
        name: value.float() if hasattr(value, "is_floating_point") and value.is_floating_point() else value
        for name, value in inputs.items()
    }
    shapes = {name: list(value.shape) for name, value in inputs.items() if hasattr(value, "shape")}
    method = tower(model) if kind not in ENCODERS and not special.get("forward") else model.forward
    if special.get("forward"):  # the tower cannot run alone: with a text of that many tokens
        inputs["input_ids"] = torch.full((1, special["forward"]), base.TOKEN)
        inputs["cross_attention_mask"] = torch.ones((1, special["forward"], 1, made.max_image_tiles), dtype=torch.long)
    accepted = set(inspect.signature(method).parameters)
    inputs = {RENAMED.get((kind, name), name): value for name, value in inputs.items()}
    given = {name: value for name, value in inputs.items() if name in accepted and name != "num_patches"}
    given |= {name: torch.tensor(value) for name, value in special.get("inputs", {}).items()}
    with base.Ledger(model) as ledger, torch.no_grad():
        output = method(**given)
        if "then" in special:  # what the whole forward does with the features
            model.get_submodule(special["then"])(output.last_hidden_state)
    rows = [tensor[1] for tensor in base.tensors_in(getattr(output, "pooler_output", output))]
    truth = {"image": list(size), "inputs": shapes, "features": rows[:8], **ledger.report()}
    truth["modules"] = [
        [name, type(part).__name__, ledger.calls[name], ledger.own[name]]
        for name, part in model.named_modules()
        if ledger.own[name]
    ]
    return truth, settings


def truth_of(kind: str, special: Fields, save: Any) -> None:
    """Measure one type, and save it twice: with its parameters, then with the FLOP of its tower."""
    versions = {"torch": torch.__version__.partition("+")[0], "transformers": transformers.__version__}
    truth: Fields = {"type": kind, "versions": versions, "notes": special.get("notes", [])}
    changes = special.get("set", {})
    try:
        config = transformers.CONFIG_MAPPING[kind](**copy.deepcopy(changes))
        if not special.get("whole"):
            config = base.reduced(config, base.build(config))
        for field, value in special.get("after", {}).items():
            name, _, inner = field.rpartition(".")
            setattr(getattr(config, name) if name else config, inner, value)
        model = base.build(config)
    except Exception as failure:  # noqa: BLE001 - whatever it raises is the answer
        save(truth | {"built": False, "why": base.first_line(failure)})
        return
    named = list(model.named_parameters())
    truth |= {"built": True, "class": type(model).__name__, "config": base.pruned(config.to_dict())}
    truth["parameters"] = sum(tensor.numel() for _, tensor in named)
    save(truth | {"flop": None})
    sizes = special.get("sizes", [IMAGE])
    model = base.build(config, "cpu").to(torch.float32)
    model.config.dtype = torch.float32
    truth["flop"], failures = [], []
    for size in sizes:
        try:
            counted, settings = encode(model, kind, special, tuple(size))
            truth["flop"].append(counted)
            truth["processor"] = settings
        except Exception as failure:  # noqa: BLE001 - as above
            failures.append(base.first_line(failure))
    save(truth | ({"why": failures} if failures else {}))


def child(kind: str, path: Path) -> None:
    """Measure one type."""
    torch.set_num_threads(1)
    base.logging.disable(base.logging.WARNING)
    base.warnings.filterwarnings("ignore")
    truth_of(kind, specials().get(kind) or {}, lambda truth: base.write(path, truth))


def specials() -> Fields:
    """Read what is not default in some types."""
    loaded: Fields = YAML(typ="safe", pure=True).load(FOLDER / "types.yaml") or {}
    return loaded


def main() -> None:
    """Measure the types asked for, each in a process of its own."""
    parser = argparse.ArgumentParser(description="Write tests/oracle/image_text/*.json from torch and transformers.")
    parser.add_argument("types", nargs="*", metavar="TYPE", help="model types (default: all that transformers maps)")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder to write to")
    parser.add_argument("--timeout", type=float, default=90, help="seconds a type may take")
    parser.add_argument("--memory", type=float, default=6, help="GB a type may take")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    base.child = child
    for kind in options.types or [*MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES, *ENCODERS]:
        path = options.out / f"{kind}.json"
        path.unlink(missing_ok=True)
        stopped = base.supervise(kind, path, options)
        truth = json.loads(path.read_text("utf-8")) if path.exists() else {"type": kind, "built": False}
        if stopped:
            base.write(path, truth | {"why": stopped})
        flop = [(run["inputs"].get("pixel_values"), run["total"]) for run in truth.get("flop") or []]
        base.progress(f"{kind}: {truth['built']} {truth.get('parameters')} {flop} {stopped or truth.get('why', '')}")


if __name__ == "__main__":
    main()
