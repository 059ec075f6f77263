"""Delivers items: claim -> read what is not delivered -> write -> move the position.

The position moves after the target has taken a chunk, so a crash repeats one chunk at most, from
the same place.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

import msgspec
from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Coalesce

from apps.datasets.engine.errors import BadItemQuery, DataUnavailable
from apps.datasets.engine.item_types import Item
from apps.datasets.engine.streaming import cut
from apps.datasets.engine.targets.base import BadTarget, Chunk, Target, TargetUnavailable
from apps.datasets.engine.targets.factory import (
    Settings,
    TargetContext,
    open_target,
    read_credentials,
    read_options,
)
from apps.datasets.models import DataFile, Dataset, DatasetRun, Delivery, DeliveryFailure
from apps.datasets.queries.deliveries import known_items, stored_until
from apps.datasets.queries.items import open_reader, replays
from apps.datasets.services.leases import OWNER
from apps.datasets.states import DeliveryMode, DeliveryState
from apps.queuestats.services.rates import count
from apps.runtime.errors import DATABASE_ERRORS
from apps.runtime.queries import database_now
from apps.runtime.services import shared_broker
from yardkit import failpoints
from yardkit.backoff import back_off
from yardkit.broker import BrokerError
from yardkit.errors import first_line

logger = logging.getLogger(__name__)

# Longer than any single call of a target takes.
LEASE: Final = timedelta(minutes=5)
# Interval, in seconds, at which a write of many calls renews its lease (looking for refused items).
RENEW_SECONDS: Final = 30.0
# A pass of one delivery ends after this time, so that others get their turn.
SLOT_SECONDS: Final = 20.0
# Pause after a pass: what comes meanwhile is delivered together.
PAUSE: Final = timedelta(seconds=2)
FIRST_PAUSE_SECONDS: Final = 2.0
LONGEST_PAUSE_SECONDS: Final = 300.0
# A target that refuses everything must not fill the database.
MOST_DEAD_LETTERS: Final = 10_000
_RETRIED: Final = 500
_READ_SECONDS: Final = 300.0
_LABEL_CHARACTERS: Final = 64
# Shorter texts would be found anywhere.
_LEAST_SECRET: Final = 4

# Position and offset of a delivery, see the model.
Place = tuple[int, int]


class _Overtaken(Exception):
    """Another process has claimed the delivery, or somebody has changed it."""


def step(*, now: datetime) -> bool:
    """Work on one due delivery; return whether there was any. One query without work."""
    due = Delivery.objects.due(now).select_related("dataset").order_by("next_try_at", "id")
    for delivery in due[:20]:
        generation = Delivery.objects.due(now).claim(
            delivery.pk,
            delivery.generation,
            until=now + LEASE,
            owner=OWNER,
            behind_since=Coalesce(F("behind_since"), database_now()),
        )
        if generation is not None:
            delivery.generation = generation
            _Pass(delivery).run()
            return True
    return False


def context() -> TargetContext:
    """Return what targets use of this installation."""
    return TargetContext(
        records_url=settings.RECORDS_URL,
        folder=settings.RECORDS_DIR,
        broker=shared_broker,
        networks=settings.DELIVERY_ALLOWED_NETWORKS,
    )


def target_settings(delivery: Delivery) -> Settings:
    """Return what the target is opened by. Raises ``BadTarget``."""
    return Settings(
        id=delivery.pk or 0,
        project_id=delivery.dataset.project_id,
        kind=delivery.kind,
        url=delivery.url,
        options=read_options(delivery.options),
        credentials=read_credentials(delivery.credentials),
        key_fields=delivery.dataset.key_fields,
    )


class _Pass:
    """One pass over a claimed delivery."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._dataset: Dataset = delivery.dataset
        # What is stored up to here is delivered by this pass.
        self._end = delivery.dataset.last_batch
        self._place: Place = (delivery.position, delivery.offset)
        self._opened: Target | None = None
        self._renewed = time.monotonic()

    def run(self) -> None:
        """Deliver until all is delivered, the time is over, or the target fails."""
        until = time.monotonic() + SLOT_SECONDS
        try:
            if self._delivery.retry_to:
                self._retry()
            for chunk, place in self._chunks():
                self._deliver(chunk, place)
                if time.monotonic() > until:
                    self._update(leased_until=database_now(), owner="")
                    return
            self._complete()
        except _Overtaken:
            logger.info("delivery %d was changed or taken over meanwhile", self._delivery.pk)
        except (BadTarget, TargetUnavailable, DataUnavailable, BadItemQuery, BrokerError) as error:
            self._fail(first_line(error))
        except DATABASE_ERRORS:
            raise
        except Exception as error:
            # A client library may raise anything; one delivery must not hold up the others.
            logger.exception("delivery %d fails", self._delivery.pk)
            self._fail(f"{type(error).__name__}: {first_line(error)}")
        finally:
            if self._opened is not None:
                self._opened.close()

    # --- what is next ---------------------------------------------------------------------------

    def _chunks(self) -> Iterator[tuple[Chunk, Place]]:
        """Yield what is to be delivered, with the place after it."""
        begin = self._place[0] + (self._place[1] == 0)
        if begin > self._end:
            return
        if self._delivery.mode == DeliveryMode.CONTINUOUS:
            yield from self._batches(begin, self._end)
            return
        late, settled = self._ended(begin)
        for number, run in [*settled, (self._end + 1, 0)]:
            # Items that came after the end of their runs.
            runs = [of for of, at in late.items() if at < begin]
            if runs:
                yield from self._batches(begin, number - 1, runs)
            if run:
                yield from self._whole_run(number, run)
            begin = number + 1

    def _ended(self, begin: int) -> tuple[dict[int, int], list[tuple[int, int]]]:
        """Return runs with items after their end, and (number, run) of those that end next."""
        files = DataFile.objects.filter(dataset=self._dataset, last_batch__gte=begin)
        writing = set(files.values_list("run_number", flat=True).distinct())
        rows = DatasetRun.objects.filter(dataset=self._dataset, settled_batch__isnull=False).filter(
            Q(settled_batch__gte=begin) | Q(run_number__in=writing)
        )
        rows = rows.exclude(run_number__in=replays(self._dataset))
        found = dict(rows.values_list("run_number", "settled_batch"))
        settled = sorted(
            (number, run)
            for run, number in found.items()
            if number is not None and begin <= number <= self._end
        )
        late = {
            run: number for run, number in found.items() if number is not None and run in writing
        }
        return late, settled

    def _batches(
        self, begin: int, end: int, runs: Iterable[int] | None = None
    ) -> Iterator[tuple[Chunk, Place]]:
        if begin > end:
            return
        at, offset = begin, self._offset_in(begin)
        with open_reader(self._dataset, runs, since=begin, timeout_seconds=_READ_SECONDS) as reader:
            if not reader.count_since(begin):
                return
            target = self._target()
            parts = reader.since(begin, offset, target.most_items, until=end, apart=target.by_place)
            for last, taken, items in parts:
                if target.by_place and at != last:
                    at, offset = last, 0
                yield Chunk(self._dataset.name, at, offset, items), (last, taken)
                at, offset = last, taken

    def _whole_run(self, number: int, run: int) -> Iterator[tuple[Chunk, Place]]:
        """Yield the items of an ended run, except those that came after its end."""
        offset = self._offset_in(number)
        with open_reader(self._dataset, [run], timeout_seconds=_READ_SECONDS) as reader:
            batch, taken = reader.place(offset)
            target = self._target() if reader.count_since(0) else None
            if target is None:
                return
            parts = reader.since(batch, taken, target.most_items, until=number - 1)
            items = (item for _last, _taken, part in parts for item in part)
            for chunk in cut(items, target.most_items):
                after = (number, offset + len(chunk))
                yield Chunk(self._dataset.name, number, offset, chunk), after
                offset += len(chunk)

    def _offset_in(self, batch: int) -> int:
        return self._place[1] if self._place[0] == batch else 0

    def _target(self) -> Target:
        if self._opened is None:
            checked = msgspec.structs.replace(context(), check=self._renew)
            self._opened = open_target(target_settings(self._delivery), checked)
        return self._opened

    # --- delivered ------------------------------------------------------------------------------

    def _deliver(self, chunk: Chunk, place: Place) -> None:
        if self._delivery.failed >= MOST_DEAD_LETTERS:
            raise TargetUnavailable(
                f"{self._delivery.failed} items were refused; retry them or deliver again first"
            )
        failpoints.hit("datasets.before_delivery")
        refused = self._written(chunk)
        failpoints.hit("datasets.delivered")
        with transaction.atomic():
            DeliveryFailure.objects.bulk_create(
                self._failure(item, refused[number], at=chunk.batch)
                for number, item in enumerate(chunk.items)
                if number in refused
            )
            self._update(
                position=place[0],
                offset=place[1],
                delivered=F("delivered") + len(chunk.items) - len(refused),
                failed=F("failed") + len(refused),
                delivered_at=database_now(),
                leased_until=database_now() + LEASE,
                **_WELL,
            )
        failpoints.hit("datasets.delivery_moved")
        self._place = place
        self._count(chunk.items, refused)

    def _written(self, chunk: Chunk) -> Mapping[int, str]:
        refused = self._target().write(chunk)
        return {number: self._redacted(reason)[:500] for number, reason in refused.items()}

    def _count(self, items: Sequence[Item], refused: Mapping[int, str]) -> None:
        self._delivery.failed += len(refused)
        self._delivery.delivered += len(items) - len(refused)
        label = f"{self._dataset.name}/{self._delivery.name}"[:_LABEL_CHARACTERS]
        for series, amount in (
            ("items.delivered", len(items) - len(refused)),
            ("items.undelivered", len(refused)),
        ):
            if amount:
                count(series, project=self._dataset.project_id, label=label, amount=amount)

    def _failure(self, item: Item, reason: str, *, at: int) -> DeliveryFailure:
        return DeliveryFailure(
            delivery=self._delivery,
            run_number=item.run,
            boot=item.incarnation,
            seq=item.seq,
            batch=item.batch if self._delivery.mode == DeliveryMode.CONTINUOUS else at,
            url=item.url,
            stored_at=item.at,
            item=item.json,
            reason=reason,
        )

    def _complete(self) -> None:
        """End the pass: nothing waits up to its end, so what is not known has been deleted."""
        missed = stored_until(self._delivery, self._end) - known_items(self._delivery)
        now = database_now()
        self._update(
            position=self._end,
            offset=0,
            missed=F("missed") + max(0, missed),
            behind_since=None,
            leased_until=now,
            owner="",
            next_try_at=now + PAUSE,
            **_WELL,
        )
        if missed > 0:
            logger.warning(
                "delivery %d: %d items were deleted before they were delivered",
                self._delivery.pk,
                missed,
            )

    def _fail(self, reason: str) -> None:
        failures = self._delivery.failures + 1
        reason = self._redacted(reason)
        now = database_now()
        if failures == 1:
            logger.warning("delivery %d fails, it is repeated: %s", self._delivery.pk, reason)
        _held(self._delivery).update(
            leased_until=now,
            owner="",
            next_try_at=now
            + timedelta(seconds=back_off(failures, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)),
            state=DeliveryState.FAILING,
            error=reason[:500],
            failures=failures,
        )

    def _redacted(self, text: str) -> str:
        """Return a target's text without what the credentials hold: it is shown and logged."""
        try:
            known = read_credentials(self._delivery.credentials)
        except BadTarget:
            return text
        for secret in (known.password, *known.key.split()):
            if len(secret) >= _LEAST_SECRET:
                text = text.replace(secret, "•••").replace(quote(secret, safe=""), "•••")
        return text

    def _update(self, **changes: Any) -> None:
        if not _held(self._delivery).update(**changes):
            raise _Overtaken

    def _renew(self) -> None:
        """Renew the lease if it was not renewed for a while. Raises ``_Overtaken``."""
        if time.monotonic() - self._renewed >= RENEW_SECONDS:
            self._update(leased_until=database_now() + LEASE)
            self._renewed = time.monotonic()

    # --- dead letters ---------------------------------------------------------------------------

    def _retry(self) -> None:
        """Deliver the dead letters again; what is refused again becomes a new one."""
        last = self._delivery.retry_to
        while rows := list(
            self._delivery.dead_letters.filter(pk__lte=last).order_by("id")[:_RETRIED]
        ):
            items = [
                Item(
                    row.run_number,
                    row.boot,
                    row.seq,
                    row.stored_at,
                    row.url,
                    "",
                    row.batch,
                    row.item,
                )
                for row in rows
            ]
            # A place of its own: no batch has the number 0.
            refused = self._written(Chunk(self._dataset.name, 0, rows[0].pk, items))
            failpoints.hit("datasets.retry_delivered")
            done = len(items) - len(refused)
            with transaction.atomic():
                DeliveryFailure.objects.filter(pk__in=[row.pk for row in rows]).delete()
                DeliveryFailure.objects.bulk_create(
                    self._failure(items[number], reason, at=items[number].batch)
                    for number, reason in refused.items()
                )
                self._update(
                    delivered=F("delivered") + done,
                    failed=F("failed") - done,
                    leased_until=database_now() + LEASE,
                )
            failpoints.hit("datasets.retry_moved")
            self._delivery.delivered += done
            self._delivery.failed -= done
        self._update(retry_to=0)


_WELL: Final[Mapping[str, Any]] = {"state": DeliveryState.ACTIVE, "error": "", "failures": 0}


def _held(delivery: Delivery) -> QuerySet[Delivery]:
    return Delivery.objects.held(delivery.pk, delivery.generation)
