"""A service on a real broker, with either store; its loop runs in a thread of the test."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connections

from apps.seeds.daemon import SeedDaemon
from apps.seeds.models import Frontier
from apps.seeds.stores.base import SeedStore
from apps.seeds.stores.factory import open_store
from tests.access.factories import make_project
from yardkit import failpoints
from yardkit.broker import Broker, connect
from yardkit.clock import ManualClock
from yardkit.seeds import SeedClient
from yardkit.tokens import frontier_scope, manage_scope, sign_scope


@pytest.fixture
def broker_url(request: pytest.FixtureRequest) -> str:
    """Of an empty broker: the embedded one, or what a test says (``on_both_brokers``)."""
    if getattr(request, "param", "sqlite") == "sqlite":
        url: str = request.getfixturevalue("sqlite_broker_url")
    else:
        url = request.getfixturevalue("new_rabbit_vhost")
    return url


on_both_brokers = pytest.mark.parametrize(
    "broker_url", ["sqlite", pytest.param("rabbitmq", marks=pytest.mark.services)], indirect=True
)
on_rocks = pytest.mark.parametrize("store_url", ["rocks"], indirect=True)


@pytest.fixture
def broker(broker_url: str) -> Iterator[Broker]:
    """The service's own."""
    made = connect(broker_url, name="seeds")
    yield made
    made.close()


@pytest.fixture
def asker(broker_url: str) -> Iterator[Broker]:
    """Those who ask."""
    made = connect(broker_url, name="asker")
    yield made
    made.close()


@pytest.fixture(
    params=[
        "rocks",
        pytest.param("postgres", marks=[pytest.mark.services, pytest.mark.slow("1 s")]),
    ]
)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a store without seeds."""
    if request.param == "rocks":
        return f"rocksdb://{tmp_path}/seeds?sync=0"
    return str(request.getfixturevalue("empty_database"))


@pytest.fixture
def frontier(db: None) -> Frontier:
    """Days in UTC, whole keys."""
    return Frontier.objects.create(project=make_project(), name="news")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


class Service:
    """A daemon and its loop, in a thread that a test may end as often as it likes."""

    def __init__(self, broker: Broker, store_url: str, clock: ManualClock) -> None:
        self.broker = broker
        self.store_url = store_url
        self.clock = clock
        self.opened: list[SeedStore] = []
        self.daemon = self._make()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def _make(self) -> SeedDaemon:
        return SeedDaemon(
            broker=self.broker,
            clock=self.clock,
            open_store=self._open,
            secret=settings.SECRET_KEY,
            shared=self.store_url.startswith("postgres"),
            threads=False,
        )

    def _open(self) -> SeedStore:
        store = open_store(self.store_url)
        self.opened.append(store)
        return store

    @property
    def store(self) -> SeedStore:
        return self.opened[-1]

    def start(self) -> None:
        """Setup in the caller's thread, steps in one of its own."""
        self.daemon = self._make()
        self.daemon.setup()
        self.resume()

    def resume(self) -> None:
        """Steps, from now on."""
        self._end.clear()
        self._thread = threading.Thread(target=self._run, name="service")
        self._thread.start()

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """Around what a test writes into the database: in memory it refuses a second writer
        ("table is locked") instead of letting it wait, and the service writes reports.
        """
        self.pause()
        yield
        self.resume()

    def pause(self) -> None:
        """No step any more; what is delivered waits."""
        if self._thread is not None:
            self._end.set()
            self._thread.join()
            self._thread = None

    def stop(self) -> None:
        """Orderly; again is nothing."""
        self.pause()
        self.daemon.teardown()

    def _run(self) -> None:
        try:
            while not self._end.is_set():
                self.daemon.step()
        finally:
            connections.close_all()


@pytest.fixture
def service(
    broker: Broker,
    store_url: str,
    clock: ManualClock,
    frontier: Frontier,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Service]:
    """It runs, and knows ``frontier``."""
    # A slow machine has not stood still: here leases are looked after when the test's clock moves.
    monkeypatch.setattr("apps.seeds.daemon.service.STILL_SECONDS", 3600.0)
    made = Service(broker, store_url, clock)
    made.start()
    yield made
    made.stop()
    failpoints.configure({})


MakeClient = Callable[..., SeedClient]


@pytest.fixture
def client_of(asker: Broker) -> MakeClient:
    """Clients of frontiers."""

    def make(frontier: Frontier, owner: str = "w1", timeout: float = 20.0) -> SeedClient:
        token = sign_scope(settings.SECRET_KEY, frontier_scope(frontier.pk))
        return SeedClient(asker, frontier.pk, token, owner=owner, timeout=timeout, patience=0)

    return make


@pytest.fixture
def client(client_of: MakeClient, frontier: Frontier) -> SeedClient:
    """A spider's."""
    return client_of(frontier)


@pytest.fixture
def manager(asker: Broker, frontier: Frontier) -> SeedClient:
    """Of those who manage the frontier."""
    token = sign_scope(settings.SECRET_KEY, manage_scope(frontier.pk))
    return SeedClient(asker, frontier.pk, token, timeout=20, patience=0)
