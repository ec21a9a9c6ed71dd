"""The JSON of ``vllm bench serve``, the JSONL of SGLang's ``bench_serving``, and the runners of InferenceX around them.

A key says its unit (``mean_ttft_ms``); in the aggregates of InferenceX the same key without a unit is in seconds.
"""

from __future__ import annotations

import re
from typing import Any

from flopmap.diagnosis.readers.run import CLOSED, OPEN, UNSAID, Found, Run, mean_len, number_of, whole, word
from flopmap.diagnosis.readers.serving import engine_of

LATENCY = re.compile(
    r"(?P<statistic>mean|median|std|min|max|p[\d.]+)_(?P<what>ttft|tpot|itl|e2el|e2e_latency|intvty)(?P<unit>_ms|_s)?"
)
LATENCIES = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2el": "e2e_latency", "e2e_latency": "e2e_latency"}
FIGURES = {
    "duration": ("duration", "total"),
    "completed": ("requests", "total"),
    "successful_requests": ("requests", "total"),
    "failed": ("failed_requests", "total"),
    "total_input_tokens": ("input_tokens", "total"),
    "total_output_tokens": ("output_tokens", "total"),
    "total_output_tokens_retokenized": ("output_tokens_retokenized", "total"),
    "request_throughput": ("request_throughput", "mean"),
    "input_throughput": ("input_throughput", "mean"),
    "output_throughput": ("output_throughput", "mean"),
    "output_token_throughput": ("output_throughput", "mean"),
    "total_token_throughput": ("total_throughput", "mean"),
    "total_throughput": ("total_throughput", "mean"),
    "max_output_tokens_per_s": ("peak_output_throughput", "max"),
    "max_concurrent_requests": ("peak_concurrency", "max"),
    "concurrency": ("concurrency", "mean"),
    "request_rate": ("request_rate", "requested"),
    "accept_length": ("acceptance_length", "mean"),
    "spec_decode_acceptance_length": ("acceptance_length", "mean"),
}
SHARES = {"spec_decode_acceptance_rate": ("acceptance_rate", 0.01)}
GPU = {
    "mean_power_per_gpu_w": ("power", "mean"),
    "total_avg_power_w": ("power", "total"),
    "peak_power_per_gpu_w": ("power", "max"),
    "tokens_per_kw": ("tokens_per_kilowatt", "mean"),
}
FORMATS = {"fp4": None, "fp8": "fp8", "bf16": "bf16", "int4": None}


def read(value: dict[str, Any], line: int) -> Run | None:
    """The run of a JSON object, or None where it is not of these tools."""
    nested = value.get("metrics")
    flat: dict[str, Any] = {**value, **nested} if isinstance(nested, dict) else value
    aggregate = "hw" in value and ("conc" in value or "isl" in value)
    found = Found()
    speeds = _figures(flat, found, aggregate)
    if not speeds:
        return None
    _gpu(value, found)
    requests = found.value("requests", "total")
    limit = whole(flat.get("max_concurrency")) or whole(flat.get("conc"))
    sglang = "total_output_tokens_retokenized" in flat or flat.get("backend") in ("sglang", "sglang-oai")
    tool = "InferenceX" if aggregate else "SGLang bench_serving" if sglang else "vllm bench serve"
    rate = number_of(flat.get("request_rate"))
    return Run(
        tool=tool,
        line=line,
        measurements=found.all(),
        batch=CLOSED if limit else OPEN if rate and rate < float("inf") else UNSAID,
        max_concurrency=limit,
        input_len=mean_len(found.value("input_tokens", "total"), requests) or whole(flat.get("isl")),
        output_len=mean_len(found.value("output_tokens", "total"), requests) or whole(flat.get("osl")),
        requested_output_len=whole(flat.get("random_output_len")) or whole(flat.get("osl")),
        model=word(flat.get("model_id")) or word(flat.get("model")),
        part=word(flat.get("hw")),
        engine=engine_of(word(flat.get("framework")) or word(flat.get("backend"))),
        quantization=FORMATS.get(str(flat.get("precision")).lower()),
        tensor_parallel_size=whole(flat.get("tp")),
        expert_parallel_size=whole(flat.get("ep")),
        speculative=True if found.value("acceptance_length") else _speculative(flat),
        queueing=limit != 1,
        notes=_notes(flat, found),
    )


def _figures(flat: dict[str, Any], found: Found, aggregate: bool) -> bool:  # noqa: FBT001 - one caller
    """Add the figures; whether there was a latency or a throughput, that is, whether this is a result at all."""
    result = False
    for key, value in flat.items():
        latency = LATENCY.fullmatch(key)
        if latency and latency["what"] in LATENCIES:
            if latency["unit"] is None and not aggregate:
                continue
            found.add(
                LATENCIES[latency["what"]], value, latency["statistic"], 1e-3 if latency["unit"] == "_ms" else 1.0
            )
            result = True
        elif latency and aggregate:
            found.add("output_throughput_per_user", value, latency["statistic"])
        elif key in FIGURES:
            found.add(FIGURES[key][0], value, FIGURES[key][1])
            result |= key.endswith("throughput")
        elif key in SHARES:
            found.add(SHARES[key][0], value, "mean", SHARES[key][1])
        elif aggregate and key in ("tput_per_gpu", "output_tput_per_gpu", "input_tput_per_gpu"):
            result |= number_of(value) is not None
    return result


def _gpu(value: dict[str, Any], found: Found) -> None:
    gpu = value.get("gpu")
    if isinstance(gpu, dict):
        for key, (name, statistic) in GPU.items():
            found.add(name, gpu.get(key), statistic)


def _speculative(flat: dict[str, Any]) -> bool | None:
    said = word(flat.get("spec_decoding")) or word(flat.get("spec"))
    return None if said is None else said.lower() != "none"


def _notes(flat: dict[str, Any], found: Found) -> tuple[str, ...]:
    notes = []
    for key in ("tput_per_gpu", "output_tput_per_gpu", "input_tput_per_gpu"):
        number = number_of(flat.get(key))
        if number is not None:
            notes.append(f"{key} {number:g} tokens/s a GPU")
    if str(flat.get("precision")).lower() in ("fp4", "int4"):
        notes.append(f"precision {flat['precision']}: which format it is the file does not say (--quantization)")
    tpot, itl = found.value("tpot"), found.value("itl")
    if tpot and itl and itl > 1.5 * tpot:
        notes.append(f"ITL is {itl / tpot:.1f} times TPOT: tokens arrive in groups, as with speculative decoding")
    return tuple(notes)
