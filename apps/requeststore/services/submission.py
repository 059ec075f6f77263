"""Storing of requests: first in their shards, then in the queue.

A stored request is accepted: if the queue is unreachable, or the process dies before the push,
upkeep queues it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from django.utils.translation import gettext as _

from apps.queuestats.services.rates import count
from apps.requeststore.engine.biz import Biz
from apps.requeststore.engine.entity import MAX_PRIORITY, Entity, encode_entity
from apps.requeststore.engine.errors import (
    InvalidRequest,
    RequestStoreUnavailable,
    SubmitInterrupted,
    TooLarge,
)
from apps.requeststore.engine.flags import NEW
from apps.requeststore.engine.limits import MAX_BATCH, MAX_ID
from apps.requeststore.engine.placement import ShardPlace
from apps.requeststore.engine.request_checks import refusal
from apps.requeststore.errors import BadRequests, BizDisabled, BizFull
from apps.requeststore.queries.accounting import BizAccounting, standings
from apps.requeststore.services.bindings import BoundBiz
from apps.requeststore.services.connections import Connections
from apps.requeststore.stores.base import NewRequest, QueueEntry
from yardkit.failpoints import hit

logger = logging.getLogger(__name__)

MOST_SHOWN: Final = 100
# Bytes of data inserted into a node at once.
_PORTION_BYTES: Final = 8 * 1024 * 1024


def checked(bound: BoundBiz, entities: Sequence[Entity], priority: int | None) -> list[bytes]:
    """Return the serialized data. Raises ``BizDisabled`` and ``BadRequests``, before anything is
    stored.
    """
    if not bound.settings.enabled:
        raise BizDisabled
    if len(entities) > MAX_BATCH:
        raise BadRequests(fields={"requests": [_("At most %d per call.") % MAX_BATCH]})
    if priority is not None and not 0 <= priority <= MAX_PRIORITY:
        raise BadRequests(fields={"priority": [_("From 0 to %d.") % MAX_PRIORITY]})
    data, wrong = list[bytes](), dict[str, list[str]]()
    for number, entity in enumerate(entities):
        encoded = _encoded(bound.settings, entity)
        if isinstance(encoded, bytes):
            data.append(encoded)
            continue
        field, why = encoded
        wrong[f"requests[{number}].{field}"] = [why]
        if len(wrong) == MOST_SHOWN:
            break
    if wrong:
        raise BadRequests(fields=wrong)
    return data


def check_room(bound: BoundBiz, connections: Connections, wanted: int) -> None:
    """Raise ``BizFull`` when the queue is at ``max_waiting``.

    The queue itself is asked; while it is unreachable, the last count of upkeep is used.
    """
    most = bound.settings.max_waiting
    if not most:
        return
    try:
        waiting = connections.queue(bound).stats().waiting
    except RequestStoreUnavailable:
        key = bound.project_id, bound.name
        waiting = standings([bound.project_id], bound.name).get(key, BizAccounting()).new
    if waiting >= most:
        count("requests.refused", project=bound.project_id, label=bound.name, amount=wanted)
        raise BizFull(
            _("The queue holds %(waiting)s requests; its limit is %(most)s.")
            % {"waiting": f"{waiting:,}", "most": f"{most:,}"}
        )


def checked_entity(bound: BoundBiz, entity: Entity) -> str:
    """Return why this request cannot be stored; "" if it can."""
    encoded = _encoded(bound.settings, entity)
    return "" if isinstance(encoded, bytes) else f"{encoded[0]}: {encoded[1]}"


def _encoded(biz: Biz, entity: Entity) -> bytes | tuple[str, str]:
    """Return the data, or (field, reason)."""
    field, why = refusal(entity)
    if why:
        return field, why
    if not has_rule(biz, entity.rule):
        return "rule", f"the biz has no rule {entity.rule[:60]!r}"
    try:
        return encode_entity(entity)
    except TooLarge as error:
        return "body", str(error)
    except InvalidRequest as error:
        return "meta", str(error)


def has_rule(biz: Biz, rule: str) -> bool:
    """Return whether a request may name this rule."""
    return not rule or rule in biz.rules


class Submission:
    """One call of ``submit``."""

    def __init__(self, bound: BoundBiz, connections: Connections, *, by: str, now: int) -> None:
        self._bound = bound
        self._connections = connections
        self._by = by
        self._now = now

    def store(
        self, data: Sequence[bytes], ids: Sequence[int], *, priority: int, again: bool
    ) -> list[int]:
        """Store and queue requests; ``again``: some IDs may be stored already.

        Raises ``SubmitInterrupted``; a repeat with the same IDs completes it.
        """
        entries = dict[ShardPlace, list[QueueEntry]]()
        try:
            known = self._elsewhere(ids) if again else set[int]()
            new = [
                NewRequest(number, self._bound.name, self._now, body, priority)
                for number, body in zip(ids, data, strict=True)
                if number not in known
            ]
            stored = 0
            groups = self._bound.spread.group((request.id, request.ts) for request in new)
            for place, positions in groups.items():
                inserted = self._insert(place, [new[position] for position in positions])
                stored += len(inserted)
                entries[place] = [
                    QueueEntry(request.id, request.biz, request.ts) for request in inserted
                ]
                if again and len(inserted) < len(positions):
                    old = {new[position].id for position in positions}
                    old.difference_update(request.id for request in inserted)
                    entries[place] += self._orphans(place, sorted(old))
        except RequestStoreUnavailable as error:
            raise SubmitInterrupted(str(error), ids) from error
        hit("requests.after_insert")
        self._queue(entries, priority)
        bound = self._bound
        if stored:
            count("requests.created", project=bound.project_id, label=bound.name, amount=stored)
        return list(ids)

    def _elsewhere(self, ids: Sequence[int]) -> set[int]:
        """Return IDs that an earlier call has stored under another epoch."""
        if len(self._bound.settings.epochs) == 1:
            return set()
        wanted = dict[ShardPlace, list[int]]()
        for number in ids:
            for place in self._bound.spread.by_epochs(number):
                wanted.setdefault(place, []).append(number)
        existing = set[int]()
        for place, numbers in wanted.items():
            answers = self._connections.node(place.node).find(place.shard, numbers)
            existing.update(
                answer.id
                for answer in answers
                if answer is not None and self._bound.spread.place(answer.id, self._now) != place
            )
        return existing

    def _orphans(self, place: ShardPlace, ids: Sequence[int]) -> list[QueueEntry]:
        """Return entries of requests that an earlier call has stored and not queued."""
        stored = self._connections.node(place.node).find(place.shard, ids)
        return [
            QueueEntry(request.id, request.biz, request.ts)
            for request in stored
            if request is not None and request.flag == NEW and not request.queued_at
        ]

    def _insert(self, place: ShardPlace, requests: Sequence[NewRequest]) -> list[NewRequest]:
        """Insert requests; return those that were new."""
        self._connections.ensure(self._bound, place)
        node = self._connections.node(place.node)
        inserted, portion, size = list[NewRequest](), list[NewRequest](), 0
        for number, request in enumerate(requests, 1):
            portion.append(request)
            size += len(request.data)
            if size >= _PORTION_BYTES or number == len(requests):
                answers = node.insert(place.shard, portion, by=self._by, now=self._now)
                inserted += [request for request, new in zip(portion, answers, strict=True) if new]
                portion, size = [], 0
        return inserted

    def _queue(self, by_place: Mapping[ShardPlace, Sequence[QueueEntry]], priority: int) -> None:
        entries = sorted((entry for group in by_place.values() for entry in group), key=_by_id)
        if not entries:
            return
        try:
            self._connections.queue(self._bound).push(entries, priority=priority)
            hit("requests.after_push")
            for place, group in by_place.items():
                self._connections.node(place.node).queued(
                    place.shard, [entry.id for entry in group], by=self._by, now=self._now
                )
        except RequestStoreUnavailable as error:
            # The requests are stored; an error would make the caller submit them again.
            logger.warning(
                "biz %s of project %d: %d requests are stored and not known to be queued, which "
                "the upkeep will see to: %s",
                self._bound.name,
                self._bound.project_id,
                len(entries),
                error,
            )


def checked_ids(ids: Sequence[int], wanted: int) -> list[int]:
    """Return reserved IDs. Raises ``ValueError`` for a programming error of the caller."""
    if len(ids) != wanted or len(set(ids)) != wanted:
        raise ValueError(f"{wanted} different ids are needed, not {len(ids)}")
    if not all(0 < number <= MAX_ID for number in ids):
        raise ValueError("an id is a positive number of 63 bits")
    return list(ids)


def _by_id(entry: QueueEntry) -> int:
    return entry.id
