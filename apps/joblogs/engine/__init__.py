"""Log lines as plain values, without Django."""
