"""A verdict as data: the keys of ``--json``. SI units; every op's figures are for all its runs in the step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flopmap.ledger.ledger import DEVICE_BYTES
from flopmap.records.book import to_data
from flopmap.records.notation import text
from flopmap.records.resolve import cost_texts, parse_once
from flopmap.step import MAIN

if TYPE_CHECKING:
    from flopmap.diagnosis.verdict import Verdict
    from flopmap.floor.roofline import PricedLine, Pricing

SCHEMA_VERSION = 1
KIND_NAMES = {"kv_traffic": "kv", "logit_traffic": "logits"}
TERM_RESOURCE = {
    "matrix_peak": "matrix",
    "vector_peak": "vector",
    "exp_rate": "exp",
    "link_bandwidth": "link",
    "link_latency": "hops",
}


def whole(number: Any) -> Any:
    """Whole numbers without a fraction, so that integers print as integers."""
    return int(number) if isinstance(number, float) and number == int(number) and abs(number) < 2**53 else number


def verdict_data(verdict: Verdict) -> dict[str, Any]:
    """Everything of a verdict, under the keys that outside programs rely on."""
    pricing = verdict.pricing
    measured = verdict.measured
    estimate = verdict.estimate
    return {
        "schema_version": SCHEMA_VERSION,
        "scenario": scenario_data(verdict),
        "plan": plan_data(pricing),
        "parameters": parameter_data(pricing.entire),
        "memory": {name: whole(value) for name, value in to_data(verdict.memory).items()},
        "step": step_data(pricing),
        "totals": totals_data(pricing),
        "floor_seconds": {
            "device": pricing.device_seconds,
            "operation": pricing.operation_seconds,
            "engine": pricing.engine_seconds,
            "towers": sum(line.seconds for line in pricing.lines if line.line.op.stack != MAIN),
        },
        "estimate_seconds": to_data(estimate) if estimate else {"value": None, "low": None, "high": None},
        "measured_seconds": measured.seconds if measured else None,
        "measured_over_floor": verdict.over_floor,
        "measured_over_device_floor": verdict.over_device,
        "meaning": verdict.meaning,
        "cause": verdict.causes[0].cause if verdict.causes else None,
        "causes": to_data(verdict.causes),
        "bound_by": verdict.bound_by,
        "elasticity": verdict.elasticity,
        "doubling": to_data(verdict.doublings),
        "tokens_per_step": dict(zip(("low", "high"), map(whole, pricing.scenario.kept), strict=True)),
        "speculation": speculation_data(verdict),
        "denoising": to_data(pricing.scenario.blocks),
        "lora": lora_data(pricing),
        "utilisation": {"floor": verdict.at_floor, "measured": verdict.at_measured},
        "ops": [op_data(line, pricing) for line in pricing.lines],
        "levers": to_data(verdict.levers),
        "traps": to_data(verdict.traps),
        "assumptions": list(verdict.assumptions),
        "not_counted": list(verdict.not_counted),
        "conventions": pricing.scenario.conventions,
        "flop_convention": "a multiply-add is 2 FLOP",
    }


def scenario_data(verdict: Verdict) -> dict[str, Any]:
    """The scenario in short."""
    scenario = verdict.pricing.scenario
    return {
        "model": scenario.model.name,
        "family": scenario.model.architecture.family,
        "part": scenario.machine.part.id,
        "count": scenario.machine.count,
        "engine": scenario.engine.id,
        "enforce_eager": scenario.eager,
        "dtype": scenario.precision.activations.id,
        "quantization": None
        if scenario.precision.weights is scenario.precision.activations
        else scenario.precision.weights.id,
        "kv_cache_dtype": scenario.precision.kv.id,
        "math": scenario.precision.math,
        "phase": scenario.phase,
        "batch_size": scenario.batch_size,
        "context_len": scenario.context_len,
        "input_len": scenario.input_len,
        "cached_len": scenario.cached_len,
        "images": scenario.images,
        "image_tokens": scenario.media_tokens if scenario.images else 0,
        "audio_seconds": scenario.audio_seconds,
        "audio_tokens": scenario.media_tokens if scenario.audio_seconds else 0,
    }


def plan_data(pricing: Pricing) -> dict[str, Any] | None:
    """The plan over several parts: its sizes, stages and links, and the parameters that the fullest part holds."""
    plan = pricing.scenario.plan
    if plan is None:
        return None
    return {
        **to_data(plan),
        "parts": plan.parts,
        "parameters_per_part": whole(pricing.held.totals["parameters"]),
    }


def speculation_data(verdict: Verdict) -> dict[str, Any] | None:
    """Drafts: what is drafted and with what, and what they buy."""
    speculation = verdict.pricing.scenario.speculation
    if speculation is None:
        return None
    bought = to_data(verdict.drafts) if verdict.drafts else {}
    return {
        "method": speculation.method,
        "model": speculation.drafter.name if speculation.drafter else None,
        "num_speculative_tokens": speculation.tokens,
        "acceptance_rate": speculation.acceptance,
        **{name: whole(number) for name, number in bought.items()},
    }


def lora_data(pricing: Pricing) -> dict[str, Any] | None:
    """Adapters; ``parameters`` are those of one."""
    adapters = pricing.scenario.adapters
    if adapters is None:
        return None
    held = sum(line.costs["parameters"] for line in pricing.lines if line.line.op.op_class == "lora")
    targets = sorted({adapted.name for adapted in adapters.adapted})
    return {
        "rank": adapters.rank,
        "max_loras": adapters.loaded,
        "modules": targets,
        "parameters": whole(held / adapters.loaded),
    }


def parameter_data(pricing: Pricing) -> dict[str, Any]:
    """Parameters of the model: all, those that a token's GEMMs multiply by, and the embedding table's."""
    tables = [line for line in pricing.lines if line.line.op.op_class == "embedding"]
    embedding = sum(line.costs["parameters"] for line in tables)
    return {
        "total": whole(pricing.totals["parameters"]),
        "active": whole(pricing.totals["active"]),
        "embedding": whole(embedding),
    }


def step_data(pricing: Pricing) -> dict[str, Any]:
    """The step's sums, over all its groups (and without any window)."""
    from flopmap.step import Statistic, statistics_function

    scenario = pricing.scenario
    names = {"tokens": "t", "sequences": "seqs", "pairs": "pairs", "kv_tokens": "kv", "logits": "logits"}
    wanted = [Statistic(symbol) for symbol in names.values()]
    sums = statistics_function(wanted, pricing.glossary, scenario.conventions)(scenario.step)
    return {name: whole(number) for name, number in zip(names, sums, strict=True)}


def totals_data(pricing: Pricing) -> dict[str, Any]:
    """FLOP, bytes and launches of the step."""
    totals = pricing.totals
    return {
        "matrix_flop": whole(totals["matrix"]),
        "vector_flop": whole(totals["vector"]),
        "exp_op": whole(totals["exp"]),
        "launches": whole(totals["launches"]),
        "link_bytes": whole(totals["link"]),
        "device_bytes": {KIND_NAMES.get(kind, kind): whole(totals[kind]) for kind in DEVICE_BYTES},
    }


def op_data(line: PricedLine, pricing: Pricing) -> dict[str, Any]:
    """One op. ``formula`` is the one of the resource that binds it (the largest kind of bytes, when memory does)."""
    record = line.line.op_class
    resource = "resident" if line.line.op.idle else binding_resource(line)
    formula = cost_texts(record, pricing.scenario.conventions).get(resource, "0")
    return {
        "class": record.id,
        "name": line.line.op.name,
        "count": line.line.op.count,
        "idle": line.line.op.idle,
        "matrix_flop": whole(line.costs["matrix"]),
        "vector_flop": whole(line.costs["vector"]),
        "exp_op": whole(line.costs["exp"]),
        "device_bytes": whole(line.device_bytes),
        "link_bytes": whole(line.costs["link"]),
        "launches": whole(line.costs["launches"]),
        "floor_seconds": line.seconds,
        "share": line.seconds / pricing.operation_seconds,
        "bound_by": line.bound_by,
        "formula": f"{resource} = {text(parse_once(formula))}",
        "source": record.sources[0] if record.sources else "",
    }


def binding_resource(line: PricedLine) -> str:
    """The cost that an op's time comes from."""
    if line.bound_by in TERM_RESOURCE:
        return TERM_RESOURCE[line.bound_by]
    return max(DEVICE_BYTES, key=lambda kind: line.costs[kind])
