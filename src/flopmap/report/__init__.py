"""Verdicts for people and programs."""
