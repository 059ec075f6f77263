"""REST API of the alerts app."""
