"""Heartbeats and database connections around the steps of a daemon."""

from __future__ import annotations

import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

from django.db import connections

from apps.runtime.errors import DATABASE_ERRORS, DaemonReplaced
from apps.runtime.queries import BEAT_SECONDS, threads_share_database
from apps.runtime.services import beat, free_daemon_name, register_daemon, wake_relay
from apps.runtime.states import DaemonState
from yardkit.broker import traffic
from yardkit.daemon import Daemon
from yardkit.guard import keep_running
from yardkit.heartbeat import Beat
from yardkit.outage import Outage

logger = logging.getLogger(__name__)

T = TypeVar("T")


def own_version() -> str:
    """Installed version of the product; "" in a checkout that is not installed."""
    try:
        return version("crawlyard")
    except PackageNotFoundError:
        return ""


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of a process; ``boot`` differs for each start."""

    kind: str
    name: str
    boot: str = field(default_factory=lambda: uuid.uuid4().hex[:16])
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)

    @classmethod
    def choose(cls, kind: str, name: str = "") -> Identity:
        """Use the given name, or derive one: ``host``, or ``host-2`` while ``host`` is alive."""
        host = socket.gethostname()
        return cls(kind=kind, name=name or free_daemon_name(kind=kind, host=host), host=host)


class HeartbeatRow:
    """Updates the heartbeat row of this process from a thread with its own database connection.

    A thread, so that a long step does not look like a dead process. It also wakes the outbox relay:
    any living daemon publishes the messages of a dead one. ``detail`` returns further columns of
    the row; it is called in the thread for each heartbeat.
    """

    def __init__(
        self,
        identity: Identity,
        *,
        on_replaced: Callable[[], None],
        interval_seconds: float = BEAT_SECONDS,
        detail: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        self.identity = identity
        self._more = detail
        self.replaced = False
        self._on_replaced = on_replaced
        self._interval = interval_seconds
        self._state: str = DaemonState.STARTING
        self._detail: dict[str, Any] = {}
        self._outage = Outage(logger, f"heartbeat of {identity.kind} {identity.name}")
        self._due = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Create the row and start the thread. Raises ``DatabaseError``."""
        me = self.identity
        register_daemon(
            kind=me.kind,
            name=me.name,
            boot=me.boot,
            host=me.host,
            pid=me.pid,
            version=own_version(),
        )
        if threads_share_database():
            guarded = partial(keep_running, "heartbeat", self._run, self._stop)
            self._thread = threading.Thread(target=guarded, name="heartbeat", daemon=True)
            self._thread.start()

    def note(self, sign: Beat) -> None:
        """Store the state of the daemon's loop; a change is written at once."""
        changed = sign.state != self._state
        # "stopped" is written by finish(), after the connections are closed.
        self._state = DaemonState.STOPPING if sign.state == "stopped" else sign.state
        self._detail = {"steps": sign.steps, "failures": sign.failures, "error": sign.error}
        if self._thread is None:
            self._write()
        elif changed:
            self._due.set()

    def finish(self, *, failed: bool, timeout: float = 1.0) -> None:
        """Write the last state and end the thread."""
        self._state = DaemonState.FAILED if failed else DaemonState.STOPPED
        self._stop.set()
        self._due.set()
        if self._thread is None:
            self._write()
        else:
            self._thread.join(timeout)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._write()
                wake_relay()
                self._due.wait(self._interval)
                self._due.clear()
            # finish() may have been called while the previous state was being written.
            self._write()
        finally:
            connections.close_all()

    def _write(self) -> None:
        me = self.identity
        more: Mapping[str, Any] = {}
        settled = traffic.counts()
        try:
            more = self._more() if self._more is not None else {}
        except Exception:
            # A row with less detail is better than a process that seems dead.
            logger.exception("what the row of %s %s should tell is not known", me.kind, me.name)
        try:
            beat(
                kind=me.kind,
                name=me.name,
                boot=me.boot,
                host=me.host,
                pid=me.pid,
                version=own_version(),
                state=self._state,
                detail={**more, **({"settled": settled} if settled else {}), **self._detail},
            )
        except DaemonReplaced:
            if not self.replaced and not self._stop.is_set():
                self.replaced = True
                logger.error(
                    "another %s has started under the name %s: this one ends; "
                    "give each its own --name",
                    me.kind,
                    me.name,
                )
                self._on_replaced()
        except DATABASE_ERRORS as error:
            self._outage.failed(error)
            connections.close_all()
        else:
            self._outage.recovered()


class GuardedDaemon:
    """Daemon whose failed steps leave no broken database connection behind."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def setup(self) -> None:
        """Set up; renew database connections after a failure."""
        self._guard(self._daemon.setup)

    def step(self) -> bool:
        """Run one step; renew database connections after a failure."""
        return self._guard(self._daemon.step)

    def teardown(self) -> None:
        """Tear down, then close the database connections."""
        try:
            self._daemon.teardown()
        finally:
            connections.close_all()

    def _guard(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except BaseException:
            # After a restart of the server old connections only fail; a new one is cheap.
            connections.close_all()
            raise
