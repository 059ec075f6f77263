"""The collector: the process that harvests."""

from apps.sources.daemon.collector import CollectorDaemon
from apps.sources.daemon.house import House

__all__ = ["CollectorDaemon", "House"]
