"""Reopening of ended requests: all failed ones of a period, or named ones.

They become new first and are queued then; after a crash in between, upkeep queues them. Accounting
stays balanced: a span is closed only after all of it has expired, and expired requests are not
reopened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from apps.access.models import User
from apps.access.services import record
from apps.projects.models import Project
from apps.requeststore.engine.flags import is_own
from apps.requeststore.engine.limits import MAX_BATCH, MAX_TS
from apps.requeststore.engine.placement import ShardPlace
from apps.requeststore.services.shards import closed_until_of
from apps.requeststore.services.store import BoundBiz, RequestStore, shared_request_store
from apps.requeststore.stores.base import QueueEntry

_PAGE: Final = 1000
_FLAGS: Final = range(1, 1000)


@dataclass(frozen=True, slots=True)
class Reopened:
    """Number of reopened requests; ``more``: some are left for the next call."""

    reopened: int
    more: bool


def reopen_requests(
    bound: BoundBiz,
    *,
    actor: User | None,
    actor_label: str = "",
    ids: Sequence[int] | None = None,
    flag: int | None = None,
    since: int = 0,
    until: int = MAX_TS,
    limit: int = MAX_BATCH,
    request_store: RequestStore | None = None,
) -> Reopened:
    """Reopen by IDs, whatever their flag; or by ``flag`` (default: failed) and ``ts``, newest
    first.

    Raises ``RequestStoreUnavailable``: any part may be reopened; repeat the call.
    """
    request_store = request_store or shared_request_store()
    now = request_store.now()
    flags: Sequence[int]
    if ids is not None:
        flags, more = _FLAGS, False
        chosen = _named(bound, request_store, ids)
    else:
        flags = [bound.settings.failed_flag if flag is None else flag]
        since = max(since, bound.settings.cutoff(now) + 1)
        chosen, more = _with_flag(bound, request_store, flags[0], since, until, limit)
    who = actor_label or ("" if actor is None else actor.get_username())
    reopened = 0
    for place, entries in chosen.items():
        reopened += _open(bound, request_store, place, entries, flags, f"reopen:{who}", now)
    detail = {"ids": len(ids)} if ids is not None else {"flag": flags[0], "since": since}
    record(
        actor=actor,
        action="requeststore.reopen",
        obj=Project(pk=bound.project_id),
        project=bound.project_id,
        after={"biz": bound.name, "reopened": reopened, **detail},
        actor_label=actor_label,
    )
    return Reopened(reopened, more)


Chosen = dict[ShardPlace, list[QueueEntry]]


def _named(bound: BoundBiz, request_store: RequestStore, ids: Sequence[int]) -> Chosen:
    chosen: Chosen = {}
    for number in dict.fromkeys(ids):
        request_found = request_store.find(number, bound.project_id, bound.name)
        if request_found is not None and is_own(request_found.request.flag):
            chosen.setdefault(request_found.place, []).append(
                QueueEntry(number, bound.name, request_found.request.ts)
            )
    return chosen


def _with_flag(
    bound: BoundBiz, request_store: RequestStore, flag: int, since: int, until: int, limit: int
) -> tuple[Chosen, bool]:
    chosen: Chosen = {}
    count, after = 0, None
    while count <= limit:
        page = request_store.page(
            bound, flag=flag, since=since, until=until, after=after, limit=min(_PAGE, limit + 1)
        )
        for request_found in page:
            if count == limit:
                return chosen, True
            entry = QueueEntry(request_found.request.id, bound.name, request_found.request.ts)
            chosen.setdefault(request_found.place, []).append(entry)
            count += 1
        if len(page) < min(_PAGE, limit + 1):
            break
        after = page[-1].request.ts, page[-1].request.id
    return chosen, False


def _open(
    bound: BoundBiz,
    request_store: RequestStore,
    place: ShardPlace,
    entries: Sequence[QueueEntry],
    flags: Sequence[int],
    by: str,
    now: int,
) -> int:
    node = request_store.node(place.node)
    closed = closed_until_of(place)
    # Its span may be closed although the TTL has become longer: its last flag is counted there.
    entries = [entry for entry in entries if entry.ts >= closed]
    ids = [entry.id for entry in entries]
    cutoff = bound.settings.cutoff(now)
    opened = node.reopen(place.shard, ids, flags=flags, by=by, now=now, cutoff=cutoff)
    again = [entry for entry, is_new in zip(entries, opened, strict=True) if is_new]
    if again:
        request_store.queue(bound).push(again, priority=bound.settings.priority)
        node.queued(place.shard, [entry.id for entry in again], by=by, now=now)
    return len(again)
