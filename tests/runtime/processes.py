"""Own processes on an own database and broker, which a test may kill."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Generous, because it only bounds a failing test: the machine may be busy.
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Place:
    """Where processes of one test live: a database and a broker."""

    database_url: str
    broker_url: str
    folder: Path

    def environment(self, **extra: str) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("CRAWLYARD_", "DJANGO_", "FAILPOINTS"))
        }
        return {
            **kept,
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'platform'}",
            "DJANGO_SETTINGS_MODULE": "tests.runtime.settings_alone",
            "DATABASE_URL": self.database_url,
            "BROKER_URL": self.broker_url,
            **extra,
        }

    def start(self, *arguments: str, **extra: str) -> subprocess.Popen[str]:
        """A management command in the background; its output is one pipe."""
        return subprocess.Popen(
            [sys.executable, "-m", "django", *arguments],
            env=self.environment(**extra),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def command(self, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
        """A management command, run to its end."""
        return subprocess.run(
            [sys.executable, "-m", "django", *arguments],
            env=self.environment(**extra),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    def python(self, code: str, **extra: str) -> subprocess.CompletedProcess[str]:
        """A script inside Django, run to its end."""
        return subprocess.run(
            [sys.executable, "-c", f"import django; django.setup()\n{code}"],
            env=self.environment(**extra),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    def migrate(self) -> None:
        done = self.command("migrate", "-v", "0")
        assert done.returncode == 0, done.stderr


def wait_for(condition: Callable[[], object], what: str) -> None:
    """Wait until ``condition`` holds; fail with ``what`` when it never does."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.05)
