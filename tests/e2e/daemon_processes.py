"""Single daemons, each a process of its own, as on a cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from tests.plugins.migrated_databases import copy_sqlite, fill_data_folder

ROOT = Path(__file__).resolve().parents[2]


def is_frozen(process: subprocess.Popen[Any]) -> bool:
    """Whether SIGSTOP holds it."""
    return psutil.Process(process.pid).status() == psutil.STATUS_STOPPED


class Daemons:
    """Processes that share one environment; their output is kept."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        kept = {k: v for k, v in os.environ.items() if not k.startswith("CRAWLYARD_")}
        kept.pop("DJANGO_SETTINGS_MODULE", None)
        self.environment = {**kept, "CRAWLYARD_DATA": str(folder / "data"), **environment}
        # What some of them, by name, have besides or instead.
        self.own: dict[str, dict[str, str]] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        # Where in its log each process began: the same name may have been started before.
        self._began: dict[str, int] = {}

    def manage(
        self, *arguments: str, status: int = 0, timeout: float = 90, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end and check its exit status. ``timeout`` in seconds."""
        done = subprocess.run(
            [sys.executable, str(ROOT / "manage.py"), *arguments],
            env={**self.environment, **environment},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == status, f"{arguments}: {done.stdout}{done.stderr}"
        return done

    def migrate(self) -> None:
        """The database as ``manage.py migrate`` leaves it; one on loan from a server is so."""
        url = self.environment.get("DATABASE_URL", "")
        if not url:
            fill_data_folder(Path(self.environment["CRAWLYARD_DATA"]))
        elif url.startswith("sqlite:///"):
            copy_sqlite(Path(url.removeprefix("sqlite:///")))

    def start(self, name: str, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start ``manage.py`` with the arguments."""
        return self.start_python(name, str(ROOT / "manage.py"), *arguments, **environment)

    def start_python(
        self, name: str, *arguments: str, **environment: str
    ) -> subprocess.Popen[bytes]:
        """Start a Python process; ``log(name)`` is what it writes."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self._began[name] = log.tell()
            process = subprocess.Popen(
                [sys.executable, *arguments],
                env={**self.environment, **self.own.get(name, {}), **environment},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes[name] = process
        return process

    def log(self, name: str) -> str:
        """What the latest process of this name has written."""
        with (self.folder / f"{name}.log").open("rb") as log:
            log.seek(self._began[name])
            return log.read().decode(errors="replace")

    def until_logged(self, name: str, words: str, seconds: float = 120.0) -> None:
        deadline = time.monotonic() + seconds
        while words not in self.log(name):
            assert self.processes[name].poll() is None, self.log(name)
            assert time.monotonic() < deadline, self.log(name)
            time.sleep(0.05)

    def until_frozen(self, name: str, seconds: float = 120.0) -> None:
        """Wait until a failpoint has stopped it."""
        deadline = time.monotonic() + seconds
        while not is_frozen(self.processes[name]):
            assert self.processes[name].poll() is None, self.log(name)
            assert time.monotonic() < deadline, self.log(name)
            time.sleep(0.02)

    def until_met(self, name: str, failpoint: str, seconds: float = 120.0) -> None:
        """Until the process has met it: has said that it failed there, or stood still and goes on.

        Args:
            failpoint: ``jobs.claimed=raise@1`` or ``jobs.claimed=stop:3@1``.
        """
        point, _equals, action = failpoint.partition("=")
        words = "FailpointError:" if action.startswith("raise") else "goes on at"
        self.until_logged(name, f"{words} {point}", seconds)

    def stop(self, name: str, number: signal.Signals) -> tuple[int, float]:
        """Signal one; its exit status and the seconds it took."""
        began = time.monotonic()
        process = self.processes.pop(name)
        process.send_signal(number)
        try:
            return process.wait(20), time.monotonic() - began
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"{name} does not stop: {self.log(name)}") from None

    def end(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
            # One that is stopped hears of nothing else.
            process.send_signal(signal.SIGCONT)
        for process in self.processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
