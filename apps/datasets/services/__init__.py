"""Writes of datasets."""
