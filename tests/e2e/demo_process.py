"""``manage.py demo`` as a person starts it: an own process, own folder, real signals."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import Browser, StorageState

from tests.plugins.migrated_databases import fill_data_folder

ROOT = Path(__file__).resolve().parents[2]
NEW_PASSWORD = "a-better-one-4711"
STORES = ("DATABASE_URL", "BROKER_URL", "REDIS_URL")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Demo:
    """A running demo. Always ``end()`` it.

    Args:
        folder: where its data and what it prints go.
        is_first: it finds no database and makes one; that takes it a while.
    """

    def __init__(
        self, folder: Path, *arguments: str, is_first: bool = False, **environment: str
    ) -> None:
        self.folder = folder
        self.port = free_port()
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("CRAWLYARD_")}
        inherited.pop("DJANGO_SETTINGS_MODULE", None)
        self.stderr_path = folder / "stderr.txt"
        self.stdout_path = folder / "stdout.txt"
        folder.mkdir(parents=True, exist_ok=True)
        if not is_first:
            fill_data_folder(folder / "data")
        with self.stdout_path.open("wb") as out, self.stderr_path.open("wb") as err:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    str(ROOT / "manage.py"),
                    "demo",
                    "--port",
                    str(self.port),
                    *arguments,
                ],
                env={**inherited, "CRAWLYARD_DEMO_DATA": str(folder / "data"), **environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=folder,
                start_new_session=True,
            )
        self.family: list[psutil.Process] = []

    @property
    def stderr(self) -> str:
        return self.stderr_path.read_text(errors="replace")

    @property
    def stdout(self) -> str:
        return self.stdout_path.read_text(errors="replace")

    @property
    def log(self) -> str:
        path = self.folder / "data" / "demo.log"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def log_in(self, browser: Browser) -> StorageState:
        """Cookies of the admin, who sets name and password by the link that is shown once."""
        found = re.search(r"link is good once\): (\S+)", self.stderr)
        assert found is not None
        context = browser.new_context(base_url=self.address)
        page = context.new_page()
        page.goto(found[1])
        page.locator("#id_username").fill("admin")
        page.locator("#id_password").fill(NEW_PASSWORD)
        page.locator("#id_again").fill(NEW_PASSWORD)
        page.locator("#id_again").press("Enter")
        page.wait_for_url(lambda url: "/welcome/" not in url)
        state = context.storage_state()
        context.close()
        return state

    def children(self) -> list[psutil.Process]:
        """Every living descendant; remembered, to look for orphans later."""
        try:
            found = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            found = []
        self.family = list({*self.family, *found})
        return found

    def child(self, *words: str) -> psutil.Process:
        """The descendant whose command line has all the words."""
        for process in self.children():
            try:
                line = process.cmdline()
            except psutil.Error:
                continue
            if all(word in line for word in words):
                return process
        raise AssertionError(f"no process with {words}\n{self.explain()}")

    def until(self, happened: Callable[[], bool], seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not happened():
            assert self.process.poll() is None, self.explain()
            assert time.monotonic() < deadline, self.explain()
            time.sleep(0.05)

    def wait(self, seconds: float = 120.0) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.explain()) from None

    def report(self) -> dict[str, Any]:
        """The JSON object printed last."""
        result: dict[str, Any] = json.loads(self.stdout.splitlines()[-1])
        return result

    def stop(self, number: signal.Signals) -> float:
        """Signal it; the seconds until it and everything it started were gone."""
        self.children()
        began = time.monotonic()
        self.process.send_signal(number)
        self.wait(30)
        return time.monotonic() - began

    def orphans(self) -> list[psutil.Process]:
        """Descendants seen before that still run."""
        return [p for p in self.family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]

    def end(self) -> None:
        """Leave nothing behind, whatever happened."""
        self.children()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for process in self.orphans():
            process.kill()

    def explain(self) -> str:
        return "\n".join(
            [f"exit status {self.process.poll()}", self.stdout, self.stderr, self.log[-6000:]]
        )
