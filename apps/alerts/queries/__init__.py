"""Read-only queries of the alerts app."""

from apps.alerts.queries.incidents import count_open_incidents, open_incidents

__all__ = ["count_open_incidents", "open_incidents"]
