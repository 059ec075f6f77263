"""manage.py up: one box, every process of it, until Ctrl-C."""

from __future__ import annotations

import os
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser

from crawlyard.scale_events import FetcherScale
from crawlyard.supervisor import Supervisor, UnitFailed
from crawlyard.units import box
from crawlyard.web import check_port, listens
from yardkit.broker import connect
from yardkit.life import LifeFile
from yardkit.stop import Stop


class Command(BaseCommand):
    """Starts web, center, runner, statistics and agents, and keeps them running."""

    help = "Run everything this box needs, in one terminal."

    def add_arguments(self, parser: CommandParser) -> None:
        """Where the web listens, and how many agents."""
        parser.add_argument("--host", default="127.0.0.1", help="address of the web server")
        parser.add_argument("--port", type=int, default=8000, help="port of the web server")
        parser.add_argument("--agents", type=int, default=2, help="how many agents")
        parser.add_argument(
            "--scale",
            action="store_true",
            help="start and stop further fetchers as they are wanted, up to FETCHERS_MAX",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Migrate, start, watch, stop."""
        check_port(options["host"], options["port"])
        # A wrong address is said once, here, not five times by five children.
        connect(settings.BROKER_URL, name="crawlyard up", timeout=5.0).close()
        call_command("migrate", verbosity=0, interactive=False)
        # No public address is configured, so the link is for a browser on this machine.
        here = "" if os.environ.get("PUBLIC_URL") else f"http://127.0.0.1:{options['port']}"
        call_command("create_admin", server=here, stdout=self.stdout)
        supervisor = Supervisor(
            box(host=options["host"], port=options["port"], agents=options["agents"]),
            lambda name, line: self._say(f"{name:<10} | {line}"),
        )
        scale = FetcherScale(supervisor, lambda line: self._say(f"{'up':<10} | {line}"))
        # Before the children start: it is not they whom the supervisor of `up` asks.
        life = LifeFile.take("up", os.environ)
        with Stop() as stop:
            supervisor.start()
            life.ready()
            if options["scale"]:
                scale.start()
            told = False
            try:
                while not stop.requested:
                    supervisor.step(0.1)
                    # An address that refuses connections is worse than one printed later.
                    if not told and listens(options["host"], options["port"]):
                        self._say(f"http://{options['host']}:{options['port']}/  Ctrl-C stops")
                        told = True
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
        # A log in a file or a pipe would else arrive in blocks, the last lines perhaps never.
        self.stdout.flush()
