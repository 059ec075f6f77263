"""Changes of datasets by people: settings, pins, deletion of a run's data."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from django.db import transaction
from django.utils.translation import gettext as _

from apps.access.models import User
from apps.access.services import record
from apps.datasets.engine.checks import BadChecks, check_schema, read_checks
from apps.datasets.errors import RunIsActive, RunIsPinned, SettingsRefused
from apps.datasets.models import Dataset, DatasetRun
from apps.datasets.texts import text_of
from apps.jobs.models import Run
from apps.runtime.queries import database_now
from yardkit.names import UNSTORABLE

MOST_KEY_FIELDS: Final = 10
SETTINGS: Final = ("key_fields", "item_schema", "checks", "keep_days", "keep_runs", "keep_bytes")


@transaction.atomic
def change_dataset(*, dataset: Dataset, actor: User, **values: Any) -> Dataset:
    """Change settings of a dataset. Raises ``SettingsRefused``."""
    row = Dataset.objects.select_for_update().get(pk=dataset.pk)
    problems = _problems(values)
    if problems:
        raise SettingsRefused(fields=problems)
    before = {name: getattr(row, name) for name in values}
    for name, value in values.items():
        setattr(row, name, value)
    row.save(update_fields=list(values))
    changed = {name: value for name, value in values.items() if before[name] != value}
    if changed:
        record(
            actor=actor,
            action="datasets.change",
            obj=row,
            before={name: before[name] for name in changed},
            after=changed,
        )
    return row


@transaction.atomic
def pin_run(*, run: DatasetRun, actor: User, pinned: bool) -> None:
    """Keep the data of a run whatever the retention says, or not any more."""
    _lock(run)
    if DatasetRun.objects.filter(pk=run.pk, pinned=not pinned).update(pinned=pinned):
        action = "datasets.pin" if pinned else "datasets.unpin"
        record(
            actor=actor,
            action=action,
            obj=run.dataset,
            before={"pinned": not pinned},
            after={"pinned": pinned},
            note=f"run {run.run_number}",
        )


@transaction.atomic
def delete_run_data(*, run: DatasetRun, actor: User, now: datetime | None = None) -> None:
    """Decide that the items and files of a run are deleted; run_dataset_writer does it soon.

    Raises ``RunIsPinned``, and ``RunIsActive`` while items may come.
    """
    _lock(run)
    row = DatasetRun.objects.get(pk=run.pk)
    if row.deleted_at is not None:
        return
    if row.pinned:
        raise RunIsPinned
    if Run.objects.active().filter(pk=row.run_number).exists():
        raise RunIsActive
    DatasetRun.objects.filter(pk=row.pk).update(deleted_at=now or database_now())
    record(
        actor=actor,
        action="datasets.delete_run",
        obj=row.dataset,
        before={"run": row.run_number, "items": row.stored - row.deleted_items},
    )


def _lock(run: DatasetRun) -> None:
    """Lock the dataset, as the writer does, which stores whole rows of runs."""
    Dataset.objects.select_for_update().get(pk=run.dataset_id)


def _problems(values: dict[str, Any]) -> dict[str, list[str]]:
    problems: dict[str, list[str]] = {}
    unknown = sorted(set(values) - set(SETTINGS))
    if unknown:
        raise TypeError(f"no settings of a dataset: {', '.join(unknown)}")
    key = values.get("key_fields", [])
    if not isinstance(key, list) or not all(isinstance(name, str) and name for name in key):
        problems["key_fields"] = [_("Enter a list of field names.")]
    elif len(key) > MOST_KEY_FIELDS or len(set(key)) < len(key):
        problems["key_fields"] = [
            _("Enter at most %(most)d different fields.") % {"most": MOST_KEY_FIELDS}
        ]
    for name in ("keep_days", "keep_runs", "keep_bytes"):
        if values.get(name) is not None and values[name] < 1:
            problems[name] = [_("Enter at least 1, or nothing for no limit.")]
    for name, check in (("item_schema", check_schema), ("checks", read_checks)):
        if name in values:
            try:
                check(values[name])
            except BadChecks as error:
                problems[name] = [text_of(error)]
            except (TypeError, ValueError) as error:
                problems[name] = [_("Not understood: %(why)s") % {"why": error}]
    for name in ("key_fields", "item_schema", "checks"):
        if any(UNSTORABLE.search(text) for text in _texts(values.get(name))):
            problems[name] = [
                _("Contains a character that cannot be stored (\\u0000 or half of a pair).")
            ]
    return problems


def _texts(value: Any) -> Iterator[str]:
    """Yield every text and name inside a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
