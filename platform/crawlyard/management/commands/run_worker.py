"""manage.py run_worker: runs Celery tasks."""

from __future__ import annotations

import logging
import time
from typing import Any

from django.core.management.base import CommandError, CommandParser

from apps.projects.services.build_states import leave_builds
from apps.projects.services.build_worker import leaving
from apps.runtime.daemon import HeartbeatRow
from apps.runtime.deferral import stop_deferring
from apps.runtime.errors import DATABASE_ERRORS
from apps.runtime.management.daemon_command import FLUSH_SECONDS, DaemonCommand
from apps.runtime.services import close_shared_broker, database_now, stop_events, stop_relay
from crawlyard.celery import app
from crawlyard.worker import Worker
from yardkit import failpoints, topology
from yardkit.broker import Broker
from yardkit.daemon import EXIT_BAD_SETTING, EXIT_FAILED
from yardkit.heartbeat import Beat

logger = logging.getLogger(__name__)

QUEUES = (topology.TASKS, topology.BUILDS)


class Command(DaemonCommand):
    """Any number of workers, each for all queues or some."""

    help = "Run tasks: builds, schedules, housekeeping."
    kind = "worker"

    def add_daemon_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--queues",
            default=",".join(QUEUES),
            help="Queues, separated by commas (default: %(default)s).",
        )
        parser.add_argument(
            "--concurrency", type=int, default=4, help="Concurrent tasks (default: %(default)s)."
        )

    def _run_with(self, broker: Broker, options: dict[str, Any]) -> int:
        if options["once"]:
            raise CommandError(
                "--once: a worker does not know when there is nothing to do",
                returncode=EXIT_BAD_SETTING,
            )
        queues = _queues(options["queues"])
        if not 1 <= options["concurrency"] <= 1000:
            raise CommandError("--concurrency: between 1 and 1000", returncode=EXIT_BAD_SETTING)
        failpoints.configure()
        worker = Worker(
            app,
            name=f"{self.kind}@{self.identity.name}",
            queues=queues,
            concurrency=options["concurrency"],
            stop=self.stop,
        )
        row = HeartbeatRow(
            self.identity, on_replaced=self.stop.request, interval_seconds=self.heartbeat_seconds
        )
        row.start()
        status = EXIT_FAILED
        try:
            status = worker.run(
                on_tasks=lambda count: row.note(self._sign(count)),
                last_words=lambda: self._last_words(row, worker.name),
            )
            if row.replaced:
                status = EXIT_FAILED
        finally:
            self._report_stop(row, failed=status != 0)
        return status

    def _last_words(self, row: HeartbeatRow, worker: str) -> None:
        leaving.set()
        try:
            leave_builds(worker=worker, now=database_now())
        except DATABASE_ERRORS as error:
            logger.warning("builds that were begun are left to the sweep: %s", error)
        self._report_stop(row, failed=False)
        failpoints.hit("worker.left")

    def _report_stop(self, row: HeartbeatRow, *, failed: bool) -> None:
        row.finish(failed=failed)
        for stop in (stop_deferring, stop_relay, stop_events, close_shared_broker):
            stop(FLUSH_SECONDS / 2)

    def _sign(self, tasks: int) -> Beat:
        me = self.identity
        return Beat(
            name=me.name,
            boot=me.boot,
            host=me.host,
            pid=me.pid,
            state="running",
            at=time.time(),
            steps=tasks,
        )


def _queues(text: str) -> list[str]:
    queues = [word for word in text.replace(",", " ").split() if word]
    unknown = [word for word in queues if word not in QUEUES]
    if unknown or not queues:
        message = f"--queues {text!r}: name some of {', '.join(QUEUES)}"
        raise CommandError(message, returncode=EXIT_BAD_SETTING)
    return queues
