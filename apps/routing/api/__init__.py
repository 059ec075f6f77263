"""REST of the router: the seed's own paths, and what pages show."""
