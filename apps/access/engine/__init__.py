"""Plain-Python part of this app, without Django."""
