"""The laws of kernel times against the same account in plain Python, at crooked numbers on both sides of every bend."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

import pytest

from tests.physics.support import by_law

if TYPE_CHECKING:
    from flopmap.records.book import Book

Values = dict[str, float]

SHARED = {
    "bandwidth": 3.1, "matrix_peak": 70.0, "compute_units": 7.0, "memory_fraction": 0.81, "peak_fraction": 0.63,
    "hot_bytes": 900.0, "hot_speed": 2.3, "overlap": 1.7, "quantisation": 0.37, "lead": 5.3, "feed": 4.1,
    "fixed_seconds": 11.0, "row_seconds": 0.29, "head_seconds": 0.13, "expert_seconds": 0.71,
    "combine_seconds": 17.0, "conversion_bytes": 1.9, "act_bytes": 1.5, "weight_bytes": 0.7, "kv_bytes": 1.1,
    "tile1_rows": 3.0, "tile1_columns": 5.0, "tile2_rows": 8.0, "tile2_columns": 6.0, "tile3_rows": 13.0,
    "tile3_columns": 11.0,
}  # fmt: skip


def with_bytes(v: Values, moved: float, tile_seconds: float) -> float:
    """Bytes and tiles together."""
    hot = 1 / (1 + (moved / v["hot_bytes"]) ** 16)
    memory = moved * (1 - hot) / (v["bandwidth"] * v["memory_fraction"]) + moved * hot / (
        v["bandwidth"] * v["hot_speed"]
    )
    return float((memory ** v["overlap"] + tile_seconds ** v["overlap"]) ** (1 / v["overlap"]))


def rounded(v: Values, waves: float) -> float:
    return waves + v["quantisation"] * (ceil(waves) - waves)


def tile(v: Values, shape: int) -> float:
    """Seconds of a step of a tile's inner loop."""
    rows, columns = v[f"tile{shape}_rows"], v[f"tile{shape}_columns"]
    products = 2 * rows * columns / (v["matrix_peak"] * v["peak_fraction"])
    operands = (rows * v["act_bytes"] + columns * v["weight_bytes"]) / (v["bandwidth"] * v["feed"])
    return max(products, operands) * v["compute_units"]


def plain(v: Values) -> float:
    moved = v["weights"] + v["kv_traffic"] + v["activations"]
    return v["fixed_seconds"] + with_bytes(v, moved, v["matrix"] / (v["matrix_peak"] * v["peak_fraction"]))


def gemm(v: Values) -> float:
    times = []
    for shape in (1, 2, 3):
        tiles = ceil(v["t"] / v[f"tile{shape}_rows"]) * ceil(v["d_out"] / v[f"tile{shape}_columns"])
        splits = max(1.0, min(v["d_in"] / v["split_length"], v["compute_units"] / tiles))
        turns = max(1.0, rounded(v, tiles / v["compute_units"]))
        times.append(turns * (v["d_in"] / splits + v["lead"]) * tile(v, shape))
    moved = v["d_in"] * v["d_out"] * v["weight_bytes"] + v["t"] * v["d_in"] * v["act_bytes"]
    moved += v["t"] * v["d_out"] * v["act_bytes"]
    before = v["t"] * v["row_seconds"] + v["t"] * v["d_in"] * v["conversion_bytes"] / v["bandwidth"]
    return v["fixed_seconds"] + before + with_bytes(v, moved, min(times))


def experts(v: Values) -> float:
    pairs = float(v["t"] * v["top_k"] * v["ranks"] ** v["crowding"])
    touched = min(v["experts"] * (1 - (1 - v["top_k"] / v["experts"]) ** (v["t"] * v["evenness"])), pairs)
    times = []
    for shape in (1, 2):
        whole = 0.0
        for outputs, depth in (((1 + v["gated"]) * v["width"], v["d_in"]), (v["d_in"], v["width"])):
            tiles = touched * ceil(pairs / touched / v[f"tile{shape}_rows"]) * ceil(outputs / v[f"tile{shape}_columns"])
            whole += max(1.0, rounded(v, tiles / v["compute_units"])) * (depth + v["lead"]) * tile(v, shape)
        times.append(whole)
    matrices = 2 + v["gated"]
    moved = touched * matrices * v["d_in"] * v["width"] * v["weight_bytes"]
    moved += pairs * (2 * v["d_in"] + matrices * v["width"]) * v["act_bytes"]
    before = v["t"] * v["row_seconds"] + v["experts"] * v["expert_seconds"]
    before += pairs * v["d_in"] * v["conversion_bytes"] / v["bandwidth"]
    return v["fixed_seconds"] + before + with_bytes(v, moved, min(times))


def decode(v: Values, *, latent: bool = False) -> float:
    keys = v["cached"] / v["seqs"]
    if latent:
        groups, group_heads = 1.0, v["heads"]
        row, output = v["latent"] + v["rope_dim"], 2 * v["latent"] + v["rope_dim"]
        flop = 2 * output
    else:
        groups, group_heads = v["kv_heads"], v["heads"] / v["kv_heads"]
        row = output = v["head_dim"] + v["value_dim"]
        flop = 2 * row
    places = v["compute_units"] * v["residents"]
    tiles = v["seqs"] * groups * ceil(group_heads / v["tile_heads"])
    splits = max(1.0, min(keys / v["split_length"], places / tiles))
    products = v["tile_heads"] * flop / (v["matrix_peak"] * v["peak_fraction"])
    step = places * max(products, row * v["kv_bytes"] / (v["bandwidth"] * v["feed"]))
    time = max(1.0, rounded(v, tiles / places)) * (keys / splits + v["lead"]) * step
    moved = v["cached"] * groups * row * v["kv_bytes"] + v["seqs"] * v["heads"] * output * v["act_bytes"]
    combined = min(1.0, max(0.0, keys / v["split_length"] - 1))
    before = v["seqs"] * (v["row_seconds"] + v["heads"] * v["head_seconds"]) + combined * v["combine_seconds"]
    return v["fixed_seconds"] + before + with_bytes(v, moved, time)


def prefill(v: Values, *, latent: bool = False) -> float:
    width = v["nope_dim"] + v["rope_dim"] + v["value_dim"] if latent else v["head_dim"] + v["value_dim"]
    key_heads = v["heads"] if latent else v["kv_heads"]
    places = v["compute_units"] * v["residents"]
    waves = v["seqs"] * v["heads"] * ceil(v["t"] / v["seqs"] / v["tile_rows"]) / places
    step = v["tile_rows"] * (2 * width + v["softmax_flop"]) * places / (v["matrix_peak"] * v["peak_fraction"])
    mean = rounded(v, waves) * (v["pairs"] / v["t"] + v["lead"])
    last = v["alone"] * (v["cached"] / v["seqs"] + v["lead"])
    moved = width * v["t"] * v["heads"] * v["act_bytes"]
    moved += width * (v["kv"] + v["t"]) * key_heads * v["kv_bytes"] * v["kv_passes"]
    before = v["seqs"] * (v["row_seconds"] + v["heads"] * v["head_seconds"])
    return v["fixed_seconds"] + before + with_bytes(v, moved, step * max(mean, last))


def collective(v: Values, *, sums: bool = False) -> float:
    others, sent = v["ranks"] - 1, v["message"] * (v["ranks"] - 1) / v["ranks"] * (2 if sums else 1)
    rate = float(v["link_bandwidth"] * v["link_fraction"] * (2 / v["ranks"]) ** v["crowding"])
    once = v["fixed_seconds"] + others * v["rank_seconds"] + v["message"] * others / (rate * v["once_speed"])
    return min(once, v["around_fixed_seconds"] + others * v["rank_seconds"] + sent / rate)


PLAIN = {"weights": 310.0, "kv_traffic": 170.0, "activations": 90.0, "matrix": 9100.0}
GEMM = {"t": 23.0, "d_in": 37.0, "d_out": 29.0, "split_length": 9.0}
EXPERTS = {
    "t": 19.0, "d_in": 31.0, "width": 17.0, "gated": 1.0, "experts": 12.0, "top_k": 2.0, "ranks": 3.0,
    "crowding": 0.4, "evenness": 0.8,
}  # fmt: skip
DECODE = {
    "cached": 330.0, "seqs": 3.0, "heads": 12.0, "kv_heads": 4.0, "head_dim": 5.0, "value_dim": 3.0, "latent": 9.0,
    "rope_dim": 2.0, "residents": 1.6, "tile_heads": 2.0, "split_length": 40.0,
}  # fmt: skip
PREFILL = {
    "t": 46.0, "seqs": 2.0, "cached": 60.0, "kv": 14.0, "pairs": 800.0, "heads": 6.0, "kv_heads": 3.0,
    "head_dim": 5.0, "value_dim": 4.0, "nope_dim": 6.0, "rope_dim": 2.5, "residents": 1.3, "tile_rows": 7.0,
    "softmax_flop": 3.3, "kv_passes": 1.7, "alone": 1.4,
}  # fmt: skip
COLLECTIVE = {
    "message": 210.0, "ranks": 5.0, "link_bandwidth": 13.0, "link_fraction": 0.6, "crowding": 0.3,
    "once_speed": 0.45, "around_fixed_seconds": 3.0, "rank_seconds": 0.9,
}  # fmt: skip
TINY, ONE_TILE = (
    {"hot_bytes": 1e9},
    {f"tile{shape}_{side}": 64.0 for shape in (1, 2, 3) for side in ("rows", "columns")},
)
SLOW, FAST = {"bandwidth": 0.02}, {"bandwidth": 900.0}
EVEN = {"hot_bytes": 570.0}


def agree(book: Book, law: str, expected: float, values: Values) -> None:
    assert by_law(book, law, "seconds", **{**SHARED, **values}) == pytest.approx(expected, rel=1e-12)


def test_a_kernel_in_plain_python(book: Book) -> None:
    for other in ({}, TINY, SLOW, FAST, EVEN):
        v = {**SHARED, **PLAIN, **other}
        agree(book, "kernel-time", plain(v), v)


def test_a_gemm_in_plain_python(book: Book) -> None:
    shapes = ({"tile1_rows": 23.0}, {"tile2_columns": 29.0}, {"tile3_rows": 23.0, "tile3_columns": 29.0})
    few = {**ONE_TILE, "split_length": 1.0}
    longer = {**ONE_TILE, "split_length": 100.0}
    for other in ({}, TINY, SLOW, FAST, *shapes, ONE_TILE, few, longer, *({**FAST, **shape} for shape in shapes)):
        v = {**SHARED, **GEMM, **other}
        agree(book, "gemm-time", gemm(v), v)
    for best in (1, 2, 3):  # each shape alone is the fastest once
        huge = {name: 400.0 for name in ONE_TILE if str(best) not in name}
        for other in (SLOW, FAST, {"t": 100.0, **FAST}):
            v = {**SHARED, **GEMM, **huge, **other}
            agree(book, "gemm-time", gemm(v), v)


def test_experts_in_plain_python(book: Book) -> None:
    for best in (1, 2):
        huge = {name: 400.0 for name in ONE_TILE if str(best) not in name}
        for other in ({}, TINY, SLOW, FAST, {"t": 1.0}, {"gated": 0.0}, {"t": 400.0, **FAST}, {"t": 1.0, **FAST}):
            v = {**SHARED, **EXPERTS, **huge, **other}
            agree(book, "experts-time", experts(v), v)


def test_decode_attention_in_plain_python(book: Book) -> None:
    few = {"seqs": 1.0, "kv_heads": 1.0, "heads": 2.0}
    others: tuple[Values, ...] = (
        {},
        TINY,
        SLOW,
        FAST,
        few,
        {**few, **FAST},
        {"split_length": 150.0},
        {"split_length": 80.0},
        {"tile_heads": 64.0},
    )
    for other in (*others, {"seqs": 30.0, "cached": 900.0, **FAST}, {**few, "split_length": 1.0, **FAST}):
        v = {**SHARED, **DECODE, **other}
        agree(book, "decode-attention-time", decode(v), v)
        agree(book, "decode-latent-attention-time", decode(v, latent=True), v)


def test_prefill_attention_in_plain_python(book: Book) -> None:
    short = {"seqs": 1.0, "t": 5.0, "pairs": 100.0, "heads": 2.0, "kv_heads": 1.0}
    for other in ({}, TINY, SLOW, FAST, short, {**short, **FAST}, {"tile_rows": 40.0}):
        v = {**SHARED, **PREFILL, **other}
        agree(book, "prefill-attention-time", prefill(v), v)
        agree(book, "prefill-latent-attention-time", prefill(v, latent=True), v)


def test_collectives_in_plain_python(book: Book) -> None:
    for other in ({}, {"message": 3.0}, {"ranks": 2.0}, {"around_fixed_seconds": 900.0}):
        v = {**SHARED, **COLLECTIVE, **other}
        agree(book, "collective-time", collective(v), v)
        agree(book, "all-reduce-time", collective(v, sums=True), v)
