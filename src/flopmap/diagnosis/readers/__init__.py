"""Readers of what people have in hand, one file a format."""
