"""Leases of resources.

The database row decides: a resource has at most one holder, and its lease number (fencing token)
grows with each lease and each forced release, so that a return with an older number is recognized
as late.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.db import IntegrityError, transaction
from django.db.models import F, Min, Q, QuerySet
from django.utils.translation import gettext as _

from apps.access.services import record
from apps.seeds.engine.resource_files import opened
from apps.seeds.engine.scores import ResourceScore, judge, rank, zone_size
from apps.seeds.errors import BadLease, LeaseOver, PoolDisabled, WrongResourceLease
from apps.seeds.models import Resource, ResourcePool
from apps.seeds.querysets import ResourceQuerySet
from apps.seeds.states import ResourceState
from yardkit.protocol import ResourceOutcome
from yardkit.protocol.resources import MAX_REASON

logger = logging.getLogger(__name__)

MAX_OWNER: Final = 200
MAX_KEY: Final = 64
MAX_LEASE_SECONDS: Final = 7 * 24 * 3600
# More candidates than one, because concurrent callers may take the best at the same moment.
_TRIES: Final = 5
# Limit of one sweep.
_RELEASED_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class Leased:
    """``resource`` is leased until ``until``. The ``repr`` omits the secret."""

    resource: Resource
    lease: int
    until: datetime
    secret: dict[str, str]

    def __repr__(self) -> str:
        return f"Leased({self.resource.name!r}, lease={self.lease})"


@dataclass(frozen=True, slots=True)
class NoneFree:
    """No resource is free. ``next_at``: end of the first cool-down or lease; None if only users can
    free one.
    """

    next_at: datetime | None


@dataclass(frozen=True, slots=True)
class Returned:
    """Result of a return. ``code``: "returned", "repeated" or "late"; the resource as it is now."""

    code: str
    resource: Resource


def run_owner(run: int, boot: str) -> str:
    """Return the lease owner of one execution of a run."""
    return f"run:{run}:{boot}"


def lease(
    *, pool: ResourcePool, owner: str, now: datetime, seconds: float = 0.0, key: str = ""
) -> Leased | NoneFree:
    """Lease the best free resource for ``owner``, as chosen by ``engine.scores.choose``. Seven
    statements.

    ``seconds``: 0 is the pool's default. ``key``: idempotency key of the call.

    Raises:
        BadLease, PoolDisabled
        LeaseOver: the lease of this call has been returned.
    """
    _check(owner, seconds, key)
    if not pool.is_enabled:
        raise PoolDisabled
    until = now + timedelta(seconds=seconds or pool.lease_seconds)
    for _try in range(_TRIES):
        try:
            with transaction.atomic():
                result = _lease(pool, owner, now, until, key)
        except IntegrityError:
            # A concurrent repetition of the call has stored its lease.
            continue
        if result is not None:
            return result
    # Concurrent callers are taking all free resources.
    return NoneFree(now)


def _check(owner: str, seconds: float, key: str) -> None:
    if not 0 < len(owner) <= MAX_OWNER or not owner.isprintable():
        raise BadLease(_("The owner must have 1 to %(limit)d characters.") % {"limit": MAX_OWNER})
    if len(key) > MAX_KEY or not key.isprintable():
        raise BadLease(_("The key must have at most %(limit)d characters.") % {"limit": MAX_KEY})
    if not math.isfinite(seconds) or not 0 <= seconds <= MAX_LEASE_SECONDS:
        raise BadLease(
            _("The lease must have at most %(limit)d seconds.") % {"limit": MAX_LEASE_SECONDS}
        )


def _lease(
    pool: ResourcePool, owner: str, now: datetime, until: datetime, key: str
) -> Leased | NoneFree | None:
    """Try to lease one of the best resources; None if concurrent callers took all candidates."""
    _release_expired(Resource.objects.filter(pool=pool), now)
    if key and (known := Resource.objects.filter(pool=pool, lease_key=key).first()):
        return _again(known, owner)
    free = Resource.objects.filter(pool=pool).at_hand(now)
    count = free.count()
    if not count:
        return NoneFree(next_available(pool))
    chosen = in_turn(free, count, zone_size(count, pool.rotation_percent))
    resource = chosen.select_for_update(skip_locked=True).first()
    if resource is None:
        return None
    # For databases without row locks: the lease number in the condition excludes a second caller.
    lease_number = free.claim(
        resource.pk,
        resource.lease,
        owner=owner,
        until=until,
        state=ResourceState.LEASED,
        lease_key=key,
        last_used_at=now,
        used_count=F("used_count") + 1,
    )
    if lease_number is None:
        return None
    logger.info("resource %s of pool %s is leased by %s", resource.name, pool.name, owner)
    resource.state, resource.lease = ResourceState.LEASED, lease_number
    resource.leased_by, resource.leased_until, resource.last_used_at = owner, until, now
    return _leased(resource)


def _again(known: Resource, owner: str) -> Leased:
    if known.state != ResourceState.LEASED or known.leased_by != owner:
        raise LeaseOver
    return _leased(known)


def _leased(resource: Resource) -> Leased:
    until = resource.leased_until
    if until is None:
        raise LeaseOver
    return Leased(resource, resource.lease, until, opened(resource.secret))


def in_turn(free: QuerySet[Resource], count: int, zone: int) -> QuerySet[Resource]:
    """Return the best ``zone`` of the ``count`` free resources, the longest unused first.

    A subquery finds the rank of the zone's end from the nearer side, which avoids sorting the rest.
    """
    if zone > count // 2:
        ranked = free.order_by("-rank", "-pk")[count - zone : count - zone + 1]
    else:
        ranked = free.order_by("rank", "pk")[zone - 1 : zone]
    last = ranked.values_list("rank", "pk").first()
    rows = free.order_by(F("last_used_at").asc(nulls_first=True), "pk")
    if last is None:
        # Concurrent callers took some after they were counted.
        return rows
    rank_of_last, pk = last
    return rows.filter(Q(rank__lt=rank_of_last) | Q(rank=rank_of_last, pk__lte=pk))


def next_available(pool: ResourcePool) -> datetime | None:
    """Return when the first unavailable resource may be free. Two statements."""
    mine = Resource.objects.filter(pool=pool)
    cool = mine.filter(state=ResourceState.FREE).aggregate(at=Min("available_at"))["at"]
    back = mine.filter(state=ResourceState.LEASED).aggregate(at=Min("leased_until"))["at"]
    return min((at for at in (cool, back) if at is not None), default=None)


@transaction.atomic
def give_back(
    *,
    project: int,
    resource: int,
    lease: int,
    outcome: ResourceOutcome,
    now: datetime,
    owner: str | None = None,
    reason: str = "",
) -> Returned:
    """End a lease with its outcome; only the first return of a lease has an effect.

    ``owner``: required holder; None skips the check, for users.

    Raises:
        Resource.DoesNotExist: not in this project.
        WrongResourceLease, BadLease
    """
    if len(reason) > MAX_REASON:
        raise BadLease(
            _("The reason must have at most %(limit)d characters.") % {"limit": MAX_REASON}
        )
    rows = Resource.objects.select_for_update(of=("self",)).select_related("pool")
    held = rows.get(pk=resource, pool__project_id=project)
    if lease > held.lease or lease < 1:
        raise WrongResourceLease
    if lease < held.lease:
        Resource.objects.filter(pk=held.pk).update(late_count=F("late_count") + 1)
        held.late_count += 1
        return Returned("late", held)
    if held.state != ResourceState.LEASED:
        return Returned("repeated", held)
    if owner is not None and held.leased_by != owner:
        raise WrongResourceLease
    holder = held.leased_by
    _end(held, outcome, reason.replace("\x00", ""), now)
    if held.state == ResourceState.BANNED:
        record(
            actor=None,
            actor_label=holder,
            action="seeds.ban_resource",
            obj=held,
            after={"state": held.state, "reason": held.reason},
        )
    logger.info("resource %s of pool %s is back: %s", held.name, held.pool.name, outcome.name)
    return Returned("returned", held)


def _end(held: Resource, outcome: ResourceOutcome, reason: str, now: datetime) -> None:
    """Update score and state after a use: free, cooling down or banned."""
    pool = held.pool
    pause, banned = float(pool.rest_seconds), outcome is ResourceOutcome.BAN
    if outcome in (ResourceOutcome.OK, ResourceOutcome.NOT_OK):
        succeeded = outcome is ResourceOutcome.OK
        standing = ResourceScore(held.score, held.failures_in_a_row)
        verdict = judge(standing, pool.judgement(), succeeded=succeeded)
        held.score, held.failures_in_a_row = verdict.standing.score, verdict.standing.failures
        pause, banned = verdict.pause_seconds, verdict.banned
        held.succeeded_count += succeeded
        held.failed_count += not succeeded
    held.available_at = now + timedelta(seconds=pause)
    held.last_used_at = now
    held.rank = rank(held.score, now.timestamp())
    if outcome is not ResourceOutcome.UNUSED:
        held.reason = reason
    if banned:
        held.banned_at = now
        if not held.reason:
            held.reason = _("%(count)d consecutive failures") % {"count": held.failures_in_a_row}
    _free(held, ResourceState.BANNED if banned else ResourceState.FREE)
    # The row is locked by us; the secret is not written again.
    held.save(update_fields=_KEPT)


_KEPT: Final = (
    "state",
    "lease",
    "leased_by",
    "leased_until",
    "score",
    "rank",
    "failures_in_a_row",
    "succeeded_count",
    "failed_count",
    "expired_count",
    "available_at",
    "last_used_at",
    "banned_at",
    "reason",
)


def _free(held: Resource, state: ResourceState) -> None:
    held.state, held.leased_by, held.leased_until = state, "", None


@transaction.atomic
def release_expired(*, now: datetime) -> int:
    """Release expired leases in all pools; return their number.

    The score stays. A later report of the old owner counts as late.
    """
    return _release_expired(Resource.objects.all(), now)


def _release_expired(rows: ResourceQuerySet[Resource], now: datetime) -> int:
    released = _take_back(rows.overdue(now), now)
    for row in released:
        row.expired_count += 1
        row.save(update_fields=_KEPT)
        logger.warning("the lease of resource %s has run out", row.name)
    return len(released)


@transaction.atomic
def give_back_of_run(*, run: int, now: datetime) -> int:
    """Release the resources of an ended run without counting an outcome; return their number."""
    rows = Resource.objects.filter(
        state=ResourceState.LEASED, leased_by__startswith=run_owner(run, "")
    )
    released = _take_back(rows, now)
    for row in released:
        row.save(update_fields=_KEPT)
    return len(released)


def _take_back(rows: QuerySet[Resource], now: datetime) -> list[Resource]:
    """Free the rows and advance their lease numbers, without saving; rows locked by others are
    skipped.
    """
    locked = rows.select_for_update(of=("self",), skip_locked=True).select_related("pool")
    released = list(locked.order_by("pk")[:_RELEASED_AT_ONCE])
    for row in released:
        used = min(row.leased_until or now, now)
        row.last_used_at, row.rank = used, rank(row.score, used.timestamp())
        row.available_at = max(row.available_at, now + timedelta(seconds=row.pool.rest_seconds))
        row.lease += 1
        _free(row, ResourceState.FREE)
    return released
