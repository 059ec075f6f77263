"""manage.py run_collector: harvests record APIs."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from apps.runtime.daemon import own_version
from apps.runtime.management.daemon_command import DaemonCommand
from apps.runtime.queries import threads_share_database
from apps.sources.daemon import CollectorContext, CollectorDaemon
from yardkit.broker import Broker
from yardkit.clock import SystemClock
from yardkit.daemon import Daemon


class Command(DaemonCommand):
    """Any number of them may run; each source is harvested by one at a time."""

    help = "Harvest the sources of all projects."
    kind = "collector"
    # The step itself waits.
    poll_seconds = 0.0

    def make_daemon(self, options: dict[str, Any], broker: Broker) -> Daemon:
        """A collector under this process's name."""
        return CollectorDaemon(
            environment=CollectorContext(
                broker=broker,
                allowed_networks=tuple(settings.SOURCES_ALLOWED_NETWORKS),
                user_agent=f"Crawlyard/{own_version()}".rstrip("/"),
            ),
            clock=SystemClock(),
            identity=self.identity,
            threads=threads_share_database(),
            at_once=settings.SOURCES_AT_ONCE,
            stop=self.stop,
        )
