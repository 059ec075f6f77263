"""manage.py run_web: one web process (admin, REST, websockets)."""

from __future__ import annotations

import contextlib
import os
import sys
from importlib import import_module
from typing import Any

import uvicorn
from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from crawlyard.head_limit import ShortHeads
from crawlyard.web import GRACE_SECONDS, WebServer, check_port
from yardkit.daemon import EXIT_FAILED
from yardkit.garbage_collector import spare_the_collector
from yardkit.liveness import LivenessReporter
from yardkit.stop import die_with_parent_if_asked


class Command(BaseCommand):
    """Run ``uvicorn crawlyard.asgi:application`` with suitable options."""

    help = "Serve the admin, REST and the websockets."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, default=8000)

    def handle(self, *args: Any, **options: Any) -> None:
        """Serve until a signal."""
        die_with_parent_if_asked(os.environ)
        check_port(options["host"], options["port"])
        # Load all views before freezing the heap: otherwise one page in thirty waits 0.1 s longer
        # for a garbage collection of all code.
        import_module(settings.ROOT_URLCONF)
        spare_the_collector()
        config = uvicorn.Config(
            "crawlyard.asgi:application",
            host=options["host"],
            port=options["port"],
            http=ShortHeads,
            log_config=None,
            log_level=settings.LOG_LEVEL.lower(),
            access_log=False,
            # The application applies TRUSTED_PROXIES itself, whichever server runs it.
            proxy_headers=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
            server_header=False,
        )
        server = WebServer(config, LivenessReporter.take("web", os.environ))
        # uvicorn raises the signal again after its shutdown.
        with contextlib.suppress(KeyboardInterrupt):
            server.run()
        if not server.started:
            sys.exit(EXIT_FAILED)
