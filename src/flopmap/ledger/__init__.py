"""The FLOP and byte account of a step."""
