"""Accounting row of each shard, made before its first request."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.db import IntegrityError, connection, transaction
from django.db.models import Max

from apps.requeststore.engine.errors import BadSetting, RequestStoreUnavailable
from apps.requeststore.engine.placement import ShardPlace
from apps.requeststore.models import ShardReport
from apps.requeststore.services.bindings import BoundBiz
from apps.runtime.errors import DATABASE_AWAY
from apps.runtime.queries import database_now

SLICE_SECONDS: Final = 600


def slice_start(at: datetime) -> datetime:
    """Return the start of the 10-minute span that contains ``at``."""
    seconds = int(at.timestamp())
    return at - timedelta(seconds=seconds % SLICE_SECONDS, microseconds=at.microsecond)


def note_shard(bound: BoundBiz, place: ShardPlace) -> None:
    """Make the row of a shard if it is missing.

    Its accounting starts where that of the biz does; for a new biz, before any request that a
    wrong clock could produce.

    Raises:
        RequestStoreUnavailable: the database does not answer.
        BadSetting: the shard belongs to another biz.
    """
    try:
        owner = _owner_of(place)
        if owner is None:
            owner = _make(bound, place)
    except DATABASE_AWAY as error:
        connection.close_if_unusable_or_obsolete()
        raise RequestStoreUnavailable("the database does not answer") from error
    if owner != (bound.project_id, bound.name):
        raise BadSetting(f"biz {bound.name}: its shard {place.shard.collection} is another's")


def closed_until_of(place: ShardPlace) -> int:
    """Return the ``ts`` (ms) up to which the shard's accounting is closed; 0 for none.

    Raises ``RequestStoreUnavailable``.
    """
    rows = ShardReport.objects.filter(
        node=place.node, database=place.shard.database, collection=place.shard.collection
    )
    try:
        at = rows.values_list("closed_until", flat=True).first()
    except DATABASE_AWAY as error:
        connection.close_if_unusable_or_obsolete()
        raise RequestStoreUnavailable("the database does not answer") from error
    return 0 if at is None else round(at.timestamp() * 1000)


def _owner_of(place: ShardPlace) -> tuple[int, str] | None:
    return (
        ShardReport.objects.filter(
            node=place.node, database=place.shard.database, collection=place.shard.collection
        )
        .values_list("project_id", "biz")
        .first()
    )


def _make(bound: BoundBiz, place: ShardPlace) -> tuple[int, str] | None:
    rows = ShardReport.objects.filter(project_id=bound.project_id, biz=bound.name)
    known = rows.aggregate(at=Max("closed_until"))["at"]
    ago = timedelta(seconds=bound.settings.delete_after_seconds + 24 * 3600)
    try:
        with transaction.atomic():
            ShardReport.objects.create(
                project_id=bound.project_id,
                biz=bound.name,
                node=place.node,
                database=place.shard.database,
                collection=place.shard.collection,
                closed_until=known or slice_start(database_now() - ago),
            )
    except IntegrityError:
        return _owner_of(place)
    return bound.project_id, bound.name
