"""Reads of this app."""

from apps.alerts.queries.incidents import count_open_incidents, open_incidents

__all__ = ["count_open_incidents", "open_incidents"]
