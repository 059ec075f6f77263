"""What the yard does is counted, stored by run_statistics, and seen by whoever asks for a pace."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.test import override_settings

from apps.queuestats.daemon import StatisticsDaemon
from apps.queuestats.models import Sample
from apps.queuestats.services import rates as counting
from apps.queuestats.services import record_observed_seconds
from apps.requeststore.engine.flags import FAILED, PROCESSED
from apps.requeststore.engine.forecast import Outlook
from apps.requeststore.queries.outlook import CREATED, standings
from apps.requeststore.queries.outlook import FAILED as FAILURES
from apps.requeststore.queries.outlook import PROCESSED as DONE
from apps.requeststore.services.store import RequestStore
from apps.requeststore.services.upkeep import upkeep_once
from apps.requeststore.stores.base import Finish
from apps.runtime.queries import database_now
from apps.runtime.services import close_shared_broker, shared_broker
from crawlyard import scale_events
from tests.queuestats.factories import flush_rates
from tests.requeststore.factories import make_bizzes, pages
from yardkit.clock import SystemClock

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def own_broker(sqlite_broker_url: str) -> Iterator[None]:
    with override_settings(BROKER_URL=sqlite_broker_url):
        counting._reset()
        yield
        counting._reset()
        close_shared_broker()


def stored() -> dict[str, float]:
    rows = Sample.objects.filter(step=3600, series__name__startswith="requests.")
    found: dict[str, float] = {}
    for name, value in rows.values_list("series__name", "value"):
        found[name] = found.get(name, 0) + value
    return found


@pytest.mark.covers("S4.24", "S4.25", "S4.26", "S4.28")
def test_requests_are_counted_where_they_are_stored_and_ended(yard: RequestStore) -> None:
    project = make_bizzes(news={})
    yard.setup()
    bound = yard.biz(project.pk, "news")
    yard.submit(bound, pages(30), by="tester", now=yard.now())
    found = yard.queue(bound).take(20, timeout=2.0)
    takes = yard.take(bound, found, owner="f", now=yard.now())
    yard.queue(bound).settle(found)
    requests = [take.request for take in takes if take.request is not None]
    ends = [
        (each, Finish(each.id, each.tries, FAILED if number < 4 else PROCESSED))
        for number, each in enumerate(requests)
    ]
    yard.finish(bound, ends, owner="f", now=yard.now())
    assert flush_rates()

    daemon = StatisticsDaemon(broker=shared_broker(), clock=SystemClock())
    daemon.setup()
    deadline = time.monotonic() + 20
    expected = {CREATED: 30.0, DONE: 20.0, FAILURES: 4.0}
    while stored() != expected:
        assert time.monotonic() < deadline, stored()
        daemon.step()
    daemon.teardown()

    upkeep_once(yard, now=yard.now())
    later = database_now() + timedelta(seconds=100)
    at = int(later.timestamp())
    record_observed_seconds(since=at - 200, until=at)
    (standing,) = standings(now=later).bizzes
    assert standing.stored.backlog == 10
    assert standing.queue is not None
    # The queue of this process holds some of them ready.
    assert standing.queue.waiting + (standing.queue.taken or 0) == 10
    assert standing.rates[CREATED][300] == pytest.approx(30 / 300)
    assert standing.rates[DONE][300] == pytest.approx(20 / 300)
    assert standing.facts.processed == pytest.approx(20 / standing.facts.seconds)
    assert standing.facts.created == 0.0, "none in the last minute"
    assert standing.forecast.outlook is Outlook.STALE, "the report is 100 s old by then"


def test_up_asks_the_database(yard: RequestStore) -> None:
    make_bizzes(news={})
    wanted = scale_events._from_database()
    assert (wanted.running, wanted.wanted) == (frozenset(), 1)
    assert wanted.why.endswith("news no backlog")
