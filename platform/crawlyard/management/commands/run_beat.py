"""manage.py run_beat: wake workers when tasks are due."""

from __future__ import annotations

from typing import Any

from apps.runtime.management.daemon_command import DaemonCommand
from crawlyard.beat import BeatDaemon
from crawlyard.celery import app
from yardkit.broker import Broker


class Command(DaemonCommand):
    """Scheduler that wakes workers. One instance leads, the others stand by."""

    help = "Wake workers at the times of schedules and for housekeeping."
    kind = "beat"

    def make_daemon(self, options: dict[str, Any], broker: Broker) -> BeatDaemon:
        return BeatDaemon(app)
