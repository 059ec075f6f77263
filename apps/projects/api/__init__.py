"""REST of projects."""
