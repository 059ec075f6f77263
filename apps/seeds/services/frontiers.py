"""Create, update and delete frontiers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.db.models import ProtectedError
from django.db.models.deletion import Collector

from apps.access.models import User
from apps.access.services import changes, record, snapshot
from apps.seeds.errors import (
    FrontierHasSeeds,
    FrontierInUse,
    OperationRunning,
    RulesNeedMove,
    SeedsStillLeased,
)
from apps.seeds.models import Frontier, Operation
from apps.seeds.services.granularity import GROUPING_FIELDS
from apps.seeds.services.management import manage
from apps.seeds.services.operation_steps import SETTLE_SECONDS, freeze, unfreeze
from apps.seeds.states import ACTIVE_OPERATIONS, OperationKind
from apps.seeds.stores.operations import DropSegment, ShowSegments


@transaction.atomic
def create_frontier(
    *, actor: User | None, values: Mapping[str, Any], actor_label: str = ""
) -> Frontier:
    """Create a frontier from validated ``values``."""
    frontier = Frontier.objects.create(**values)
    record(
        actor=actor,
        action="seeds.add_frontier",
        obj=frontier,
        after=snapshot(frontier),
        actor_label=actor_label,
    )
    return frontier


@transaction.atomic
def update_frontier(
    *, actor: User | None, frontier: Frontier, values: Mapping[str, Any], actor_label: str = ""
) -> Frontier:
    """Change the given validated fields; write nothing if none differs.

    Raises:
        RulesNeedMove: segments, time zone or keys would change; see ``granularity.change``.
    """
    # Lock and read again: the values shown in the form may be outdated.
    locked = Frontier.objects.select_for_update().get(pk=frontier.pk)
    for name in GROUPING_FIELDS:
        if name in values and values[name] != getattr(locked, name):
            raise RulesNeedMove(fields={name: [RulesNeedMove.detail]})
    before = snapshot(locked)
    for name, value in values.items():
        setattr(locked, name, value)
        setattr(frontier, name, value)
    old, new = changes(before, snapshot(locked))
    if old or new:
        locked.save(update_fields=[*values, "updated_at"])
        frontier.updated_at = locked.updated_at
        record(
            actor=actor,
            action="seeds.change_frontier",
            obj=locked,
            before=old,
            after=new,
            actor_label=actor_label,
        )
    return frontier


def delete_frontier(
    *, actor: User | None, frontier: Frontier, wipe: bool = False, actor_label: str = ""
) -> None:
    """Delete a frontier without seeds or, if ``wipe`` is set, together with its seeds.

    The seed service is queried first and must answer within seconds.

    Raises:
        FrontierInUse: jobs use it.
        OperationRunning: its seeds are being moved.
        FrontierHasSeeds: and ``wipe`` is not set.
        SeedsStillLeased: seeds are being crawled.
        SeedServiceAway, CallRefused
    """
    refuse_used(frontier)
    running = Operation.objects.filter(
        frontier=frontier, kind=OperationKind.MOVE, state__in=ACTIVE_OPERATIONS
    )
    if running.exists():
        raise OperationRunning
    was_frozen = frontier.is_frozen
    segments = _segments(frontier)
    if any(segment.books.added > segment.books.forgotten for segment in segments) and not wipe:
        raise FrontierHasSeeds
    if any(segment.books.leased for segment in segments):
        raise SeedsStillLeased
    freeze(frontier.pk)
    try:
        # Freeze first: seeds added before the service sees the deletion would remain in the store.
        time.sleep(SETTLE_SECONDS)
        _wipe(frontier)
    except BaseException:
        if not was_frozen:
            unfreeze(frontier.pk)
        raise
    _delete(actor, frontier, actor_label)


@transaction.atomic
def _delete(actor: User | None, frontier: Frontier, actor_label: str) -> None:
    record(
        actor=actor,
        action="seeds.delete_frontier",
        obj=frontier,
        before=snapshot(frontier),
        actor_label=actor_label,
    )
    try:
        frontier.delete()
    except ProtectedError as error:
        raise FrontierInUse from error


def refuse_used(frontier: Frontier) -> None:
    """Raise ``FrontierInUse`` if rows of other apps refer to the frontier. Deletes nothing."""
    try:
        Collector(using="default", origin=frontier).collect([frontier])
    except ProtectedError as error:
        raise FrontierInUse from error


def _segments(frontier: Frontier) -> list[Any]:
    return [*manage(frontier, ShowSegments()), *manage(frontier, ShowSegments(staged=True))]


def _wipe(frontier: Frontier) -> None:
    for staged in (False, True):
        for segment in manage(frontier, ShowSegments(staged=staged)):
            manage(frontier, DropSegment(segment.segment, leased_too=True, staged=staged))
