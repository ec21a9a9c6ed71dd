"""The error of the readers, by itself: the command line knows it without loading them."""

from __future__ import annotations


class ReadingError(ValueError):
    """What was given cannot be read. One line that says what was recognised."""
