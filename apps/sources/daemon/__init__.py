"""The collector: the process that harvests."""

from apps.sources.daemon.collector import CollectorDaemon
from apps.sources.daemon.environment import CollectorContext

__all__ = ["CollectorContext", "CollectorDaemon"]
