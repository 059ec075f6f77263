"""Formats of dates and times, by language."""
