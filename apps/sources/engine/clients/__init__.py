"""Who asks record APIs."""
