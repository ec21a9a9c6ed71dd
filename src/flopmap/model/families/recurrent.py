"""Families whose layers are all recurrent: state-space models and their kin."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from flopmap.model.architecture import Architecture
    from flopmap.model.config import Config

FAMILIES: dict[str, Callable[[Config], Architecture]] = {}
