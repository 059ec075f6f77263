"""Upkeep of the entries in the queues of the request store."""

from __future__ import annotations

from contextlib import closing

import pytest

from apps.requeststore.errors import BizFull
from apps.requeststore.models import QueueReport
from apps.requeststore.services.store import RequestStore
from tests.requeststore.factories import pages
from tests.requeststore.test_maintenance import _fresh as _fresh
from tests.requeststore.test_maintenance import begin as begin
from tests.requeststore.test_maintenance import keep as keep
from tests.requeststore.test_maintenance import queued as queued
from tests.requeststore.test_maintenance import take as take

pytestmark = pytest.mark.django_db


@pytest.mark.covers("S4.17", "S4.24")
def test_a_biz_that_nobody_fetches_takes_requests_again_once_they_have_expired(
    yard: RequestStore,
) -> None:
    bound = begin(yard, ttl_seconds=60, max_waiting=20)
    now = yard.now()
    yard.submit(bound, pages(20), by="tester", now=now - 61_000)
    yard.submit(bound, pages(3), by="tester", now=now)
    with pytest.raises(BizFull):
        yard.check_room(bound, 1)
    swept = keep(yard, now)
    assert (swept.expired, swept.dropped) == (20, 20)
    yard.check_room(bound, 1)
    (report,) = QueueReport.objects.all()
    assert report.waiting == 3
    assert keep(yard, now).dropped == 0
    assert len(queued(yard, bound)) == 3


def test_what_consumers_without_a_queue_of_ours_hold_is_not_taken_for_lost(
    yard: RequestStore,
) -> None:
    """They settle an entry when they take the request."""
    bound = begin(yard)
    now = yard.now()
    ids = yard.submit(bound, pages(10), by="tester", now=now)
    with closing(yard.open_queue(bound)) as queue:
        queue.settle(queue.take(5, timeout=2.0))
    take(yard, bound, ids[:5], now, now + 700_000)
    assert keep(yard, now + 700_000).forgotten == 0
