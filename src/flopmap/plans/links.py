"""The links that a group of parts talks over, by level."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopmap.plans.plan import Wire

if TYPE_CHECKING:
    from flopmap.records.types import Figure, Part
    from flopmap.step import Level


def domain(part: Part, parts: int) -> int:
    """How many of some parts the widest scale-up link joins: all of them, where only a host does."""
    joined = [link.domain for link in part.links if link.level == "scale-up"]
    if not joined or 1 in joined:
        return parts
    return min(parts, max(joined))


def wires(part: Part, parts: int) -> tuple[Wire, ...]:
    """The links by level: the narrowest scale-up link that joins a domain, and what leads beyond it.

    Where there is no link of a level, all that parts send passes the link to their host, which bounds it.
    """
    inside = domain(part, parts)
    up = [link for link in part.links if link.level == "scale-up" and (link.domain == 1 or link.domain >= inside)]
    out = [link for link in part.links if link.level == "scale-out"]
    host = part.host_link_bytes_per_second
    nearest = min(up, key=lambda link: link.domain, default=None)
    widest = max(out, key=lambda link: link.value, default=None)
    found = (
        [_wire("scale-up", nearest.name, nearest, nearest.latency_seconds)] if nearest else [_host("scale-up", host)]
    )
    if inside < parts:
        found += (
            [_wire("scale-out", widest.name, widest, widest.latency_seconds)] if widest else [_host("scale-out", host)]
        )
    return tuple(found)


def _host(level: Level, host: Figure | None) -> Wire:
    return _wire(level, "host link" if host else "no link on record", host, None)


def _wire(level: Level, name: str, figure: Figure | None, latency: Figure | None) -> Wire:
    return Wire(
        level=level,
        name=name,
        bytes_per_second=figure.value if figure else None,
        latency_seconds=latency.value if latency else None,
        source=figure.source if figure else "",
    )
