"""What a model is, and how a config is read."""
