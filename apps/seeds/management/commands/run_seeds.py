"""manage.py run_seeds: the daemon of the seed service."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.conf import settings

from apps.runtime.management.daemon_command import DaemonCommand
from apps.runtime.queries import threads_share_database
from apps.seeds.daemon import SeedDaemon
from apps.seeds.stores.factory import open_store
from yardkit.broker import Broker
from yardkit.clock import SystemClock
from yardkit.daemon import Daemon
from yardkit.garbage_collector import spare_the_collector


class Command(DaemonCommand):
    """Run the seed service: one process on a rocksdb:/// store, any number on a postgresql://
    store.
    """

    help = "Run the seed service."
    kind = "seeds"
    # No pause between steps: each step waits for calls itself.
    poll_seconds = 0.0

    def make_daemon(self, options: dict[str, Any], broker: Broker) -> Daemon:
        """Return the daemon on the store of the installation."""
        spare_the_collector()
        return SeedDaemon(
            broker=broker,
            clock=SystemClock(),
            open_store=partial(open_store, settings.SEEDS_URL),
            secret=settings.SECRET_KEY,
            shared=not settings.SEEDS_URL.startswith("rocksdb:"),
            threads=threads_share_database(),
        )
