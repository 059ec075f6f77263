"""From entries of a queue to requests in hand (seed S4.20, S4.22)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from apps.requeststore.daemon.work import Work
from apps.requeststore.engine.entity import decode_entity
from apps.requeststore.engine.errors import BadRequest, RequestStoreError
from apps.requeststore.queues.base import RequestQueue, Taken
from apps.requeststore.services.binding import BoundBiz
from apps.requeststore.services.yard import Yard
from apps.requeststore.stores.base import Finish, StoredRequest, Take, TakeCode
from yardkit import failpoints

logger = logging.getLogger(__name__)

# What an entry can have that no other consumer could do anything with, either.
_BAD = {
    TakeCode.UNKNOWN: "there is no such request",
    TakeCode.WRONG_TS: "there is a request with this id, stored at another time",
}


def take(
    *,
    bound: BoundBiz,
    queue: RequestQueue,
    yard: Yard,
    owner: str,
    now: int,
    number: int,
    expires_of: Callable[[StoredRequest], float],
) -> list[Work]:
    """Up to ``number`` requests of a biz; [] when nothing waits.

    Entries that name no request become dead letters, and those whose request is in other hands,
    done or expired, are dropped. ``now``: Unix ms.

    Raises ``RequestStoreError``; what was taken from the queue has gone back then.
    """
    taken = queue.take(number, timeout=0)
    if not taken:
        return []
    failpoints.hit("fetcher.popped")
    mine = [one for one in taken if one.entry.biz == bound.name]
    try:
        takes = yard.take(bound, mine, owner=owner, now=now) if mine else []
    except RequestStoreError:
        queue.requeue(taken)
        raise
    failpoints.hit("fetcher.taken")
    works, rest = _sorted(bound, mine, takes, expires_of)
    strangers = [one for one in taken if one.entry.biz != bound.name]
    letters = [(one, _BAD[code]) for one, code in rest if code in _BAD]
    letters += [(one, f"the queue is that of the biz {bound.name}") for one in strangers]
    for one, reason in letters:
        logger.warning("biz %s: an entry is set aside, request %d: %s", bound.name, one.entry.id, reason)
        queue.bury(one, reason)
    bad = _unreadable(works)
    if bad:
        _fail(bound, yard, [(work.request, text) for work, text in bad], owner=owner, now=now)
    done = [one for one, code in rest if code not in _BAD] + [work.taken for work, _text in bad]
    if done:
        queue.settle(done)
    broken = {id(work) for work, _text in bad}
    return [work for work in works if id(work) not in broken]
