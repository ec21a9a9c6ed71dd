"""What a measurement means."""
