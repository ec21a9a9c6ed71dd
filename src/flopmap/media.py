"""The media of a request: what its images, videos and sounds add to a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopmap.model.media import MediumError
from flopmap.step import Group, Step

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flopmap.model.architecture import Architecture
    from flopmap.model.media import Medium

DEFAULT_SIZE = (1024, 1024)
MAX_IMAGES = 100_000
MAX_SIDE = 100_000
DEFAULT_SECONDS = 30.0
MAX_SECONDS = 1_000_000


def images(
    architecture: Architecture,
    count: int | None,
    size: tuple[int, int] | None,
    frames: int | None,
    notes: list[str],
    *,
    wanted: bool,
) -> tuple[Medium, ...]:
    """The images (or videos of ``frames`` frames) of one sequence: as asked for, or one where they are ``wanted``.

    ``size`` is width and height. Raises :class:`MediumError` with the flag and its value.
    """
    if count is None:
        count = int((wanted and architecture.images is not None) or size is not None or frames is not None)
        if count:
            notes.append(f"one {'video' if frames else 'image'} a sequence: no number is given")
    for flag, number, most in (("images", count, MAX_IMAGES), ("video-frames", frames, MAX_IMAGES)):
        if number is not None and not (flag == "images" and number == 0) and not 1 <= number <= most:
            raise MediumError(f"--{flag} {number}: out of range (accepted: 1 to {most})")
    if not count:
        return ()
    if architecture.images is None:
        raise MediumError(f"--images {count}: {architecture.family} models read no images")
    if size is not None and not all(1 <= side <= MAX_SIDE for side in size):
        raise MediumError(f"--image-size {size[0]}x{size[1]}: out of range (accepted: sides of 1 to {MAX_SIDE} pixels)")
    width, height = size or DEFAULT_SIZE
    if size is None:
        notes.append(f"images of {width}x{height} pixels: no size is given")
    try:
        medium = architecture.images.of(width, height, frames)
    except MediumError as error:
        raise MediumError(f"--{'video-frames' if frames else 'image-size'} {error}") from None
    if architecture.vocab:
        notes.append(
            f"{counted(count, width, height, frames)}: {_tokens(medium)} each, as the model's processor makes them"
        )
    return (medium,) * count


def sound(
    architecture: Architecture, seconds: float | None, notes: list[str], *, wanted: bool
) -> tuple[tuple[Medium, ...], float]:
    """The sound of one sequence and its length: of so many seconds, or of 30 where one is ``wanted`` and heard.

    Raises :class:`MediumError` with the flag and its value.
    """
    if seconds is None:
        if not wanted or architecture.sounds is None:
            return (), 0.0
        seconds = DEFAULT_SECONDS
        notes.append(f"a sound of {seconds:g} s a sequence: no length is given")
    if architecture.sounds is None:
        raise MediumError(f"--audio-seconds {seconds:g}: {architecture.family} models take no sound beside their text")
    if not 0 < seconds <= MAX_SECONDS:
        raise MediumError(f"--audio-seconds {seconds:g}: out of range (accepted: more than 0, up to {MAX_SECONDS:,})")
    try:
        medium = architecture.sounds.of(seconds)
    except MediumError as error:
        raise MediumError(f"--audio-seconds {error}") from None
    notes.append(f"{seconds:g} s of sound: {_tokens(medium)}, as the model's processor makes them")
    return (medium,), seconds


def counted(count: int, width: int, height: int, frames: int | None) -> str:
    """``2 images of 1280x720``."""
    what = f"video{'s' * (count != 1)} of {frames} frames" if frames else f"image{'s' * (count != 1)}"
    return f"{count} {what} of {width}x{height}"


def _tokens(medium: Medium) -> str:
    if medium.memory:
        return f"{medium.memory:,} tokens for cross attention"
    return f"{medium.tokens:,} tokens of the prompt"


def tower_groups(media: Iterable[Medium], batch: int) -> tuple[Group, ...]:
    """The sequences that ``batch`` times these media send through the towers, before any token of text."""
    counts: dict[tuple[str, int, int], int] = {}
    for medium in media:
        for part in medium.passes:
            key = (part.stack, part.tokens, part.memory)
            counts[key] = counts.get(key, 0) + part.count * batch
    return tuple(
        Group(count=count, new=tokens, past=0, positions=0, memory=memory, phase="encode", stack=stack)
        for (stack, tokens, memory), count in counts.items()
    )


def media_tokens(media: Iterable[Medium]) -> int:
    """Tokens that media add to a prompt."""
    return sum(medium.tokens for medium in media)


def step_with_media(
    media: tuple[Medium, ...], batch: int, context: int | None, prompt: int | None, cached: int
) -> Step:
    """The towers alone, a prompt of ``prompt`` tokens with its media, a decode at ``context``, or both of these.

    The prompt of a mixed step is one; media of sequences that decode have gone through the towers before.
    """
    memory = sum(medium.memory for medium in media)
    if context is None and prompt is None:
        return Step(groups=tower_groups(media, batch))
    groups: tuple[Group, ...] = ()
    if prompt is not None:
        read = 1 if context is not None else batch
        groups = tower_groups(media, read)
        groups += (Group(count=read, new=prompt, past=cached, memory=memory, phase="prefill"),)
    if context is not None:
        groups += (Group(count=batch, new=1, past=context - 1, memory=memory, phase="decode"),)
    return Step(groups=groups)
