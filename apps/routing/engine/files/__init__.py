"""Rule sets outside the program: taskHUB's YAML, the data of a version, what two of them differ in.

docs/taskhub-compat.md tells of every key.
"""
