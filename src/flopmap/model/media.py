"""What a processor makes of one image, video or sound: passes through the towers, and tokens of the prompt.

Pure arithmetic on sizes: nothing is opened and no pixel is touched. A rule is what a family of processors does; its
fields are the settings of one of them.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import msgspec

MAX_SIDE = 100_000
MAX_FRAMES = 100_000
THINNEST = 200  # the ratio of sides from which processors refuse an image
ROUNDED = 7  # decimals that a processor rounds a side to before it cuts it


class MediumError(ValueError):
    """An image or video that a processor refuses. One line."""


class Pass(msgspec.Struct, frozen=True):
    """``count`` sequences of ``tokens`` tokens each through the stack (or the windows of one) of that name.

    They attend to ``memory`` tokens of another stack.
    """

    stack: str
    tokens: int
    count: int = 1
    memory: int = 0


class Medium(msgspec.Struct, frozen=True, kw_only=True):
    """One image, video or sound.

    ``tokens`` is what it adds to the prompt, separators included; ``memory`` what cross attention sees in their place.
    """

    passes: tuple[Pass, ...]
    tokens: int
    memory: int = 0


class Tower(msgspec.Struct, frozen=True, kw_only=True):
    """The stacks that an image goes through: ``extra`` tokens (class, registers) join the patches in the tower.

    ``merge`` is the side of the square of patches that the connector makes one token of. ``pooler``: one more token
    attends to all of a sequence.
    """

    patch: int
    merge: int = 1
    extra: int = 0
    pooler: bool = False

    def passes(self, patches: int, count: int = 1, merged: int | None = None) -> tuple[Pass, ...]:
        """``count`` sequences of ``patches`` patches; the connector makes ``merged`` tokens of each."""
        first = (Pass("patches", patches, count), Pass("vision", patches + self.extra, count))
        tokens = patches // self.merge**2 if merged is None else merged
        pooled = (Pass("pooler", 1, count, patches + self.extra),) if self.pooler else ()
        return (*(first if self.extra else first[1:]), *pooled, Pass("connector", tokens, count))


class Square(msgspec.Struct, frozen=True, kw_only=True):
    """Every image is made a square of ``side`` pixels, and ``tokens`` tokens; ``around`` are added by the processor."""

    tower: Tower
    side: int
    tokens: int
    around: int = 0
    default: tuple[int, int] = (1024, 1024)

    def of(self, _width: int, _height: int, frames: int | None = None) -> Medium:
        """The medium of an image; of a video frame by frame."""
        count = frames or 1
        passes = self.tower.passes((self.side // self.tower.patch) ** 2, count, self.tokens)
        return Medium(passes=passes, tokens=count * (self.tokens + self.around))


class Native(msgspec.Struct, frozen=True, kw_only=True):
    """Sides are rounded to whole tokens, between ``least`` and ``most`` pixels (Qwen's smart_resize).

    ``temporal`` frames are one patch deep. With a ``window``, most layers attend within squares of that many tokens of
    the connector, smaller at the borders. ``deep`` counts pixels of all frames against the limits; ``raised``: an
    image thinner than a token is first made one wide. ``video`` limits hold where there are frames.
    """

    tower: Tower
    least: int
    most: int
    temporal: int = 1
    window: int = 0
    deep: bool = False
    raised: bool = False
    video: tuple[int, int] | None = None
    default: tuple[int, int] = (1024, 1024)

    def of(self, width: int, height: int, frames: int | None = None) -> Medium:
        """The medium of an image, or of a video of ``frames`` frames."""
        factor = self.tower.patch * self.tower.merge
        depth = -(-(frames or 1) // self.temporal)
        least, most = self.video if self.video and frames else (self.least, self.most)
        counted = depth * self.temporal if self.deep else 1
        if self.raised:
            width, height = _at_least(width, height, factor)
        width, height = smart_size(width, height, factor, least, most, counted)
        rows, columns = height // factor, width // factor
        passes = self.tower.passes(rows * columns * self.tower.merge**2, depth)
        if self.window:
            passes += _windows(rows, columns, self.window, self.tower.merge**2, depth)
        return Medium(passes=passes, tokens=depth * rows * columns)


def _at_least(width: int, height: int, factor: int) -> tuple[int, int]:
    """An image of which both sides hold a token."""
    if height < factor:
        width, height = round(width * factor / height), factor
    if width < factor:
        width, height = factor, round(height * factor / width)
    return width, height


def smart_size(width: int, height: int, factor: int, least: int, most: int, frames: int = 1) -> tuple[int, int]:
    """Width and height as multiples of ``factor``, with ``least`` to ``most`` pixels over ``frames`` frames."""
    if max(width, height) > THINNEST * min(width, height):
        raise MediumError(f"{width}x{height}: one side is more than {THINNEST} times the other")
    wide, high = round(width / factor) * factor, round(height / factor) * factor
    if frames * wide * high > most:
        shrink = math.sqrt(frames * height * width / most)
        wide = max(factor, math.floor(width / shrink / factor) * factor)
        high = max(factor, math.floor(height / shrink / factor) * factor)
    elif frames * wide * high < least:
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
    default: tuple[int, int] = (1024, 1024)

    def of(self, width: int, height: int, frames: int | None = None) -> Medium:
        """The medium of an image, or of a video."""
        factor = self.tower.patch * self.tower.merge
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


class Anyres(msgspec.Struct, frozen=True, kw_only=True):
    """LLaVA-NeXT: the whole image, and tiles of the best of ``grids`` (height, width) without what pads it.

    Every row of tiles' tokens ends with a newline. ``most`` tiles' worth of tokens are kept at most (0: all);
    ``pooled`` halves the side of a video's frames, and ``newline`` ends a video.
    """

    tower: Tower
    side: int
    grids: tuple[tuple[int, int], ...]
    most: int = 0
    pooled: bool = False
    newline: int = 0
    default: tuple[int, int] = (1024, 1024)

    def of(self, width: int, height: int, frames: int | None = None) -> Medium:
        """The medium of an image, or of a video."""
        across = self.side // self.tower.patch
        if frames:
            kept = -((-across // 2) ** 2) if self.pooled else across**2
            return Medium(passes=self.tower.passes(across**2, frames), tokens=frames * kept + self.newline)
        high, wide = best_grid(width, height, self.grids)
        tiles = 1 + (high // self.side) * (wide // self.side)
        rows, columns = across * (high // self.side), across * (wide // self.side)
        if width / height > columns / rows:
            rows -= (rows - int(round(height * (columns / width), ROUNDED))) // 2 * 2
        else:
            columns -= (columns - int(round(width * (rows / height), ROUNDED))) // 2 * 2
        kept = rows, columns
        if self.most:
            shrink = math.sqrt(rows * columns / (self.most * across**2))
            if shrink > SHRINKS:
                kept = int(rows // shrink), int(columns // shrink)
        tokens = kept[0] * kept[1] + kept[0] + across**2
        return Medium(passes=self.tower.passes(across**2, tiles), tokens=tokens)


SHRINKS = 1.1


def best_grid(width: int, height: int, grids: tuple[tuple[int, int], ...]) -> tuple[int, int]:
    """The (height, width) that keeps the most pixels of an image, and of those the one that wastes the fewest."""

    def kept(grid: tuple[int, int]) -> tuple[int, int]:
        scale = min(grid[1] / width, grid[0] / height)
        effective = min(int(width * scale) * int(height * scale), width * height)
        return effective, effective - grid[0] * grid[1]

    return max(grids, key=kept)


class Tiles(msgspec.Struct, frozen=True, kw_only=True):
    """A grid of up to ``most`` tiles of ``side`` pixels whose shape is nearest to the image's, and the whole of it.

    ``tokens`` are those of a tile, ``around`` those at the ends. ``fits`` chooses the grid by the least change of size
    instead (Llama 4), and ``marks`` separators between tiles and after rows. ``memory``: cross attention sees the
    tiles (of which there are ``most`` always, padded) and no thumbnail, the prompt one token.
    """

    tower: Tower
    side: int
    tokens: int
    least: int = 1
    most: int = 12
    around: int = 0
    of_tile: int = 0
    fits: bool = False
    marks: bool = False
    default: tuple[int, int] = (1024, 1024)

    def of(self, width: int, height: int, frames: int | None = None) -> Medium:
        """The medium of an image, or of a video, whose frames are not cut."""
        across, down = (1, 1) if frames else self._grid(width, height)
        tiles = across * down + (across * down > 1) if not frames else frames
        passes = self.tower.passes((self.side // self.tower.patch) ** 2, tiles, self.tokens)
        marks = across * down if self.marks and across * down > 1 else 0
        return Medium(passes=passes, tokens=tiles * (self.tokens + self.of_tile) + marks + self.around)

    def _grid(self, width: int, height: int) -> tuple[int, int]:
        if self.fits:
            return fitting_grid(width, height, self.side, self.most)
        return nearest_grid(width, height, self.side, self.least, self.most)


def nearest_grid(width: int, height: int, side: int, least: int, most: int) -> tuple[int, int]:
    """Tiles across and down whose ratio is nearest to the image's; of equal ones the larger that it half fills."""
    shapes = [(across, down) for across in range(1, most + 1) for down in range(1, most // across + 1)]
    shapes = sorted((shape for shape in shapes if shape[0] * shape[1] >= least), key=lambda shape: shape[0] * shape[1])
    best, nearest = (1, 1), math.inf
    for shape in shapes:
        off = abs(width / height - shape[0] / shape[1])
        if off < nearest or (off == nearest and width * height > 0.5 * side * side * shape[0] * shape[1]):
            best, nearest = shape, off
    return best


def fitting_grid(width: int, height: int, side: int, most: int) -> tuple[int, int]:
    """Tiles across and down that enlarge an image least, or shrink it least; of equal ones the smallest."""
    shapes = [(across, down) for across in range(1, most + 1) for down in range(1, most // across + 1)]
    scales = {shape: min(_single(shape[0] * side / width), _single(shape[1] * side / height)) for shape in shapes}
    enlarging = [scale for scale in scales.values() if scale >= 1]
    wanted = min(enlarging) if enlarging else max(scales.values())
    return min((shape for shape in shapes if scales[shape] == wanted), key=lambda shape: shape[0] * shape[1])


def _single(number: float) -> float:
    """A number as single precision rounds it, in which this processor compares."""
    import struct

    rounded: float = struct.unpack("f", struct.pack("f", number))[0]
    return rounded


class Splits(msgspec.Struct, frozen=True, kw_only=True):
    """Idefics 3: the longer side becomes ``longest`` pixels, cut into tiles of ``side``, and the whole image.

    A tile of ``tokens`` tokens has a place token before it and one after; a row ends with a newline.
    """

    tower: Tower
    side: int
    longest: int
    tokens: int
    split: bool = True
    default: tuple[int, int] = (1024, 1024)

    def of(self, width: int, height: int, frames: int | None = None) -> Medium:
        """The medium of an image, or of a video, whose frames are not cut."""
        patches = (self.side // self.tower.patch) ** 2
        if frames or not self.split:
            count = frames or 1
            return Medium(passes=self.tower.passes(patches, count, self.tokens), tokens=count * (self.tokens + 3))
        wide, high = longest_side(width, height, min(self.longest, MAX_SPLIT))
        rows, columns = -(-high // self.side), -(-wide // self.side)
        tiles = rows * columns
        if tiles == 1:
            rows = tiles = 0
        passes = self.tower.passes(patches, tiles + 1, self.tokens)
        return Medium(passes=passes, tokens=self.tokens + 3 + rows * (columns * (self.tokens + 2) + 1))


MAX_SPLIT = 4096


def longest_side(width: int, height: int, longest: int) -> tuple[int, int]:
    """Width and height with the longer of ``longest`` pixels, the other even."""
    ratio = width / height
    if width >= height:
        other = int(longest / ratio)
        return longest, max(1, other + other % 2)
    other = int(longest * ratio)
    return max(1, other + other % 2), longest


Images: TypeAlias = Square | Native | Fitted | Anyres | Tiles | Splits
