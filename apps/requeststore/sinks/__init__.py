"""Destinations of records: a table, files of JSON lines, or a queue. No Django."""
