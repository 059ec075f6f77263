"""Seeds: URLs still to be crawled, deduplicated by key within a segment (a slice of time)."""
