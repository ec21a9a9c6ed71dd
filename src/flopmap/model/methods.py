"""The methods of quantisation: what each one's settings in a ``quantization_config`` say of the formats of matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from flopmap.model.config import Config, ConfigError
from flopmap.quantity import shown
from flopmap.records.types import Format

if TYPE_CHECKING:
    from collections.abc import Callable

    from flopmap.records.book import Book

FOUR, EIGHT = 4, 8  # bits of an element
MX_GROUP, NVFP4_GROUP = 32, 16
GPTQ_BITS, AWQ_BITS, HQQ_BITS = (2, 3, 4, 5, 6, 8), (4, 8), (1, 2, 3, 4, 8)


class Scheme(NamedTuple):
    """Formats by module: ``kept`` (left alone) first, then ``named``, then ``general`` (None: left alone)."""

    general: Format | None
    kept: tuple[str, ...] = ()
    named: tuple[tuple[tuple[str, ...], Format], ...] = ()
    head: Format | None = None
    experts_only: bool = False


class Settings(Config):
    """A ``quantization_config`` with checked access, and the records of formats."""

    def __init__(self, fields: dict[str, Any], name: str, book: Book) -> None:
        super().__init__(fields, name)
        self.book = book

    def inside(self, table: Any, where: str) -> Settings:
        """A table inside of this one."""
        if not isinstance(table, dict):
            raise self.error(where, f"{shown(table)} is not a table")
        return Settings(table, f"{self.name}: {where}", self.book)

    def refuse(self, what: str, understood: str = "") -> ConfigError:
        """The error of a setting that is not understood."""
        known = f" (understood: {understood})" if understood else ""
        return ConfigError(
            f"{self.name}: {what} is not understood{known}; name the weights' format with --quantization"
        )

    def format(self, name: str, **changes: Any) -> Format:
        """A format of the book, with the settings in which a checkpoint differs from it."""
        record = self.book.record(Format, name)
        return record if all(getattr(record, key) == changes[key] for key in changes) else replace(record, **changes)

    def grouped(self, name: str, bits: float, group: int | None, *, zeros: bool, **changes: Any) -> Format:
        """The same, in groups; one scale a row is not counted."""
        record = self.book.record(Format, name)
        zero = (record.zero_bits if record.zero_bits > record.bits else bits) if zeros else 0.0
        scale = record.scale_bits if group else 0.0
        return self.format(name, bits=bits, group=group, scale_bits=scale, zero_bits=zero if group else 0.0, **changes)

    def group(self, *names: str, default: int | None = None) -> int | None:
        """A group size; -1 is a whole row (None)."""
        for name in names:
            if self.fields.get(name) == -1:
                return None
        return self.integer(*names, default=default) if default or self.has(*names) else None

    def chosen(self, field: str, known: tuple[Any, ...], default: Any = None) -> Any:
        """A field that must have one of a few values."""
        value = self.fields.get(field, default)
        if isinstance(value, bool) or value not in known:
            method = f"{self.fields['quant_method']} with " if "quant_method" in self.fields else ""
            raise self.refuse(f"{method}{field} {shown(value)}", ", ".join(map(str, known)))
        return value

    def listed(self, *names: str) -> tuple[str, ...]:
        """The first of the named lists of modules that is there."""
        return next((tuple(self.strings(name)) for name in names if self.has(name)), ())


def replace(record: Format, **changes: Any) -> Format:
    """A format with other settings, which its title names."""
    stated = ", ".join(f"{key} {shown(value)}" for key, value in changes.items() if getattr(record, key) != value)
    changed: Format = msgspec.structs.replace(record, title=f"{record.title}; here {stated}", **changes)
    return changed


# -- methods of one kind of format ------------------------------------------------------------------------------------

SKIPPED = ("modules_to_not_convert", "ignored_layers")


def _awq(config: Settings) -> Scheme:
    bits = config.chosen("bits" if config.has("bits") else "w_bit", AWQ_BITS, 4)
    zeros = config.flag("zero_point", default=True)
    group = config.group("group_size", "q_group_size", default=128)
    return Scheme(config.grouped("awq", bits, group, zeros=zeros), config.listed(*SKIPPED))


def _gptq(config: Settings) -> Scheme:
    bits = config.chosen("bits", GPTQ_BITS, 4)
    config.flag("sym", default=True)
    stored = config.grouped("gptq", bits, config.group("group_size", default=128), zeros=True)
    kept: tuple[str, ...] = config.listed(*SKIPPED)
    for rule in config.table("dynamic"):
        if not rule.startswith("-:"):
            raise config.refuse(f"gptq with the dynamic rule {shown(rule)}", "rules that begin with -:")
        kept += (f"re:{rule[2:]}",)
    head = stored if config.flag("lm_head", default=False) else None
    blocks = config.fields.get("modules_in_block_to_quantize")
    if not blocks:
        return Scheme(stored, kept, head=head)
    outer: list[Any] = blocks if isinstance(blocks, list) else [blocks]
    names: list[Any] = [name for inner in outer for name in (inner if isinstance(inner, list) else [inner])]
    if not all(isinstance(name, str) for name in names):
        raise config.error("modules_in_block_to_quantize", f"{shown(blocks)} is not a list of lists of strings")
    return Scheme(None, kept, ((tuple(names), stored),), head)


def _fp8(config: Settings) -> Scheme:
    stored = config.format("fp8")
    if config.has("weight_block_size"):
        stored = config.format("fp8-block", group=_block(config, "weight_block_size"))
    named = _named_by_modelopt(config) if config.has("quantized_layers") else ()
    if not named and config.has("expert_dtype") and config.chosen("expert_dtype", ("fp4", "fp8")) == "fp4":
        named = ((("experts",), config.format("mxfp4")),)
    return Scheme(stored, config.listed(*SKIPPED), named)


def _block(config: Settings, field: str) -> int:
    """Elements of a block, from its two sides."""
    sides = config.fields[field]
    if not isinstance(sides, list) or len(sides) != 2 or not all(type(side) is int and side > 0 for side in sides):  # noqa: PLR2004
        raise config.error(field, f"{shown(sides)} is not two whole numbers")
    return int(sides[0] * sides[1])


def _fbgemm(config: Settings) -> Scheme:
    return Scheme(config.format("fp8"), config.listed(*SKIPPED))


def _mxfp4(config: Settings) -> Scheme:
    return Scheme(config.format("mxfp4"), config.listed(*SKIPPED), experts_only=True)


def _bitsandbytes(config: Settings) -> Scheme:
    skipped = config.listed("llm_int8_skip_modules")
    if config.flag("load_in_4bit", default=False) or config.flag("_load_in_4bit", default=False):
        config.chosen("bnb_4bit_quant_type", ("nf4", "fp4"), "fp4")
        double = config.flag("bnb_4bit_use_double_quant", default=False)
        return Scheme(config.format("bnb-nf4-double" if double else "bnb-nf4"), skipped)
    if config.flag("load_in_8bit", default=False) or config.flag("_load_in_8bit", default=False):
        return Scheme(config.format("bnb-int8"), skipped)
    raise config.refuse("bitsandbytes without load_in_4bit or load_in_8bit", "load_in_4bit, load_in_8bit")


TORCHAO = {
    "int4weightonly": "torchao-int4",
    "int8weightonly": "int8-weight-only",
    "int8dynamicactivationint8weight": "int8",
    "float8weightonly": "fp8",
    "float8dynamicactivationfloat8weight": "fp8",
}


def _torchao(config: Settings) -> Scheme:
    kind, options = config.fields.get("quant_type"), config.table("quant_type_kwargs")
    if isinstance(kind, dict):
        inner = config.inside(kind.get("default", kind), "quant_type")
        kind, options = inner.fields.get("_type"), inner.table("_data")
    plain = str(kind).lower().replace("_", "").removesuffix("config")
    if plain not in TORCHAO:
        known = "int4_weight_only, int8_weight_only, int8_dynamic_activation_int8_weight, float8_weight_only, "
        raise config.refuse(f"torchao with quant_type {shown(kind)}", f"{known}float8_dynamic_activation_float8_weight")
    stored = config.format(TORCHAO[plain])
    if stored.id == "torchao-int4":
        group = config.inside(options, "quant_type").group("group_size", default=128)
        stored = config.grouped(stored.id, FOUR, group, zeros=True)
    if plain == "float8weightonly":
        stored = config.format("fp8", math=())
    return Scheme(stored, config.listed(*SKIPPED))


def _hqq(config: Settings) -> Scheme:
    whole = config.table("quant_config")
    table = config.inside(whole.get("weight_quant_params"), "weight_quant_params")
    if any(whole.get(name) for name in ("scale_quant_params", "zero_quant_params", "dynamic_config")):
        raise config.refuse("hqq with quantised scales or settings by layer", "weight_quant_params")
    bits = table.chosen("nbits", HQQ_BITS, 4)
    stored = config.grouped("hqq", bits, table.group("group_size", default=64), zeros=True)
    return Scheme(stored, config.listed("skip_modules"))


def _exllama(config: Settings) -> Scheme:
    name = config.string("quant_method")
    stored = config.format(name, bits=config.number("bits", default=4.0))
    head = config.number("head_bits", default=6.0)
    return Scheme(stored, head=config.format(name, bits=head))


# -- methods with formats by numbers ----------------------------------------------------------------------------------


FLOATS: dict[tuple[int, int | None], str] = {
    (EIGHT, None): "fp8",
    (EIGHT, MX_GROUP): "mxfp8",
    (FOUR, NVFP4_GROUP): "nvfp4",
    (FOUR, MX_GROUP): "mxfp4",
}


def _by_numbers(config: Settings, weights: Settings, taken: tuple[str, int] | None, method: str) -> Format:
    """A format from bits, type and group; ``taken`` are type and bits of the activations it is multiplied with."""
    inputs = taken[1] if taken else None
    bits, kind = weights.integer("num_bits", default=8, high=16), weights.string("type", default="int")
    group, wide = weights.group("group_size"), inputs is None or inputs > EIGHT
    if group and weights.fields.get("strategy") in ("tensor", "channel"):
        group = None
    if kind == "float" and bits == EIGHT and weights.has("block_structure"):
        block = _block(weights, "block_structure")
        return config.format("fp8-block", group=block, **({"math": ()} if wide else {}))
    name = FLOATS.get((bits, group), "") if kind == "float" else ""
    if name:
        mixed = inputs == EIGHT and bits == FOUR
        return config.format(name, **({"math": ()} if wide else {"math": ("fp8",)} if mixed else {}))
    zeros = not weights.flag("symmetric", default=True)
    if kind == "int" and bits == EIGHT and group is None:
        return config.format("int8-weight-only" if wide else "int8")
    if kind == "int" and bits <= EIGHT:
        math = () if wide else ("int8",) if taken and taken[0] == "int" else ("fp8",)
        return config.grouped("int4-group" if wide else "w4a8", bits, group, zeros=zeros, math=math)
    settings = f"num_bits {bits}, type {shown(kind)}" + (f", group_size {group}" if group else "")
    known = "float of 8 bits, of 4 bits in groups of 16 or 32, int of 2 to 8 bits"
    raise config.refuse(f"{method} with {settings}", known)


# Kimi K3's projections around its experts: no list names them, and its files hold them in bf16
NO_TARGET = r"re:.*routed_expert_(down|up)_proj.*"


def _compressed_tensors(config: Settings) -> Scheme:
    general, named = None, []
    groups = config.table("config_groups")
    if not groups:
        raise config.refuse("compressed-tensors without config_groups", "config_groups")
    if config.table("sparsity_config").get("format", "dense") != "dense":
        raise config.refuse("compressed-tensors with sparse weights (sparsity_config)", "dense weights")
    for name, group in groups.items():
        table = config.inside(group, f"config_groups.{name}")
        if not table.table("weights"):
            continue
        inputs = table.inside(table.table("input_activations"), "input_activations")
        taken = (inputs.string("type", default="int"), inputs.integer("num_bits", default=8, high=16))
        weights = table.inside(table.table("weights"), "weights")
        stored = _by_numbers(
            config, weights, taken if inputs.fields else None, config.string("quant_method", default="modelopt")
        )
        targets = table.strings("targets") or ["Linear"]
        classes = [target for target in targets if target in ("Linear", "FusedMoE", "MoE")]
        general = stored if "Linear" in classes else general
        names = tuple(target for target in targets if target not in classes)
        names += ("experts",) if "Linear" not in classes and classes else ()
        named += [(names, stored)] if names else []
    return Scheme(general, (*config.listed("ignore"), NO_TARGET), tuple(named))


MODELOPT: dict[str, tuple[str, dict[str, Any]]] = {
    "FP8": ("fp8", {}),
    "FP8_PER_CHANNEL_PER_TOKEN": ("fp8", {}),
    "FP8_PB_WO": ("fp8-block", {"math": ()}),
    "FP8_BLOCK_SCALES": ("fp8-block", {}),
    "MXFP8": ("mxfp8", {}),
    "NVFP4": ("nvfp4", {}),
    "NVFP4_AWQ": ("nvfp4", {}),
    "W4A16_NVFP4": ("nvfp4", {"math": ()}),
    "W4A8_NVFP4_FP8": ("nvfp4", {"math": ("fp8",)}),
    "MXFP4": ("mxfp4", {}),
    "W4A16_MXFP4": ("mxfp4", {"math": ()}),
    "W4A8_MXFP4_FP8": ("mxfp4", {"math": ("fp8",)}),
    "W4A16_AWQ": ("int4-group", {}),
    "W4A8_AWQ": ("w4a8", {}),
    "W8A8_SQ_PER_CHANNEL": ("int8", {}),
}


def _modelopt(config: Settings) -> Scheme:
    kept = config.listed("exclude_modules", "ignore")
    algo = config.fields.get("quant_algo")
    if config.has("quantized_layers"):
        return Scheme(None, kept, _named_by_modelopt(config))
    if algo is None and config.has("config_groups"):
        return _compressed_tensors(config)
    return Scheme(_by_algorithm(config, config), kept)


def _by_algorithm(config: Settings, table: Settings) -> Format:
    algo = table.fields.get("quant_algo")
    if not isinstance(algo, str) or algo not in MODELOPT:
        raise config.refuse(f"modelopt with quant_algo {shown(algo)}", ", ".join(MODELOPT))
    name, changes = MODELOPT[algo]
    group = table.group("group_size")
    regrouped = {"group": group} if group and name in ("nvfp4", "int4-group", "w4a8") else {}
    return config.format(name, **changes, **regrouped)


def _named_by_modelopt(config: Settings) -> tuple[tuple[tuple[str, ...], Format], ...]:
    """The layers that a mixed checkpoint lists, by format. (It may list every expert, with few different settings.)."""
    names: dict[tuple[Any, Any], list[str]] = {}
    formats: dict[tuple[Any, Any], Format] = {}
    for name, table in config.table("quantized_layers").items():
        layer = config.inside(table, "quantized_layers")
        key = (layer.string("quant_algo"), layer.group("group_size"))
        if key not in formats:
            formats[key] = _by_algorithm(config, layer)
        names.setdefault(key, []).append(name)
    return tuple((tuple(names[key]), formats[key]) for key in formats)


QUARK = {"fp8_e4m3": ("float", 8), "int8": ("int", 8), "int4": ("int", 4), "uint4": ("int", 4)}
QUARK |= {"fp4": ("float", 4), "mxfp4": ("float", 4), "fp8": ("float", 8)}


def _quark(config: Settings) -> Scheme:
    general = _of_quark(config, config.table("global_quant_config"), "global_quant_config")
    layers = config.table("layer_quant_config")
    named = [((name,), _of_quark(config, table, "layer_quant_config")) for name, table in layers.items()]
    if config.table("layer_type_quant_config"):
        raise config.refuse("quark with layer_type_quant_config", "global_quant_config, layer_quant_config")
    return Scheme(general, config.listed("exclude"), tuple((names, stored) for names, stored in named if stored))


def _of_quark(config: Settings, table: Any, where: str) -> Format | None:
    spec = config.inside(table, where)
    if not spec.has("weight"):
        return None
    weight = spec.fields["weight"]
    dtype = weight.get("dtype") if isinstance(weight, dict) else weight
    if not isinstance(dtype, str) or dtype not in QUARK:
        raise config.refuse(f"quark with weights of {shown(dtype)}", ", ".join(QUARK))
    kind, bits = QUARK[dtype]
    group = weight.get("group_size") if weight.get("qscheme", "per_group") == "per_group" else None
    numbers = {"num_bits": bits, "type": kind, "group_size": group, "symmetric": dtype != "uint4"}
    inputs = spec.fields.get("input_tensors")
    taken = QUARK.get(str(inputs.get("dtype")), ("", 16)) if isinstance(inputs, dict) else None
    return _by_numbers(config, config.inside(numbers, where), taken, "quark")


METHODS: dict[str, Callable[[Settings], Scheme]] = {
    "awq": _awq,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed_tensors,
    "exl2": _exllama,
    "exl3": _exllama,
    "fbgemm_fp8": _fbgemm,
    "fp8": _fp8,
    "gptq": _gptq,
    "hqq": _hqq,
    "modelopt": _modelopt,
    "mxfp4": _mxfp4,
    "quark": _quark,
    "torchao": _torchao,
}


def method_of(settings: Settings) -> str:
    """The method, under one name for all spellings. Old ModelOpt and bitsandbytes configs name none."""
    method = settings.fields.get("quant_method")
    if method is None and settings.has("quant_algo"):
        return "modelopt"
    if method is None and settings.has("load_in_4bit", "load_in_8bit"):
        return "bitsandbytes"
    name = method.replace("_", "-") if isinstance(method, str) else ""
    name = "modelopt" if name in ("modelopt-fp4", "modelopt-fp8", "modelopt-mixed") else name
    name = "fbgemm_fp8" if name == "fbgemm-fp8" else name
    if name not in METHODS:
        raise settings.refuse(shown(method), ", ".join(METHODS))
    return name
