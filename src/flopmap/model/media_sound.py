"""Processors of sound: windows of mel frames, and the tokens that are made of each."""

from __future__ import annotations

from typing import Literal

import msgspec

from flopmap.model.media import Medium, MediumError, Pass

RATE, HOP = 16_000, 160  # samples a second, and samples from a frame to the next: Whisper's
STRIDE = 2  # frames that the tower makes one position of


class Windows(msgspec.Struct, frozen=True, kw_only=True):
    """A sound is cut into windows of ``frames`` frames, each padded to its full length, of which ``most`` are read.

    The connector makes one token of ``merge`` positions. Of a last window that is not full it gives the prompt all
    tokens (``padded``), the whole ones of its sound (``down``), or those that hold any of it, and makes no others
    (``up``). ``around`` are tokens that the processor adds; after each ``mark`` seconds it writes their number.
    """

    frames: int
    merge: int
    last: Literal["padded", "down", "up"] = "down"
    most: int | None = None
    around: int = 0
    mark: int = 0

    def of(self, seconds: float) -> Medium:
        """The medium of a sound. Raises :class:`MediumError` for one that is cut off, or too short for a token."""
        window = self.frames * HOP / RATE
        if self.most is not None and seconds > self.most * window:
            raise MediumError(f"{seconds:g}: the processor cuts sounds off (accepted: up to {self.most * window:g} s)")
        frames = -(-round(seconds * RATE) // HOP)
        count, positions = max(1, -(-frames // self.frames)), -(-frames // STRIDE)
        full = self.frames // STRIDE // self.merge
        tokens = {"padded": count * full, "down": positions // self.merge, "up": -(-positions // self.merge)}[self.last]
        if not tokens:
            raise MediumError(f"{seconds:g}: too short for a token")
        passes = (
            Pass("frames", self.frames, count),
            Pass("audio", self.frames // STRIDE, count),
            Pass("connector", tokens) if self.last == "up" else Pass("connector", full, count),
        )
        return Medium(passes=passes, tokens=tokens + self.around + self._marks(tokens))

    def _marks(self, tokens: int) -> int:
        """Digits of the seconds that are written between the tokens, one a token."""
        if not self.mark:
            return 0
        seconds = tokens * self.merge * STRIDE * HOP // RATE
        return sum(len(str(second)) for second in range(self.mark, seconds + 1, self.mark))
