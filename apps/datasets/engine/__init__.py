"""Items in files: columns, segments, tables, queries. No Django."""
