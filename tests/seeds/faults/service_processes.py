"""A seed service between real servers, to be broken, and what a test needs around it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import psutil

from apps.seeds.stores.base import Segment, SegmentCounts
from apps.seeds.stores.factory import open_store
from apps.seeds.stores.operations import RESULTS, AnyOperation, ShowSegments
from tests.e2e.daemon_processes import ROOT, Daemons
from yardkit.broker import Broker, connect
from yardkit.protocol import Seed
from yardkit.seeds import CallRefused, SeedClient, SeedServiceAway
from yardkit.tokens import frontier_scope, manage_scope, sign_scope

T = TypeVar("T")

# `make test-faults` says so: more seeds, all rounds, and what takes long to start.
FULL = os.environ.get("CRAWLYARD_FAULTS") == "full"
# Generous, because it only bounds a failing test.
PATIENCE_SECONDS = 300.0 if FULL else 120.0
SECRET = secrets.token_urlsafe(50)
DAEMON = "seeds"


class SeedYard:
    """A database, a broker and the address of a store with a clerk; services as a test wants."""

    def __init__(
        self, folder: Path, *, store_url: str, broker_url: str, database: str = ""
    ) -> None:
        self.store_url = store_url
        self.broker_url = broker_url
        self.daemons = Daemons(
            folder,
            PYTHONPATH=f"{ROOT}:{ROOT / 'platform'}",
            BROKER_URL=broker_url,
            SEEDS_URL=store_url,
            SECRET_KEY=SECRET,
            **({"DATABASE_URL": database} if database else {}),
        )
        self.daemons.migrate()
        self._brokers: list[Broker] = []
        # Calls that the service has refused for a mistake of its own, or for the moment.
        self.mistakes = 0
        self._numbers = itertools.count(1)
        with (folder / "clerk.log").open("ab") as log:
            self._clerk = subprocess.Popen(
                [sys.executable, "-m", "tests.seeds.faults.helper_process"],
                env={
                    **self.daemons.environment,
                    "DJANGO_SETTINGS_MODULE": "crawlyard.settings.base",
                },
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def close(self) -> None:
        """Leave nothing behind."""
        self.daemons.end()
        self._clerk.terminate()
        self._clerk.communicate(timeout=20)
        for broker in self._brokers:
            broker.close()

    def ask(self, question: str, **arguments: Any) -> Any:
        """What the clerk answers; see tests/seeds/faults/helper_process.py."""
        assert self._clerk.stdin is not None
        assert self._clerk.stdout is not None
        self._clerk.stdin.write(json.dumps([question, arguments]) + "\n")
        self._clerk.stdin.flush()
        answer = self._clerk.stdout.readline()
        assert answer, (self.daemons.folder / "clerk.log").read_text()[-3000:]
        return json.loads(answer)

    def frontier(self, **fields: Any) -> int:
        """A new one, whose leases outlast a test unless it says otherwise."""
        name = f"f{next(self._numbers)}-{secrets.token_hex(3)}"
        number: int = self.ask("frontier", name=name, **{"lease_seconds": 3600, **fields})
        return number

    def until(
        self,
        condition: Callable[[], Any],
        what: str,
        seconds: float = PATIENCE_SECONDS,
        left: Iterable[str] = (),
    ) -> Any:
        """Wait until it holds; what it was then. ``left`` is told of one that does not."""
        deadline = time.monotonic() + seconds
        while not (answer := condition()):
            late = time.monotonic() > deadline
            assert not late, f"never happened: {what} {sorted(left)}\n{self.logs()}"
            time.sleep(0.02)
        return answer

    def logs(self) -> str:
        """The end of every log."""
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}"
            for path in self.daemons.folder.glob("*.log")
        )

    # --- the service ------------------------------------------------------------------------------

    def start(self, name: str = DAEMON, **environment: str) -> subprocess.Popen[bytes]:
        """Start one."""
        return self.daemons.start(name, "run_seeds", "--name", name, **environment)

    def start_serving(self, frontier: int, name: str = DAEMON, **environment: str) -> float:
        """Start one; the seconds until it has answered a call, or was killed."""
        began = time.monotonic()
        process = self.start(name, **environment)
        client = self.client(frontier, timeout=0.5, patience=0.0)
        while process.poll() is None:
            try:
                client.look_up(Seed("ping"))
                break
            except (SeedServiceAway, CallRefused):
                assert time.monotonic() < began + PATIENCE_SECONDS, self.logs()
        return time.monotonic() - began

    def until_killed(self, name: str = DAEMON) -> None:
        """Wait until a failpoint has killed it."""
        process = self.daemons.processes[name]
        self.until(lambda: process.poll() is not None, f"the end of {name}")
        status = self.daemons.processes.pop(name).returncode
        assert status == -signal.SIGKILL, (status, self.logs())

    def frozen_at(self, name: str = DAEMON) -> set[str]:
        """Where it stands still now, by failpoints: each has a process that will wake it."""
        found = set()
        for child in psutil.Process(self.daemons.processes[name].pid).children():
            # One that has ended may stay for a while, and says nothing.
            with contextlib.suppress(psutil.Error, IndexError):
                found.add(child.cmdline()[-1])
        return found

    def kill(self, name: str = DAEMON) -> None:
        """At once."""
        process = self.daemons.processes.pop(name)
        process.kill()
        process.wait()

    def stop(self, name: str = DAEMON) -> None:
        """In good order."""
        status, _ = self.daemons.stop(name, signal.SIGTERM)
        assert status == 0, self.logs()

    # --- asking it --------------------------------------------------------------------------------

    def broker(self) -> Broker:
        """A connection of its own."""
        self._brokers.append(connect(self.broker_url, name="test of seeds", timeout=60))
        return self._brokers[-1]

    def client(
        self,
        frontier: int,
        owner: str = "spider",
        *,
        timeout: float = 5.0,
        patience: float = PATIENCE_SECONDS,
    ) -> SeedClient:
        """One that asks on through every outage; all share a connection."""
        if not self._brokers:
            self.broker()
        token = sign_scope(SECRET, frontier_scope(frontier))
        return SeedClient(
            self._brokers[0], frontier, token, owner=owner, timeout=timeout, patience=patience
        )

    def insist(self, call: Callable[[], T]) -> T:
        """Make this call, and once more for each mistake of the service: it costs one call."""
        while True:
            try:
                return call()
            except CallRefused as refusal:
                if refusal.code != "service_error" and not refusal.retry_seconds:
                    raise
                self.mistakes += 1
                time.sleep(refusal.retry_seconds)

    def manage(self, frontier: int, operation: AnyOperation) -> Any:
        """Have one done; what it gives."""
        token = sign_scope(SECRET, manage_scope(frontier))
        if not self._brokers:
            self.broker()
        client = SeedClient(
            self._brokers[0], frontier, token, timeout=5.0, patience=PATIENCE_SECONDS
        )
        raw = client.manage(msgspec.Raw(msgspec.msgpack.encode(operation)))
        return msgspec.msgpack.decode(raw, type=RESULTS[type(operation)])

    def books(self, frontier: int) -> SegmentCounts:
        """Of all segments together, after a look whether each balances."""
        segments: list[Segment] = self.manage(frontier, ShowSegments())
        total = SegmentCounts()
        for one in segments:
            assert one.books.balance(), one
            total = total.plus(one.books)
        return total

    def states(self, frontier: int) -> dict[str, str]:
        """The state of each seed by its key, from the store itself: nobody may have it open."""
        store = open_store(self.store_url)
        try:
            found: dict[str, str] = {}
            for segment in store.segments(frontier):
                assert segment.books.balance(), segment
                for one in store.export(frontier, segment.segment):
                    assert one.key not in found
                    found[one.key] = one.state.name
            return found
        finally:
            store.close()
