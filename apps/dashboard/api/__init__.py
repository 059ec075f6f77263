"""REST of the pages of the whole."""
