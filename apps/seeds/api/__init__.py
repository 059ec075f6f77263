"""The REST API of seeds."""
