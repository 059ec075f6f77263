"""Collector daemon, which runs imports."""

from apps.sources.daemon.collector import CollectorDaemon
from apps.sources.daemon.environment import CollectorContext

__all__ = ["CollectorContext", "CollectorDaemon"]
