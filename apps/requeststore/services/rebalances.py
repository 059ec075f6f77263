"""Re-balancing: moves every request to its place under the newest epoch.

start_rebalance -> row, and a task at the commit
work_on_rebalance -> batches for some seconds; the row holds the progress
sweep_rebalances -> dead workers, lost tasks, leased requests

Each batch is written to the row before it is moved, so that the next worker completes it. The row
also holds the plan: a batch reaches its destination even if the settings have changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from apps.access.models import User
from apps.access.services import record
from apps.requeststore.engine.errors import RequestStoreError, RequestStoreUnavailable, UnknownBiz
from apps.requeststore.engine.flags import TAKEN
from apps.requeststore.errors import (
    EpochNotStarted,
    NoSuchBiz,
    NothingToRebalance,
    RebalanceEnded,
    RebalanceRunning,
)
from apps.requeststore.models import Rebalance
from apps.requeststore.services.rebalance_plan import Cursor, RebalancePlan, cursor_of, sources_of
from apps.requeststore.services.store import BoundBiz, RequestStore, shared_request_store
from apps.requeststore.states import RebalanceState
from apps.requeststore.stores.shard_move import is_over, look, move
from apps.runtime.deferral import defer
from apps.runtime.services import database_now
from yardkit import failpoints, topology

REBALANCE_TASK: Final = "requeststore.work_on_rebalance"
# Batch size, less for large requests: a batch cannot be leased for some milliseconds.
MOST_TOGETHER: Final = 500
MOST_BYTES: Final = 32 * 1024 * 1024
# Seconds of work in one task; then the worker yields to other tasks.
SLOT_SECONDS: Final = 20.0
# Seconds without progress after which a worker counts as dead.
STALE_SECONDS: Final = 30.0
# Seconds without progress after which workers are woken again.
WAKE_SECONDS: Final = 10.0
# Most leased requests remembered; beyond, everything is examined once more.
MOST_LATER: Final = 5000
_LOOK: Final = 100

# Called after each batch.
Progress = Callable[[Rebalance], None]


class _Stopped(Exception):
    """The re-balance cannot continue; the text is shown to users."""


class _RetryLater(Exception):
    """The re-balance continues some seconds later."""


def bound_biz(project_id: int, name: str, request_store: RequestStore | None = None) -> BoundBiz:
    """Return the active biz. Raises ``NoSuchBiz``."""
    try:
        return (request_store or shared_request_store()).biz(project_id, name)
    except UnknownBiz:
        raise NoSuchBiz from None


def start_rebalance(
    *, project_id: int, biz: str, actor: User | None = None, actor_label: str = ""
) -> Rebalance:
    """Start a re-balance; a worker continues it at the commit.

    Raises:
        NoSuchBiz, RebalanceRunning
        NothingToRebalance: there is only one epoch.
        EpochToCome: the newest epoch has not begun.
    """
    bound = bound_biz(project_id, biz)
    now = database_now()
    if bound.settings.epochs[-1].since > _ms(now):
        raise EpochNotStarted
    sources = sources_of(bound)
    if not sources:
        raise NothingToRebalance
    cursor = Cursor(
        plan=RebalancePlan.of(bound.settings),
        sources=sources,
        ttl_seconds=bound.settings.ttl_seconds,
    )
    row = Rebalance(
        project_id=project_id,
        biz=biz,
        config_version=bound.version,
        cursor=msgspec.to_builtins(cursor),
        created_by=(actor_label or (actor.get_username() if actor else ""))[:150],
        created_at=now,
        stepped_at=now,
    )
    with transaction.atomic():
        try:
            with transaction.atomic():
                row.save(force_insert=True)
        except IntegrityError:
            raise RebalanceRunning from None
        record(
            actor=actor,
            action="requeststore.rebalance",
            obj=row,
            after={"biz": biz, "config_version": bound.version},
            actor_label=actor_label,
        )
        defer(REBALANCE_TASK, queue=topology.TASKS, rebalance=row.pk)
    return row


@transaction.atomic
def cancel_rebalance(
    row: Rebalance, *, actor: User | None = None, actor_label: str = ""
) -> Rebalance:
    """Cancel; moved requests stay moved, and the current batch is completed.

    Raises:
        RebalanceEnded
    """
    now = database_now()
    locked = Rebalance.objects.select_for_update().get(pk=row.pk)
    if locked.state != RebalanceState.RUNNING:
        raise RebalanceEnded
    locked.state, locked.ended_at = RebalanceState.CANCELLED, max(now, locked.created_at)
    locked.save(update_fields=["state", "ended_at"])
    record(actor=actor, action="requeststore.cancel_rebalance", obj=locked, actor_label=actor_label)
    return locked


def work_on_rebalance(
    pk: int,
    *,
    request_store: RequestStore | None = None,
    seconds: float = SLOT_SECONDS,
    told: Progress | None = None,
) -> str | None:
    """Work for about ``seconds``; return the state, or None when another worker holds the row.

    Also completes the last batch of a cancelled re-balance whose worker died.
    """
    row = _claim(pk)
    if row is None:
        return None
    failpoints.hit("requeststore.rebalance.claimed")
    work = _Work(row, request_store or shared_request_store())
    end = time.monotonic() + seconds
    try:
        while True:
            done = work.step()
            failpoints.hit("requeststore.rebalance.step")
            if not _beat(row, work.cursor):
                return None
            if told is not None:
                told(row)
            if row.state != RebalanceState.RUNNING and not work.cursor.batch:
                return _release(row, work.cursor)
            if done:
                return _end(row, work.cursor, RebalanceState.DONE)
            if time.monotonic() > end and not work.cursor.batch:
                return _release(row, work.cursor, wake=True)
    except _RetryLater:
        return _release(row, work.cursor)
    except RequestStoreUnavailable as error:
        return _release(row, work.cursor, problem=str(error))
    except (_Stopped, RequestStoreError) as error:
        return _end(row, work.cursor, RebalanceState.FAILED, str(error))


def follow_rebalance(row: Rebalance, told: Progress) -> Rebalance:
    """Work on a re-balance, or watch another worker, until it has ended."""
    while True:
        work_on_rebalance(row.pk, told=told)
        row.refresh_from_db()
        told(row)
        if row.state != RebalanceState.RUNNING:
            return row
        time.sleep(0.5)


def sweep_rebalances(*, now: datetime) -> int:
    """Wake workers for re-balances without one; return how many.

    Includes ended ones whose worker died in the middle of a batch.
    """
    quiet = Rebalance.objects.filter(stepped_at__lt=now - timedelta(seconds=WAKE_SECONDS))
    running = quiet.filter(state=RebalanceState.RUNNING)
    halted = quiet.exclude(state=RebalanceState.RUNNING).filter(cursor__held=True)
    woken = 0
    for row in [*running, *halted]:
        if not _is_held(row, now):
            defer(REBALANCE_TASK, queue=topology.TASKS, rebalance=row.pk)
            woken += 1
    return woken


class _Work:
    """Steps of one re-balance. ``cursor`` records partial progress."""

    def __init__(self, row: Rebalance, request_store: RequestStore) -> None:
        self.row = row
        self.cursor = cursor_of(row)
        self._request_store = request_store
        self._target = self.cursor.plan.target(row.project_id, row.biz)
        self._is_ready = False

    def step(self) -> bool:
        """Find or move one batch; return True when nothing is left."""
        cursor = self.cursor
        if cursor.batch:
            self._move()
            return False
        if self.row.state != RebalanceState.RUNNING:
            return False
        self._settings()
        if cursor.at < len(cursor.sources):
            self._look()
            return False
        if cursor.later:
            self._look_later()
            return False
        if cursor.again:
            cursor.again, cursor.at, cursor.after, cursor.seen = False, 0, None, 0
            return False
        return True

    @property
    def _cutoff(self) -> int:
        return _ms(database_now()) - self.cursor.ttl_seconds * 1000

    def _settings(self) -> None:
        """Verify that the plan is still that of the biz, make the places, count the work."""
        try:
            bound = self._request_store.biz(self.row.project_id, self.row.biz)
        except UnknownBiz:
            raise _Stopped(
                _("The request group is no longer in the active configuration.")
            ) from None
        if RebalancePlan.of(bound.settings) != self.cursor.plan:
            raise _Stopped(
                _(
                    "Version %(number)d of the settings changes the distribution of "
                    "requests. Start another re-balance."
                )
                % {"number": bound.version}
            )
        self.row.config_version = bound.version
        self.cursor.ttl_seconds = bound.settings.ttl_seconds
        if self._is_ready:
            return
        for place in self.cursor.plan.spread(self.row.project_id, self.row.biz).places:
            self._request_store.ensure(bound, place)
        if self.cursor.total < 0:
            sizes = [
                self._request_store.node(source.node).size(source.shard)
                for source in self.cursor.sources
            ]
            self.cursor.total = sum(size.requests for size in sizes)
        self._is_ready = True

    def _look(self) -> None:
        cursor = self.cursor
        source = cursor.sources[cursor.at]
        if not cursor.limit:
            size = self._request_store.node(source.node).size(source.shard)
            mean = size.bytes // size.requests if size.requests else 0
            cursor.limit = max(1, min(MOST_TOGETHER, MOST_BYTES // max(mean, 1)))
        sample = look(
            self._request_store.node,
            source,
            self._target,
            biz=self.row.biz,
            after=cursor.after,
            limit=cursor.limit,
            cutoff=self._cutoff,
        )
        cursor.batch, cursor.batch_at = sample.movable, cursor.at
        self._postpone(cursor.at, sample.taken)
        self.row.stayed += sample.in_place
        cursor.expired += sample.expired
        cursor.seen += len(sample.movable) + len(sample.taken) + sample.in_place + sample.expired
        # Requests moved into a later source are examined there again.
        cursor.total = max(cursor.total, cursor.seen)
        cursor.after = sample.after
        if sample.after is None:
            cursor.at, cursor.limit = cursor.at + 1, 0

    def _look_later(self) -> None:
        """Examine requests that were leased earlier."""
        cursor = self.cursor
        waiting, cursor.later = cursor.later, []
        for place, (at, _number) in enumerate(waiting):
            if cursor.batch and (at != cursor.batch_at or len(cursor.batch) >= _LOOK):
                cursor.later += waiting[place:]
                return
            self._look_at_one(*waiting[place])
        if not cursor.batch and cursor.later:
            raise _RetryLater

    def _look_at_one(self, at: int, number: int) -> None:
        cursor = self.cursor
        source = cursor.sources[at]
        (request,) = self._request_store.node(source.node).find(source.shard, [number])
        if request is None:
            return
        if request.flag == TAKEN:
            cursor.later.append((at, number))
        elif is_over(request, self._cutoff):
            cursor.expired += 1
        else:
            cursor.batch.append(number)
            cursor.batch_at = at

    def _move(self) -> None:
        cursor = self.cursor
        moved = move(
            self._request_store.node,
            cursor.sources[cursor.batch_at],
            self._target,
            cursor.batch,
            by=f"rebalance:{self.row.pk}",
            now=_ms(database_now()),
            cutoff=self._cutoff,
        )
        self.row.moved += moved.moved
        cursor.expired += moved.expired
        self._postpone(cursor.batch_at, moved.taken)
        cursor.batch = []

    def _postpone(self, at: int, taken: list[int]) -> None:
        room = max(0, MOST_LATER - len(self.cursor.later))
        self.cursor.later += [(at, number) for number in taken[:room]]
        self.cursor.again = self.cursor.again or len(taken) > room


def _claim(pk: int) -> Rebalance | None:
    now = database_now()
    row = Rebalance.objects.filter(pk=pk).first()
    if row is None or _is_held(row, now):
        return None
    if row.state != RebalanceState.RUNNING and not row.cursor.get("held"):
        return None
    row.cursor["held"] = True
    seen = Rebalance.objects.filter(pk=pk, stepped_at=row.stepped_at, state=row.state)
    if not seen.update(stepped_at=_later(now, row), cursor=row.cursor):
        return None
    row.refresh_from_db()
    return row


def _is_held(row: Rebalance, now: datetime) -> bool:
    return bool(row.cursor.get("held")) and row.stepped_at > now - timedelta(seconds=STALE_SECONDS)


def _beat(row: Rebalance, cursor: Cursor, **more: Any) -> bool:
    """Store the progress and reread the row. False: another worker has claimed it."""
    now = _later(database_now(), row)
    cursor.held = more.pop("held", True)
    mine = Rebalance.objects.filter(pk=row.pk, stepped_at=row.stepped_at)
    written = mine.update(
        stepped_at=now,
        cursor=msgspec.to_builtins(cursor),
        moved=row.moved,
        stayed=row.stayed,
        config_version=row.config_version,
        problem=more.pop("problem", ""),
    )
    if not written:
        return False
    row.refresh_from_db()
    return True


def _release(row: Rebalance, cursor: Cursor, *, wake: bool = False, problem: str = "") -> str:
    """Release the row; ``wake`` starts the next worker at once."""
    with transaction.atomic():
        # An unfinished batch keeps the claim: its next worker completes it, even after a cancel.
        if _beat(row, cursor, held=bool(cursor.batch), problem=problem[:500]) and wake:
            defer(REBALANCE_TASK, queue=topology.TASKS, rebalance=row.pk)
    return row.state


def _end(row: Rebalance, cursor: Cursor, state: RebalanceState, problem: str = "") -> str | None:
    """Set the final state, unless the re-balance was cancelled."""
    with transaction.atomic():
        if not _beat(row, cursor, held=bool(cursor.batch), problem=problem[:500]):
            return None
        running = Rebalance.objects.filter(pk=row.pk, state=RebalanceState.RUNNING)
        running.update(state=state, ended_at=row.stepped_at)
    row.refresh_from_db()
    return row.state


def _later(now: datetime, row: Rebalance) -> datetime:
    """Return a unique time for a write: by it a worker knows that it still holds the row."""
    return max(now, row.stepped_at + timedelta(microseconds=1))


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
