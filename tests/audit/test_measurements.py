"""A table of measurements: every row is priced, or says by line why it is not; what beats its floor comes first."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

import pytest

from flopmap.audit.measurements import Audit, Auditor, Held, Unpriced
from flopmap.audit.names import format_id, model_id, part_id
from flopmap.audit.output import added
from flopmap.records.book import UnknownRecordError
from tests.physics.support import LLAMA_8B, priced

if TYPE_CHECKING:
    from pathlib import Path

    from flopmap.records.book import Book

ROW = {
    "hardware": "NVIDIA H100 SXM 80GB", "num_devices": "1", "engine": "vLLM", "model": LLAMA_8B, "weight_dtype": "BF16",
    "kv_dtype": "", "batch_or_concurrency": "8", "input_len": "1024", "output_len": "512", "context_len": "",
    "metric": "tpot_ms", "value": "10", "unit": "ms", "notes": "batch_kind=static",
}  # fmt: skip
END_TO_END = {
    "metric": "e2e_tok_s_total", "unit": "tok/s", "notes": "batch_kind=static; tokens_counted=input+output",
}  # fmt: skip


def held(book: Book, **changes: str) -> Held:
    found = Auditor(book).hold(2, {**ROW, **changes})
    assert isinstance(found, Held), found
    return found


def why(book: Book, **changes: str) -> str:
    found = Auditor(book).hold(2, {**ROW, **changes})
    assert isinstance(found, Unpriced), found
    return found.why


def write(folder: Path, *rows: dict[str, str]) -> Path:
    path = folder / "table.csv"
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, list(ROW))
        table.writeheader()
        table.writerows(rows)
    return path


def decode(book: Book, **flags: Any) -> float:
    return priced(book, LLAMA_8B, "h100-sxm", phase="decode", dtype="bf16", **flags).device_seconds


def prefill(book: Book, **flags: Any) -> float:
    return priced(book, LLAMA_8B, "h100-sxm", phase="prefill", dtype="bf16", **flags).device_seconds


# -- what a row means -------------------------------------------------------------------------------------------------


def test_a_time_a_token_is_a_decode_step_at_the_mean_context(book: Book) -> None:
    found = held(book)
    assert found.floor == decode(book, batch_size=8, context_len=1024 + 256)
    assert found.reading.seconds == 0.01
    assert held(book, metric="tpot_ms", value="0.01", unit="s").reading.seconds == 0.01


def test_of_a_closed_loop_one_sequence_is_all_that_must_run(book: Book) -> None:
    assert held(book, notes="batch_kind=closed-loop concurrency").floor == decode(book, batch_size=1, context_len=1280)


def test_tokens_a_second_of_one_user_and_of_the_batch(book: Book) -> None:
    one = held(book, metric="decode_tok_s_per_user", value="50", unit="tok/s/user")
    assert one.reading.seconds == 1 / 50
    all_of_them = held(book, metric="decode_tok_s_total", value="400", unit="tok/s")
    assert all_of_them.reading.seconds == 8 / 400
    assert one.floor == all_of_them.floor


def test_a_first_token_waits_for_its_prompt(book: Book) -> None:
    found = held(book, metric="ttft_ms", value="100", context_len="500")
    assert found.floor == prefill(book, batch_size=8, input_len=1024, cached_len=500)
    alone = held(book, metric="ttft_ms", value="100", notes="closed-loop")
    assert alone.floor == prefill(book, batch_size=1, input_len=1024)


def test_a_rate_of_prompt_tokens(book: Book) -> None:
    found = held(book, metric="prefill_tok_s", value="10000", unit="tok/s", batch_or_concurrency="2")
    assert found.reading.seconds == 1024 * 2 / 10000
    assert found.floor == prefill(book, batch_size=2, input_len=1024)


def test_a_static_batch_ends_to_end_is_a_prompt_and_its_tokens_one_after_another(book: Book) -> None:
    found = held(book, **END_TO_END, value="1000")
    assert found.reading.seconds == (1024 + 512) * 8 / 1000
    step, prompt = decode(book, batch_size=8, context_len=1280), prefill(book, batch_size=8, input_len=1024)
    assert found.floor == pytest.approx(prompt + 511 * step, rel=1e-12)
    output_alone = held(book, **{**END_TO_END, "notes": "batch_kind=static; tokens_counted=output"}, value="1000")
    assert output_alone.reading.seconds == 512 * 8 / 1000


def test_requests_that_come_and_go_may_share_their_steps(book: Book) -> None:
    # prompts of some ride along with the tokens of others, so that only the longer of the two is a bound
    found = held(book, **{**END_TO_END, "notes": "closed-loop; tokens_counted=output"}, value="1000")
    step, prompt = decode(book, batch_size=8, context_len=1280), prefill(book, batch_size=8, input_len=1024)
    assert found.floor == pytest.approx(max(prompt, 511 * step), rel=1e-12)


def test_without_a_batch_no_batch_is_too_large(book: Book) -> None:
    stated = held(book, **{**END_TO_END, "notes": ""}, value="1000", batch_or_concurrency="4096")
    unstated = held(book, **{**END_TO_END, "notes": ""}, value="1000", batch_or_concurrency="")
    assert unstated.ratio >= stated.ratio


def test_lengths_drawn_below_what_is_stated_are_shorter_on_average(book: Book) -> None:
    drawn = held(book, notes="batch_kind=static; lengths nominal (range ratio 0.8)")
    assert drawn.floor == decode(book, batch_size=8, context_len=921 + 460 // 2)


def test_an_unstated_cache_of_narrow_weights_may_be_of_8_bits(book: Book) -> None:
    stated = held(book, weight_dtype="FP8", kv_dtype="FP8")
    assert held(book, weight_dtype="FP8").floor == stated.floor
    assert held(book, weight_dtype="FP8", kv_dtype="FP16").floor > stated.floor


@pytest.mark.parametrize("devices", [2, 8])
def test_several_parts_are_one_with_all_their_rates(devices: int, book: Book) -> None:
    # weights 15.01 GB with one row of the embedding for each of 8, cache 8 x 1280 x 131072; N chips, N memories
    moved = 15_009_857_536 + 7 * 4096 * 2 + 8 * 1280 * 131_072
    on_chip = devices * (50 * 2**20 + 132 * 256 * 2**10)
    expected = (moved - on_chip) / (devices * 3.35e12)
    assert held(book, num_devices=str(devices)).floor == pytest.approx(expected, rel=1e-12)


# -- what a row cannot say --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"value": ""}, "value is missing or empty"),
        ({"value": "fast"}, "value 'fast': not a number"),
        ({"value": "-3"}, "value -3: not a positive, finite number"),
        ({"value": "nan"}, "value nan: not a positive, finite number"),
        ({"unit": "GB"}, "unit 'GB': no unit of tpot_ms (accepted: ms, s, us)"),
        ({"unit": "tok/s"}, "unit 'tok/s': no unit of tpot_ms (accepted: ms, s, us)"),
        ({"num_devices": "two"}, "num_devices 'two': not a whole number"),
        ({"num_devices": "inf"}, "num_devices 'inf': not a whole number"),
        ({"batch_or_concurrency": "1.5"}, "batch_or_concurrency '1.5': not a whole number"),
        ({"metric": "ttft_ms", "input_len": ""}, "input_len is missing or 0: a prefill has tokens"),
        ({**END_TO_END, "output_len": "0"}, "output_len is missing or 0"),
        ({"engine": "Ollama", "weight_dtype": ""}, "weight_dtype is empty: what Ollama runs comes in many formats"),
        ({"notes": "spec_decode=mtp"}, "speculative decoding (mtp): a step brings more than one token"),
        ({"metric": "ttft_ms", "notes": "prefix caching on"}, "prefix caching: not all of the input is processed"),
    ],
)
def test_an_impossible_cell_is_named(changes: dict[str, str], expected: str, book: Book) -> None:
    assert why(book, **changes) == expected


def test_an_unknown_name_offers_the_nearest(book: Book) -> None:
    assert "h100-sxm" in why(book, hardware="NVIDIA H1000 SXM")
    assert "Llama-3.1-8B" in why(book, model="meta-llama/Llama-3.1-9B")
    assert "fp8" in why(book, weight_dtype="fp88")
    assert why(book, metric="tps").startswith("metric 'tps': unknown (accepted: tpot_ms")


def test_names_that_tables_write(book: Book) -> None:
    assert part_id("NVIDIA H100 (variant not stated)", book) == "h100-sxm"
    assert part_id("NVIDIA GeForce RTX 4090 24GB", book) == "rtx-4090"
    assert model_id("llama-2-7b.Q4_K_M", book) == "meta-llama/Llama-2-7b-hf"
    assert model_id("Qwen3-30B-A3B-UD-Q4_K_XL", book) == "Qwen/Qwen3-30B-A3B"
    assert model_id("ggml-org/gpt-oss-20b-GGUF", book) == "openai/gpt-oss-20b"
    assert format_id("GGUF Q4_K_M", book) == "q4_k"
    assert format_id("GGUF MXFP4 (MoE)", book) == "mxfp4"
    assert format_id("", book) is None
    with pytest.raises(UnknownRecordError):
        part_id("", book)


# -- violations -------------------------------------------------------------------------------------------------------


def test_a_row_below_its_floor_is_explained_by_the_likeliest_wrong_input(book: Book) -> None:
    auditor = Auditor(book)
    # half of the floor: 8-bit weights would do, or two tokens a step, or two cards
    fast = held(book, value=str(decode(book, batch_size=8, context_len=1280) * 1e3 * 0.6))
    causes = auditor.likely(fast)
    assert causes[0] == "batch: 8 may not be the sequences that ran at once"
    assert causes[1] == "speculative decoding or MTP: possible with 1.67 tokens a step"
    assert "dtype: possible with fp8 weights and an 8-bit cache" in causes
    assert "tensor parallelism: possible on 2 parts, the row says 1" in causes


def test_the_rate_of_a_batch_is_no_rate_of_a_user(book: Book) -> None:
    step = decode(book, batch_size=8, context_len=1280)
    found = held(book, metric="decode_tok_s_per_user", unit="tok/s/user", value=str(5 / step))
    assert Auditor(book).likely(found)[0] == "aggregate: the value is of the batch of 8, not of one user"


def test_tokens_that_were_never_generated(book: Book) -> None:
    found = held(book, **END_TO_END, value="1000000")
    likely = Auditor(book).likely(found)
    assert likely[0] == f"early stop: no more than {found.ratio:.0%} of the output tokens fit into the time"


# -- a table ----------------------------------------------------------------------------------------------------------


def test_bad_lines_are_reported_and_the_rest_is_audited(tmp_path: Path, book: Book) -> None:
    path = write(tmp_path, ROW, {**ROW, "value": "0.1"}, {**ROW, "model": "no/such-model"})
    text = path.read_text().splitlines()
    text.insert(2, "a line,with too few cells")
    path.write_text("\n".join(text) + "\n")
    audit = Audit(book)
    audit.read(path)
    assert (audit.rows, audit.priced) == (4, 2)
    assert [(row.line, row.why.split(";")[0]) for row in audit.unpriced] == [
        (3, f"2 cells where the header has {len(ROW)} columns"),
        (5, "unknown model 'no/such-model' (all: flopmap models)"),
    ]
    (violation,) = audit.worst
    assert (violation.line, violation.hardware, violation.value) == (4, "h100-sxm", "0.1")
    assert violation.ratio == pytest.approx(1e-4 / decode(book, batch_size=8, context_len=1280))


def test_a_cell_of_several_lines_does_not_shift_the_count(tmp_path: Path, book: Book) -> None:
    audit = Audit(book)
    audit.read(write(tmp_path, {**ROW, "notes": "batch_kind=static\ntwo lines"}, {**ROW, "value": "x"}))
    assert [row.line for row in audit.unpriced] == [4]  # header 1, the first row 2 and 3


def test_a_size_in_gb_that_can_only_be_in_gib_is_suspected(tmp_path: Path, book: Book) -> None:
    # 8,030,261,248 parameters of 2 bytes are 16.06 GB, and 14.96 GiB
    audit = Audit(book)
    sized = {**ROW, "notes": "batch_kind=static; gguf_file_size_GB=14.96"}
    audit.read(write(tmp_path, sized, {**ROW, "notes": "batch_kind=static; gguf_file_size_GB=16.06"}))
    (remark,) = audit.remarks
    assert (remark.line, remark.why) == (2, "14.96 GB is less than the 16.06 GB of the weights: GiB is suspected")


def test_the_floor_of_a_row_is_written_in_its_own_unit(book: Book) -> None:
    time = held(book)
    assert added(time, book)["floor"] == pytest.approx(time.floor * 1e3)  # ms
    rate = held(book, metric="decode_tok_s_total", value="400", unit="tok/s")
    columns = added(rate, book)
    assert columns["floor"] == pytest.approx(8 / rate.floor)  # the most tokens a second
    assert columns["estimate_high"] < columns["estimate"] < columns["estimate_low"] < columns["floor"]
    assert "estimate" not in added(held(book, num_devices="2"), book)
    assert added(Unpriced(2, "no"), book) == {"not_priced": "no"}
