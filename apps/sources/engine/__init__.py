"""Plain-Python part: pages of records, dates, progress. No Django."""
