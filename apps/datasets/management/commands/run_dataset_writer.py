"""manage.py run_dataset_writer: the daemon that stores items."""

from __future__ import annotations

from typing import Any

from apps.datasets.daemon import DatasetWriter
from apps.runtime.management.daemon_command import DaemonCommand
from yardkit.broker import Broker
from yardkit.clock import SystemClock
from yardkit.daemon import Daemon
from yardkit.garbage_collector import spare_the_collector


class Command(DaemonCommand):
    """Store items from the queue, compact them into tables, and deliver them."""

    help = "Run the writer of datasets."
    kind = "dataset_writer"
    # No pause between steps: each step waits for messages itself.
    poll_seconds = 0.0

    def make_daemon(self, options: dict[str, Any], broker: Broker) -> Daemon:
        """Return the daemon with its consumer of the queue of items."""
        # Items arrive by the thousand.
        spare_the_collector()
        return DatasetWriter(broker=broker, clock=SystemClock(), once=bool(options["once"]))
