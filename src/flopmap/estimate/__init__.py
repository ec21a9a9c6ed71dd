"""From the floor to what good software reaches."""
