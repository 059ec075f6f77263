"""manage.py run_statistics: counters and dead letters into the database."""

from __future__ import annotations

from typing import Any

from apps.queuestats.daemon import StatisticsDaemon
from apps.runtime.management.daemon_command import DaemonCommand
from yardkit.broker import Broker
from yardkit.clock import SystemClock
from yardkit.daemon import Daemon


class Command(DaemonCommand):
    """The accounts."""

    help = "Run the statistics consumer."
    kind = "statistics"
    # The step itself waits for messages.
    poll_seconds = 0.0

    def make_daemon(self, options: dict[str, Any], broker: Broker) -> Daemon:
        """A consumer of the statistics queue."""
        return StatisticsDaemon(broker=broker, clock=SystemClock())
