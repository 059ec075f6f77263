"""Deliveries of datasets: created, changed, paused, moved."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
from django.db import IntegrityError, transaction
from django.db.models import F, Max
from django.utils.translation import gettext_lazy as _
from django.utils.translation import gettext_noop

from apps.access.models import User
from apps.access.services import record
from apps.datasets.engine.targets.base import BadTarget
from apps.datasets.engine.targets.factory import check, read_credentials
from apps.datasets.errors import BadDelivery, DeliveryExists, NothingToDeliver
from apps.datasets.models import DataFile, Dataset, DatasetRun, Delivery
from apps.datasets.queries.deliveries import stored_until
from apps.datasets.queries.items import open_reader
from apps.datasets.services.delivery import context, target_settings
from apps.datasets.states import DeliveryMode, DeliveryState, Origin
from apps.datasets.texts import text_of
from apps.runtime.queries import database_now

# Reason of a pause by the settings of a request group.
NOT_WANTED: Final = "not in the settings of the request group"
_NAME_CHARACTERS: Final = 100


@transaction.atomic
def create_delivery(
    *,
    dataset: Dataset,
    name: str,
    kind: str,
    actor: User | None,
    url: str = "",
    options: Mapping[str, Any] | None = None,
    credentials: Mapping[str, str] | None = None,
    mode: str = DeliveryMode.CONTINUOUS,
    from_now: bool = False,
) -> Delivery:
    """Create a delivery. ``from_now``: without the items that are stored already.

    Raises ``BadDelivery`` and ``DeliveryExists``.
    """
    name = name.strip()
    if not name or len(name) > _NAME_CHARACTERS or not name.isprintable():
        raise BadDelivery(fields={"name": [_("1 to 100 printable characters.")]})
    delivery = Delivery(
        dataset=dataset,
        name=name,
        kind=kind,
        url=url,
        options=dict(options or {}),
        credentials=_packed(credentials or {}),
        mode=mode,
    )
    _check(delivery)
    try:
        with transaction.atomic():
            delivery.save(force_insert=True)
    except IntegrityError:
        raise DeliveryExists(fields={"name": [DeliveryExists.detail]}) from None
    if from_now:
        _move(delivery, dataset_end(delivery))
    record(
        actor=actor,
        action="datasets.add_delivery",
        obj=delivery,
        after={**_shown(delivery), "given": sorted(credentials or {})},
    )
    return delivery


@transaction.atomic
def change_delivery(
    *,
    delivery: Delivery,
    actor: User | None,
    url: str | None = None,
    options: Mapping[str, Any] | None = None,
    credentials: Mapping[str, str] | None = None,
) -> Delivery:
    """Change the target's address, options and credentials; an empty credential is removed.

    Kind and mode stay: the position would mean something else. Raises ``BadDelivery``.
    """
    row = _locked(delivery)
    before = _shown(row)
    row.url = row.url if url is None else url
    row.options = row.options if options is None else dict(options)
    if credentials is not None:
        known = msgspec.to_builtins(read_credentials(row.credentials))
        row.credentials = _packed({**known, **credentials})
    _check(row)
    row.save(update_fields=["url", "options", "credentials"])
    _try_now(row)
    record(
        actor=actor,
        action="datasets.change_delivery",
        obj=row,
        before=before,
        after={**_shown(row), "changed": sorted(credentials or {})},
    )
    return row


@transaction.atomic
def pause_delivery(*, delivery: Delivery, actor: User | None) -> Delivery:
    """Pause: items wait."""
    row = _locked(delivery)
    if row.state != DeliveryState.PAUSED:
        Delivery.objects.filter(pk=row.pk).update(
            state=DeliveryState.PAUSED, error="", generation=F("generation") + 1
        )
        record(actor=actor, action="datasets.pause_delivery", obj=row)
    row.refresh_from_db()
    return row


@transaction.atomic
def resume_delivery(*, delivery: Delivery, actor: User | None) -> Delivery:
    """Go on after a pause; a failing delivery tries at once."""
    row = _locked(delivery)
    if row.state == DeliveryState.PAUSED:
        Delivery.objects.filter(pk=row.pk).update(
            state=DeliveryState.ACTIVE, error="", behind_since=None
        )
    _try_now(row)
    record(actor=actor, action="datasets.resume_delivery", obj=row)
    row.refresh_from_db()
    return row


@transaction.atomic
def delete_delivery(*, delivery: Delivery, actor: User | None) -> None:
    """Delete a delivery and its dead letters; what the target has stays there."""
    record(actor=actor, action="datasets.delete_delivery", obj=delivery, before=_shown(delivery))
    delivery.delete()


@transaction.atomic
def deliver_again(
    *, delivery: Delivery, actor: User | None, run: int | None = None, since: datetime | None = None
) -> Delivery:
    """Deliver again from a run, from the time of an item, or from the beginning without either.

    What comes again replaces itself where the target can; else it has the same identity. Raises
    ``NothingToDeliver``.
    """
    row = _locked(delivery)
    position = _first(row, run, since)
    if position is None or (position, 0) >= (row.position, row.offset):
        raise NothingToDeliver
    row = _move(row, position)
    record(
        actor=actor,
        action="datasets.deliver_again",
        obj=row,
        after={"run": run, "since": since.isoformat() if since else None},
    )
    return row


@transaction.atomic
def retry_failures(*, delivery: Delivery, actor: User | None) -> int:
    """Have the dead letters delivered again; return how many there are."""
    row = _locked(delivery)
    last = row.dead_letters.aggregate(last=Max("id"))["last"]
    if last is None:
        return 0
    Delivery.objects.filter(pk=row.pk).update(retry_to=last)
    _try_now(row)
    record(actor=actor, action="datasets.retry_undelivered", obj=row, after={"items": row.failed})
    return row.failed


def ensure(*, dataset: Dataset, name: str, kind: str, options: Mapping[str, Any]) -> Delivery:
    """Return the delivery of this name, created or changed as needed.

    One that ``unneeded`` has paused goes on; one that somebody has paused stays so.
    """
    delivery, made = Delivery.objects.get_or_create(
        dataset=dataset, name=name, defaults={"kind": kind, "options": dict(options)}
    )
    if made:
        return delivery
    if (delivery.kind, delivery.options) != (kind, dict(options)):
        delivery.kind, delivery.options = kind, dict(options)
        delivery.save(update_fields=["kind", "options"])
    Delivery.objects.filter(pk=delivery.pk, state=DeliveryState.PAUSED, error=NOT_WANTED).update(
        state=DeliveryState.ACTIVE, error=""
    )
    return delivery


def unneeded(*, dataset: Dataset, name: str) -> None:
    """Pause the delivery of this name, if there is one, until ``ensure`` needs it again."""
    rows = Delivery.objects.filter(dataset=dataset, name=name)
    rows.exclude(state=DeliveryState.PAUSED).update(
        state=DeliveryState.PAUSED, error=NOT_WANTED, generation=F("generation") + 1
    )


def dataset_end(delivery: Delivery) -> int:
    """Return the number of the last batch; locks the dataset until the transaction ends."""
    return Dataset.objects.select_for_update().get(pk=delivery.dataset_id).last_batch


# --- position -----------------------------------------------------------------------------------


def _first(delivery: Delivery, run: int | None, since: datetime | None) -> int | None:
    """Return the position before what is to come again, None if there is nothing."""
    files = DataFile.objects.filter(dataset=delivery.dataset_id)
    runs = DatasetRun.objects.filter(dataset=delivery.dataset_id, settled_batch__isnull=False)
    if run is not None:
        files, runs = files.filter(run_number__gte=run), runs.filter(run_number__gte=run)
    elif since is not None:
        # A file is written after its items.
        files, runs = files.filter(created_at__gte=since), runs.filter(last_at__gte=since)
    if delivery.mode == DeliveryMode.AT_END:
        batch = runs.order_by("settled_batch").values_list("settled_batch", flat=True).first()
    elif since is None:
        batch = files.order_by("first_batch").values_list("first_batch", flat=True).first()
    else:
        numbers = set(files.values_list("run_number", flat=True))
        with open_reader(delivery.dataset, numbers) as reader:
            batch = reader.first_batch(since)
    return None if batch is None else batch - 1


def _move(delivery: Delivery, position: int) -> Delivery:
    """Set the position; the accounting follows: what lies before it is delivered or skipped.

    Dead letters behind it are forgotten, as their items come again.
    """
    # Exact while nothing can be stored.
    dataset_end(delivery)
    delivery.dead_letters.filter(batch__gt=position).delete()
    failed = delivery.dead_letters.count()
    passed = max(0, stored_until(delivery, position) - failed - delivery.missed)
    skipped = min(delivery.skipped, passed)
    delivered = min(delivery.delivered, passed - skipped)
    Delivery.objects.filter(pk=delivery.pk).update(
        position=position,
        offset=0,
        delivered=delivered,
        skipped=passed - delivered,
        failed=failed,
        retry_to=0,
        behind_since=None,
        # Whoever works on it now has lost it.
        generation=F("generation") + 1,
    )
    _try_now(delivery)
    delivery.refresh_from_db()
    return delivery


def _try_now(delivery: Delivery) -> None:
    rows = Delivery.objects.filter(pk=delivery.pk)
    rows.update(
        next_try_at=database_now(), leased_until=database_now(), generation=F("generation") + 1
    )
    rows.filter(state=DeliveryState.FAILING).update(
        state=DeliveryState.ACTIVE, error="", failures=0
    )


def _locked(delivery: Delivery) -> Delivery:
    return (
        Delivery.objects.select_for_update(of=("self",))
        .select_related("dataset")
        .get(pk=delivery.pk)
    )


# --- settings -----------------------------------------------------------------------------------


def _check(delivery: Delivery) -> None:
    """Raise ``BadDelivery`` if the settings can never work."""
    if delivery.mode not in DeliveryMode.values:
        raise BadDelivery(fields={"mode": [_("Unknown.")]})
    if delivery.mode == DeliveryMode.AT_END and delivery.dataset.origin != Origin.JOB:
        advice = _("Only datasets of jobs have runs that end. Deliver continuously.")
        raise BadDelivery(fields={"mode": [advice]})
    try:
        found = target_settings(delivery)
        if found.options.layout != "items" and delivery.dataset.origin != Origin.BIZ:
            text = gettext_noop("Only a request group has the layout of records.")
            raise BadTarget("options", text)
        check(found, context())
    except BadTarget as error:
        text = text_of(error)
        if error.field not in _FIELDS:
            text = f"{error.field}: {text}"
        raise BadDelivery(fields={_FIELDS.get(error.field, "options"): [text]}) from None


# Part of the settings that an error of a target names.
_FIELDS: Final[Mapping[str, str]] = {
    "address": "url",
    "credentials": "credentials",
    "key": "credentials",
    "target": "kind",
    "options": "options",
}


def _packed(credentials: Mapping[str, str]) -> str:
    known = {name: value for name, value in credentials.items() if value}
    return msgspec.json.encode(known).decode() if known else ""


def _shown(delivery: Delivery) -> dict[str, Any]:
    return {
        "name": delivery.name,
        "kind": delivery.kind,
        "url": delivery.url,
        "options": delivery.options,
        "mode": delivery.mode,
        "state": delivery.state,
    }
