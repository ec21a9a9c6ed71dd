"""Traces of profilers: one file a format, one timeline for all of them."""
