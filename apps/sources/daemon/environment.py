"""What one collector process has, and its harvests share."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from django.db import connections

from apps.runtime.queries import threads_share_database
from apps.sources.engine.clients.api_caller import Account, Patience
from apps.sources.engine.clients.base import RecordClient, Secrets
from apps.sources.engine.settings import Source
from apps.sources.models import Credential
from apps.sources.services.clients import client_of, secrets_of
from yardkit.bridge import LoopThread
from yardkit.broker import Broker

T = TypeVar("T")

# Connections of all harvests of a process to the database, however many sources there are.
_DATABASE_THREADS: Final = 4


@dataclass(slots=True)
class CollectorContext:
    """Broker, database threads, event loop, and the accounts at record APIs."""

    broker: Broker
    allowed_networks: tuple[str, ...] = ()
    patience: Patience = field(default_factory=Patience)
    user_agent: str = "Crawlyard"
    # False asks as fast as it can: for benches.
    paced: bool = True
    _loop: LoopThread = field(default_factory=lambda: LoopThread("sources http"))
    # By address of the API and credentials, with what the credentials held.
    _accounts: dict[tuple[str, str], tuple[Secrets, Account]] = field(default_factory=dict)
    _threads: ThreadPoolExecutor | None = None

    def database(self, work: Callable[[], T]) -> T:
        """Do it in one of a few threads with a connection each; whatever it raises is raised."""
        if not threads_share_database():
            return work()
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_DATABASE_THREADS, "sources database")

        def tidy() -> T:
            try:
                return work()
            except BaseException:
                # A server that restarted leaves connections that only fail.
                connections.close_all()
                raise

        return self._threads.submit(tidy).result()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run it in the event loop of the clients."""
        return self._loop.submit(work)

    def client(
        self, source: Callable[[], Source], credential: Credential | None, networks: list[str]
    ) -> RecordClient:
        """A client of the source; those of one account share its pace and its token.

        Raises ``ApiFailed`` for credentials that are missing or cannot be used.
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
        """The account with this login; a changed login gets a new token, at the same pace."""
        before, account = self._accounts.get(key, (secrets, Account()))
        if before != secrets:
            account = Account(pacer=account.pacer)
        self._accounts[key] = (secrets, account)
        return account

    def close(self) -> None:
        """End the loop and the threads; none is waited for that hangs in the database."""
        self._loop.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None
