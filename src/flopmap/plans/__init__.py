"""Plans: a model over several parts, as the share of one of them and what they send to each other."""
