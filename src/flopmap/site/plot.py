"""A roofline as SVG: FLOP a second over FLOP a byte, both in powers of ten, a line for each data type."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from flopmap.quantity import amount, significant
from flopmap.site.html import Markup, tag

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 56, 12, 40
INTENSITY = (1e-1, 1e4)
GAP = 13  # between labels


def roofline(bandwidth: float, peaks: Mapping[str, float]) -> Markup | None:
    """The picture, or None where no peak is known. ``bandwidth`` in byte/s, peaks in FLOP/s by data type."""
    if not peaks:
        return None
    low, high = INTENSITY[0] * bandwidth, max(peaks.values()) * 2

    def x(intensity: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * _share(intensity, *INTENSITY)

    def y(rate: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * _share(rate, low, high)

    drawn = [*_grid_across(x), *_grid_up(y, low, high)]
    last = math.inf
    for dtype, peak in sorted(peaks.items(), key=lambda item: item[1]):
        ridge = peak / bandwidth
        points = f"{x(INTENSITY[0]):.1f},{y(low):.1f} {x(ridge):.1f},{y(peak):.1f} {x(INTENSITY[1]):.1f},{y(peak):.1f}"
        title = tag("title", f"{dtype}: {amount(peak, 'FLOP/s')}, ridge {significant(ridge)} FLOP a byte")
        drawn.append(tag("polyline", title, points=points, class_="line"))
        last = min(y(peak) + 4, last - GAP)
        drawn.append(tag("text", dtype, x=f"{x(INTENSITY[1]) + 6:.1f}", y=f"{last:.1f}"))
    spoken = "; ".join(
        f"{dtype} {amount(peak, 'FLOP/s')}, ridge {significant(peak / bandwidth)}" for dtype, peak in peaks.items()
    )
    return tag(
        "svg",
        drawn,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=f"Roofline at {amount(bandwidth, 'B/s')}: {spoken}",
    )


def _share(value: float, low: float, high: float) -> float:
    """Where a value lies between two, by ratio."""
    return math.log(value / low) / math.log(high / low)


def _grid_across(x: Callable[[float], float]) -> list[Markup]:
    drawn = []
    for power in range(-1, 5):
        at = f"{x(10.0**power):.1f}"
        drawn.append(tag("line", x1=at, x2=at, y1=TOP, y2=HEIGHT - BOTTOM, class_="grid"))
        drawn.append(tag("text", significant(10.0**power), x=at, y=HEIGHT - BOTTOM + 16, text_anchor="middle"))
    label = tag("text", "FLOP a byte", x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 6, text_anchor="middle")
    return [*drawn, label]


def _grid_up(y: Callable[[float], float], low: float, high: float) -> list[Markup]:
    drawn = []
    for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1):
        at = f"{y(10.0**power):.1f}"
        drawn.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at, class_="grid"))
        drawn.append(tag("text", amount(10.0**power, "FLOP/s"), x=LEFT - 6, y=at, text_anchor="end"))
    return drawn
