"""Seeds: keys, segments, states. Plain Python."""
