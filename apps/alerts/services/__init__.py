"""Writes and background work of the alerts app."""
