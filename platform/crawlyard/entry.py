"""Entry point of management commands; prints a bad setting in one line, without a traceback."""

from __future__ import annotations

import gc
import os
import sys
from typing import Any

from crawlyard.demo.environment import prepare, wants_own_folder
from yardkit.broker import BrokerError
from yardkit.env import EnvError
from yardkit.errors import first_line

BASE = "crawlyard.settings.base"
_VENV_HINT = "run `make install` once, then .venv/bin/python manage.py ..."


def settings_of(argv: list[str]) -> str:
    """Return the settings module of a command, so that it imports no more than it needs."""
    command = "".join(argv[1:2])
    if command == "run_web":
        return "crawlyard.settings.web"
    if command in ("run_worker", "run_beat"):
        return "crawlyard.settings.worker"
    return "crawlyard.settings.daemon" if command.startswith("run_") else BASE


def main(argv: list[str]) -> int:
    """Run ``argv`` as Django would; exit status 2 for a bad setting or an unreachable store."""
    # Loaded modules are never freed: garbage collection would be a tenth of the start-up time.
    gc.disable()
    try:
        if wants_own_folder(argv):
            # Before Django reads the settings.
            prepare(os.environ, argv[1], argv[2:])
        if os.environ.get("DJANGO_SETTINGS_MODULE") == BASE:
            os.environ["DJANGO_SETTINGS_MODULE"] = settings_of(argv)
        return _run(argv)
    except EnvError as error:
        return _refuse(str(error))
    except BrokerError as error:
        return _refuse(f"BROKER_URL: {error}")
    except KeyboardInterrupt:
        return 130


def _run(argv: list[str]) -> int:
    try:
        from django.core.management import ManagementUtility
        from django.db.utils import OperationalError
    except ModuleNotFoundError:
        # The system's Python, without the installed dependencies.
        return _refuse(f"{sys.executable} has no Django: {_VENV_HINT}")

    class Utility(ManagementUtility):
        def fetch_command(self, subcommand: str) -> Any:
            command = super().fetch_command(subcommand)
            gc.freeze()
            gc.enable()
            return command

    try:
        Utility(argv).execute()
    except OperationalError as error:
        return _refuse(f"DATABASE_URL: the database does not answer: {first_line(error)}")
    return 0


def _refuse(line: str) -> int:
    sys.stderr.write(f"{line}\n")
    return 2
