"""manage.py run_runner: starts, watches and stops runs on this host."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from apps.jobs.daemon import RunnerDaemon
from apps.runtime.management.daemon_command import DaemonCommand
from yardkit.broker import Broker
from yardkit.clock import SystemClock
from yardkit.daemon import Daemon


class Command(DaemonCommand):
    """One runner a host."""

    help = "Run the runner of this host."
    kind = "runner"
    # The step itself waits for messages.
    poll_seconds = 0.0

    def add_daemon_arguments(self, parser: CommandParser) -> None:
        """How many runs at once."""
        parser.add_argument("--capacity", type=int, default=8, help="runs at once on this host")

    def make_daemon(self, options: dict[str, Any], broker: Broker) -> Daemon:
        """A runner under this process's name."""
        return RunnerDaemon(
            broker=broker,
            host=self.identity.name,
            clock=SystemClock(),
            capacity=options["capacity"],
            folder=settings.RUNS_DIR,
            stop=self.stop,
        )
