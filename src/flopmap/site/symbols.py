"""Where a slider of a symbol begins, ends and stands: ranges of what people run, and no statement about any of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from flopmap.records.book import Book

# low, high and where it stands; whole numbers make a slider of whole steps
RANGES: dict[str, tuple[float, float, float]] = {
    "t": (1, 65536, 8),
    "tokens": (1, 65536, 8),
    "seqs": (1, 4096, 8),
    "logits": (1, 4096, 8),
    "pairs": (1, 10**9, 16384),
    "square": (1, 10**9, 16384),
    "crossed": (1, 10**9, 16384),
    "kv": (1, 10**8, 16376),
    "cached": (1, 10**8, 16384),
    "remembered": (1, 10**7, 4096),
    "written": (1, 65536, 8),
    "new": (1, 131072, 1024),
    "past": (1, 1048576, 2047),
    "memory": (1, 65536, 1024),
    "window": (2, 131072, 4096),
    "positions": (1, 131072, 1),
    "d_in": (64, 65536, 4096),
    "d_out": (64, 262144, 4096),
    "width": (64, 65536, 4096),
    "norm_width": (64, 65536, 4096),
    "rows": (256, 524288, 131072),
    "vocab": (256, 524288, 131072),
    "heads": (1, 256, 32),
    "kv_heads": (1, 128, 8),
    "head_dim": (16, 512, 128),
    "value_dim": (16, 512, 128),
    "rotary_dim": (16, 512, 128),
    "nope_dim": (16, 512, 128),
    "rope_dim": (8, 256, 64),
    "latent": (64, 2048, 512),
    "experts": (1, 512, 128),
    "top_k": (1, 32, 8),
    "touched": (1, 512, 64),
    "loras": (1, 256, 8),
    "rank": (1, 512, 16),
    "channels": (64, 65536, 8192),
    "kernel": (1, 16, 4),
    "stride": (1, 16, 1),
    "per_channel": (1, 1024, 1),
    "rate": (1, 256, 4),
    "buffer": (0, 1024, 4),
    "state_elements": (1024, 10**7, 524288),
    "launches": (1, 10000, 500),
    "block": (1, 1024, 32),
    "denoising_steps": (1, 1024, 32),
    "drafted": (1, 16, 3),
    "group": (1, 1024, 128),
    "acceptance": (0.0, 1.0, 0.7),
    "act_bytes": (0.5, 4.0, 2.0),
    "weight_bytes": (0.25, 4.0, 2.0),
    "kv_bytes": (0.25, 4.0, 2.0),
    "state_bytes": (0.5, 8.0, 4.0),
    "word_bytes": (1.0, 4.0, 2.0),
    "bits": (1.0, 32.0, 4.0),
    "scale_bits": (0.0, 32.0, 16.0),
    "zero_bits": (0.0, 16.0, 4.0),
    "state_flop": (1.0, 16.0, 6.0),
    "state_exps": (0.0, 4.0, 1.0),
    "clock_ratio": (1.0, 1.5, 1.08),
    "floor_ratio": (1.0, 10.0, 2.0),
    "exp_vector_flop": (1.0, 16.0, 4.0),
}
# by unit, for what the table above does not name
BY_UNIT: dict[str, tuple[float, float, float]] = {
    "byte": (1e3, 1e12, 1e10),
    "byte/sequence": (1e3, 1e11, 3e8),
    "byte/s": (1e10, 1e14, 3.35e12),
    "FLOP": (1e6, 1e17, 1e13),
    "FLOP/s": (1e12, 1e16, 9.895e14),
    "op": (1e3, 1e14, 1e9),
    "op/s": (1e11, 1e14, 3.865e12),
    "s": (1e-6, 10.0, 0.01),
    "s/launch": (1e-7, 1e-4, 2e-6),
}
OTHERWISE = (0.0, 1.0, 1.0)


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """A slider of a symbol; ``whole`` moves in whole numbers, ``log`` by ratios."""

    name: str
    unit: str
    meaning: str
    low: float
    high: float
    value: float
    whole: bool
    log: bool


def ranges(names: Iterable[str], book: Book, given: Mapping[str, float]) -> list[Range]:
    """The sliders of symbols in the glossary's order; ``given`` says where those stand that a claim gives."""
    wanted = set(names)
    return [_range(name, book, given) for name in book.glossary.symbols if name in wanted]


def _range(name: str, book: Book, given: Mapping[str, float]) -> Range:
    symbol = book.glossary.symbols[name]
    flag = symbol.meaning.startswith("1 ")
    low, high, stands = (0, 1, 1) if flag else RANGES.get(name) or BY_UNIT.get(symbol.unit, OTHERWISE)
    value = given.get(name, stands if symbol.value is None else symbol.value)
    whole = isinstance(low, int) and isinstance(high, int) and float(value).is_integer()
    low, high = min(low, value), max(high, value)
    return Range(
        name=name,
        unit=symbol.unit,
        meaning=symbol.meaning,
        low=low,
        high=high,
        value=int(value) if whole else value,
        whole=whole,
        log=low > 0 and high / low > 20,  # noqa: PLR2004 - beyond it steps of one size are too coarse at the low end
    )
