"""REST of sources, and the paths that the seed names."""
