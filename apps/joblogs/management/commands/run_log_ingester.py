"""manage.py run_log_ingester: the daemon that stores log lines."""

from __future__ import annotations

from typing import Any

from apps.joblogs.daemon import LogDaemon
from apps.runtime.management.daemon_command import DaemonCommand
from yardkit.broker import Broker
from yardkit.clock import SystemClock
from yardkit.daemon import Daemon
from yardkit.garbage_collector import spare_the_collector


class Command(DaemonCommand):
    """Store log lines from the queue."""

    help = "Run the consumer of log lines."
    kind = "log_ingester"
    # No pause between steps: each step waits for messages itself.
    poll_seconds = 0.0

    def make_daemon(self, options: dict[str, Any], broker: Broker) -> Daemon:
        """Return the daemon with its consumer of the log queue."""
        # Large prefetch, because lines arrive by the thousand.
        spare_the_collector()
        return LogDaemon(broker=broker, clock=SystemClock(), once=bool(options["once"]))
