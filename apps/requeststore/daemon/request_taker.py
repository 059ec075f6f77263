"""Leasing of requests for queue entries."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from apps.requeststore.daemon.work import OUTAGES, LeasedRequest
from apps.requeststore.engine.entity import decode_entity
from apps.requeststore.engine.errors import InvalidRequest, RequestStoreUnavailable
from apps.requeststore.queues.base import RequestQueue, TakenEntry
from apps.requeststore.services.store import BoundBiz, RequestStore
from apps.requeststore.stores.base import Finish, QueueEntry, StoredRequest, Take, TakeCode
from yardkit import failpoints
from yardkit.errors import first_line
from yardkit.guard import settle

logger = logging.getLogger(__name__)

# Errors of entries that no consumer could process.
_BAD: Final[Mapping[TakeCode, str]] = {
    TakeCode.UNKNOWN: "there is no such request",
    TakeCode.WRONG_TS: "there is a request with this id, stored at another time",
}


@dataclass(frozen=True, slots=True)
class RequestTaker:
    """Leases requests of one biz. ``dead_letter`` dead-letters an entry with a reason."""

    bound: BoundBiz
    queue: RequestQueue
    request_store: RequestStore
    owner: str
    dead_letter: Callable[[QueueEntry, str], None]

    def take(
        self, number: int, *, now: int, expires: float, timeout: float = 0.0
    ) -> list[LeasedRequest]:
        """Lease up to ``number`` requests; [] when none waits for ``timeout`` seconds.

        Entries that name no request, and those that fail twice by themselves, become dead letters.
        Entries of leased, ended or expired requests are dropped.

        Args:
            now: Unix ms.
            expires: as in ``LeasedRequest``.

        Raises ``RequestStoreError``; the entries have gone back into the queue then.
        """
        taken = self.queue.take(number, timeout=timeout)
        if not taken:
            return []
        works: list[LeasedRequest] = []
        settled: list[TakenEntry] = []
        away: list[TakenEntry] = []

        def take(part: Sequence[TakenEntry]) -> None:
            takes = self.request_store.take(self.bound, part, owner=self.owner, now=now)
            failpoints.hit("fetcher.taken")
            in_part = self._sort(part, takes, now, expires)
            works.extend(in_part[0])
            settled.extend(in_part[1])
            away.extend(in_part[2])

        def reject(one: TakenEntry, error: Exception) -> None:
            self.dead_letter(one.entry, f"the entry cannot be taken: {first_line(error)}")
            settled.append(one)

        try:
            failpoints.hit("fetcher.popped")
            settle(taken, take, reject, passing=OUTAGES)
        except BaseException:
            self.queue.requeue(taken)
            raise
        if settled:
            self.queue.settle(settled)
        if away:
            self.queue.requeue(away)
            if not works:
                raise RequestStoreUnavailable("a storage node does not answer")
        return works

    def _sort(
        self, taken: Sequence[TakenEntry], takes: Sequence[Take], now: int, expires: float
    ) -> tuple[list[LeasedRequest], list[TakenEntry], list[TakenEntry]]:
        works: list[LeasedRequest] = []
        settled: list[TakenEntry] = []
        away: list[TakenEntry] = []
        for entry, taken_request in zip(taken, takes, strict=True):
            if taken_request.request is not None:
                work = self._work(entry, taken_request.request, now, expires)
                (settled.append(entry) if work is None else works.append(work))
            elif taken_request.code is TakeCode.AWAY:
                away.append(entry)
            else:
                self._look(entry.entry, taken_request.code)
                settled.append(entry)
        return works, settled, away

    def _work(
        self, one: TakenEntry, request: StoredRequest, now: int, expires: float
    ) -> LeasedRequest | None:
        try:
            entity = decode_entity(request.data)
        except InvalidRequest as error:
            text = str(error)[:300]
            result = msgspec.json.encode({"status": 0, "error": text})
            flag = self.bound.settings.failed_flag
            end = Finish(request.id, request.tries, flag, result, text)
            self.request_store.finish(self.bound, [(request, end)], owner=self.owner, now=now)
            return None
        return LeasedRequest(one, request, entity, expires)

    def _look(self, entry: QueueEntry, code: TakeCode) -> None:
        reason = _BAD.get(code, "")
        if entry.biz != self.bound.name:
            reason = f"the queue is that of the biz {self.bound.name}"
        if reason:
            logger.warning(
                "biz %s: an entry is set aside, request %d: %s", self.bound.name, entry.id, reason
            )
            self.dead_letter(entry, reason)
