"""The plain-Python part: pages of records, dates, progress. No Django in here."""
