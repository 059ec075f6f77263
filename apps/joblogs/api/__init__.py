"""REST API of logs."""
