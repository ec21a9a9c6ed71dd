"""Floors, bounds, sensitivities."""
