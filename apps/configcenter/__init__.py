"""Versioned configuration of every kind: versions, diff, activation, who runs which."""
