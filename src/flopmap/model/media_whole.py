"""Processors that resize an image and do not cut it."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from flopmap.model.media import Medium, MediumError, Pass, Tower

THINNEST = 200  # the ratio of sides from which processors refuse an image


class Square(msgspec.Struct, frozen=True, kw_only=True):
    """Every image is made a square of ``side`` pixels, and ``tokens`` tokens; ``around`` are added by the processor."""

    tower: Tower
    side: int
    tokens: int
    around: int = 0

    def of(self, _width: int, _height: int, frames: int | None = None) -> Medium:
        """The medium of an image; of a video frame by frame."""
        count = frames or 1
        passes = self.tower.passes((self.side // self.tower.patch) ** 2, count, self.tokens)
        return Medium(passes=passes, tokens=count * (self.tokens + self.around))


class Native(msgspec.Struct, frozen=True, kw_only=True):
    """Sides are rounded to whole tokens, between ``least`` and ``most`` pixels (Qwen's smart_resize).

    ``temporal`` frames are one patch deep. With a ``window``, most layers attend within squares of that many tokens of
    the connector, smaller at the borders. ``deep`` counts the pixels of all frames against the limits, of images or of
    videos, whose limits are ``video``; frames see each other in the tower where they go ``together``. An image thinner
    than a token is first made one wide, with sides rounded where it is ``raised``.
    """

    tower: Tower
    least: int
    most: int
    temporal: int = 1
    window: int = 0
    deep: Literal["never", "video", "always"] = "never"
    raised: bool = False
    together: bool = False
    video: tuple[int, int] | None = None

    def of(self, width: int, height: int, frames: int | None = None) -> Medium:
        """The medium of an image, or of a video of ``frames`` frames."""
        factor = self.tower.patch * self.tower.merge
        depth = -(-(frames or 1) // self.temporal)
        limits = self.video if self.video and frames else (self.least, self.most)
        deep = self.deep == "always" or (self.deep == "video" and frames is not None)
        if self.raised or deep:
            width, height = _at_least(width, height, factor, rounded=self.raised)
        counted = (frames or self.temporal) if deep else 1
        width, height = smart_size(width, height, factor, limits, (counted, self.temporal if deep else 1))
        rows, columns = height // factor, width // factor
        patches, sequences = rows * columns * self.tower.merge**2, depth
        if self.together:
            patches, sequences = patches * depth, 1
        passes = self.tower.passes(patches, sequences)
        if self.window:
            passes += _windows(rows, columns, self.window, self.tower.merge**2, depth)
        return Medium(passes=passes, tokens=depth * rows * columns)


def _at_least(width: int, height: int, factor: int, *, rounded: bool) -> tuple[int, int]:
    """An image of which both sides hold a token."""
    if not rounded and min(width, height) < factor:
        scale = max(factor / height, factor / width)
        return int(width * scale), int(height * scale)
    if height < factor:
        width, height = round(width * factor / height), factor
    if width < factor:
        width, height = factor, round(height * factor / width)
    return width, height


def smart_size(
    width: int, height: int, factor: int, limits: tuple[int, int], depth: tuple[int, int] = (1, 1)
) -> tuple[int, int]:
    """Width and height as multiples of ``factor``, with pixels between the ``limits``.

    ``depth`` is frames that count, and the number of them that is one patch deep.
    """
    (least, most), (frames, temporal) = limits, depth
    if max(width, height) > THINNEST * min(width, height):
        raise MediumError(f"{width}x{height}: one side is more than {THINNEST} times the other")
    wide, high = round(width / factor) * factor, round(height / factor) * factor
    whole = round(frames / temporal) * temporal
    if whole * wide * high > most:
        shrink = math.sqrt(frames * height * width / most)
        wide = max(factor, math.floor(width / shrink / factor) * factor)
        high = max(factor, math.floor(height / shrink / factor) * factor)
    elif whole * wide * high < least:
        grow = math.sqrt(least / (frames * height * width))
        wide, high = math.ceil(width * grow / factor) * factor, math.ceil(height * grow / factor) * factor
    return wide, high


def _windows(rows: int, columns: int, window: int, patches: int, depth: int) -> tuple[Pass, ...]:
    """The windows that a grid is cut into: whole ones, and what is left at the right and at the bottom."""
    sides = [{window: length // window, length % window: 1} for length in (rows, columns)]
    shapes: dict[int, int] = {}
    for high, many in sides[0].items():
        for wide, more in sides[1].items():
            shapes[high * wide] = shapes.get(high * wide, 0) + many * more
    return tuple(
        Pass("vision.window", area * patches, count * depth) for area, count in shapes.items() if area and count
    )


class Fitted(msgspec.Struct, frozen=True, kw_only=True):
    """No image is enlarged; the longer side has ``most`` pixels at most, sides are rounded up to tokens (Pixtral).

    A token ends each row, ``rows_end`` says. ``patches`` limits patches in all and ``side`` those of a side instead,
    where the processor pads and keeps the ratio (MoonViT).
    """

    tower: Tower
    most: int = 0
    patches: int = 0
    side: int = 0
    rows_end: bool = False
    temporal: int = 1

    def of(self, width: int, height: int, frames: int | None = None) -> Medium:
        """The medium of an image, or of a video."""
        factor = self.tower.patch * self.tower.merge
        if frames and not self.most:
            raise MediumError(f"{frames}: videos of this processor are not understood")
        if self.most:
            ratio = max(height / self.most, width / self.most)
            if ratio > 1:
                width, height = math.floor(width / ratio), math.floor(height / ratio)
        else:
            width, height = self._within(width, height)
        rows, columns = -(-height // factor), -(-width // factor)
        passes = self.tower.passes(rows * columns * self.tower.merge**2, frames or 1)
        return Medium(passes=passes, tokens=(frames or 1) * rows * (columns + self.rows_end))

    def _within(self, width: int, height: int) -> tuple[int, int]:
        patch, longest = self.tower.patch, self.side * self.tower.patch
        patches = max(1.0, height // patch) * max(1.0, width // patch)
        scale = min(1.0, math.sqrt(self.patches / patches), longest / height, longest / width)
        return min(max(1, int(width * scale)), longest), min(max(1, int(height * scale)), longest)


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """The largest grid of the image's shape with at most ``tokens`` tokens, which the tower pads it to (Gemma 4)."""

    tower: Tower
    tokens: int

    def of(self, width: int, height: int, frames: int | None = None) -> Medium:
        """The medium of an image, or of a video."""
        factor, count = self.tower.patch * self.tower.merge, frames or 1
        scale = math.sqrt(self.tokens * factor**2 / (height * width))
        rows, columns = math.floor(scale * height / factor), math.floor(scale * width / factor)
        if rows == 0 == columns:
            raise MediumError(f"{width}x{height}: there is no grid of {self.tokens} tokens of this shape")
        if rows == 0:
            rows, columns = 1, min(width // height, self.tokens)
        elif columns == 0:
            rows, columns = min(height // width, self.tokens), 1
        passes = self.tower.passes(self.tokens * self.tower.merge**2, count, rows * columns)
        return Medium(passes=passes, tokens=count * rows * columns)


class Resampled(msgspec.Struct, frozen=True, kw_only=True):
    """A resampler makes ``latents`` tokens of an image of any grid, between two tokens (Idefics 2).

    Sides lie between ``shortest`` and ``longest`` pixels; ``square`` has one side for all. The queries attend to the
    patches, and to themselves (``selves``). ``split``: four quarters and the whole image.
    """

    tower: Tower
    latents: int
    shortest: int = 0
    longest: int = 0
    square: int = 0
    split: bool = False
    selves: bool = False

    def of(self, width: int, height: int, frames: int | None = None) -> Medium:
        """The medium of an image, or of a video frame by frame."""
        wide, high = (self.square, self.square) if self.square else self._resized(width, height)
        sizes = [(wide, high, frames or 1)]
        if self.split:
            sizes.append((wide // 2, high // 2, 4 * (frames or 1)))
        passes: tuple[Pass, ...] = ()
        for across, down, count in sizes:
            patches = (across // self.tower.patch) * (down // self.tower.patch)
            attended = patches + self.latents * self.selves
            passes += (Pass("vision", patches, count), Pass("connector", self.latents, count, attended))
            passes += (Pass("context", attended, count),) if self.selves else ()
        tokens = sum(count for *_, count in sizes) * (self.latents + self.selves)
        return Medium(passes=passes, tokens=tokens + self.selves * (frames or 1))

    def _resized(self, width: int, height: int) -> tuple[int, int]:
        ratio = width / height
        if width >= height and width > self.longest:
            width, height = self.longest, int(self.longest / ratio)
        elif height > width and height > self.longest:
            width, height = int(self.longest * ratio), self.longest
        return max(width, self.shortest), max(height, self.shortest)
