"""Concurrent consumers of one queue, run by test_concurrent_consumers.py on both databases."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from django.db import connection
from django.utils import timezone

from apps.sources.models import HandedRecord
from apps.sources.services.consumption import acknowledge, consume, give_back, lease_records
from tests.sources.records import broker_at, publish, sourced

pytestmark = pytest.mark.django_db(transaction=True)

THREADS = 6
RECORDS = 150


def test_each_record_reaches_one_consumer(sqlite_broker_url: str) -> None:
    """Threads consume, lease and acknowledge, or lease and return half."""
    taken: list[int] = []
    wrong: list[BaseException] = []
    guard = threading.Lock()

    def take(number: int) -> None:
        left = RECORDS
        while left:
            if number % 3 == 0:
                found = consume(queue=queue, count=7, now=timezone.now())
            else:
                leased = lease_records(
                    queue=queue, count=7, seconds=600, holder=f"{number}", now=timezone.now()
                )
                found = leased.records
                if number % 3 == 1 and len(found) > 1:
                    back = [each.message_id for each in found[::2]]
                    given = give_back(
                        queue=queue, lease=leased.lease, message_ids=back, now=timezone.now()
                    )
                    assert given == len(back)
                    found = found[1::2]
                if found:
                    done = acknowledge(queue=queue, lease=leased.lease, now=timezone.now())
                    assert done == len(found)
            with guard:
                taken.extend(each.data["n"] for each in found)
                left = RECORDS - len(taken)

    def run(number: int) -> None:
        try:
            take(number)
        except BaseException as error:  # noqa: BLE001 - shown below
            wrong.append(error)
        finally:
            connection.close()

    with broker_at(sqlite_broker_url):
        queue = publish(sourced(), 1, RECORDS)
        threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert wrong == []
    assert Counter(taken) == Counter(range(1, RECORDS + 1))
    assert not HandedRecord.objects.exists()
