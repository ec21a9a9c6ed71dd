"""What happens to texts on their way: other encodings, colours, prefixes, decimals, cuts, repetition, bombs."""

from __future__ import annotations

import gzip
import json
import re
import time

import pytest

from flopmap.diagnosis.errors import ReadingError
from flopmap.diagnosis.readers.read import KNOWN, read_bytes
from flopmap.diagnosis.readers.text import LARGEST
from tests.readers.support import NAMES, content, figures

JSON = [name for name in NAMES if name.endswith((".json", ".jsonl"))]
# a translated decimal would split the cells of CSV and SQL, and JSON has none
TRANSLATED = [name for name in NAMES if not name.endswith((".json", ".jsonl", ".csv", ".sql"))]
# lines with addresses, versions and times, which nobody translates, beside figures
LOGS = {"vllm-log.txt", "sglang-log.txt", "lmcache.txt", "metrics.txt", "sglang-metrics.txt", "nvidia-smi.txt"}
LINE_PREFIXES = [b"> ", b"[1,0]<stdout>:", b"vllm-1  | ", b"2026-01-01T10:00:00.123Z ", b"\x1b[32m"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_another_encoding_has_the_same_figures(name: str, encoding: str) -> None:
    assert figures(content(name).decode().encode(encoding)) == figures(content(name))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("newline", [b"\r\n", b"\r"])
def test_another_end_of_lines_has_the_same_figures(name: str, newline: bytes) -> None:
    assert figures(content(name).replace(b"\n", newline)) == figures(content(name))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("prefix", LINE_PREFIXES)
def test_what_stands_before_each_line_changes_nothing(name: str, prefix: bytes) -> None:
    damaged = b"\n".join(prefix + line for line in content(name).split(b"\n"))
    assert figures(damaged) == figures(content(name))


@pytest.mark.parametrize("name", NAMES)
def test_pasted_twice_is_read_once(name: str) -> None:
    once, twice = read_bytes(content(name)), read_bytes(content(name) + b"\n" + content(name))
    assert [run.measurements for run in twice] == [run.measurements for run in once]


@pytest.mark.parametrize("name", NAMES)
def test_compressed_is_the_same(name: str) -> None:
    assert figures(gzip.compress(content(name))) == figures(content(name))


@pytest.mark.parametrize("name", [name for name in TRANSLATED if name not in LOGS])
def test_translated_decimals_are_the_same_figures(name: str) -> None:
    text = content(name).decode()
    # 1234.5 as 1.234,5
    translated = re.sub(r"(?<![\w.,+])\d+\.\d+(?![\w.]*\d)", lambda match: _translate(match[0]), text)
    if translated == text:
        return
    if name == "mlx.txt":  # three decimals everywhere: 512,250 could be English
        with pytest.raises(ReadingError, match="512,250 may have decimals or thousands"):
            read_bytes(translated.encode())
        return
    assert figures(translated.encode()) == figures(text.encode())


def _translate(number: str) -> str:
    whole, _, part = number.partition(".")
    return f"{int(whole):,}".replace(",", ".") + "," + part


@pytest.mark.parametrize("name", NAMES)
def test_a_text_cut_off_has_some_of_the_figures_or_says_so(name: str) -> None:
    whole = {(tool, figure.name, figure.statistic) for tool, figure in figures(content(name))}
    data = content(name)
    for part in range(1, 10):
        try:
            left = read_bytes(data[: len(data) * part // 10])
        except ReadingError as error:
            assert "known" in str(error) or "nothing" in str(error)  # noqa: PT017 - a loop over cuts
        else:
            names = {(run.tool, figure.name, figure.statistic) for run in left for figure in run.measurements}
            assert {name[1:] for name in names} <= {name[1:] for name in whole}


@pytest.mark.parametrize("name", [name for name in JSON if name not in ("sglang-serving.jsonl", "requests.jsonl")])
def test_json_that_is_cut_off_is_named_with_its_line(name: str) -> None:
    with pytest.raises(ReadingError, match="line 1: JSON that is cut off"):
        read_bytes(content(name)[: len(content(name)) // 2])


def test_a_line_of_jsonl_that_is_cut_off_is_said_beside_the_others() -> None:
    (run,) = read_bytes(content("sglang-serving.jsonl")[:-200])
    assert run.notes[-1] == "JSON that starts in line 2 is cut off or damaged, and not read"


def test_a_mixed_paste_is_read_piece_by_piece() -> None:
    pieces = ("nvidia-smi.txt", "vllm-serve-old.txt", "llama-bench.md", "vllm-serve.json", "ollama.txt")
    mixed = figures(b"\n\n".join(content(name) for name in pieces))
    assert mixed == set().union(*(figures(content(name)) for name in pieces))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "nothing in it"),
        (b" \n", "nothing in it"),
        (b"hello\n", re.escape(f"no result in it that is known (known: {KNOWN})")),
        (b'{"a": 1}', "JSON of a kind that is not known"),
        (b"\x7fELF\x00\x00\x01", "a binary file"),
        (b'{"traceEvents": []}', "a trace of the torch profiler"),
        (b"[" * 100_000, "no result in it"),
        (b'{"a":' * 100_000, "line 1: JSON that is cut off"),
        (gzip.compress(b"hello world" * 100, mtime=0)[:30], "a gzip file that is cut off"),
        (b"\x1f\x8bxxxxxxxxxxxx", "a gzip file that is damaged"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(data: bytes, message: str) -> None:
    with pytest.raises(ReadingError, match=message) as caught:
        read_bytes(data)
    assert "\n" not in str(caught.value)


def test_a_gzip_bomb_is_stopped_at_the_limit() -> None:
    bomb = gzip.compress(bytes(LARGEST + 10), 9)
    assert len(bomb) < 100_000
    with pytest.raises(ReadingError, match="unpacks to more than 64 MiB"):
        read_bytes(bomb)


def test_numbers_that_are_none_are_no_figures() -> None:
    spoilt = json.loads(content("vllm-serve.json")) | {
        "mean_ttft_ms": float("nan"),
        "mean_tpot_ms": -1,
        "mean_itl_ms": 10**400,
    }
    (run,) = read_bytes(json.dumps(spoilt).encode())
    assert (run.get("ttft", "mean"), run.get("tpot", "mean"), run.get("itl", "mean")) == (None, None, None)


def test_a_long_log_is_read_in_little_time() -> None:
    line = content("vllm-log.txt").splitlines()[3]
    began = time.perf_counter()
    assert len(read_bytes(b"\n".join([line, b"x" * 4000] * 2000))) == 1
    assert time.perf_counter() - began < 10
