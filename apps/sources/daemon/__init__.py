"""The collector: the process that harvests."""

from apps.sources.daemon.collector import CollectorDaemon
from apps.sources.daemon.environment import Environment

__all__ = ["CollectorDaemon", "Environment"]
