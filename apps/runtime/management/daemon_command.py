"""Base of every ``run_<noun>`` command."""

from __future__ import annotations

import os
import sys
from typing import Any, ClassVar, NoReturn

from django.core.checks import ERROR, run_checks
from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.runtime.checks import START_TAG
from apps.runtime.daemon import GuardedDaemon, HeartbeatRow, Identity
from apps.runtime.errors import DATABASE_AWAY, DATABASE_ERRORS
from apps.runtime.management.status_table import status_table
from apps.runtime.queries import BEAT_SECONDS, unapplied_migrations
from apps.runtime.services import close_shared_broker, shared_broker, stop_events, stop_relay
from yardkit.broker import Broker, BrokerError
from yardkit.daemon import EXIT_BAD_SETTING, EXIT_FAILED, Daemon, Options, run
from yardkit.env import EnvError
from yardkit.errors import first_line
from yardkit.stop import Stop, die_with_parent_if_asked

# Long enough for a slow handshake; a supervisor restarts the process.
CONNECT_SECONDS = 5.0
# The process must exit 5 s after the signal; these follow the daemon's own teardown.
FLUSH_SECONDS = 0.8


class DaemonCommand(BaseCommand):
    """Subclasses name their ``kind`` and make the daemon; everything else is here.

        class Command(DaemonCommand):
            help = "Dispatch downloads."
            kind = "center"

            def make_daemon(self, options, broker):
                return CenterDaemon(broker=broker, name=self.identity.name, ...)

    ``self.identity`` (kind, name, boot, host, pid) is there when ``make_daemon`` is called, and
    ``self.stop`` too, for a daemon that waits on it itself.
    """

    kind: ClassVar[str]
    poll_seconds: ClassVar[float] = 0.2
    heartbeat_seconds: ClassVar[float] = BEAT_SECONDS
    # Django's checks of all apps take longer than a daemon's whole start; its own run below.
    requires_system_checks = []

    identity: Identity
    stop: Stop

    def make_daemon(self, options: dict[str, Any], broker: Broker) -> Daemon:
        """Return the daemon. ``EnvError``, ``BrokerError`` and ``CommandError`` are printed in one
        line.
        """
        raise NotImplementedError(f"{type(self).__module__} makes no daemon")

    def add_daemon_arguments(self, parser: CommandParser) -> None:
        """Add arguments of this kind of daemon."""

    def add_arguments(self, parser: CommandParser) -> None:
        """Add arguments of every daemon."""
        parser.add_argument("--once", action="store_true", help="Exit when there is nothing to do.")
        parser.add_argument(
            "--name", default="", help="Name of this process (default: the host's)."
        )
        parser.add_argument(
            "--poll-seconds",
            type=float,
            default=self.poll_seconds,
            help="Pause when idle (default: %(default)s).",
        )
        parser.add_argument(
            "--status",
            action="store_true",
            help="Show the running processes of this kind; exit status 1 if none.",
        )
        self.add_daemon_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until a signal; exit with the daemon's status."""
        # Requested by a supervisor, so that its own SIGKILL leaves no orphans.
        die_with_parent_if_asked(os.environ)
        try:
            status = self._status() if options["status"] else self._run(options)
        except CommandError as error:
            self._leave(str(error), error.returncode)
        except (EnvError, BrokerError, *DATABASE_ERRORS) as error:
            self._leave(_explain(error), EXIT_BAD_SETTING)
        if status:
            sys.exit(status)

    def _leave(self, line: str, status: int) -> NoReturn:
        # Printed without a prefix, so that a supervisor can forward it unchanged.
        self.stderr.write(line)
        sys.exit(status)

    def _status(self) -> int:
        _require_migrated()
        table, alive = status_table(self.kind)
        self.stdout.write(table)
        return 0 if alive else EXIT_FAILED

    def _run(self, options: dict[str, Any]) -> int:
        _require_checks()
        _require_migrated()
        with Stop() as self.stop:
            self.identity = Identity.choose(self.kind, options["name"])
            broker = shared_broker(
                timeout=CONNECT_SECONDS, name=f"crawlyard {self.kind} {self.identity.name}"
            )
            try:
                return self._run_with(broker, options)
            finally:
                stop_relay(FLUSH_SECONDS)
                stop_events(FLUSH_SECONDS)
                close_shared_broker(FLUSH_SECONDS)

    def _run_with(self, broker: Broker, options: dict[str, Any]) -> int:
        made = self.make_daemon(options, broker)
        daemon = GuardedDaemon(made)
        row = HeartbeatRow(
            self.identity,
            on_replaced=self.stop.request,
            interval_seconds=self.heartbeat_seconds,
            detail=getattr(made, "detail", None),
        )
        row.start()
        status = EXIT_FAILED
        try:
            status = run(
                daemon,
                Options(
                    name=f"{self.kind} {self.identity.name}",
                    once=options["once"],
                    poll_seconds=options["poll_seconds"],
                    expected_errors=(OSError, BrokerError, *DATABASE_AWAY),
                ),
                beat=row.note,
                stop=self.stop,
            )
            if row.replaced:
                status = EXIT_FAILED
        finally:
            row.finish(failed=status != 0)
        return status


def _require_checks() -> None:
    for problem in run_checks(tags=[START_TAG]):
        if problem.level >= ERROR and not problem.is_silenced():
            hint = f" {problem.hint}" if problem.hint else ""
            raise CommandError(f"{problem.id}: {problem.msg}{hint}", returncode=EXIT_BAD_SETTING)


def _require_migrated() -> None:
    missing = unapplied_migrations()
    if missing:
        raise CommandError(
            f"DATABASE_URL: the database lacks {len(missing)} of this version's migrations, "
            f"{missing[0]} first; run manage.py migrate",
            returncode=EXIT_BAD_SETTING,
        )


def _explain(error: Exception) -> str:
    line = first_line(error)
    if isinstance(error, EnvError):
        return line
    setting = "BROKER_URL" if isinstance(error, BrokerError) else "DATABASE_URL"
    return f"{setting}: {line}"
