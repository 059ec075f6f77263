"""Presence of a process at a broker file: a locked file as sign of life, a socket to wake it.

The kernel holds the lock for as long as the process exists, whatever the clocks say.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import select
import socket
import sqlite3
import struct
import tempfile
import weakref
from collections.abc import Iterable
from pathlib import Path

# What a Unix socket's path may be long on every system, its closing zero included.
_ADDRESS_BYTES = 104
# The kernel keeps as few as 10 unread datagrams per socket and refuses more; after this many
# in one go some may be missing, so the reader looks at all of its queues.
_MANY_DATAGRAMS = 8
# How a socket is called where the broker file's own folder has too long a path.
_ELSEWHERE = "crawlyard-"
_QUEUE_ID = struct.Struct("<q")
_QUEUES_PER_DATAGRAM = 64

_open_sessions: weakref.WeakSet[SqliteSession] = weakref.WeakSet()


class SqliteSession:
    """Lock file, sockets and row of one broker object. I/O thread only, except ``nudge``."""

    def __init__(self, folder: Path, name: str) -> None:
        self.id = 0
        self._folder = folder
        self._name = name
        self._token = secrets.token_hex(8)
        self._lock = -1
        self._inner, self._outer = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._inner.setblocking(False)
        self._outer.setblocking(False)
        self._mailbox: socket.socket | None = None
        self.address = ""
        self._poller = select.poll()
        self._poller.register(self._inner, select.POLLIN)
        _open_sessions.add(self)

    def open(self, connection: sqlite3.Connection) -> None:
        """Register in a write transaction, so that no process takes the new lock file for a dead
        one.
        """
        _remove_strays(connection, self._folder)
        self._lock = os.open(_lock_file(self._folder, self._token), os.O_CREAT | os.O_RDWR, 0o666)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._open_mailbox()
        row = (self._token, os.getpid(), self._name, self.address)
        cursor = connection.execute(
            "INSERT INTO session (token, pid, name, address) VALUES (?, ?, ?, ?)", row
        )
        self.id = cursor.lastrowid or 0

    def _open_mailbox(self) -> None:
        path = self._folder / f"{self._token}.sock"
        if len(os.fsencode(path)) >= _ADDRESS_BYTES:
            path = Path(tempfile.gettempdir()) / f"{_ELSEWHERE}{self._token}.sock"
            _remove_unanswered(path.parent)
        if len(os.fsencode(path)) >= _ADDRESS_BYTES:
            return  # the others cannot wake this process; it looks four times a second anyway
        address = str(path)
        mailbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            mailbox.bind(address)
        except OSError:
            mailbox.close()  # a file system without sockets: the same
            return
        mailbox.setblocking(False)
        self._poller.register(mailbox, select.POLLIN)
        self._mailbox, self.address = mailbox, address

    def nudge(self) -> None:
        """Wake the I/O thread from another thread."""
        with contextlib.suppress(OSError):  # full: it is being woken; closed: it has ended
            self._outer.send(b"\0")

    def wait(self, seconds: float) -> set[int] | None:
        """Wait for a nudge, a datagram or the timeout.

        Returns the ids of queues that may have changed; None: any.
        """
        events = self._poller.poll(max(seconds, 0.0) * 1000)
        news: set[int] | None = set()
        for descriptor, _ in events:
            if descriptor == self._inner.fileno():
                with contextlib.suppress(BlockingIOError):
                    self._inner.recv(4096)
            else:
                news = self._read_mailbox()
        return news

    def _read_mailbox(self) -> set[int] | None:
        news: set[int] = set()
        if self._mailbox is None:
            return news
        for _ in range(_MANY_DATAGRAMS):
            try:
                datagram = self._mailbox.recv(_QUEUE_ID.size * _QUEUES_PER_DATAGRAM)
            except BlockingIOError:
                return news
            whole = len(datagram) - len(datagram) % _QUEUE_ID.size
            news.update(id_ for (id_,) in _QUEUE_ID.iter_unpack(datagram[:whole]))
        return None

    def wake(self, address: str, queue_ids: Iterable[int]) -> bool:
        """Wake another session for these queues; False when it is gone."""
        datagram = b"".join(map(_QUEUE_ID.pack, queue_ids))
        size = _QUEUE_ID.size * _QUEUES_PER_DATAGRAM
        sender = self._mailbox
        if sender is None:
            return True
        try:
            for start in range(0, len(datagram), size):
                sender.sendto(datagram[start : start + size], address)
        except BlockingIOError:
            return True  # its mailbox is full, so it will look at everything
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Remove the files. The caller removes the row."""
        if self._lock >= 0:
            remove_files(self._folder, self._token, self.address)
        self.detach()

    def detach(self) -> None:
        """Close file descriptors without touching the file system."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        for endpoint in (self._inner, self._outer, self._mailbox):
            if endpoint is not None:
                endpoint.close()
        _open_sessions.discard(self)


def find_dead(connection: sqlite3.Connection, folder: Path, own: int) -> list[int]:
    """Return the ids of sessions whose processes are gone."""
    rows = connection.execute("SELECT id, token FROM session WHERE id != ?", (own,)).fetchall()
    return [id_ for id_, token in rows if not _is_locked(_lock_file(folder, token))]


def remove_files(folder: Path, token: str, address: str) -> None:
    """Remove the files of a session."""
    for path in filter(None, (address, str(_lock_file(folder, token)))):
        with contextlib.suppress(OSError):
            os.unlink(path)


def _lock_file(folder: Path, token: str) -> Path:
    return folder / f"{token}.lock"


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # unreadable for us: leave it to who may
    try:
        # Shared, so that two processes that look at once do not take each other for the owner.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _remove_strays(connection: sqlite3.Connection, folder: Path) -> None:
    known = {token for (token,) in connection.execute("SELECT token FROM session")}
    for path in folder.glob("*.lock"):
        token = path.stem
        if path.name == "schema.lock" or token in known or _is_locked(path):
            continue
        remove_files(folder, token, str(folder / f"{token}.sock"))


def _remove_unanswered(folder: Path) -> None:
    """Remove sockets of processes that are gone from the temporary folder."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        for path in folder.glob(f"{_ELSEWHERE}*.sock"):
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
            except OSError:
                continue  # of another session


def _after_fork_in_child() -> None:
    # A child would keep its parent's lock alive, and the parent would never be found dead.
    for session in list(_open_sessions):
        session.detach()


os.register_at_fork(after_in_child=_after_fork_in_child)
