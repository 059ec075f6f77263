"""Messages through the shared queues and back: what is wrong with a queue, and who says so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from apps.alerts.engine.events import find_source
from apps.runtime.models import Daemon
from apps.runtime.queries import queue_problems
from apps.runtime.services import close_shared_broker, round_trips, shared_broker
from apps.runtime.services.round_trips import DOWN, STALLED, UNREAD, RoundTrips
from crawlyard.diagnosis import diagnose
from tests.yardkit.broker_fixtures import wait_until
from yardkit import topology
from yardkit.broker import Subscription

SEEDS = topology.SEEDS.name
LOGS = topology.LOGS.name


@pytest.fixture(params=["sqlite", pytest.param("rabbitmq", marks=pytest.mark.services)])
def broker(
    request: pytest.FixtureRequest, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    name = "sqlite_broker_url" if request.param == "sqlite" else "new_rabbit_vhost"
    settings.BROKER_URL = request.getfixturevalue(name)
    monkeypatch.setattr(round_trips, "ANSWER_SECONDS", 0.7)
    monkeypatch.setattr(round_trips, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(round_trips, "QUEUES", (SEEDS, LOGS))
    close_shared_broker()
    yield request.param
    close_shared_broker()


class Reader:
    """Consumer of one queue in a thread, which may stop taking."""

    def __init__(self, queue: str) -> None:
        self.subscription: Subscription = shared_broker().subscribe(queue)
        self.takes = threading.Event()
        self.takes.set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            if self.takes.wait(0.05):
                self.subscription.take(10, 0.05)

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        self.subscription.close()


def seen(trips: RoundTrips, expected: Callable[[], bool], what: str) -> None:
    def polled() -> bool:
        trips.poll()
        return expected()

    wait_until(polled, what)


def problem(trips: RoundTrips, queue: str) -> str | None:
    result = trips.results.get(queue)
    return None if result is None else result.problem


@pytest.mark.slow("6 s")
@pytest.mark.django_db(transaction=True)
def test_what_is_wrong_with_a_queue_is_seen(broker: str) -> None:
    reader = Reader(SEEDS)
    trips = RoundTrips()
    try:
        seen(trips, lambda: problem(trips, SEEDS) == "", "an answer")
        assert 0 < (trips.results[SEEDS].seconds or 0) < 1
        # Nothing of this installation has ever read it.
        assert LOGS not in trips.results
        reader.takes.clear()
        seen(trips, lambda: problem(trips, SEEDS) == STALLED, "a consumer that takes nothing")
        reader.takes.set()
        seen(trips, lambda: problem(trips, SEEDS) == "", "the consumer takes again")
    finally:
        reader.end()
    seen(trips, lambda: problem(trips, SEEDS) == UNREAD, "no consumer")
    shared_broker().delete(SEEDS)
    seen(trips, lambda: problem(trips, SEEDS) == DOWN, "no queue")
    assert SEEDS in trips.results[SEEDS].detail
    # Consumers of another version might take the messages for malformed ones.
    for version in ("1", "2"):
        Daemon.objects.create(
            kind="center", name=version, host="h", pid=1, boot="b", version=version
        )
    trips.poll()
    assert trips.results == {}


@pytest.mark.django_db(transaction=True)
def test_a_consumer_behind_a_long_queue_is_no_problem(
    sqlite_broker_url: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.BROKER_URL = sqlite_broker_url
    monkeypatch.setattr(round_trips, "ANSWER_SECONDS", 0.3)
    close_shared_broker()
    subscription = shared_broker().subscribe(SEEDS)
    counts = iter([{SEEDS: 10}, {SEEDS: 25}])
    monkeypatch.setattr(round_trips, "settled_totals", lambda: next(counts))
    result = round_trips._measure(SEEDS)
    assert result is not None
    assert (result.seconds, result.problem) == (None, "")
    subscription.close()
    close_shared_broker()


@pytest.mark.django_db
@pytest.mark.urls("apps.runtime.urls")
def test_probes_doctor_and_an_incident_name_the_queue(
    client: Client, sqlite_broker_url: str, settings: Any
) -> None:
    settings.BROKER_URL = sqlite_broker_url
    settings.ALLOWED_HOSTS = ["testserver"]
    results = {
        SEEDS: {"seconds": None, "problem": DOWN, "detail": "node rabbit@secret-host is gone"},
        LOGS: {"seconds": 0.01, "problem": "", "detail": ""},
    }
    Daemon.objects.create(
        kind="monitor",
        name="one",
        host="h",
        pid=1,
        boot="b",
        beat_at=timezone.now(),
        detail={"queues": results},
    )
    Daemon.objects.create(
        kind="monitor", name="old", host="h", pid=2, boot="b", beat_at=timezone.now(), detail={}
    )
    text = f"{DOWN}: node rabbit@secret-host is gone"
    assert queue_problems() == {SEEDS: text}
    source: Any = find_source("queue.broken")
    (found,) = source.now(timezone.now())
    assert found.facts == {"queue": SEEDS, "problem": text}
    (row,) = [check for check in diagnose() if check.setting == "Queues"]
    assert (row.ok, row.detail) == (False, f"{SEEDS}: {text}")
    answer = client.get("/readyz")
    # Another web process would be no better off; hosts are named to nobody.
    assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
    assert answer.json()["queues"] == {SEEDS: DOWN}
