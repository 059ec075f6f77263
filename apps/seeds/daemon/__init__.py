"""The seed service: takes calls from the queue and answers them from the store."""

from apps.seeds.daemon.service import SeedDaemon

__all__ = ["SeedDaemon"]
