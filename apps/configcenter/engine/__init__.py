"""Kinds of configuration, plain data and differences, without Django."""
