"""What can be wrong with a book as a whole."""

from __future__ import annotations


class BookError(Exception):
    """A book that cannot be read. The message is one line a fault, each with its file and line."""


class MissingBookError(BookError):
    """The folder that the command line names is not there."""
