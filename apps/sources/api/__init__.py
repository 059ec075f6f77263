"""REST API of sources, and the paths of the original service (seed S0.30 to S0.36)."""
