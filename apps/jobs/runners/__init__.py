"""Runners: start, watch and end executions on a host. Plain Python."""
