"""The end of requests: extract, store the records, set the flag, settle the queue (seed S4.21).

In this order, so that whatever dies in between is done again and nothing is said to be processed
that is not stored. Each stage is a batch, and each may be repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from apps.queuestats.services.rates import count
from apps.requeststore.daemon.reading import Reader, Reading
from apps.requeststore.daemon.work import Result, Trouble, Work
from apps.requeststore.engine.errors import RequestStoreError
from apps.requeststore.engine.flags import PROCESSED
from apps.requeststore.errors import RequestRefusal
from apps.requeststore.queues.base import RequestQueue
from apps.requeststore.services.binding import BoundBiz
from apps.requeststore.services.yard import Yard
from apps.requeststore.sinks.base import Gathered, Sink
from apps.requeststore.stores.base import EndCode, Finish, GiveBack
from yardkit import failpoints

logger = logging.getLogger(__name__)

# Right before records are written: with less time left than this, another may have the request.
LEAST_LEFT_MS: Final = 500
MAX_TEXT: Final = 300

_encoder: Final = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Parts:
    """What the requests of a biz are ended with; one version's."""

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
    _read: list[tuple[Work, Reading | Trouble]] | None = None
    _tried: bool = False
    _recorded: bool = False
    _followed: int = 0
    _finished: bool = False
    _settle: list[Work] = field(default_factory=list)

    def step(self) -> None:
        """All that is left to do.

        Raises ``RequestStoreError``: the store, the sink or the queue is away; to be called again.
        """
        if self._read is None:
            reader = self.parts.reader
            self._read = [(work, reader.read(work, result)) for work, result in self.ended]
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

    def give_up(self) -> None:
        """There is no time left to go on; what is not told yet comes again by itself."""
        if not self._recorded and not self._tried:
            # Nothing of it was stored: others need not wait for the deadline.
            self._read = [
                (work, Trouble("the fetcher stops", untried=True)) for work, _result in self.ended
            ]
            self._recorded = True
            self.step()

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
                try:
                    self.yard.submit(
                        self.parts.bound, found.follow, by=self.owner, now=self.now()
                    )
                except RequestRefusal as error:
                    trouble = Trouble(f"pages to follow: {error}", lasting=True)
                    self._read[self._followed] = (work, trouble)
            self._followed += 1

    # --- flags ----------------------------------------------------------------------------------

    def _finish(self) -> None:
        assert self._read is not None  # noqa: S101 - step reads first
        biz = self.parts.bound.settings
        ends: list[Finish] = []
        backs: list[GiveBack] = []
        for work, found in self._read:
            if isinstance(found, Reading):
                ends.append(_success(work, found))
            elif _goes_back(work, found, biz.max_tries):
                wait = 0 if found.untried else biz.retry_seconds * 1000
                backs.append(
                    GiveBack(
                        work.request.id,
                        work.request.tries,
                        found.text[:MAX_TEXT],
                        self.now() + wait if wait else 0,
                    )
                )
            else:
                ends.append(_failure(work, found, biz.failed_flag))
        if ends:
            codes = self.yard.finish(self.parts.bound, ends, owner=self.owner, now=self.now())
            self._count(ends, codes)
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


AWAY: Final = (RequestStoreError,)
