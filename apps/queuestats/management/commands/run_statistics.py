"""manage.py run_statistics: stores counters and dead letters in the database."""

from __future__ import annotations

from typing import Any

from apps.queuestats.daemon import StatisticsDaemon
from apps.runtime.management.daemon_command import DaemonCommand
from yardkit.broker import Broker
from yardkit.clock import SystemClock
from yardkit.daemon import Daemon


class Command(DaemonCommand):
    help = "Run the statistics consumer."
    kind = "statistics"
    # The step itself blocks until messages arrive.
    poll_seconds = 0.0

    def make_daemon(self, options: dict[str, Any], broker: Broker) -> Daemon:
        return StatisticsDaemon(broker=broker, clock=SystemClock())
