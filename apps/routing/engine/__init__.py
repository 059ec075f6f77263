"""Routing engine: plain Python without Django, so that it can be tested without a database."""
