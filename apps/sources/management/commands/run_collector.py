"""manage.py run_collector: imports from record APIs."""

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
    """Several instances may run; each source is leased by one of them."""

    help = "Import from the sources of all projects."
    kind = "collector"
    # ``step`` itself waits.
    poll_seconds = 0.0

    def make_daemon(self, options: dict[str, Any], broker: Broker) -> Daemon:
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
