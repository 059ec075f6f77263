"""manage.py run_objects: serves signed addresses of objects in a folder; no database."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.runtime.services.objects import shared_objects
from crawlyard.web import check_port
from yardkit.daemon import EXIT_BAD_SETTING
from yardkit.liveness import LivenessReporter
from yardkit.objects.folder import FolderStore
from yardkit.objects.server import ObjectServer, base_path, serve
from yardkit.objects.signing import AddressSigner
from yardkit.stop import die_with_parent_if_asked


class Command(BaseCommand):
    """Serve the folder of ``OBJECTS_URL``."""

    help = "Serve bodies and pages to runs and agents by signed addresses, from a folder."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        host, _, port = settings.OBJECTS_LISTEN.rpartition(":")
        parser.add_argument("--host", default=host, help="instead of that of OBJECTS_LISTEN")
        parser.add_argument("--port", type=int, default=int(port), help="the same for its port")

    def handle(self, *args: Any, **options: Any) -> None:
        """Serve until a signal."""
        die_with_parent_if_asked(os.environ)
        store = shared_objects()
        if not isinstance(store, FolderStore):
            raise CommandError(
                "OBJECTS_URL: a bucket serves its signed addresses itself; stop run_objects",
                returncode=EXIT_BAD_SETTING,
            )
        if not settings.OBJECTS_PUBLIC_URL:
            raise CommandError(
                "OBJECTS_PUBLIC_URL: not set; set it to the address of run_objects as agents and"
                " runs reach it",
                returncode=EXIT_BAD_SETTING,
            )
        check_port(options["host"], options["port"])
        public_url = settings.OBJECTS_PUBLIC_URL
        signer = AddressSigner(public_url, settings.SECRET_KEY)
        server = ObjectServer(store, signer, base_path(public_url))
        life = LivenessReporter.take("objects", os.environ)
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(serve(server, options["host"], options["port"], life))
        except OSError as error:
            sys.stderr.write(f"run_objects: {error}\n")
            sys.exit(1)


def _loop_factory() -> Any:
    try:
        import uvloop
    except ImportError:  # not made for every platform
        return None
    return uvloop.new_event_loop
