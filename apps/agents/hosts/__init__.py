"""Hosts that are crawled: what people allow there, and how the centers share it."""
