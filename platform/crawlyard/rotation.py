"""Re-encryption of every stored secret with the newest key, during operation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from django.apps import apps
from django.db import connection, models, transaction

from apps.runtime.fields import SealedText, SecretTextField
from yardkit.secretbox import SecretBox, SecretError

# Rows in one transaction: few, to keep locks short.
BATCH: Final = 200


@dataclass(slots=True)
class Count:
    """Result for the secrets of one field. ``lost``: primary keys of rows that no key opens."""

    label: str
    rotated: int = 0
    newest: int = 0
    lost: list[str] = field(default_factory=list)


def secret_fields() -> Iterator[tuple[type[models.Model], SecretTextField]]:
    """Yield every field that holds sealed text, of every model."""
    for model in apps.get_models():
        for secret_field in model._meta.local_fields:
            if isinstance(secret_field, SecretTextField):
                yield model, secret_field


def _stored_fields() -> list[tuple[type[models.Model], SecretTextField]]:
    """Return the fields that exist in the database: before ``migrate`` the code has more."""
    with connection.cursor() as cursor:
        look = connection.introspection
        wanted = {model._meta.db_table for model, _each in secret_fields()}
        tables = wanted.intersection(look.table_names(cursor))
        columns = {
            (table, column.name)
            for table in tables
            for column in look.get_table_description(cursor, table)
        }
    return [
        (model, secret_field)
        for model, secret_field in secret_fields()
        if (model._meta.db_table, secret_field.column) in columns
    ]


def rotate(keys: Sequence[str], *, dry_run: bool = False) -> Iterator[Count]:
    """Rotate field by field. Values sealed with the first key are unchanged, so it can be repeated.

    Raises ``yardkit.secretbox.BadKey``.
    """
    box, newest = SecretBox(keys), SecretBox(keys[:1])
    for model, secret_field in secret_fields():
        count = Count(f"{model._meta.label}.{secret_field.name}")
        last: object = None
        while (
            last := _batch(model, secret_field, last, box, newest, count, dry_run=dry_run)
        ) is not None:
            pass
        yield count


def keys_in_use(keys: Sequence[str]) -> tuple[dict[str, int], int]:
    """Return how many stored secrets each key opens, and how many none opens.

    A newer version also calls it on the database of an older one.
    """
    boxes = [(key, SecretBox([key])) for key in keys]
    counted: dict[str, int] = {}
    lost = 0
    for model, secret_field in _stored_fields():
        for row in model._base_manager.only("pk", secret_field.attname).iterator(BATCH):
            stored = secret_field.value_from_object(row)
            if not isinstance(stored, SealedText):
                continue
            opening = next((key for key, box in boxes if _opens(box, stored.sealed)), None)
            if opening is None:
                lost += 1
            else:
                counted[opening] = counted.get(opening, 0) + 1
    return counted, lost


def _opens(box: SecretBox, sealed: str) -> bool:
    try:
        box.open(sealed)
    except SecretError:
        return False
    return True


def _batch(
    model: type[models.Model],
    each: SecretTextField,
    last: object,
    box: SecretBox,
    newest: SecretBox,
    count: Count,
    *,
    dry_run: bool,
) -> object:
    """Rotate some rows after the primary key ``last``; return the last key, None at the end."""
    rows = model._base_manager.order_by("pk").only("pk", each.attname)
    if last is not None:
        rows = rows.filter(pk__gt=last)
    with transaction.atomic():
        # Locked: a concurrent change of a secret must not be overwritten with its old value.
        batch = list((rows if dry_run else rows.select_for_update())[:BATCH])
        for row in batch:
            stored = each.value_from_object(row)
            if not isinstance(stored, SealedText):
                continue
            sealed = _resealed(stored.sealed, box, newest)
            if sealed is None:
                count.lost.append(str(row.pk))
            elif sealed == stored.sealed:
                count.newest += 1
            else:
                count.rotated += 1
                if not dry_run:
                    change = {each.attname: SealedText(sealed)}
                    model._base_manager.filter(pk=row.pk).update(**change)
    return batch[-1].pk if len(batch) == BATCH else None


def _resealed(sealed: str, box: SecretBox, newest: SecretBox) -> str | None:
    """Return the secret sealed with the newest key; None when no key opens it."""
    try:
        newest.open(sealed)
    except SecretError:
        try:
            return box.rotate(sealed)
        except SecretError:
            return None
    return sealed
