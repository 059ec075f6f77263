"""End of requests: extract, store the records, set the flag, settle the queue entry.

In this order, so that a crash in between repeats work, and no request is marked as processed whose
records are not stored. Each stage works on the batch, may be repeated after an outage, and gives
up a single request that fails by itself.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from apps.queuestats.services.rates import count
from apps.requeststore.daemon.page_extractor import ExtractionResult, PageExtractor
from apps.requeststore.daemon.work import (
    OUTAGES,
    DownloadedPage,
    LeasedRequest,
    RequestFailure,
    Result,
)
from apps.requeststore.engine.entity import Entity
from apps.requeststore.engine.flags import PROCESSED
from apps.requeststore.errors import BizDisabled, RequestRefusal
from apps.requeststore.queues.base import RequestQueue
from apps.requeststore.services.store import BoundBiz, RequestStore
from apps.requeststore.sinks.base import RequestRecords, Sink
from apps.requeststore.stores.base import EndCode, Finish, GiveBack, StoredRequest
from yardkit import failpoints
from yardkit.errors import first_line
from yardkit.guard import settle

logger = logging.getLogger(__name__)

# Slow rules take seconds a page; extracted pages must not wait for the whole batch.
READ_SECONDS: Final = 1.0
# Minimum of lease left before records are written; with less, another worker may lease the
# request meanwhile.
LEAST_LEFT_MS: Final = 500
MAX_TEXT: Final = 300

STOPS: Final = RequestFailure("the fetcher stops", untried=True)

_encoder: Final = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True, eq=False)
class EndParts:
    """Rules, sink and queue of one version of a biz, with which its requests end."""

    bound: BoundBiz
    reader: PageExtractor
    sink: Sink
    queue: RequestQueue
    # Dataset of kept pages, 0 for none.
    pages: int = 0


@dataclass(slots=True)
class BizCounters:
    """Counters of one biz in this process."""

    processed: int = 0
    failed: int = 0
    returned: int = 0
    late: int = 0
    records: int = 0


@dataclass(slots=True)
class BatchEnd:
    """End of one batch; ``step`` continues after the last complete stage. One thread at a time.

    ``now`` returns Unix ms; ``owner`` is the owner of the leases.
    """

    parts: EndParts
    request_store: RequestStore
    owner: str
    now: Callable[[], int]
    ended: Sequence[tuple[LeasedRequest, Result]]
    tally: BizCounters
    # Requests of ``ended`` that this batch did not extract; they belong to the next one.
    rest: Sequence[tuple[LeasedRequest, Result]] = ()
    _read: list[tuple[LeasedRequest, ExtractionResult | RequestFailure]] | None = None
    # Requests whose records an attempt may have stored, and those whose records are stored.
    _attempted: set[int] = field(default_factory=set)
    _stored: set[int] = field(default_factory=set)
    _recorded: bool = False
    _followed: int = 0
    # Reserved IDs of followed links.
    _ids: dict[int, list[int]] = field(default_factory=dict)
    # Ends to be written to the store, and IDs already added to the rates.
    _ends: list[tuple[StoredRequest, Finish]] | None = None
    _backs: list[tuple[StoredRequest, GiveBack]] = field(default_factory=list)
    _counted: set[int] = field(default_factory=set)
    _settle: list[LeasedRequest] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def step(self) -> None:
        """Run all remaining stages.

        Raises one of ``OUTAGES`` when store, sink or queue is unreachable; call again later.
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
        if self._ends is None:
            self._ends = self._decide()
        settle(list(self._ends), self._finish, self._leave, passing=OUTAGES)
        settle(list(self._backs), self._give_back, self._leave, passing=OUTAGES)
        failpoints.hit("fetcher.finished")
        if self._settle:
            self.parts.queue.settle([work.taken for work in self._settle])
            self._settle = []
            failpoints.hit("fetcher.settled")

    def _read_some(self) -> list[tuple[LeasedRequest, ExtractionResult | RequestFailure]]:
        """Extract for ``READ_SECONDS``; the rest of the batch goes into ``rest``."""
        read: list[tuple[LeasedRequest, ExtractionResult | RequestFailure]] = []
        until = time.monotonic() + READ_SECONDS
        for number, (work, result) in enumerate(self.ended):
            if read and time.monotonic() > until:
                self.rest = self.ended[number:]
                self.ended = self.ended[:number]
                break
            settle(
                [(work, result)],
                lambda pairs: read.extend(
                    (work, self.parts.reader.read(work, result)) for work, result in pairs
                ),
                lambda pair, error: read.append((pair[0], _defect(error))),
                passing=OUTAGES,
            )
        return read

    def responses(self) -> Iterator[tuple[LeasedRequest, DownloadedPage, bool]]:
        """Yield the pages of this batch, and whether their request has failed."""
        failed = {work for work, result in self._read or () if isinstance(result, RequestFailure)}
        for work, result in self.ended:
            if isinstance(result, DownloadedPage):
                yield work, result, work in failed

    def give_up(self) -> None:
        """Return the requests at shutdown, unless records of some may have been stored already."""
        with self._lock:
            if self._recorded or self._attempted:
                return
            # No records were stored, so another worker may lease it at once.
            self._read = [(work, STOPS) for work, _result in self.ended]
            self._recorded = True
            self._step()

    # --- records --------------------------------------------------------------------------------

    def _record(self) -> None:
        assert self._read is not None  # noqa: S101 - step reads first
        limit = self.now() + LEAST_LEFT_MS
        late = [work for work, _found in self._read if work.request.deadline <= limit]
        if late:
            # Their leases have ended or are about to.
            self.tally.late += len(late)
            self._settle += late
            self._read = [
                read_page for read_page in self._read if read_page[0].request.deadline > limit
            ]
        gathered = [
            self._gathered(work, result)
            for work, result in self._read
            if isinstance(result, ExtractionResult) and (result.records or work.again)
        ]
        settle(
            [records for records in gathered if records.request_id not in self._stored],
            self._write,
            lambda one, error: self._fail(one.request_id, _defect(error)),
            passing=OUTAGES,
        )
        self._recorded = True

    def _write(self, batch: Sequence[RequestRecords]) -> None:
        # After an error, an earlier attempt may have stored the records all the same.
        marked = [
            msgspec.structs.replace(records, again=True)
            if records.request_id in self._attempted
            else records
            for records in batch
        ]
        self._attempted.update(records.request_id for records in batch)
        for number, reason in self.parts.sink.write(marked).items():
            self._fail(number, RequestFailure(f"records: {reason}", lasting=True))
        self._stored.update(records.request_id for records in batch)

    def _gathered(self, work: LeasedRequest, found: ExtractionResult) -> RequestRecords:
        return RequestRecords(
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

    def _fail(self, number: int, trouble: RequestFailure) -> None:
        assert self._read is not None  # noqa: S101 - step reads first
        self._read = [
            (work, trouble if work.request.id == number else result) for work, result in self._read
        ]

    # --- further requests -----------------------------------------------------------------------

    def _follow(self) -> None:
        """Submit the requests that pages lead to. A crash before the flag is set submits them
        again.
        """
        assert self._read is not None  # noqa: S101 - step reads first
        while self._followed < len(self._read):
            work, result = self._read[self._followed]
            if isinstance(result, ExtractionResult) and result.follow:
                settle(
                    [(work, result.follow)],
                    self._submit,
                    lambda pair, error: self._fail(pair[0].request.id, _defect(error)),
                    passing=OUTAGES,
                )
            self._followed += 1

    def _submit(self, pairs: Sequence[tuple[LeasedRequest, Sequence[Entity]]]) -> None:
        ((work, entities),) = pairs
        bound = self.parts.bound
        # Reserved before storing, so that a repeat after an outage stores nothing twice.
        ids = self._ids.get(work.request.id) or self.request_store.reserve(len(entities))
        self._ids[work.request.id] = ids
        try:
            self.request_store.submit(bound, entities, by=self.owner, now=self.now(), ids=ids)
        except BizDisabled as error:
            self._fail(work.request.id, RequestFailure(f"pages to follow: {error}", untried=True))
        except RequestRefusal as error:
            self._fail(work.request.id, RequestFailure(f"pages to follow: {error}", lasting=True))

    # --- flags ----------------------------------------------------------------------------------

    def _decide(self) -> list[tuple[StoredRequest, Finish]]:
        assert self._read is not None  # noqa: S101 - step reads first
        biz = self.parts.bound.settings
        ends: list[tuple[StoredRequest, Finish]] = []
        for work, result in self._read:
            if isinstance(result, ExtractionResult):
                ends.append((work.request, _success(work, result)))
            elif _is_retried(work, result, biz.max_tries):
                # Another fetcher may lease it at once, except while its host is stopped.
                at = 0 if result is STOPS else self.now() + biz.retry_seconds * 1000
                self._backs.append((work.request, _give_back(work, result, at)))
            else:
                ends.append((work.request, _failure(work, result, biz.failed_flag)))
        self._settle += [work for work, _found in self._read]
        return ends

    def _finish(self, part: Sequence[tuple[StoredRequest, Finish]]) -> None:
        assert self._ends is not None  # noqa: S101 - step decides first
        codes = self.request_store.finish(
            self.parts.bound, part, owner=self.owner, now=self.now(), counted=self._counted
        )
        self._count([end for _request, end in part], codes)
        # Counted per call: ends that are counted must not be counted again after an outage.
        done = {end.id for _request, end in part}
        self._ends = [end for end in self._ends if end[1].id not in done]

    def _give_back(self, part: Sequence[tuple[StoredRequest, GiveBack]]) -> None:
        self.request_store.give_back(self.parts.bound, part, owner=self.owner, now=self.now())
        self.tally.returned += len(part)
        done = {back.id for _request, back in part}
        self._backs = [back for back in self._backs if back[1].id not in done]

    def _leave(self, ended: tuple[StoredRequest, Finish | GiveBack], error: Exception) -> None:
        logger.error(
            "biz %s: the end of request %d cannot be stored; it is retried after its deadline: %s",
            self.parts.bound.name,
            ended[0].id,
            first_line(error),
        )

    def _count(self, ends: Sequence[Finish], codes: Sequence[EndCode]) -> None:
        assert self._read is not None  # noqa: S101 - step reads first
        rows = {
            work.request.id: len(result.records)
            for work, result in self._read
            if isinstance(result, ExtractionResult)
        }
        records = 0
        for end, code in zip(ends, codes, strict=True):
            if code not in (EndCode.DONE, EndCode.REPEATED):
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


def _defect(error: Exception) -> RequestFailure:
    return RequestFailure(f"defect: {type(error).__name__}: {first_line(error)}", lasting=True)


def _is_retried(work: LeasedRequest, trouble: RequestFailure, max_tries: int) -> bool:
    return trouble.untried or (not trouble.lasting and work.request.tries < max_tries)


def _give_back(work: LeasedRequest, trouble: RequestFailure, at: int) -> GiveBack:
    return GiveBack(work.request.id, work.request.tries, trouble.text[:MAX_TEXT], at)


def _success(work: LeasedRequest, found: ExtractionResult) -> Finish:
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


def _failure(work: LeasedRequest, trouble: RequestFailure, flag: int) -> Finish:
    text = trouble.text[:MAX_TEXT]
    result = {"status": trouble.status, "error": text}
    request = work.request
    return Finish(request.id, request.tries, flag, _encoder.encode(result), text)
