"""manage.py run_center: registers agents, allocates them to runs, dispatches downloads."""

from __future__ import annotations

from typing import Any

from apps.agents.daemon import CenterDaemon
from apps.runtime.management.daemon_command import DaemonCommand
from yardkit.broker import Broker
from yardkit.clock import SystemClock
from yardkit.daemon import Daemon


class Command(DaemonCommand):
    """The download center."""

    help = "Run the download center."
    kind = "center"
    # The step itself waits for messages.
    poll_seconds = 0.0

    def make_daemon(self, options: dict[str, Any], broker: Broker) -> Daemon:
        return CenterDaemon(
            broker=broker,
            name=self.identity.name,
            incarnation=self.identity.boot,
            clock=SystemClock(),
        )
