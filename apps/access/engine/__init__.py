"""Plain Python, without Django."""
