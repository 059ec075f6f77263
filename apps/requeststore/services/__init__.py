"""Writes of this app."""
