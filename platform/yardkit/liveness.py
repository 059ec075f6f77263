"""Notifications to the supervisor of this process: ready, alive, stopping.

systemd at ``NOTIFY_SOCKET`` (sd_notify(3), for ``Type=notify`` and ``WatchdogSec=``), and a
container's health check by the file ``CRAWLYARD_HEARTBEAT_PATH``. Without either nothing happens.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

from yardkit.heartbeat import Beat, write_beat

FILE_SETTING: Final = "CRAWLYARD_HEARTBEAT_PATH"
# Minimum interval of heartbeats.
FEED_SECONDS: Final = 5.0
_NOTIFY: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class LivenessReporter:
    """Send the notifications. No method raises."""

    def __init__(
        self, name: str, *, notify_socket: str = "", heartbeat_file: Path | None = None
    ) -> None:
        self._name = name
        # A leading @ is a socket without a file, which the kernel writes as a zero byte.
        self._address = "\0" + notify_socket[1:] if notify_socket[:1] == "@" else notify_socket
        self._file = heartbeat_file
        self._is_ready = False
        self._next_feed = 0.0

    @classmethod
    def take(cls, name: str, environ: MutableMapping[str, str]) -> LivenessReporter:
        """Create from ``environ`` and remove its variables: they are for this process only."""
        values = [environ.pop(key, "") for key in _NOTIFY]
        file = environ.pop(FILE_SETTING, "").strip()
        return cls(name, notify_socket=values[0], heartbeat_file=Path(file) if file else None)

    def ready(self) -> None:
        """Notify that the process works, once."""
        if not self._is_ready:
            self._is_ready = True
            self._send("READY=1")
        self.feed(now=True)

    def feed(self, state: str = "running", error: str = "", *, now: bool = False) -> None:
        """Notify that the loop turns, at most every 5 s. Called by the loop that does the work."""
        if not now and time.monotonic() < self._next_feed:
            return
        self._next_feed = time.monotonic() + FEED_SECONDS
        status = " ".join(f"{state}: {error}".split()) if error else state
        self._write(state, error)
        self._send("WATCHDOG=1", f"STATUS={status}")

    def stopping(self) -> None:
        """Notify the end; no further heartbeats follow."""
        self._is_ready = False
        self._write("stopped", "")
        self._send("STOPPING=1", "STATUS=stopping")

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender,
        ):
            # A full buffer of a frozen supervisor must not block the work.
            sender.setblocking(False)
            sender.sendto("\n".join(lines).encode(errors="replace"), self._address)

    def _write(self, state: str, error: str) -> None:
        if self._file is None:
            return
        beat = Beat(
            name=self._name,
            boot="",
            host=socket.gethostname(),
            pid=os.getpid(),
            state=state,
            at=time.time(),
            error=error,
        )
        # Full disk: the file then becomes stale, which the health check reports.
        with contextlib.suppress(OSError):
            write_beat(self._file, beat)
