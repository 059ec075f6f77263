"""manage.py run_log_ingester: log lines into the log store."""

from __future__ import annotations

from typing import Any

from apps.joblogs.daemon import LogDaemon
from apps.runtime.management.daemon_command import DaemonCommand
from yardkit.broker import Broker
from yardkit.clock import SystemClock
from yardkit.daemon import Daemon
from yardkit.garbage_collector import spare_the_collector


class Command(DaemonCommand):
    """The log."""

    help = "Run the consumer of log lines."
    kind = "log_ingester"
    # The step itself waits for messages.
    poll_seconds = 0.0

    def make_daemon(self, options: dict[str, Any], broker: Broker) -> Daemon:
        """A consumer of the queue of logs."""
        # Lines come by the thousand.
        spare_the_collector()
        return LogDaemon(broker=broker, clock=SystemClock(), once=bool(options["once"]))
