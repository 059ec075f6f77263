"""The pages' arithmetic: plain Python, no database."""
