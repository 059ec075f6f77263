"""Which series has which id: asked once, then remembered by the process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from django.db import connection, transaction

from apps.projects.models import Project
from apps.queuestats.models import Series
from apps.queuestats.queries.series import SeriesKey
from yardkit.protocol import SampleKind

KEYS_A_STATEMENT: Final = 5_000
# Series end and databases are restored from backups: nothing is remembered for ever.
REMEMBERED_SECONDS: Final = 300.0
MOST_REMEMBERED: Final = 200_000


def series_ids(wanted: Mapping[SeriesKey, SampleKind]) -> dict[SeriesKey, int]:
    """The ids of series, which are made where they are new; of unknown projects there are none.

    Only committed ids are remembered: one of a transaction that is rolled back may become
    another series'. A series that is remembered may be gone: who writes checks that.
    """
    known = _remembered.of(connection.connection)
    found = {key: known[key] for key in wanted if key in known}
    unknown = [key for key in wanted if key not in found]
    if not unknown:
        return found
    fresh = _look_up(unknown)
    missing = sorted((key for key in unknown if key not in fresh), key=_order)
    if missing:
        _make(missing, wanted)
        fresh |= _look_up(missing)
    transaction.on_commit(lambda: _remember(known, fresh))
    return found | fresh


def forget_series() -> None:
    """Ask for all of them again."""
    _remembered.forget()


def _remember(known: dict[SeriesKey, int], fresh: Mapping[SeriesKey, int]) -> None:
    # Hooks may be run by hand inside a transaction, which may still be rolled back.
    if not connection.in_atomic_block:
        known.update(fresh)


class _Remembered:
    """Of one connection: another one may lead to another database. Thread-safe."""

    def __init__(self) -> None:
        self._local = threading.local()

    def of(self, where: Any) -> dict[SeriesKey, int]:
        own = self._local
        too_old = time.monotonic() - getattr(own, "since", 0.0) > REMEMBERED_SECONDS
        known: dict[SeriesKey, int] = getattr(own, "ids", {})
        if too_old or getattr(own, "where", None) is not where or len(known) > MOST_REMEMBERED:
            self.forget()
            own.where = where
        found: dict[SeriesKey, int] = own.ids
        return found

    def forget(self) -> None:
        self._local.ids, self._local.since = {}, time.monotonic()


_remembered = _Remembered()


def _make(missing: list[SeriesKey], kinds: Mapping[SeriesKey, SampleKind]) -> None:
    """In the order it is given, so that two of these do not wait for each other."""
    projects = {key.project for key in missing if key.project is not None}
    exist = {None, *Project.objects.filter(pk__in=projects).values_list("pk", flat=True)}
    Series.objects.bulk_create(
        (
            Series(project_id=key.project, name=key.name, label=key.label, kind=kinds[key])
            for key in missing
            if key.project in exist
        ),
        ignore_conflicts=True,
        batch_size=KEYS_A_STATEMENT // 5,
    )


def _order(key: SeriesKey) -> tuple[str, int, str]:
    return key.name, key.project or 0, key.label


def _look_up(wanted: Iterable[SeriesKey]) -> dict[SeriesKey, int]:
    keys = set(wanted)
    names = {key.name for key in keys}
    labels = sorted({key.label for key in keys})
    found: dict[SeriesKey, int] = {}
    for start in range(0, len(labels), KEYS_A_STATEMENT):
        some = labels[start : start + KEYS_A_STATEMENT]
        rows = Series.objects.filter(name__in=names, label__in=some)
        for name, project, label, pk in rows.values_list("name", "project_id", "label", "pk"):
            found[SeriesKey(name, project, label)] = pk
    return {key: found[key] for key in keys if key in found}
