"""REST API of the request store."""
