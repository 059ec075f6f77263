"""Records extracted again from kept pages, by the rules of now, without a download.

start_reextraction -> row, and a task at the commit
work_on_reextraction -> batches for some seconds, under a lease; the row holds the progress
sweep_reextractions -> dead workers, lost tasks

The records of a batch are published under names (request, re-extraction), then the row's counts and
place change in one update. A batch that is repeated after a crash is recognised by these names.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils.translation import gettext as _

from apps.access.models import User
from apps.access.services import record
from apps.datasets.engine.errors import DatasetError
from apps.datasets.queries.kept_pages import biz_pages, newest_pages
from apps.requeststore.engine.biz import DestinationKind
from apps.requeststore.engine.errors import BadSetting, RequestStoreError, UnknownBiz
from apps.requeststore.engine.flags import is_own
from apps.requeststore.engine.limits import MAX_TS
from apps.requeststore.errors import (
    NoDestination,
    NoSuchBiz,
    NothingKept,
    ReextractionEnded,
    ReextractionRunning,
)
from apps.requeststore.models import Reextraction
from apps.requeststore.services.kept_page_extraction import NOT_KEPT, KeptPageExtractor
from apps.requeststore.services.store import BoundBiz, RequestStore, shared_request_store
from apps.requeststore.sinks.base import RequestRecords
from apps.requeststore.sinks.factory import SinkContext, open_sink
from apps.requeststore.states import ReextractionState
from apps.requeststore.stores.base import StoredRequest
from apps.runtime.deferral import defer
from apps.runtime.services import database_now, is_gone, shared_broker
from yardkit import failpoints, topology
from yardkit.broker import BrokerError
from yardkit.objects import ObjectStoreUnavailable

logger = logging.getLogger(__name__)

REEXTRACTION_TASK: Final = "requeststore.extract_again"
BATCH: Final = 200
# Pages of a batch that are read at a time.
READERS: Final = 4
# Work in one task; then the worker yields to other tasks.
SLOT_SECONDS: Final = 20.0
# Longer than a batch of the slowest pages: 200 of 10 s CPU in four processes.
LEASE: Final = timedelta(minutes=10)
MAX_REASONS: Final = 20
OTHER: Final = "other"
_REASON_CHARACTERS: Final = 150
_HOST: Final = socket.gethostname()

# Called after each batch.
Progress = Callable[[Reextraction], None]


class _Stopped(Exception):
    """The re-extraction cannot continue; the text is shown to users."""


def start_reextraction(
    *,
    project_id: int,
    biz: str,
    ids: Sequence[int] | None = None,
    flag: int | None = None,
    since: int = 0,
    until: int = MAX_TS,
    actor: User | None = None,
    actor_label: str = "",
    request_store: RequestStore | None = None,
) -> Reextraction:
    """Start a re-extraction of ended requests: by IDs, or by flag and time of storage (Unix ms).

    A worker begins at the commit. Raises ``NoSuchBiz``, ``NoDestination``, ``NothingKept``,
    ``ReextractionRunning``.
    """
    request_store = request_store or shared_request_store()
    try:
        bound = request_store.biz(project_id, biz)
    except UnknownBiz:
        raise NoSuchBiz from None
    if bound.settings.records.to is DestinationKind.NOWHERE:
        raise NoDestination
    if biz_pages(project_id, biz) is None:
        raise NothingKept
    selection: dict[str, Any] = {"flag": flag, "since": since, "until": until}
    if ids is not None:
        # Newest first, as those of a period.
        selection = {"ids": sorted(set(ids), reverse=True)}
    row = Reextraction(
        project_id=project_id,
        biz=biz,
        selection=selection,
        total=None if ids is None else len(selection["ids"]),
        config_version=bound.version,
        created_by=(actor_label or (actor.get_username() if actor else ""))[:150],
    )
    with transaction.atomic():
        try:
            with transaction.atomic():
                row.save(force_insert=True)
        except IntegrityError:
            raise ReextractionRunning from None
        chosen = {"ids": len(ids)} if ids is not None else selection
        record(
            actor=actor,
            action="requeststore.extract_again",
            obj=row,
            after={"biz": biz, "config_version": bound.version, **chosen},
            actor_label=actor_label,
        )
        defer(REEXTRACTION_TASK, queue=topology.TASKS, reextraction=row.pk)
    return row


@transaction.atomic
def cancel_reextraction(
    row: Reextraction, *, actor: User | None = None, actor_label: str = ""
) -> Reextraction:
    """Cancel after the current batch; its records stay. Raises ``ReextractionEnded``."""
    running = Reextraction.objects.filter(pk=row.pk, state=ReextractionState.RUNNING)
    if not running.update(state=ReextractionState.CANCELLED, ended_at=database_now()):
        raise ReextractionEnded
    row.refresh_from_db()
    record(actor=actor, action="requeststore.cancel_reextraction", obj=row, actor_label=actor_label)
    return row


def work_on_reextraction(
    pk: int,
    *,
    request_store: RequestStore | None = None,
    seconds: float = SLOT_SECONDS,
    on_progress: Progress | None = None,
) -> str | None:
    """Work for about ``seconds``; return the state, or None when another worker has the row."""
    now = database_now()
    row = Reextraction.objects.filter(pk=pk).first()
    if row is None:
        return None
    free = Reextraction.objects.expired(now).filter(state=ReextractionState.RUNNING)
    generation = free.claim(pk, row.generation, until=now + LEASE, owner=f"{_HOST} {os.getpid()}")
    if generation is None:
        return None
    mine = Reextraction.objects.held(pk, generation)
    request_store = request_store or shared_request_store()
    request_store.poll()
    end = time.monotonic() + seconds
    try:
        while True:
            row.refresh_from_db()
            if row.state != ReextractionState.RUNNING:
                mine.release(until=database_now())
                return row.state
            batch = _Batch(row, request_store)
            is_last = batch.run()
            failpoints.hit("requeststore.reextraction.stored")
            if not _write(row, mine, batch, is_last=is_last):
                return None
            if on_progress is not None:
                row.refresh_from_db()
                on_progress(row)
            if is_last or time.monotonic() > end:
                break
    except (_Stopped, BadSetting) as error:
        mine.filter(state=ReextractionState.RUNNING).update(
            state=ReextractionState.FAILED, ended_at=database_now(), problem=str(error)[:500]
        )
    except (RequestStoreError, DatasetError, BrokerError, ObjectStoreUnavailable) as error:
        # Something is away: the sweep wakes a worker.
        mine.update(problem=str(error)[:500])
        mine.release(until=database_now() + timedelta(seconds=10))
        return row.state
    mine.release(until=database_now())
    row.refresh_from_db()
    if row.state == ReextractionState.RUNNING:
        defer(REEXTRACTION_TASK, queue=topology.TASKS, reextraction=pk)
    return row.state


def follow_reextraction(row: Reextraction, on_progress: Progress) -> Reextraction:
    """Work on a re-extraction, or watch another worker, until it has ended."""
    while row.state == ReextractionState.RUNNING:
        if work_on_reextraction(row.pk, on_progress=on_progress) is None:
            time.sleep(0.5)
        row.refresh_from_db()
    return row


def sweep_reextractions(*, now: datetime) -> int:
    """Wake workers for re-extractions that none holds; return how many.

    A worker of this host that was killed holds none, another one's lease has to end.
    """
    held = Reextraction.objects.filter(state=ReextractionState.RUNNING).exclude(owner="")
    for pk, generation, owner in held.values_list("pk", "generation", "owner"):
        host, _space, pid = owner.rpartition(" ")
        if is_gone(host, int(pid), of=_HOST):
            Reextraction.objects.held(pk, generation).release(until=now)
    waiting = Reextraction.objects.expired(now).filter(state=ReextractionState.RUNNING)
    for pk in (pks := list(waiting.values_list("pk", flat=True))):
        defer(REEXTRACTION_TASK, queue=topology.TASKS, reextraction=pk)
    return len(pks)


def _write(row: Reextraction, mine: Any, batch: _Batch, *, is_last: bool) -> bool:
    """Store counts and place of a batch; False if another worker has claimed the row."""
    reasons = Counter(row.reasons)
    for reason, number in batch.reasons.items():
        known = reason in reasons or len(reasons) < MAX_REASONS
        reasons[reason if known else OTHER] += number
    changes: dict[str, Any] = {
        "place": batch.place,
        "done": F("done") + batch.done,
        "failed": F("failed") + batch.failed,
        "not_kept": F("not_kept") + batch.not_kept,
        "records": F("records") + batch.records,
        "reasons": dict(reasons),
        "config_version": batch.version,
        "problem": "",
    }
    with transaction.atomic():
        now = database_now()
        if not mine.renew(until=now + LEASE, **changes):
            return False
        if is_last:
            running = Reextraction.objects.filter(pk=row.pk, state=ReextractionState.RUNNING)
            running.update(state=ReextractionState.DONE, ended_at=now)
    return True


@dataclass
class _Batch:
    """The next requests of a re-extraction: reads their pages, stores their records."""

    row: Reextraction
    request_store: RequestStore
    place: list[int] = field(default_factory=list)
    done: int = 0
    failed: int = 0
    not_kept: int = 0
    records: int = 0
    version: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def run(self) -> bool:
        """Return whether it was the last one. Raises ``_Stopped``, and errors of the stores."""
        row = self.row
        try:
            bound = self.request_store.biz(row.project_id, row.biz)
        except UnknownBiz:
            raise _Stopped(
                _("The request group is no longer in the active configuration.")
            ) from None
        dataset = biz_pages(row.project_id, row.biz)
        if dataset is None:
            raise _Stopped(NothingKept.detail)
        self.version = bound.version
        requests, is_last = self._next(bound)
        pages = newest_pages(dataset, [one.id for one in requests]) if requests else {}
        self._miss("no kept page", len(requests) - len(pages))
        kept = [one for one in requests if one.id in pages]
        reader = KeptPageExtractor(bound, dataset.pk, row.pk)
        with ThreadPoolExecutor(READERS) as pool:
            results = list(pool.map(lambda one: reader.read(one, pages[one.id]), kept))
        self._store(bound, results)
        return is_last

    def _next(self, bound: BoundBiz) -> tuple[list[StoredRequest], bool]:
        """Return the next ended requests, and whether there are no more."""
        chosen, place = self.row.selection, self.row.place
        if "ids" in chosen:
            end = (place[0] if place else 0) + BATCH
            ids = chosen["ids"][end - BATCH : end]
            self.place, is_last = [end], end >= len(chosen["ids"])
        else:
            page = self.request_store.page(
                bound,
                flag=chosen["flag"],
                since=chosen["since"],
                until=chosen["until"],
                after=(place[0], place[1]) if place else None,
                limit=BATCH,
            )
            self.place = [page[-1].request.ts, page[-1].request.id] if page else place
            ids = [one.request.id for one in page if is_own(one.request.flag)]
            is_last = len(page) < BATCH
        found = self.request_store.find_many(bound, ids) if ids else {}
        requests = [found[number].request for number in ids if number in found]
        ended = [one for one in requests if is_own(one.flag)]
        self._miss("no such ended request", len(ids) - len(ended))
        return ended, is_last

    def _miss(self, reason: str, number: int) -> None:
        self.not_kept += number
        if number:
            self.reasons[reason] += number

    def _fail(self, reason: str) -> None:
        self.failed += 1
        self.reasons[reason[:_REASON_CHARACTERS]] += 1

    def _store(self, bound: BoundBiz, results: Sequence[RequestRecords | str]) -> None:
        for reason in results:
            if isinstance(reason, str):
                if reason.startswith(NOT_KEPT):
                    self._miss(reason, 1)
                else:
                    self._fail(reason)
        found = [one for one in results if isinstance(one, RequestRecords)]
        context = SinkContext(broker=shared_broker(), now=self.request_store.now)
        sink = open_sink(
            context, project_id=bound.project_id, biz=bound.name, records=bound.settings.records
        )
        with closing(sink):
            refused = sink.write([one for one in found if one.rows])
        for reason in refused.values():
            self._fail(f"records: {reason}")
        stored = [one for one in found if one.request_id not in refused]
        self.done += len(stored)
        self.records += sum(len(one.rows) for one in stored)
