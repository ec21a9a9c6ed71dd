"""What to choose, and where the choice flips."""
