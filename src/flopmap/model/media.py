"""What a processor makes of one image, video or sound: passes through the towers, and tokens of the prompt.

Pure arithmetic on sizes: nothing is opened and no pixel is touched. A rule is what a family of processors does; its
fields are the settings of one of them.
"""

from __future__ import annotations

from typing import Protocol

import msgspec


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


class Images(Protocol):
    """A rule: what becomes of an image of that size, or of a video of so many frames."""

    def of(self, width: int, height: int, frames: int | None = None, /) -> Medium:
        """The medium. Raises :class:`MediumError` for what the processor refuses."""


class Sounds(Protocol):
    """A rule: what becomes of a sound."""

    def of(self, seconds: float, /) -> Medium:
        """The medium of a sound of that length. Raises :class:`MediumError` for what the processor refuses."""
