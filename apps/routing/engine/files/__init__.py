"""File and data formats of rule sets: taskHUB's YAML, JSON of stored versions, and their diff.

docs/taskhub-compat.md documents every key.
"""
