"""Resources that the imports of one collector process share."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from django.db import connections

from apps.runtime.queries import threads_share_database
from apps.sources.engine.clients.api_caller import Account, RetryBackoff
from apps.sources.engine.clients.base import RecordClient, Secrets
from apps.sources.engine.settings import Source
from apps.sources.models import Credential
from apps.sources.services.clients import client_of, secrets_of
from yardkit.bridge import LoopThread
from yardkit.broker import Broker

T = TypeVar("T")

# Database connections for all imports of a process, whatever the number of sources.
_DATABASE_THREADS: Final = 4


@dataclass(slots=True)
class CollectorContext:
    """Broker, database threads, event loop, and accounts at record APIs."""

    broker: Broker
    allowed_networks: tuple[str, ...] = ()
    patience: RetryBackoff = field(default_factory=RetryBackoff)
    user_agent: str = "Crawlyard"
    # False disables the rate limit, for benchmarks.
    paced: bool = True
    _loop: LoopThread = field(default_factory=lambda: LoopThread("sources http"))
    # By (API URL, name of the credentials), with the secrets.
    _accounts: dict[tuple[str, str], tuple[Secrets, Account]] = field(default_factory=dict)
    _threads: ThreadPoolExecutor | None = None

    def database(self, work: Callable[[], T]) -> T:
        """Run a function in a thread with a database connection; its errors are raised."""
        if not threads_share_database():
            return work()
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_DATABASE_THREADS, "sources database")

        def tidy() -> T:
            try:
                return work()
            except BaseException:
                # After a restart of the server old connections only fail.
                connections.close_all()
                raise

        return self._threads.submit(tidy).result()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the event loop of the clients."""
        return self._loop.submit(work)

    def client(
        self, source: Callable[[], Source], credential: Credential | None, networks: list[str]
    ) -> RecordClient:
        """Return a client of the source; clients of one account share rate limit and token.

        Raises ``ApiFailed`` for missing or unusable credentials.
        """
        now = source()
        secrets = secrets_of(now, credential)
        who = str(credential.pk) if credential is not None else ""
        return client_of(
            source,
            secrets,
            account=self._account((now.url, who), secrets),
            allowed_networks=[*self.allowed_networks, *networks],
            patience=self.patience,
            user_agent=self.user_agent,
            paced=self.paced,
        )

    def _account(self, key: tuple[str, str], secrets: Secrets) -> Account:
        """Return the account of these credentials; changed secrets get a new token at the same
        rate.
        """
        before, account = self._accounts.get(key, (secrets, Account()))
        if before != secrets:
            account = Account(pacer=account.pacer)
        self._accounts[key] = (secrets, account)
        return account

    def close(self) -> None:
        """Stop event loop and threads, without waiting for threads that hang in the database."""
        self._loop.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None
