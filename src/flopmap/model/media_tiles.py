"""Processors that cut an image into tiles."""

from __future__ import annotations

import math

import msgspec

from flopmap.model.media import Medium, MediumError, Pass, Tower
from flopmap.model.media_whole import smart_size

ROUNDED = 7  # decimals that a processor rounds a side to before it cuts it


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

    def of(self, width: int, height: int, frames: int | None = None) -> Medium:
        """The medium of an image, or of a video."""
        across = self.side // self.tower.patch
        if frames:
            each = (-(-across // 2)) ** 2 if self.pooled else across**2
            return Medium(passes=self.tower.passes(across**2, frames), tokens=frames * each + self.newline)
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
    instead, in ``single`` precision as one processor compares; ``marks`` are separators between tiles and after rows,
    ``of_tile`` are further tokens of each tile.
    """

    tower: Tower
    side: int
    tokens: int
    least: int = 1
    most: int = 12
    around: int = 0
    of_tile: int = 0
    fits: bool = False
    single: bool = False
    marks: bool = False

    def of(self, width: int, height: int, frames: int | None = None) -> Medium:
        """The medium of an image, or of a video, whose frames are not cut."""
        across, down = (1, 1) if frames else self._grid(width, height)
        tiles = frames or across * down + (across * down > 1)
        passes = self.tower.passes((self.side // self.tower.patch) ** 2, tiles, self.tokens)
        marks = across * down if self.marks and across * down > 1 else 0
        return Medium(passes=passes, tokens=tiles * (self.tokens + self.of_tile) + marks + self.around)

    def _grid(self, width: int, height: int) -> tuple[int, int]:
        if self.fits:
            return fitting_grid(width, height, self.side, self.most, single=self.single)
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


def fitting_grid(width: int, height: int, side: int, most: int, *, single: bool = False) -> tuple[int, int]:
    """Tiles across and down that enlarge an image least, or shrink it least; of equal ones the smallest."""
    shapes = [(across, down) for across in range(1, most + 1) for down in range(1, most // across + 1)]
    scales = {shape: min(shape[0] * side / width, shape[1] * side / height) for shape in shapes}
    if single:
        scales = {shape: _single(scale) for shape, scale in scales.items()}
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


class Grids(msgspec.Struct, frozen=True, kw_only=True):
    """Ovis 2: the fewest tiles that keep nine tenths of the image's area, and the whole of it; marks between them."""

    tower: Tower
    side: int
    tokens: int
    least: int = 1
    most: int = 12

    def of(self, width: int, height: int, frames: int | None = None) -> Medium:
        """The medium of an image, or of a video, whose frames are not cut."""
        rows, columns = (1, 1) if frames else covering_grid(width, height, self.side, self.most)
        tiles = rows * columns
        count = (frames or 1) if tiles == 1 else tiles + 1
        passes = self.tower.passes((self.side // self.tower.patch) ** 2, count, self.tokens)
        marks = tiles - 1 if tiles > 1 else 0
        return Medium(passes=passes, tokens=count * self.tokens + 3 * (frames or 1) + marks)


COVERED = 0.9


def covering_grid(width: int, height: int, side: int, most: int) -> tuple[int, int]:
    """Rows and columns of the fewest tiles that keep nine tenths of an image's area, or else the most of it."""
    shapes = [(one, other) for one in range(1, most + 1) for other in range(1, most // one + 1)]
    shapes.sort(key=lambda shape: shape[0] * shape[1])
    kept = {shape: _kept(width, height, shape, side) / (width * height) for shape in shapes}
    enough = [shape for shape in shapes if kept[shape] > COVERED]
    if enough:
        return min(enough, key=lambda shape: (shape[0] * shape[1], -kept[shape]))
    return min(shapes, key=lambda shape: (-kept[shape], shape[0] * shape[1]))


def _kept(width: int, height: int, shape: tuple[int, int], side: int) -> float:
    """The area of all tiles after each is shrunk to ``side``."""
    rows, columns = shape
    total = 0.0
    for row in range(rows):
        high = height - row * (height // rows) if row == rows - 1 else height // rows
        for column in range(columns):
            wide = width - column * (width // columns) if column == columns - 1 else width // columns
            longer, shorter = max(wide, high), float(min(wide, high))
            if longer > side:
                longer, shorter = side, shorter / longer * side
            total += longer * shorter
    return total


class Canvas(msgspec.Struct, frozen=True, kw_only=True):
    """Llama 3.2 Vision: ``tiles`` tiles always, in one sequence, each padded to a multiple of ``padded`` tokens.

    Cross attention sees them; the prompt has one token.
    """

    tower: Tower
    tiles: int
    patches: int
    padded: int

    def of(self, _width: int, _height: int, frames: int | None = None) -> Medium:
        """The medium of an image of any size."""
        if frames:
            raise MediumError("videos are not understood by this processor")
        each = self.patches + self.tower.extra
        passes = (
            Pass("patches", self.tiles * self.patches),
            Pass("vision", self.tiles * -(-each // self.padded) * self.padded),
            Pass("connector", self.tiles * each),
        )
        return Medium(passes=passes, tokens=1, memory=self.tiles * each)


class Shrunk(msgspec.Struct, frozen=True, kw_only=True):
    """LFM2-VL: an image of up to ``most`` tokens at its own size; a larger one in tiles of ``side``, and a thumbnail.

    Each tile has a token for its place, each image a begin and an end. The tower sees all padded to one length.
    """

    tower: Tower
    least: int
    most: int
    side: int
    tiles: tuple[int, int]
    tolerance: float

    def of(self, width: int, height: int, frames: int | None = None) -> Medium:
        """The medium of an image, or of a video, whose frames are not cut."""
        factor, squared = self.tower.patch * self.tower.merge, self.tower.merge**2
        rounded = [max(self.tower.patch, round(length / factor) * factor) for length in (width, height)]
        wide, high = smart_size(width, height, factor, (self.least * factor**2, self.most * factor**2))
        tokens, count = (wide // factor) * (high // factor), frames or 1
        padded = max(self.most * squared, (self.side // self.tower.patch) ** 2)
        whole = self.tower.passes(padded, count)
        if self.tiles == (1, 1):
            whole = self.tower.passes(self.most * squared, count)
        large = rounded[0] * rounded[1] > self.most * factor**2 * self.tolerance
        if frames or not large or self.tiles == (1, 1):
            return Medium(passes=whole, tokens=count * (tokens + 2))
        across, down = nearest_grid(width, height, self.side, *self.tiles)
        cut, each = across * down, (self.side // factor) ** 2
        passes = (*whole, *self.tower.passes(padded, cut))
        return Medium(passes=passes, tokens=cut * (each + 1) + tokens + 1 + 2)
