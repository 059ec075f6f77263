"""REST API of the router: the paths of the seed taskHUB, and projects and items below /api/v1."""
