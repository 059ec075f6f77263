"""Politeness: how often, how many at once and what of a host may be asked. Plain Python."""
