"""Reads for pages and REST answers."""
