"""Worker numbers that one process at a time may use, such as the worker ids of Snowflake.

The generation is the fencing token: each new holder increments it, and every write of a holder
names it, so that a holder whose lease has expired changes nothing.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import F, Value
from django.db.models.functions import Greatest

from apps.runtime.errors import LeaseLost, NoFreeNumber
from apps.runtime.models import WorkerLease
from apps.runtime.queries import database_now
from apps.runtime.querysets import WorkerLeaseQuerySet
from yardkit.snowflake import MAX_WORKER


def lease_worker(
    *,
    purpose: str,
    owner: str,
    ttl: timedelta,
    now: datetime | None = None,
    numbers: int = MAX_WORKER + 1,
) -> WorkerLease:
    """Lease a free number from 0 to ``numbers`` - 1.

    ``owner`` names a process, not a host: an owner that calls again gets its own number back under
    a new generation. An unused number is preferred to one with an expired lease, whose last holder
    may only be late.

    Raises ``NoFreeNumber`` if all are leased.
    """
    now = now or database_now()
    while True:
        try:
            return (
                _take_own(purpose, owner, now, ttl)
                or _take_unused(purpose, owner, now, ttl, numbers)
                or _take_expired(purpose, owner, now, ttl, numbers)
            )
        except _Raced:
            continue


def renew_lease(*, lease: WorkerLease, ttl: timedelta, now: datetime | None = None) -> WorkerLease:
    """Extend the lease to ``ttl`` from now. Raises ``LeaseLost``."""
    expires_at = (now or database_now()) + ttl
    if not _held(lease).renew(until=expires_at):
        raise LeaseLost
    lease.expires_at = expires_at
    return lease


def hold_lease(*, lease: WorkerLease) -> None:
    """Lock the lease until the end of the transaction. Raises ``LeaseLost``.

    A holder whose lease has expired thus cannot write after its successor has started.
    """
    if _held(lease).select_for_update().first() is None:
        raise LeaseLost


def release_lease(*, lease: WorkerLease, now: datetime | None = None) -> None:
    """Release the number; does nothing if another process has leased it."""
    _held(lease).release(until=now or database_now(), owner=lease.owner)


def steady_for(*, purpose: str, gap: timedelta, now: datetime) -> timedelta:
    """Return for how long the database has been writable without a gap longer than ``gap``.

    Rows must not be judged by their age if no process could write. Every call updates the row of
    number 0 of ``purpose``, so all processes get the same result.
    """
    since_ms = int(now.timestamp() * 1000)
    row, created = WorkerLease.objects.get_or_create(
        purpose=purpose,
        number=0,
        defaults={"owner": purpose, "expires_at": now + gap, "high_water_ms": since_ms},
    )
    if not created:
        going_on = WorkerLease.objects.filter(pk=row.pk, expires_at__gte=now)
        if going_on.update(expires_at=now + gap):
            # Read after the update: another process may have reset the count just before us.
            row.refresh_from_db(fields=["high_water_ms"])
            since_ms = row.high_water_ms
        else:
            WorkerLease.objects.filter(pk=row.pk).update(
                expires_at=now + gap, high_water_ms=since_ms
            )
    return timedelta(milliseconds=max(0, int(now.timestamp() * 1000) - since_ms))


def _held(lease: WorkerLease) -> WorkerLeaseQuerySet[WorkerLease]:
    return WorkerLease.objects.held(lease.pk, lease.generation)


class DatabaseHighWater:
    """High-water marks of ``yardkit.snowflake``, stored in the row of a lease.

    A mark is written only under the generation that holds the number: a former holder gets
    ``LeaseLost`` instead of ids that the new holder also generates.
    """

    def __init__(self, lease: WorkerLease) -> None:
        self.lease = lease

    def load(self, worker: int) -> int:
        """Return the mark in Unix milliseconds; 0 for an unused number. Raises ``LeaseLost``."""
        self._check(worker)
        mark = _held(self.lease).values_list("high_water_ms", flat=True).first()
        if mark is None:
            raise LeaseLost
        return mark

    def save(self, worker: int, ms: int) -> None:
        """Commit the mark; call it outside a transaction, before ids are used.

        Raises ``LeaseLost`` if another process has the number, RuntimeError inside a transaction,
        whose rollback would undo the mark.
        """
        self._check(worker)
        with transaction.atomic(durable=True):
            higher = Greatest(F("high_water_ms"), Value(ms))
            if not _held(self.lease).update(high_water_ms=higher):
                raise LeaseLost

    def _check(self, worker: int) -> None:
        if worker != self.lease.number:
            raise ValueError(f"the lease is for {self.lease.number}, not for {worker}")


class _Raced(Exception):
    """Another process was faster: retry."""


def _take_own(purpose: str, owner: str, now: datetime, ttl: timedelta) -> WorkerLease | None:
    own = WorkerLease.objects.filter(purpose=purpose, owner=owner).order_by("number").first()
    return _take_over(own, owner, now + ttl) if own is not None else None


def _take_unused(
    purpose: str, owner: str, now: datetime, ttl: timedelta, numbers: int
) -> WorkerLease | None:
    used = set(WorkerLease.objects.filter(purpose=purpose).values_list("number", flat=True))
    number = next((number for number in range(numbers) if number not in used), None)
    if number is None:
        return None
    try:
        with transaction.atomic():
            return WorkerLease.objects.create(
                purpose=purpose, number=number, owner=owner, expires_at=now + ttl
            )
    except IntegrityError as error:
        raise _Raced from error


def _take_expired(
    purpose: str, owner: str, now: datetime, ttl: timedelta, numbers: int
) -> WorkerLease:
    expired = (
        WorkerLease.objects.filter(purpose=purpose, number__lt=numbers)
        .expired(now)
        .order_by("expires_at", "number")
        .first()
    )
    if expired is None:
        raise NoFreeNumber
    return _take_over(expired, owner, now + ttl)


def _take_over(lease: WorkerLease, owner: str, expires_at: datetime) -> WorkerLease:
    generation = WorkerLease.objects.claim(
        lease.pk, lease.generation, owner=owner, until=expires_at
    )
    if generation is None:
        raise _Raced
    lease.owner, lease.expires_at, lease.generation = owner, expires_at, generation
    return lease
