"""Items sent by a thread that still waits for the database are not claimed meanwhile."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import OperationalError

from apps.routing.daemon.backlog import PATIENCE_SECONDS
from apps.routing.daemon.delivery import LEASE_SECONDS
from apps.routing.services import Arrival, receive_items
from tests.access.factories import make_project
from tests.routing.daemon.routers import PATIENCE_SECONDS as OURS
from tests.routing.daemon.routers import Router, outbound
from yardkit.clock import ManualClock


class Writer:
    """A router thread whose writes fail until the database is ``back``."""

    def __init__(self, router: Router) -> None:
        self.back = threading.Event()
        self._pipeline = router.daemon.pipeline
        self._stopping = router.daemon._stopping
        self._has_failed = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._has_failed.wait(OURS)

    def _run(self) -> None:
        with contextlib.suppress(OperationalError):
            self._pipeline._retry_during_outage(self._write)

    def _write(self) -> None:
        if not self.back.is_set():
            self._has_failed.set()
            raise OperationalError("the server is away")

    def join(self) -> None:
        self._thread.join(OURS)
        assert not self._thread.is_alive()

    def close(self) -> None:
        self._stopping.set()
        self.join()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def router(db: None, tmp_path: Path, clock: ManualClock) -> Iterator[Router]:
    """A router with an item that one of its threads processes."""
    made = Router(make_project(), tmp_path, clock=clock)
    made.use([], [outbound("o", "True")])
    arrival = Arrival(project=made.project.pk, inbound="logs", item={"n": 1})
    receive_items(arrivals=[arrival], now=clock.now(), lease_seconds=LEASE_SECONDS)
    yield made
    made.close()


@pytest.fixture
def writer(router: Router) -> Iterator[Writer]:
    made = Writer(router)
    yield made
    made.close()


def test_nothing_is_taken_over_while_a_thread_still_writes(
    router: Router, writer: Writer, clock: ManualClock
) -> None:
    clock.advance(LEASE_SECONDS + 1)
    assert not router.daemon.backlog.turn()
    assert not router.daemon.backlog.probe()
    assert router.states() == {"received": 1}
    writer.back.set()
    writer.join()
    assert router.daemon.backlog.turn()
    assert router.states() == {"dispatched": 1}


def test_a_write_that_never_ends_is_not_waited_for_for_ever(
    router: Router, writer: Writer, clock: ManualClock
) -> None:
    clock.advance(LEASE_SECONDS + 1)
    assert not router.daemon.backlog.turn()
    clock.advance(PATIENCE_SECONDS)
    assert router.daemon.backlog.turn()
    assert router.states() == {"dispatched": 1}
