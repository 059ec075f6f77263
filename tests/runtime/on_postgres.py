"""What only a server with row locks can show; run by test_services.py against PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import TypeVar

import pytest
from django.db import connection, transaction
from django.utils import timezone

from apps.runtime.errors import DeadLetterResolved
from apps.runtime.models import DeadLetter, OutboxMessage
from apps.runtime.services import (
    claim_message,
    database_now,
    drop_dead_letter,
    enqueue,
    lease_worker,
    requeue_dead_letter,
)
from apps.runtime.services.relay import _claim
from tests.runtime.processes import PATIENCE_SECONDS

pytestmark = pytest.mark.django_db(transaction=True)

T = TypeVar("T")


def in_thread(pool: ThreadPoolExecutor, work: Callable[[], T]) -> Future[T]:
    def run() -> T:
        try:
            return work()
        finally:
            connection.close()

    return pool.submit(run)


def test_a_relay_does_not_wait_for_the_claim_of_another_and_takes_other_rows() -> None:
    OutboxMessage.objects.bulk_create(
        OutboxMessage(message_id=str(n), key="q", body=b"x") for n in range(10)
    )
    now = timezone.now()
    with ThreadPoolExecutor(1) as pool, transaction.atomic():
        first = _claim(now, 4)
        second = in_thread(pool, lambda: _claim(now, 100)).result(PATIENCE_SECONDS)
    assert (len(first), len(second)) == (4, 6)
    assert not {pk for pk, _size in first} & {pk for pk, _size in second}
    assert _claim(now, 100) == []


def test_sizes_are_those_of_the_bodies() -> None:
    enqueue(key="q", body=b"\x00\xff" * 500)
    assert [size for _pk, size in _claim(database_now(), 10)] == [1000]


@pytest.mark.parametrize("commits", [True, False])
def test_a_message_somebody_is_at_waits_for_how_that_ends(commits: bool) -> None:
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            assert claim_message(consumer="c", message_id="m")
            other = in_thread(pool, lambda: claim_message(consumer="c", message_id="m"))
            with pytest.raises(TimeoutError):
                other.result(0.3)
            transaction.set_rollback(not commits)
        assert other.result(PATIENCE_SECONDS) is not commits


def test_processes_that_start_together_get_different_numbers() -> None:
    start = threading.Barrier(12)

    def lease(name: str) -> int:
        start.wait(PATIENCE_SECONDS)
        return lease_worker(purpose="ids", owner=name, ttl=timedelta(seconds=30)).number

    with ThreadPoolExecutor(12) as pool:
        leases = [in_thread(pool, lambda name=f"p{n}": lease(name)) for n in range(12)]  # type: ignore[misc]
        numbers = [each.result(PATIENCE_SECONDS) for each in leases]
    assert sorted(numbers) == list(range(12))


def test_two_people_decide_at_once_and_one_wins() -> None:
    letter = DeadLetter.objects.create(
        message_id="m", queue="q", body=b"x", body_size=1, died_at=timezone.now()
    )
    start = threading.Barrier(2)

    def decide(what: Callable[..., None]) -> bool:
        start.wait(PATIENCE_SECONDS)
        try:
            what(letter=DeadLetter.objects.get(), actor_label="ops")
        except DeadLetterResolved:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        both = [
            in_thread(pool, lambda: decide(requeue_dead_letter)),
            in_thread(pool, lambda: decide(drop_dead_letter)),
        ]
        assert sorted(each.result(PATIENCE_SECONDS) for each in both) == [False, True]
    letter.refresh_from_db()
    assert OutboxMessage.objects.count() == (1 if letter.state == "requeued" else 0)
