"""The end of requests: extract, store the records, set the flag, settle the queue (seed S4.21).

In this order, so that whatever dies in between is done again and nothing is said to be processed
that is not stored. Each stage is a batch, and each may be repeated.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from apps.queuestats.services.rates import count
from apps.requeststore.daemon.reading import Reader, Reading
from apps.requeststore.daemon.work import Result, Trouble, Work
from apps.requeststore.engine.entity import Entity
from apps.requeststore.engine.flags import PROCESSED
from apps.requeststore.errors import BizDisabled, RequestRefusal
from apps.requeststore.queues.base import RequestQueue
from apps.requeststore.services.yard import BoundBiz, Yard
from apps.requeststore.sinks.base import Gathered, Sink
from apps.requeststore.stores.base import EndCode, Finish, GiveBack, StoredRequest
from yardkit import failpoints

logger = logging.getLogger(__name__)

# Some rules take seconds on some pages; those that are read must not wait for all the others.
READ_SECONDS: Final = 1.0
# Right before records are written: with less time left than this, another may have the request.
LEAST_LEFT_MS: Final = 500
MAX_TEXT: Final = 300

STOPS: Final = Trouble("the fetcher stops", untried=True)

_encoder: Final = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """What the requests of a biz are ended with; one version's. Each is its own."""

    bound: BoundBiz
    reader: Reader
    sink: Sink
    queue: RequestQueue


@dataclass(slots=True)
class Tally:
    """What a process has done for one biz."""

    processed: int = 0
    failed: int = 0
    returned: int = 0
    late: int = 0
    records: int = 0


@dataclass(slots=True)
class Ending:
    """One batch on its way; ``step`` goes on where it stopped. Used by one thread at a time.

    ``now``: Unix ms. ``owner``: under which name the requests were taken.
    """

    parts: Parts
    yard: Yard
    owner: str
    now: Callable[[], int]
    ended: Sequence[tuple[Work, Result]]
    tally: Tally
    # Of ``ended``, what was not begun: it is for another batch.
    rest: Sequence[tuple[Work, Result]] = ()
    _read: list[tuple[Work, Reading | Trouble]] | None = None
    _tried: bool = False
    _recorded: bool = False
    _followed: int = 0
    # Of the pages that a request leads to.
    _ids: dict[int, list[int]] = field(default_factory=dict)
    _finished: bool = False
    _settle: list[Work] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def step(self) -> None:
        """All that is left to do.

        Raises ``RequestStoreError``: the store, the sink or the queue is away; to be called again.
        """
        with self._lock:
            self._step()

    def _step(self) -> None:
        if self._read is None:
            self._read = self._read_some()
        if not self._recorded:
            self._record()
            failpoints.hit("fetcher.recorded")
        self._follow()
        if not self._finished:
            self._finish()
            failpoints.hit("fetcher.finished")
        if self._settle:
            self.parts.queue.settle([work.taken for work in self._settle])
            self._settle = []
            failpoints.hit("fetcher.settled")

    def _read_some(self) -> list[tuple[Work, Reading | Trouble]]:
        """Those that can be read before the first of them has waited long; the others later."""
        read: list[tuple[Work, Reading | Trouble]] = []
        until = time.monotonic() + READ_SECONDS
        for number, (work, result) in enumerate(self.ended):
            if read and time.monotonic() > until:
                self.rest = self.ended[number:]
                self.ended = self.ended[:number]
                break
            read.append((work, self.parts.reader.read(work, result)))
        return read

    def give_up(self) -> None:
        """There is no time left to go on; what is not told yet comes again by itself."""
        with self._lock:
            if self._recorded or self._tried:
                return
            # Nothing of it was stored: others need not wait for the deadline.
            self._read = [(work, STOPS) for work, _result in self.ended]
            self._recorded = True
            self._step()

    # --- records --------------------------------------------------------------------------------

    def _record(self) -> None:
        assert self._read is not None  # noqa: S101 - step reads first
        limit = self.now() + LEAST_LEFT_MS
        late = [work for work, _found in self._read if work.request.deadline <= limit]
        if late:
            # They are somebody else's by now, or soon.
            self.tally.late += len(late)
            self._settle += late
            self._read = [one for one in self._read if one[0].request.deadline > limit]
        gathered = [
            self._gathered(work, found)
            for work, found in self._read
            if isinstance(found, Reading) and (found.records or work.again)
        ]
        if gathered:
            tried, self._tried = self._tried, True
            if tried:
                # The first attempt may have got further than we were told.
                gathered = [msgspec.structs.replace(one, again=True) for one in gathered]
            refused = self.parts.sink.write(gathered)
            if refused:
                self._refuse(refused)
        self._recorded = True

    def _gathered(self, work: Work, found: Reading) -> Gathered:
        return Gathered(
            request_id=work.request.id,
            ts=work.request.ts,
            biz=work.request.biz,
            rule=found.rule,
            url=found.answer.url,
            fetched_at=self.now(),
            rows=found.records,
            meta=work.entity.meta,
            again=work.again,
        )

    def _refuse(self, refused: dict[int, str]) -> None:
        assert self._read is not None  # noqa: S101 - step reads first
        self._read = [
            (work, Trouble(f"records: {refused[work.request.id]}", lasting=True))
            if work.request.id in refused
            else (work, found)
            for work, found in self._read
        ]

    # --- further requests -----------------------------------------------------------------------

    def _follow(self) -> None:
        """Store what pages lead to. Twice, where the process dies before the flag is set."""
        assert self._read is not None  # noqa: S101 - step reads first
        while self._followed < len(self._read):
            work, found = self._read[self._followed]
            if isinstance(found, Reading) and found.follow:
                trouble = self._submit(work, found.follow)
                if trouble is not None:
                    self._read[self._followed] = (work, trouble)
            self._followed += 1

    def _submit(self, work: Work, entities: Sequence[Entity]) -> Trouble | None:
        bound = self.parts.bound
        # Reserved first, so that a repeat after an outage stores nothing twice.
        ids = self._ids.get(work.request.id) or self.yard.reserve(len(entities))
        self._ids[work.request.id] = ids
        try:
            self.yard.submit(bound, entities, by=self.owner, now=self.now(), ids=ids)
        except BizDisabled as error:
            return Trouble(f"pages to follow: {error}", untried=True)
        except RequestRefusal as error:
            return Trouble(f"pages to follow: {error}", lasting=True)
        return None

    # --- flags ----------------------------------------------------------------------------------

    def _finish(self) -> None:
        assert self._read is not None  # noqa: S101 - step reads first
        biz = self.parts.bound.settings
        ends: list[tuple[StoredRequest, Finish]] = []
        backs: list[tuple[StoredRequest, GiveBack]] = []
        for work, found in self._read:
            if isinstance(found, Reading):
                ends.append((work.request, _success(work, found)))
            elif _goes_back(work, found, biz.max_tries):
                # Another fetcher may have it at once, but none while its host is stopped.
                at = 0 if found is STOPS else self.now() + biz.retry_seconds * 1000
                backs.append((work.request, _give_back(work, found, at)))
            else:
                ends.append((work.request, _failure(work, found, biz.failed_flag)))
        if ends:
            codes = self.yard.finish(self.parts.bound, ends, owner=self.owner, now=self.now())
            self._count([end for _request, end in ends], codes)
        if backs:
            self.yard.give_back(self.parts.bound, backs, owner=self.owner, now=self.now())
            self.tally.returned += len(backs)
        self._settle += [work for work, _found in self._read]
        self._finished = True

    def _count(self, ends: Sequence[Finish], codes: Sequence[EndCode]) -> None:
        assert self._read is not None  # noqa: S101 - step reads first
        rows = {
            work.request.id: len(found.records)
            for work, found in self._read
            if isinstance(found, Reading)
        }
        records = 0
        for end, code in zip(ends, codes, strict=True):
            if code is not EndCode.DONE:
                self.tally.late += 1
            elif end.id in rows:
                self.tally.processed += 1
                records += rows[end.id]
            else:
                self.tally.failed += 1
        self.tally.records += records
        if records:
            bound = self.parts.bound
            count("requests.records", project=bound.project_id, label=bound.name, amount=records)


def _goes_back(work: Work, trouble: Trouble, max_tries: int) -> bool:
    return trouble.untried or (not trouble.lasting and work.request.tries < max_tries)


def _give_back(work: Work, trouble: Trouble, at: int) -> GiveBack:
    return GiveBack(work.request.id, work.request.tries, trouble.text[:MAX_TEXT], at)


def _success(work: Work, found: Reading) -> Finish:
    answer = found.answer
    result = {
        "status": answer.status,
        "bytes": len(answer.body),
        "records": len(found.records),
        "ms": round(answer.elapsed_ms),
    }
    if found.follow:
        result["followed"] = len(found.follow)
    return Finish(work.request.id, work.request.tries, PROCESSED, _encoder.encode(result))


def _failure(work: Work, trouble: Trouble, flag: int) -> Finish:
    text = trouble.text[:MAX_TEXT]
    result = {"status": trouble.status, "error": text}
    request = work.request
    return Finish(request.id, request.tries, flag, _encoder.encode(result), text)
