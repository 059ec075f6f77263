"""REST of the request store."""
