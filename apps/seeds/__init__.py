"""Seeds: what is still to be crawled, each key once in a segment of time."""
