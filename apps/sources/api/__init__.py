"""REST API of sources, and the paths of the original service."""
