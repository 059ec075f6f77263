"""``manage.py run_runner``: starts, watches and stops runs on this host."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from typing import Any, Final

from django.conf import settings
from django.core.management.base import CommandParser

from apps.jobs.daemon import RunnerDaemon
from apps.runtime.daemon import own_version
from apps.runtime.management.daemon_command import DaemonCommand
from yardkit.broker import Broker
from yardkit.clock import SystemClock
from yardkit.daemon import Daemon

MOST_RUNS: Final = 10_000
_LABEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]{0,62}")


def _capacity(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= number <= MOST_RUNS:
        raise ArgumentTypeError(f"{text!r}: a number from 1 to {MOST_RUNS}")
    return number


def _label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not _LABEL.fullmatch(name) or not _LABEL.fullmatch(value):
        raise ArgumentTypeError(f"{text!r}: write it as NAME=VALUE, of letters, digits and -_./")
    return name, value


class Command(DaemonCommand):
    """Runner daemon of this host."""

    help = "Run the runner of this host."
    kind = "runner"
    # The step itself waits for messages.
    poll_seconds = 0.0

    def add_daemon_arguments(self, parser: CommandParser) -> None:
        """Add the capacity and the labels of the host."""
        parser.add_argument("--capacity", type=_capacity, default=8, help="maximum number of runs")
        parser.add_argument(
            "--label",
            type=_label,
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="label that jobs may require; may be repeated",
        )

    def make_daemon(self, options: dict[str, Any], broker: Broker) -> Daemon:
        """Return a runner with the name of this process."""
        return RunnerDaemon(
            broker=broker,
            host=self.identity.name,
            clock=SystemClock(),
            capacity=options["capacity"],
            folder=settings.RUNS_DIR,
            stop=self.stop,
            labels=dict(options["label"]),
            boot=self.identity.boot,
            version=own_version(),
        )
