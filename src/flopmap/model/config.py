"""A ``config.json`` with checked access: every getter names the field, its value and what would be accepted."""

from __future__ import annotations

from typing import Any

from flopmap.quantity import shown

MAX_DIMENSION = 2**31 - 1
MAX_LAYERS = 4096
MAX_NUMBER = 1e12


class ConfigError(ValueError):
    """A model config that is wrong, incomplete, or of a kind that is not understood. One line."""


class MissingFileError(ConfigError):
    """The file that the command line names is not there."""


class Config:
    """The fields of one config. ``name`` is the file or record that messages point to."""

    def __init__(self, fields: dict[str, Any], name: str) -> None:
        self.fields = fields
        self.name = name

    def error(self, field: str, message: str) -> ConfigError:
        """A one-line error about a field."""
        return ConfigError(f"{self.name}: {field}: {message}")

    def has(self, *names: str) -> bool:
        """Whether one of the fields is there and not null."""
        return any(self.fields.get(name) is not None for name in names)

    def integer(self, *names: str, default: int | None = None, low: int = 1, high: int = MAX_DIMENSION) -> int:
        """The first of the named fields that is there. Raises :class:`ConfigError` when absent and without default."""
        for name in names:
            value = self.fields.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise self.error(name, f"{shown(value)} is not a whole number (accepted: {low} to {high})")
            if not low <= value <= high:
                raise self.error(name, f"{shown(value)} is out of range (accepted: {low} to {high})")
            return value
        if default is None:
            raise self.error(names[0], f"is missing (a whole number from {low} to {high} is needed)")
        return default

    def optional(self, *names: str) -> int | None:
        """As :meth:`integer`, but None when absent or null."""
        return self.integer(*names) if self.has(*names) else None

    def flag(self, name: str, *, default: bool) -> bool:
        """A true or false field."""
        value = self.fields.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(name, f"{shown(value)} is not true or false")
        return value

    def number(self, name: str, *, default: float) -> float:
        """A positive number."""
        value = self.fields.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < MAX_NUMBER:
            raise self.error(name, f"{shown(value)} is not a positive number")
        return float(value)

    def string(self, *names: str, default: str = "") -> str:
        """A text field."""
        return self.named_string(*names, default=default)[1]

    def named_string(self, *names: str, default: str = "") -> tuple[str, str]:
        """The first of the named text fields that is there: its name and value."""
        for name in names:
            value = self.fields.get(name)
            if value is not None:
                if not isinstance(value, str):
                    raise self.error(name, f"{shown(value)} is not a string")
                return name, value
        return names[0], default

    def table(self, name: str) -> dict[str, Any]:
        """A nested table, empty when absent."""
        value = self.fields.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.error(name, f"{shown(value)} is not a table")
        return value

    def strings(self, name: str) -> list[str]:
        """A list of strings, empty when absent."""
        value = self.fields.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(name, f"{shown(value)} is not a list of strings")
        return value
