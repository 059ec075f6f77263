"""Seeds as plain Python: keys, segments, states, scores."""
