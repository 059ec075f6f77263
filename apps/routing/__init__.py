"""Moves items from inbounds to outbounds by rules (taskHUB, seed 2)."""
