"""REST API of frontiers, seeds and resource pools."""
