"""Every figure of a format is found, in SI units, with its statistic; a run says what its batch means."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flopmap.diagnosis.errors import ReadingError
from flopmap.diagnosis.readers.read import read_bytes, read_file
from flopmap.diagnosis.readers.run import CLOSED, OPEN, PARALLEL, SINGLE, STATIC, UNITS
from flopmap.diagnosis.readers.text import GZIP
from tests.readers.support import NAMES, content, runs

# fixture, index of the run, then figures: name, statistic, value in SI units
FIGURES = [
    # milliseconds become seconds; tokens/s stay
    ("vllm-serve-old.txt", 0, "ttft mean 1.2505, tpot median 0.0305, itl p99 0.21015, total_throughput mean 2560"),
    (
        "vllm-serve-old.txt",
        0,
        "requests total 40, duration total 20, input_tokens total 40960, output_throughput mean 512",
    ),
    # 75.50 % is a share of 0.755
    ("vllm-serve-new.txt", 0, "acceptance_rate mean 0.755, acceptance_length mean 2.51, e2e_latency p99 1.70245"),
    ("vllm-serve-new.txt", 0, "failed_requests total 1, request_rate requested 4.25, peak_concurrency max 2"),
    ("vllm-serve-new.txt", 0, "peak_output_throughput max 97, drafts total 3264, accepted_tokens total 4928"),
    ("vllm-serve.json", 0, "ttft mean 0.0505, tpot p99 0.010125, itl median 0.0094, output_throughput mean 102.4"),
    (
        "sglang-serving.txt",
        0,
        "itl p95 0.03365, itl max 0.12085, concurrency mean 15.9, output_tokens_retokenized total 32750",
    ),
    ("sglang-serving.txt", 0, "acceptance_length mean 1.75, e2e_latency median 6.19055, input_throughput mean 2621.44"),
    ("sglang-serving.jsonl", 0, "itl median 0.01575, e2e_latency mean 2.1505"),
    ("sglang-serving.jsonl", 1, "itl median 0.01325, request_rate requested 2.5"),
    ("vllm-latency.txt", 0, "e2e_latency mean 2.4512345, e2e_latency p10 2.4412345, e2e_latency median 2.4502345"),
    (
        "vllm-latency.txt",
        1,
        "request_throughput mean 12.25, total_throughput mean 6272.15, output_throughput mean 3136.05",
    ),
    ("vllm-latency.txt", 2, "request_throughput mean 3.5, total_throughput mean 1792.55"),  # the old line: all tokens
    ("vllm-latency.json", 0, "e2e_latency mean 1.5, e2e_latency p99 1.59"),
    ("vllm-throughput.json", 0, "duration total 20, total_tokens total 51200, total_throughput mean 2560"),
    ("vllm-log.txt", 0, "memory last 43486543872"),  # 40.5 GiB
    (
        "vllm-log.txt",
        1,
        "input_throughput mean 812.5, output_throughput mean 95.5, waiting last 3, cache_usage last 0.125",
    ),
    ("vllm-log.txt", 2, "output_throughput mean 227.5, concurrency last 8, prefix_hit_rate last 0.25"),
    ("vllm-log.txt", 4, "preemptions total 51"),
    ("sglang-log.txt", 0, "input_tokens last 2048, cached_tokens last 128, waiting last 4, cache_usage last 0.02"),
    ("sglang-log.txt", 1, "output_throughput mean 380.25, cache_usage last 0.05"),
    ("sglang-one-batch.txt", 0, "prefill_time mean 0.0815, input_throughput mean 12564.42"),
    ("sglang-one-batch.txt", 1, "step_time median 0.0105, output_throughput median 761.9"),
    ("sglang-one-batch.jsonl", 0, "step_time median 0.0105, prefill_time mean 0.0815, e2e_latency mean 0.743"),
    # sums over counts: 16 s of 40 requests, 255 s of 10200 tokens
    (
        "metrics.txt",
        0,
        "ttft mean 0.4, itl mean 0.025, concurrency last 6, cache_usage last 0.375, input_tokens total 40960",
    ),
    ("sglang-metrics.txt", 0, "ttft mean 0.3, output_throughput last 410.5, cache_usage last 0.25, waiting last 1"),
    ("server-metrics.csv", 0, "concurrency mean 3.5, concurrency max 4, cache_usage p99 0.45"),
    ("trtllm.txt", 0, "tpot mean 0.01506, tpot p99 0.01615, ttft mean 0.26025, output_throughput_per_user mean 66.4"),
    (
        "trtllm.txt",
        0,
        "duration total 9.52381, e2e_latency mean 4.10055, output_throughput mean 2688, requests total 100",
    ),
    ("genai-perf.csv", 0, "ttft mean 0.0425, itl p90 0.014, e2e_latency p25 1.6, output_throughput mean 78.05"),
    ("genai-perf.csv", 0, "input_len mean 512, requests total 24, request_throughput mean 0.61"),
    ("genai-perf.txt", 0, "ttft p99 0.0585, itl mean 0.0125, output_len max 136"),
    ("aiperf.json", 0, "ttft median 0.0415, itl p99 0.0155, output_throughput mean 78.05"),
    ("guidellm.json", 0, "ttft mean 0.0455, itl p99 0.0165, e2e_latency mean 1.98, requests total 20"),
    ("guidellm.txt", 0, "ttft mean 0.0455, itl p99 0.0165, e2e_latency mean 1.98"),
    # InferenceX writes seconds where the key has no unit
    (
        "inferencex.json",
        0,
        "ttft mean 0.125, tpot median 0.0051, e2e_latency mean 5.45, output_throughput_per_user mean 192.25",
    ),
    # LoadGen writes nanoseconds
    ("mlperf.txt", 0, "e2e_latency mean 9.5, ttft p99 1.25, tpot mean 0.075, output_throughput mean 11850.5"),
    ("llama-bench.md", 0, "input_throughput mean 9876.54, input_throughput std 12.34"),
    ("llama-bench.md", 1, "output_throughput mean 123.45, output_throughput std 0.67"),
    ("llama-bench.md", 3, "total_throughput mean 590.15"),
    ("llama-bench.json", 0, "output_throughput mean 80, output_throughput std 0.25, duration mean 1.6"),
    ("llama-bench.csv", 0, "input_throughput mean 8000, input_throughput std 1.5, duration mean 0.064"),
    ("llama-bench.sql", 0, "output_throughput mean 100, output_throughput std 0.5"),
    ("llama-batched-bench.md", 1, "prefill_time total 0.512, decode_time total 2.048, output_throughput mean 500"),
    ("llama-timings.txt", 0, "prefill_time total 0.5, input_tokens total 250, input_throughput mean 500"),
    (
        "llama-timings.txt",
        1,
        "decode_time total 4, tpot mean 0.04, output_throughput mean 25, acceptance_rate mean 0.6",
    ),
    # 100 tokens, 60 of them drafted: 40 steps of 2.5 tokens
    ("llama-timings.txt", 1, "acceptance_length mean 2.5, draft_tokens total 100"),
    ("llama-timings.txt", 3, "output_throughput mean 24.75"),
    ("ollama.txt", 0, "decode_time total 61, output_tokens total 1500, duration total 62.5, load_time total 0.0125"),
    ("ollama.txt", 1, "prefill_time total 0.4, input_throughput mean 500"),
    ("ollama.txt", 2, "memory last 41e9"),
    ("mlx.txt", 0, "input_throughput mean 512.25, input_tokens total 1024"),
    ("mlx.txt", 1, "output_throughput mean 40.125"),
    ("mlx.txt", 2, "memory max 9.75e9"),
    ("tgi.txt", 0, "prefill_time mean 0.0255, prefill_time max 0.03075"),
    ("tgi.txt", 2, "step_time mean 0.0135, step_time p99 0.01455"),
    ("tgi.txt", 4, "output_throughput mean 296.3, output_throughput min 271.15"),
    # 0.25 GiB, and 20 GiB/s
    (
        "lmcache.txt",
        0,
        "memory total 268435456, duration total 0.0125, memory_throughput mean 21474836480, cached_tokens total 2048",
    ),
    # 70000 MiB of 81559 MiB
    (
        "nvidia-smi.txt",
        0,
        "power last 690, power_cap last 700, memory last 73400320000, utilisation last 1, temperature last 61",
    ),
    ("nvprof.txt", 0, "time_share mean 0.605, kernel_time total 0.00605, kernel_time mean 60.5e-6, calls total 100"),
    (
        "torch-table.txt",
        0,
        "kernel_time self_gpu 0.005125, kernel_time cpu_a_call 30.5e-6, time_share self_gpu 0.5125, calls total 100",
    ),
    # queued to first token 1.0 s twice; (12-11)/10 and (15-11)/20 s a token; 32 tokens in 5 s
    (
        "requests.jsonl",
        0,
        "ttft mean 1, tpot mean 0.15, queue_time mean 0.25, e2e_latency mean 3.5, output_throughput mean 6.4",
    ),
    # the seconds with four sequences and no prompt
    ("states.csv", 0, "output_throughput mean 101, concurrency last 4, waiting max 1"),
]


@pytest.mark.parametrize(("name", "index", "expected"), FIGURES, ids=lambda value: str(value)[:40])
def test_the_figures_of_a_format_are_read_in_si_units(name: str, index: int, expected: str) -> None:
    run = runs(name)[index]
    for text in expected.split(", "):
        figure, statistic, value = text.split()
        read = run.get(figure, statistic.replace("_", " "))
        assert read == pytest.approx(float(value), rel=1e-12), text


@pytest.mark.parametrize("name", NAMES)
def test_every_format_has_a_fixture_that_is_read_and_whose_units_are_those_of_its_figures(name: str) -> None:
    assert runs(name)
    for run in runs(name):
        assert run.measurements or run.notes
        for figure in run.measurements:
            assert figure.unit == UNITS[figure.name]


@pytest.mark.parametrize(
    ("name", "index", "batch"),
    [
        ("vllm-serve-new.txt", 0, CLOSED),
        ("sglang-serving.jsonl", 1, OPEN),
        ("vllm-latency.txt", 0, STATIC),
        ("vllm-log.txt", 2, PARALLEL),
        ("llama-bench.md", 0, SINGLE),
        ("llama-batched-bench.md", 0, PARALLEL),
        ("tgi.txt", 2, STATIC),
        ("guidellm.json", 0, SINGLE),
        ("ollama.txt", 0, SINGLE),
    ],
)
def test_a_run_says_what_its_batch_means(name: str, index: int, batch: str) -> None:
    assert runs(name)[index].batch == batch


def test_the_facts_of_a_text_are_those_that_a_scenario_needs() -> None:
    log, bench = runs("vllm-log.txt")[2], runs("llama-bench.md")[2]
    assert (log.model, log.engine, log.enforce_eager, log.tensor_parallel_size) == ("Qwen/Qwen3-8B", "vllm", True, 1)
    assert (log.phase, log.batch_size, log.queueing) == ("decode", 8, False)
    # tg128 @ d4096 decodes after 4096 cached tokens
    assert (bench.phase, bench.input_len, bench.output_len, bench.quantization) == ("decode", 4096, 128, "q4_k")
    assert bench.part == "NVIDIA GeForce RTX 4090"


def test_prompts_in_between_make_a_line_of_a_log_no_decode_step() -> None:
    mixed = runs("vllm-log.txt")[1]
    assert mixed.phase is None
    assert any("no decode step" in note for note in mixed.notes)


def test_lengths_are_tokens_over_requests_and_what_was_asked_for_stands_beside() -> None:
    first = runs("sglang-serving.jsonl")[0]
    assert (first.input_len, first.output_len, first.requested_output_len) == (1024, 256, 256)  # 8192 / 8, 2048 / 8


def test_full_utilisation_at_the_power_cap_is_explained() -> None:
    notes = " ".join(runs("nvidia-smi.txt")[0].notes)
    assert "some kernel ran" in notes
    assert "power cap" in notes  # 690 of 700 W


def test_a_model_that_is_partly_on_the_cpu_is_explained() -> None:
    (note,) = runs("ollama.txt")[2].notes
    assert note.startswith("llama3:70b runs on 42%/58% CPU/GPU: layers on the CPU set the pace")


def test_a_point_too_many_makes_a_number_none() -> None:
    damaged = content("sglang-one-batch.txt").replace(b"0.08150", b"0.08.150") + content("mlperf.txt").replace(
        b"99.00", b"99.0.0"
    )
    found = {(run.tool, run.get("prefill_time"), run.get("ttft", "p99")) for run in read_bytes(damaged)}
    assert ("SGLang bench_one_batch", None, None) in found
    assert ("MLPerf LoadGen", None, None) in found


def test_the_topology_names_pcie() -> None:
    (run,) = runs("topo.txt")
    assert run.parts == 2
    assert "PHB" in run.notes[0]
    assert "PCIe" in run.notes[1]


REAL = os.environ.get("FLOPMAP_REAL_FILES", "")  # folders of files that people have, kept outside of this repository


@pytest.mark.skipif(not REAL, reason="FLOPMAP_REAL_FILES names no folder")
@pytest.mark.parametrize(
    "path", [path for folder in REAL.split(":") if folder for path in sorted(Path(folder).iterdir())]
)
def test_a_real_file_is_read_and_a_trace_refused_by_name(path: Path) -> None:
    try:
        read = read_file(str(path))
    except ReadingError as error:
        assert path.read_bytes().startswith(GZIP) or path.name == "MANIFEST.csv"
        assert "recognised" in str(error) or path.name == "MANIFEST.csv"  # noqa: PT017 - most files are read
    else:
        assert read
