"""manage.py up: run all processes of one box until Ctrl-C."""

from __future__ import annotations

import os
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser

from crawlyard.scale_events import FetcherScale
from crawlyard.supervisor import Supervisor, UnitFailed
from crawlyard.units import box, object_server
from crawlyard.web import check_port, listens
from yardkit.broker import connect
from yardkit.liveness import LivenessReporter
from yardkit.stop import Stop


class Command(BaseCommand):
    """Start web, center, runner, statistics and agents, and keep them running."""

    help = "Run all processes on this machine, in one terminal."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="address of the web server")
        parser.add_argument("--port", type=int, default=8000, help="port of the web server")
        parser.add_argument("--agents", type=int, default=2, help="number of agents")
        parser.add_argument(
            "--scale",
            action="store_true",
            help="start and stop fetchers by demand, up to FETCHERS_MAX",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Migrate, start, and supervise until stopped."""
        check_port(options["host"], options["port"])
        # Report a wrong address once here, not by each child.
        connect(settings.BROKER_URL, name="crawlyard up", timeout=5.0).close()
        call_command("migrate", verbosity=0, interactive=False)
        # Without a configured public address the link is for a browser on this machine.
        server = "" if os.environ.get("PUBLIC_URL") else f"http://127.0.0.1:{options['port']}"
        call_command("create_admin", server=server, stdout=self.stdout)
        supervisor = Supervisor(
            box(
                host=options["host"],
                port=options["port"],
                agents=options["agents"],
                objects=object_server(
                    os.environ,
                    url=settings.OBJECTS_URL,
                    public_url=settings.OBJECTS_PUBLIC_URL,
                    listen=settings.OBJECTS_LISTEN,
                ),
            ),
            lambda name, line: self._say(f"{name:<10} | {line}"),
        )
        scale = FetcherScale(supervisor, lambda line: self._say(f"{'up':<10} | {line}"))
        # Before the children start: they must not inherit the variables of the supervisor of `up`.
        life = LivenessReporter.take("up", os.environ)
        with Stop() as stop:
            supervisor.start()
            life.ready()
            if options["scale"]:
                scale.start()
            reported = False
            try:
                while not stop.requested:
                    supervisor.step(0.1)
                    # Print the address only when it accepts connections.
                    if not reported and listens(options["host"], options["port"]):
                        self._say(f"http://{options['host']}:{options['port']}/  Ctrl-C stops")
                        reported = True
                    scale.step()
                    life.feed()
            except UnitFailed as failure:
                raise CommandError(str(failure), returncode=2) from failure
            finally:
                life.stopping()
                scale.stop()
                supervisor.stop()

    def _say(self, line: str) -> None:
        self.stdout.write(line)
        # Flush: a log in a file or pipe would arrive in blocks, and the last lines might be lost.
        self.stdout.flush()
