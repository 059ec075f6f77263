"""manage.py run_fetcher: takes stored requests, downloads, extracts, stores records."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from apps.requeststore.daemon.service import FetcherDaemon
from apps.runtime.management.daemon_command import DaemonCommand
from yardkit.broker import Broker
from yardkit.clock import SystemClock
from yardkit.daemon import EXIT_BAD_SETTING, Daemon
from yardkit.garbage_collector import spare_the_collector


class Command(DaemonCommand):
    """Any number of fetchers may run; each serves every biz, or those of ``--biz``."""

    help = "Download stored requests and store the records of their pages."
    kind = "fetcher"

    def add_daemon_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        parser.add_argument(
            "--biz",
            action="append",
            metavar="NAME",
            help="Serve only this biz, NAME or PROJECT/NAME; may be repeated"
            " (default: FETCHER_BIZZES).",
        )
        parser.add_argument(
            "--concurrency",
            type=int,
            default=settings.FETCHER_CONCURRENCY,
            help="Leased requests over all bizzes (default: FETCHER_CONCURRENCY, %(default)s).",
        )

    def make_daemon(self, options: dict[str, Any], broker: Broker) -> Daemon:
        """Create the daemon."""
        if options["concurrency"] < 1:
            raise CommandError("--concurrency: use 1 or more", returncode=EXIT_BAD_SETTING)
        spare_the_collector()
        return FetcherDaemon(
            broker=broker,
            identity=self.identity,
            clock=SystemClock(),
            concurrency=options["concurrency"],
            only=options["biz"] or settings.FETCHER_BIZZES,
        )
