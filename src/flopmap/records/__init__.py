"""The book: record types, formulas, units, reading and building."""
