"""Connection of one process to a Redis server, and the thread that renews its consumers' leases."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final, Protocol

import redis
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.retry import Retry

from yardkit.masks import masked, without_secrets

logger = logging.getLogger(__name__)

# A blocking command must end well before the socket's timeout, hence ``WAIT_SECONDS``.
SOCKET_SECONDS: Final = 5.0
WAIT_SECONDS: Final = 2.0
LEASE_SECONDS: Final = 30.0


class Leaseholder(Protocol):
    """A consumer whose lease is renewed in the background."""

    def renew(self) -> None:
        """Renew the lease once. Raises ``redis.RedisError``."""


class RedisServer:
    """Connection pool and lease keeper of one URL. Thread-safe.

    ``client`` returns bytes and never repeats a command by itself: it raises ``redis.RedisError``.
    """

    def __init__(
        self,
        url: str,
        *,
        lease_seconds: float = LEASE_SECONDS,
        socket_seconds: float = SOCKET_SECONDS,
    ) -> None:
        """Connects at the first command. Raises ``ValueError``, which shows no password."""
        self._url = url
        self.lease_seconds = lease_seconds
        try:
            options: dict[str, Any] = dict(parse_url(url))  # type: ignore[no-untyped-call]  # redis-py
        except ValueError as error:
            raise ValueError(without_secrets(str(error), url)) from None
        # Overrides the URL: the library would repeat a push whose reply was lost.
        options.update(
            socket_timeout=socket_seconds,
            socket_connect_timeout=socket_seconds,
            retry=Retry(NoBackoff(), 0),
            retry_on_timeout=False,
            retry_on_error=[],
            decode_responses=False,
            health_check_interval=0,
        )
        self.client: Any = redis.Redis.from_pool(redis.ConnectionPool(**options))
        self._state = threading.Lock()
        self._users: weakref.WeakSet[Leaseholder] = weakref.WeakSet()
        self._holders: weakref.WeakSet[Leaseholder] = weakref.WeakSet()
        self._keeper: threading.Thread | None = None
        self._ended = threading.Event()

    @property
    def address(self) -> str:
        """The URL without its password."""
        return masked(self._url)

    def text(self, error: BaseException) -> str:
        """Return the text of an error, without the password."""
        return without_secrets(str(error) or type(error).__name__, self._url)

    def attach(self, user: Leaseholder) -> None:
        """Keep the connections open for ``user`` until ``detach``."""
        with self._state:
            self._users.add(user)

    def detach(self, user: Leaseholder) -> None:
        """Close the connections after the last user; a later command would open new ones."""
        with self._state:
            self._users.discard(user)
            if not self._users:
                self.client.connection_pool.disconnect()

    def keep(self, holder: Leaseholder) -> None:
        """Renew the holder's lease three times in its length, until ``let_go``."""
        with self._state:
            self._holders.add(holder)
            if self._keeper is None:
                self._ended = threading.Event()
                run: Callable[[], None] = _RenewalLoop(self, self._ended, self.lease_seconds / 3)
                self._keeper = threading.Thread(target=run, name="redis-leases", daemon=True)
                self._keeper.start()

    def let_go(self, holder: Leaseholder) -> None:
        """Stop renewing the holder's lease."""
        with self._state:
            self._holders.discard(holder)
            if not self._holders:
                self._end()

    def renew_all(self) -> None:
        """Renew every lease; an unreachable server is tried again at the next renewal."""
        with self._state:
            holders = list(self._holders)
        for holder in holders:
            try:
                holder.renew()
            except (redis.RedisError, OSError):
                return
            except Exception:
                logger.exception("the lease of a consumer could not be renewed")

    def _end(self) -> None:
        self._ended.set()
        self._keeper = None


class _RenewalLoop:
    """Loop of the renewing thread. Holds the server weakly, so that it can be collected."""

    def __init__(self, server: RedisServer, ended: threading.Event, seconds: float) -> None:
        self._server = weakref.ref(server)
        self._ended = ended
        self._seconds = seconds

    def __call__(self) -> None:
        while not self._ended.wait(self._seconds):
            server = self._server()
            if server is None:
                return
            server.renew_all()
            del server


# Keyed by process, too: a forked child must not use its parent's connections and lacks its threads.
_servers: weakref.WeakValueDictionary[tuple[int, str], RedisServer] = weakref.WeakValueDictionary()
_opening = threading.Lock()


def shared_server(url: str) -> RedisServer:
    """Return the server of this process for ``url``, made at first use. Raises ``ValueError``."""
    with _opening:
        server = _servers.get((os.getpid(), url))
        if server is None:
            server = _servers[os.getpid(), url] = RedisServer(url)
        return server
