"""manage.py run_agent: starts the agent process, which uses neither Django nor a database."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

ROOT = Path(__file__).resolve().parents[4]


class Command(BaseCommand):
    """Replace this process by ``python -m apps.agents.downloader``."""

    help = "Run a download agent (python -m apps.agents.downloader)."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Accept the arguments of the agent."""
        parser.add_argument("--id", help="agent id (default: created once and kept)")
        parser.add_argument("--name", help="display name")
        parser.add_argument("--labels", help="key=value,key=value")
        parser.add_argument("--replay", help="recording to answer from, instead of the network")
        parser.add_argument(
            "--replay-missing", choices=("fail", "fetch"), help="for what is not recorded"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Exec the agent with this installation's broker and data folder."""
        argv = [sys.executable, "-m", "apps.agents.downloader"]
        for name in ("id", "name", "labels", "replay", "replay_missing"):
            if options[name]:
                argv += [f"--{name.replace('_', '-')}", options[name]]
        environment = {
            name: value
            for name, value in os.environ.items()
            # The agent must not get settings it does not need; those from files are
            # already in memory.
            if name.removesuffix("_FILE") not in {*settings.SECRET_SETTINGS, "CRAWLYARD_DATA"}
            # Nor keys of the object store.
            and not name.startswith("AWS_")
        }
        environment["BROKER_URL"] = settings.BROKER_URL
        environment["CRAWLYARD_DATA"] = str(settings.DATA_DIR)
        # In the image, the existing value already contains the packages.
        path = [str(ROOT), str(ROOT / "platform"), os.environ.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
        sys.stdout.flush()
        os.execve(sys.executable, argv, environment)  # noqa: S606 - no shell is involved
