"""Rules that a book must keep."""
