"""The seed service: calls from the queue, answers from the store."""

from apps.seeds.daemon.service import SeedDaemon

__all__ = ["SeedDaemon"]
