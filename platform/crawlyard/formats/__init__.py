"""How dates and times are written, by language."""
