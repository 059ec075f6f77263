"""Commands, and what the commands of daemons have in common."""
