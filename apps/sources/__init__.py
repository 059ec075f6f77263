"""Incremental imports from record APIs."""
