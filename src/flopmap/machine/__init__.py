"""Parts and the machines they make."""
