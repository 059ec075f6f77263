"""A yard at work: what tests of it do again and again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apps.requeststore.queues.base import TakenEntry
from apps.requeststore.services.store import BoundBiz, RequestStore
from apps.requeststore.stores.base import Finish, QueueEntry, StoredRequest, TakeCode
from tests.requeststore.factories import make_bizzes

FOUR = {"epochs": [{"splits": 4, "nodes": ["default", "second"]}]}
OWNER = "fetcher 1"


def begin(yard: RequestStore, **biz: Any) -> BoundBiz:
    project = make_bizzes(news=biz)
    yard.setup()
    return yard.biz(project.pk, "news")


def from_queue(yard: RequestStore, bound: BoundBiz, number: int = 100) -> list[TakenEntry]:
    found = yard.queue(bound).take(number, timeout=2.0)
    yard.queue(bound).settle(found)
    return found


def taken(yard: RequestStore, bound: BoundBiz, *, now: int | None = None) -> list[StoredRequest]:
    takes = yard.take(bound, from_queue(yard, bound), owner=OWNER, now=now or yard.now())
    assert {take.code for take in takes} <= {TakeCode.TAKEN}
    return [take.request for take in takes if take.request is not None]


def finished(requests: Sequence[StoredRequest], flag: int) -> list[tuple[StoredRequest, Finish]]:
    return [(each, Finish(each.id, each.tries, flag)) for each in requests]


def entries(yard: RequestStore, bound: BoundBiz, *given: QueueEntry) -> list[TakeCode]:
    wrapped = [TakenEntry(each, None) for each in given]
    return [take.code for take in yard.take(bound, wrapped, owner=OWNER, now=yard.now())]
