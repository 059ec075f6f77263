"""REST API of the configuration center."""
