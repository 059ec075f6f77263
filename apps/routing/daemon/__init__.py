"""The router's daemon."""

from apps.routing.daemon.router import RouterDaemon
from apps.routing.daemon.yard import House

__all__ = ["House", "RouterDaemon"]
