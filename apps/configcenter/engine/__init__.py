"""Plain Python: kinds of configuration, plain data, differences. No Django."""
