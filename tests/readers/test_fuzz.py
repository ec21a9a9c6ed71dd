"""Whatever the bytes are, a reader gives runs of finite figures or the documented error."""

from __future__ import annotations

import math

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flopmap.diagnosis.errors import ReadingError
from flopmap.diagnosis.readers.read import read_bytes
from tests.readers.support import NAMES, content

TEXTS = [content(name) for name in NAMES]
WORDS = sorted({word for text in TEXTS for word in text.split()})
LINES = sorted({line for text in TEXTS for line in text.split(b"\n")})
ODD = (
    b"inf",
    b"nan",
    b"-1",
    b"1e999",
    b"9" * 400,
    b"\x00",
    b"\xff",
    b"{",
    b"}",
    b"[",
    b'"',
    b"|",
    b",",
    b":",
    b"%",
    b"1,5",
    b"",
)


def check(data: bytes) -> None:
    try:
        runs = read_bytes(data)
    except ReadingError:
        return
    assert runs
    assert all(math.isfinite(figure.value) and figure.value >= 0 for run in runs for figure in run.measurements)


@settings(max_examples=1500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(TEXTS),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 12), st.sampled_from((*ODD, *WORDS))), max_size=6),
)
def test_a_spoilt_fixture_is_read_or_refused(text: bytes, edits: list[tuple[float, int, bytes]]) -> None:
    for where, length, word in edits:
        at = int(where * len(text))
        text = text[:at] + word + text[at + length :]
    check(text)


@settings(max_examples=700, deadline=None)
@given(st.lists(st.sampled_from(LINES), max_size=30))
def test_lines_of_all_formats_in_any_order_are_read_or_refused(lines: list[bytes]) -> None:
    check(b"\n".join(lines))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    check(data)
