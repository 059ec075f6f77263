"""``manage.py run_router``: route items from inbounds to outbounds by each project's rules."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from django.db import connection

from apps.projects.models import Project
from apps.routing.daemon import Environment, RouterDaemon
from apps.routing.placeholders import filled_rules
from apps.runtime.management.daemon_command import DaemonCommand
from yardkit.broker import Broker
from yardkit.clock import SystemClock
from yardkit.daemon import Daemon
from yardkit.garbage_collector import spare_the_collector


class Command(DaemonCommand):
    """Start a router. Any number may run at the same time; they share the work."""

    help = "Run a router: move tasks from inbounds to outbounds by rules."
    kind = "router"
    # ``RouterDaemon.step`` waits by itself.
    poll_seconds = 0.0

    def add_daemon_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--project", default="", help="route only the project with this slug")

    def make_daemon(self, options: dict[str, Any], broker: Broker) -> Daemon:
        # SQLite has one writer at a time: a second worker would only wait for the first.
        workers = settings.ROUTING_WORKERS if connection.vendor == "postgresql" else 1
        folder = settings.DATA_DIR / "routing"
        spare_the_collector()
        return RouterDaemon(
            environment=Environment(
                name=f"{self.identity.name} {self.identity.pid}",
                state=folder / "inbounds",
                files=settings.ROUTING_FILES_DIR,
                failures=tuple(settings.ROUTING_FAILURE_DIRS),
                fill=filled_rules,
                redis_url=settings.REDIS_URL,
                redis_prefix=settings.REDIS_PREFIX,
                allowed_networks=tuple(settings.ROUTING_ALLOWED_NETWORKS),
            ),
            clock=SystemClock(),
            identity=self.identity,
            workers=workers,
            project_id=_project(options["project"]),
            stop=self.stop,
        )


def _project(slug: str) -> int | None:
    if not slug:
        return None
    project = Project.objects.filter(slug=slug).values_list("pk", flat=True).first()
    if project is None:
        raise CommandError(f"--project: there is no project with the slug {slug!r}")
    return project
