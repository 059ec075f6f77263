"""REST of configurations."""
