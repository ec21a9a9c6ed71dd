"""What a processor makes of one image, video or sound: passes through the towers, and tokens of the prompt."""

from __future__ import annotations

import msgspec


class Pass(msgspec.Struct, frozen=True):
    """``count`` sequences of ``tokens`` tokens each through the stack (or the windows of one) of that name."""

    stack: str
    tokens: int
    count: int = 1


class Medium(msgspec.Struct, frozen=True, kw_only=True):
    """One image, video or sound.

    ``tokens`` is what it adds to the prompt, separators included; ``memory`` what cross attention sees in their place.
    """

    passes: tuple[Pass, ...]
    tokens: int
    memory: int = 0
