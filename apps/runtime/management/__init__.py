"""Commands, and the base of daemon commands."""
