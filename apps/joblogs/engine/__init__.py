"""Log lines as plain Python, without Django."""
