"""A yard at work: what tests of it do again and again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apps.requeststore.queues.base import Taken
from apps.requeststore.services.yard import BoundBiz, Yard
from apps.requeststore.stores.base import (
    Entry,
    Finish,
    StoredRequest,
    TakeCode,
)
from tests.requeststore.factories import make_bizzes

FOUR = {"epochs": [{"splits": 4, "nodes": ["default", "second"]}]}
OWNER = "fetcher 1"


def begin(yard: Yard, **biz: Any) -> BoundBiz:
    project = make_bizzes(news=biz)
    yard.setup()
    return yard.biz(project.pk, "news")


def from_queue(yard: Yard, bound: BoundBiz, number: int = 100) -> list[Taken]:
    found = yard.queue(bound).take(number, timeout=2.0)
    yard.queue(bound).settle(found)
    return found


def taken(yard: Yard, bound: BoundBiz, *, now: int | None = None) -> list[StoredRequest]:
    takes = yard.take(bound, from_queue(yard, bound), owner=OWNER, now=now or yard.now())
    assert {take.code for take in takes} <= {TakeCode.TAKEN}
    return [take.request for take in takes if take.request is not None]


def finished(requests: Sequence[StoredRequest], flag: int) -> list[tuple[StoredRequest, Finish]]:
    return [(each, Finish(each.id, each.tries, flag)) for each in requests]


def entries(yard: Yard, bound: BoundBiz, *given: Entry) -> list[TakeCode]:
    wrapped = [Taken(each, None) for each in given]
    return [take.code for take in yard.take(bound, wrapped, owner=OWNER, now=yard.now())]
