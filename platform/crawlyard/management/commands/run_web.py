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
from crawlyard.web import GRACE_SECONDS, Server, check_port
from yardkit.daemon import EXIT_FAILED
from yardkit.garbage_collector import spare_the_collector
from yardkit.life import LifeFile
from yardkit.stop import die_with_parent_if_told


class Command(BaseCommand):
    """The same as ``uvicorn crawlyard.asgi:application`` with fitting options."""

    help = "Serve the admin, REST and the websockets."

    def add_arguments(self, parser: CommandParser) -> None:
        """Where to listen."""
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, default=8000)

    def handle(self, *args: Any, **options: Any) -> None:
        """Serve until a signal comes."""
        die_with_parent_if_told(os.environ)
        check_port(options["host"], options["port"])
        # Every page and call, before what is there now is set apart: else one page in thirty waits
        # 0.1 s longer, while Python goes over all of the code.
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
            # The application asks TRUSTED_PROXIES itself, whichever server runs it.
            proxy_headers=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
            server_header=False,
        )
        server = Server(config, LifeFile.take("web", os.environ))
        # After its shutdown uvicorn raises the signal again.
        with contextlib.suppress(KeyboardInterrupt):
            server.run()
        if not server.started:
            sys.exit(EXIT_FAILED)
