"""Storing requests: first in their shards, then in the queue (seed S4.11, S4.13, S4.23).

What is stored is accepted: when the queue is away, or the process dies before it has pushed, the
upkeep finds the requests and queues them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from django.utils.translation import gettext as _

from apps.queuestats.services.rates import count
from apps.requeststore.engine.accepting import refusal
from apps.requeststore.engine.biz import Biz
from apps.requeststore.engine.entity import MAX_PRIORITY, Entity, encode_entity
from apps.requeststore.engine.errors import BadRequest, StoreUnavailable, SubmitInterrupted
from apps.requeststore.engine.limits import MAX_BATCH, MAX_ID
from apps.requeststore.engine.sharding import Place
from apps.requeststore.errors import BadRequests, BizDisabled
from apps.requeststore.services.binding import BoundBiz
from apps.requeststore.services.connections import Connections
from apps.requeststore.services.looking import Looking
from apps.requeststore.stores.base import Entry, NewRequest
from yardkit.failpoints import hit

logger = logging.getLogger(__name__)

MOST_SHOWN: Final = 100
# So much of the data is handed to a node at once.
_PORTION_BYTES: Final = 8 * 1024 * 1024


def checked(bound: BoundBiz, entities: Sequence[Entity], priority: int | None) -> list[bytes]:
    """The data of each. Raises ``BizDisabled`` and ``BadRequests``; nothing is stored by then."""
    if not bound.settings.enabled:
        raise BizDisabled
    if len(entities) > MAX_BATCH:
        raise BadRequests(fields={"requests": [_("At most %d at once.") % MAX_BATCH]})
    if priority is not None and not 0 <= priority <= MAX_PRIORITY:
        raise BadRequests(fields={"priority": [_("From 0 to %d.") % MAX_PRIORITY]})
    data, wrong = list[bytes](), dict[str, list[str]]()
    for number, entity in enumerate(entities):
        field, why = refusal(entity)
        if not why and not has_rule(bound.settings, entity.rule):
            field, why = "rule", f"the biz has no rule {entity.rule[:60]!r}"
        if not why:
            try:
                data.append(encode_entity(entity))
                continue
            except BadRequest as error:
                field, why = "meta", str(error)
        wrong[f"requests[{number}].{field}"] = [why]
        if len(wrong) == MOST_SHOWN:
            break
    if wrong:
        raise BadRequests(fields=wrong)
    return data


def has_rule(biz: Biz, rule: str) -> bool:
    """May a request name this rule? Without rules a biz keeps pages as they are."""
    return not rule or rule in biz.rules


class Submission:
    """One call of ``Yard.submit``."""

    def __init__(
        self, bound: BoundBiz, connections: Connections, looking: Looking, *, by: str, now: int
    ) -> None:
        self._bound = bound
        self._connections = connections
        self._looking = looking
        self._by = by
        self._now = now

    def store(
        self, data: Sequence[bytes], ids: Sequence[int], *, priority: int, again: bool
    ) -> list[int]:
        """Store and queue these; ``again``: some of the ids may be stored already.

        Raises ``SubmitInterrupted``, by which a repeat with the same ids completes it.
        """
        try:
            known = self._known(ids) if again else {}
            new = [
                NewRequest(number, self._bound.name, self._now, each, priority)
                for number, each in zip(ids, data, strict=True)
                if number not in known
            ]
            groups = self._bound.spread.group((each.id, each.ts) for each in new)
            for place, positions in groups.items():
                self._insert(place, [new[position] for position in positions])
        except StoreUnavailable as error:
            raise SubmitInterrupted(str(error), ids) from error
        hit("requests.after_insert")
        by_place = {
            place: [_entry_of(new[position]) for position in positions]
            for place, positions in groups.items()
        }
        for place, entry in known.values():
            if entry is not None:
                by_place.setdefault(place, []).append(entry)
        self._queue(by_place, priority)
        count(
            "requests.created",
            project=self._bound.project_id,
            label=self._bound.name,
            amount=len(new),
        )
        return list(ids)

    def _known(self, ids: Sequence[int]) -> dict[int, tuple[Place, Entry | None]]:
        """Of ids that are stored already: where, and what to queue if they are in no queue."""
        known = dict[int, tuple[Place, Entry | None]]()
        for number, found in self._looking.many(self._bound, ids).items():
            request = found.request
            orphan = request.flag == 0 and not request.queued_at
            entry = Entry(request.id, request.biz, request.ts) if orphan else None
            known[number] = (found.place, entry)
        return known

    def _insert(self, place: Place, requests: Sequence[NewRequest]) -> None:
        self._connections.ensure(self._bound, place)
        node = self._connections.node(place.node)
        portion, size = list[NewRequest](), 0
        for request in requests:
            portion.append(request)
            size += len(request.data)
            if size >= _PORTION_BYTES:
                node.insert(place.shard, portion, by=self._by, now=self._now)
                portion, size = [], 0
        if portion:
            node.insert(place.shard, portion, by=self._by, now=self._now)

    def _queue(self, by_place: Mapping[Place, Sequence[Entry]], priority: int) -> None:
        entries = sorted((each for group in by_place.values() for each in group), key=_by_id)
        if not entries:
            return
        try:
            self._connections.queue(self._bound).push(entries, priority=priority)
            hit("requests.after_push")
            for place, group in by_place.items():
                self._connections.node(place.node).queued(
                    place.shard, [each.id for each in group], by=self._by, now=self._now
                )
        except StoreUnavailable as error:
            # They are safe; who has an error would send them again.
            logger.warning(
                "biz %s of project %d: %d requests are stored and not known to be queued, which "
                "the upkeep will see to: %s",
                self._bound.name,
                self._bound.project_id,
                len(entries),
                error,
            )


def checked_ids(ids: Sequence[int], wanted: int) -> list[int]:
    """Ids that a caller has reserved. Raises ``ValueError``: that is the caller's mistake."""
    if len(ids) != wanted or len(set(ids)) != wanted:
        raise ValueError(f"{wanted} different ids are needed, not {len(ids)}")
    if not all(0 < each <= MAX_ID for each in ids):
        raise ValueError("an id is a positive number of 63 bits")
    return list(ids)


def _entry_of(request: NewRequest) -> Entry:
    return Entry(request.id, request.biz, request.ts)


def _by_id(entry: Entry) -> int:
    return entry.id
