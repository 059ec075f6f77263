"""Delivers items: claim -> read what is not delivered -> write -> move the position.

A delivery is at a batch, and a number of its items; the position moves after the target has taken
a chunk, so a crash repeats one chunk at most, from the same place.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.db import transaction
from django.db.models import F, QuerySet, Sum

from apps.datasets.engine.errors import DataUnavailable
from apps.datasets.engine.item_types import Item, ItemQuery
from apps.datasets.engine.targets.base import BadTarget, Chunk, Target, TargetUnavailable
from apps.datasets.engine.targets.factory import (
    Settings,
    TargetContext,
    check,
    open_target,
    read_credentials,
    read_options,
)
from apps.datasets.models import DataFile, Dataset, DatasetRun, Delivery, DeliveryFailure
from apps.datasets.queries.items import open_reader
from apps.datasets.states import DeliveryMode, DeliveryState
from apps.queuestats.services.rates import count
from apps.runtime.queries import database_now
from apps.runtime.services import shared_broker
from yardkit import failpoints
from yardkit.backoff import back_off
from yardkit.errors import first_line

logger = logging.getLogger(__name__)

CHUNK_ITEMS: Final = 1000
LEASE: Final = timedelta(minutes=2)
# A pass of one delivery ends after this time, so that others get their turn.
SLOT: Final = timedelta(seconds=20)
# Interval at which a delivery without news is looked at.
IDLE: Final = timedelta(seconds=2)
FIRST_PAUSE_SECONDS: Final = 2.0
LONGEST_PAUSE_SECONDS: Final = 300.0
# Reading while the run goes on must not end in the middle of a batch that is being written.
_READ_SECONDS: Final = 300.0
_OWNER: Final = f"{socket.gethostname()} {os.getpid()}"


class _Overtaken(Exception):
    """Another process has claimed the delivery, or somebody has changed it."""


def step(*, now: datetime) -> bool:
    """Work on one due delivery; return whether there was any."""
    due = Delivery.objects.due(now).exclude(state=DeliveryState.PAUSED)
    for delivery in due.select_related("dataset").order_by("next_try_at")[:20]:
        generation = Delivery.objects.due(now).claim(
            delivery.pk, delivery.generation, until=now + LEASE, owner=_OWNER
        )
        if generation is not None:
            delivery.generation = generation
            _work(delivery)
            return True
    return False


def check_delivery(delivery: Delivery) -> None:
    """Raise ``BadTarget`` if the settings of a delivery can never work."""
    check(_settings(delivery), context())


def deliver_again(
    *, delivery: Delivery, run: int | None = None, since: datetime | None = None
) -> None:
    """Deliver again from a run, from a time, or from the beginning without either.

    What comes again replaces itself where the target can; else it has the same identity.
    """
    runs = DatasetRun.objects.filter(dataset=delivery.dataset)
    files = DataFile.objects.filter(dataset=delivery.dataset)
    if run is not None:
        files, runs = files.filter(run_number__gte=run), runs.filter(run_number__gte=run)
    elif since is not None:
        files, runs = files.filter(created_at__gte=since), runs.filter(settled_at__gte=since)
    if delivery.mode == DeliveryMode.AT_END:
        first = runs.exclude(settled_batch=None).order_by("settled_batch").first()
        position = (first.settled_batch or 1) - 1 if first else delivery.position
    else:
        file = files.order_by("first_batch").first()
        position = file.first_batch - 1 if file else delivery.position
    move(delivery=delivery, position=position)


def skip_to_now(*, delivery: Delivery) -> None:
    """Deliver only what is stored from now on."""
    dataset = Dataset.objects.get(pk=delivery.dataset_id)
    move(delivery=delivery, position=dataset.last_batch)


@transaction.atomic
def move(*, delivery: Delivery, position: int) -> None:
    """Set the position; the accounting follows: what lies before it is delivered or skipped."""
    row = Delivery.objects.select_for_update().get(pk=delivery.pk)
    before = _stored(row, until=position)
    delivered = max(0, min(row.delivered, before - row.failed - row.missed))
    Delivery.objects.filter(pk=row.pk).update(
        position=position,
        offset=0,
        delivered=delivered,
        skipped=max(0, before - delivered - row.failed - row.missed),
        state=DeliveryState.ACTIVE if row.state == DeliveryState.FAILING else row.state,
        error="",
        failures=0,
        next_try_at=database_now(),
        # Whoever works on it now has lost it.
        generation=F("generation") + 1,
    )
    delivery.refresh_from_db()


def waiting(delivery: Delivery) -> int:
    """Return the items that are stored and neither delivered, failed, missed nor skipped."""
    known = delivery.delivered + delivery.failed + delivery.missed + delivery.skipped
    return max(0, _stored(delivery) - known)


def _stored(delivery: Delivery, until: int | None = None) -> int:
    """Return the items of a dataset that were ever stored, up to a batch or settled run."""
    runs = DatasetRun.objects.filter(dataset=delivery.dataset)
    if delivery.mode == DeliveryMode.AT_END:
        runs = runs.exclude(settled_batch=None)
        if until is not None:
            runs = runs.filter(settled_batch__lte=until)
        return int(runs.aggregate(total=Sum("stored"))["total"] or 0)
    total = int(runs.aggregate(total=Sum("stored"))["total"] or 0)
    if until is None:
        return total
    return total - _items_after(delivery, until)


def _items_after(delivery: Delivery, batch: int) -> int:
    files = DataFile.objects.filter(dataset=delivery.dataset, last_batch__gt=batch)
    whole = files.filter(first_batch__gt=batch).aggregate(total=Sum("items"))["total"] or 0
    partly = files.filter(first_batch__lte=batch)
    if not partly.exists():
        return int(whole)
    with open_reader(delivery.dataset, since=batch + 1) as reader:
        return reader.count_since(batch + 1)


# --- one pass -----------------------------------------------------------------------------------


def context() -> TargetContext:
    """Return what targets use of this installation."""
    return TargetContext(
        records_url=settings.RECORDS_URL,
        folder=settings.RECORDS_DIR,
        broker=shared_broker,
        networks=settings.DELIVERY_ALLOWED_NETWORKS,
    )


def _settings(delivery: Delivery) -> Settings:
    return Settings(
        id=delivery.pk or 0,
        project_id=delivery.dataset.project_id,
        kind=delivery.kind,
        url=delivery.url,
        options=read_options(delivery.options),
        credentials=read_credentials(delivery.credentials),
        key_fields=delivery.dataset.key_fields,
    )


def _held(delivery: Delivery) -> QuerySet[Delivery]:
    return Delivery.objects.held(delivery.pk, delivery.generation)


def _work(delivery: Delivery) -> None:
    until = database_now() + SLOT
    try:
        target = open_target(_settings(delivery), context())
    except BadTarget as error:
        _failed(delivery, str(error))
        return
    try:
        more = False
        for chunk, place in _chunks(delivery):
            _deliver(delivery, target, chunk, place)
            if database_now() > until:
                more = True
                break
        _rest(delivery, more=more)
    except (TargetUnavailable, DataUnavailable) as error:
        _failed(delivery, first_line(error))
    except _Overtaken:
        logger.info("delivery %d was changed or taken over meanwhile", delivery.pk)
    finally:
        target.close()


def _chunks(delivery: Delivery) -> Iterator[tuple[Chunk, tuple[int, int]]]:
    """Yield what is to be delivered next, and the position after it."""
    if delivery.mode == DeliveryMode.AT_END:
        yield from _chunks_of_runs(delivery)
        return
    batch, offset = delivery.position, delivery.offset
    if offset == 0:
        batch += 1
    if delivery.dataset.last_batch < batch:
        return
    _note_missed(delivery, batch)
    with open_reader(delivery.dataset, since=batch, timeout_seconds=_READ_SECONDS) as reader:
        name = delivery.dataset.name
        for last, taken, items in reader.since(batch, offset, CHUNK_ITEMS):
            yield Chunk(name, batch, offset, items), (last, taken)
            batch, offset = last, taken


def _chunks_of_runs(delivery: Delivery) -> Iterator[tuple[Chunk, tuple[int, int]]]:
    runs = DatasetRun.objects.filter(
        dataset=delivery.dataset, settled_batch__gt=delivery.position
    ).order_by("settled_batch")
    offset = delivery.offset
    for run in runs:
        number = run.settled_batch or 0
        with open_reader(
            delivery.dataset, [run.run_number], timeout_seconds=_READ_SECONDS
        ) as reader:
            after, skip = "", offset
            while True:
                page = reader.page(ItemQuery(limit=CHUNK_ITEMS, after=after))
                items = page.items[skip:] if skip < len(page.items) else []
                skip = max(0, skip - len(page.items))
                after = page.next
                end = (number, 0) if not after else (number - 1, offset + len(items))
                if items:
                    yield Chunk(delivery.dataset.name, number, offset, items), end
                elif not after:
                    _move(delivery, end, 0, 0)
                offset += len(items)
                if not after:
                    break
        offset = 0


def _deliver(delivery: Delivery, target: Target, chunk: Chunk, place: tuple[int, int]) -> None:
    refused = target.write(chunk)
    failpoints.hit("datasets.delivered")
    with transaction.atomic():
        DeliveryFailure.objects.bulk_create(
            _failures(delivery, chunk.items, refused), ignore_conflicts=True
        )
        _move(delivery, place, len(chunk.items) - len(refused), len(refused))
    count(
        "items.delivered",
        project=delivery.dataset.project_id,
        label=f"{delivery.dataset.name}/{delivery.name}",
        amount=len(chunk.items) - len(refused),
    )


def _failures(
    delivery: Delivery, items: Sequence[Item], refused: Mapping[int, str]
) -> list[DeliveryFailure]:
    return [
        DeliveryFailure(
            delivery=delivery,
            run_number=items[place].run,
            boot=items[place].incarnation,
            seq=items[place].seq,
            item=items[place].json,
            reason=reason[:500],
        )
        for place, reason in refused.items()
    ]


def _move(delivery: Delivery, place: tuple[int, int], delivered: int, failed: int) -> None:
    now = database_now()
    changes: dict[str, Any] = {
        "position": place[0],
        "offset": place[1],
        "delivered": F("delivered") + delivered,
        "failed": F("failed") + failed,
        "delivered_at": now,
        "state": DeliveryState.ACTIVE,
        "error": "",
        "failures": 0,
        "leased_until": now + LEASE,
    }
    if not _held(delivery).update(**changes):
        raise _Overtaken


def _note_missed(delivery: Delivery, batch: int) -> None:
    """Count items that retention has deleted before they were delivered."""
    known = delivery.delivered + delivery.failed + delivery.skipped + delivery.missed
    missing = _stored(delivery) - known - _unread(delivery, batch)
    if missing > 0:
        _held(delivery).update(missed=F("missed") + missing)
        delivery.missed += missing
        logger.warning("delivery %d has missed %d items, deleted since", delivery.pk, missing)


def _unread(delivery: Delivery, batch: int) -> int:
    with open_reader(delivery.dataset, since=batch) as reader:
        return reader.count_since(batch) - delivery.offset


def _rest(delivery: Delivery, *, more: bool) -> None:
    now = database_now()
    _held(delivery).update(
        leased_until=now,
        owner="",
        next_try_at=now if more else now + IDLE,
        state=DeliveryState.ACTIVE,
        error="",
        failures=0,
    )


def _failed(delivery: Delivery, reason: str) -> None:
    failures = delivery.failures + 1
    pause = back_off(failures, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
    now = database_now()
    if failures == 1:
        logger.warning("delivery %d fails, it is repeated: %s", delivery.pk, reason)
    _held(delivery).update(
        leased_until=now,
        owner="",
        next_try_at=now + timedelta(seconds=pause),
        state=DeliveryState.FAILING,
        error=reason[:500],
        failures=failures,
    )


def retry_failures(*, delivery: Delivery) -> int:
    """Deliver the dead letters again; return how many were taken."""
    target = open_target(_settings(delivery), context())
    taken = 0
    try:
        rows = list(delivery.dead_letters.order_by("id")[:CHUNK_ITEMS])
        if not rows:
            return 0
        items = [
            Item(row.run_number, row.boot, row.seq, row.at, "", "", 0, row.item) for row in rows
        ]
        refused = target.write(Chunk(delivery.dataset.name, 0, rows[0].pk, items))
        done = [row.pk for place, row in enumerate(rows) if place not in refused]
        with transaction.atomic():
            taken, _ = DeliveryFailure.objects.filter(pk__in=done).delete()
            Delivery.objects.filter(pk=delivery.pk).update(
                delivered=F("delivered") + taken, failed=F("failed") - taken
            )
    finally:
        target.close()
    return taken


def ensure(*, dataset: Dataset, name: str, kind: str, options: Mapping[str, Any]) -> Delivery:
    """Return the delivery of this name, created if it does not exist; options are set anew."""
    delivery, made = Delivery.objects.get_or_create(
        dataset=dataset, name=name, defaults={"kind": kind, "options": dict(options)}
    )
    if not made and (delivery.kind, delivery.options) != (kind, dict(options)):
        delivery.kind, delivery.options = kind, dict(options)
        delivery.save(update_fields=["kind", "options"])
    return delivery
