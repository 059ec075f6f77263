"""A Redis server as the queues of one process share it: connections, and the renewal of leases."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

import redis
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.retry import Retry

from apps.requeststore.engine.errors import BadSetting, StoreUnavailable
from apps.requeststore.engine.masking import masked, without_secrets

logger = logging.getLogger(__name__)

# The library's own limit is 5 s, too, and would end a wait of as many: none may be longer than
# ``WAIT_SECONDS`` at a time.
SOCKET_SECONDS: Final = 5.0
WAIT_SECONDS: Final = 2.0
LEASE_SECONDS: Final = 30.0


class Leaseholder(Protocol):
    """What has a lease to renew."""

    def renew(self) -> None:
        """Say that its consumer lives; raises ``redis.RedisError``."""


class RedisServer:
    """See above. ``client`` answers bytes; its commands raise ``redis.RedisError``, at once."""

    def __init__(
        self,
        url: str,
        *,
        lease_seconds: float = LEASE_SECONDS,
        socket_seconds: float = SOCKET_SECONDS,
    ) -> None:
        """Connects at the first command. Raises ``BadSetting``."""
        self._url = url
        self.lease_seconds = lease_seconds
        try:
            options: dict[str, Any] = dict(parse_url(url))  # type: ignore[no-untyped-call]  # redis-py
        except ValueError as error:
            raise BadSetting(f"REDIS_URL: {without_secrets(str(error), url)}") from None
        # Whatever the URL says: the library would send a push again whose answer was lost.
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
        """Without its password."""
        return masked(self._url)

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Turns what the library raises into ``StoreUnavailable``."""
        try:
            yield
        except (redis.RedisError, OSError) as error:
            raise self.unavailable(error) from error

    def unavailable(self, error: BaseException) -> StoreUnavailable:
        """What to raise for ``error``; shows no password."""
        text = without_secrets(str(error) or type(error).__name__, self._url)
        return StoreUnavailable(f"Redis at {self.address}: {text}")

    def attach(self, user: Leaseholder) -> None:
        """It uses the connections until ``detach``."""
        with self._state:
            self._users.add(user)

    def detach(self, user: Leaseholder) -> None:
        """The last one closes the connections; the next command would open new ones."""
        with self._state:
            self._users.discard(user)
            if not self._users:
                self.client.connection_pool.disconnect()

    def keep(self, holder: Leaseholder) -> None:
        """Renew its lease three times in each, until it is gone or let go."""
        with self._state:
            self._holders.add(holder)
            if self._keeper is None:
                self._ended = threading.Event()
                run: Callable[[], None] = _Keeping(self, self._ended, self.lease_seconds / 3)
                self._keeper = threading.Thread(target=run, name="redis-leases", daemon=True)
                self._keeper.start()

    def let_go(self, holder: Leaseholder) -> None:
        """It needs no lease any more."""
        with self._state:
            self._holders.discard(holder)
            if not self._holders:
                self._end()

    def renew_all(self) -> None:
        """A server that is away is no reason to end: the leases are renewed when it is back."""
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


class _Keeping:
    """The loop of the thread; it does not hold the server, which may be forgotten meanwhile."""

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


# By process, too: a child must not use its parent's connections, or wait for a thread of his.
_servers: weakref.WeakValueDictionary[tuple[int, str], RedisServer] = weakref.WeakValueDictionary()
_opening = threading.Lock()


def shared_server(url: str) -> RedisServer:
    """The one of this process for ``url``, for as long as a queue holds it."""
    with _opening:
        server = _servers.get((os.getpid(), url))
        if server is None:
            server = _servers[os.getpid(), url] = RedisServer(url)
        return server
