"""Cache of the database IDs of series, for each thread and connection."""

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
# Cached IDs expire: series are deleted, and databases are restored from backups.
CACHE_SECONDS: Final = 300.0
MAX_CACHED: Final = 200_000


def series_ids(wanted: Mapping[SeriesKey, SampleKind]) -> dict[SeriesKey, int]:
    """Return the IDs of series, creating missing ones; series of unknown projects are left out.

    Only committed IDs are cached: after a rollback the database may assign the same ID to another
    series. A cached series may have been deleted; the writer checks that.
    """
    known = _cache.of(connection.connection)
    ids = {key: known[key] for key in wanted if key in known}
    unknown = [key for key in wanted if key not in ids]
    if not unknown:
        return ids
    fresh = _look_up(unknown)
    missing = sorted((key for key in unknown if key not in fresh), key=_order)
    if missing:
        _make(missing, wanted)
        fresh |= _look_up(missing)
    transaction.on_commit(lambda: _remember(known, fresh))
    return ids | fresh


def forget_series() -> None:
    """Clear the cache of this thread."""
    _cache.forget()


def _remember(known: dict[SeriesKey, int], fresh: Mapping[SeriesKey, int]) -> None:
    # Tests run commit hooks inside a transaction that is rolled back later.
    if not connection.in_atomic_block:
        known.update(fresh)


class _IdCache:
    """IDs by series, for one connection: another one may lead to another database. Thread-local."""

    def __init__(self) -> None:
        self._local = threading.local()

    def of(self, database_connection: Any) -> dict[SeriesKey, int]:
        local = self._local
        too_old = time.monotonic() - getattr(local, "since", 0.0) > CACHE_SECONDS
        known: dict[SeriesKey, int] = getattr(local, "ids", {})
        other = getattr(local, "connection", None) is not database_connection
        if too_old or other or len(known) > MAX_CACHED:
            self.forget()
            local.connection = database_connection
        ids: dict[SeriesKey, int] = local.ids
        return ids

    def forget(self) -> None:
        self._local.ids, self._local.since = {}, time.monotonic()


_cache = _IdCache()


def _make(missing: list[SeriesKey], kinds: Mapping[SeriesKey, SampleKind]) -> None:
    """Insert series in the given, sorted order, so that concurrent calls do not deadlock."""
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
    ids: dict[SeriesKey, int] = {}
    for start in range(0, len(labels), KEYS_A_STATEMENT):
        some = labels[start : start + KEYS_A_STATEMENT]
        rows = Series.objects.filter(name__in=names, label__in=some)
        for name, project, label, pk in rows.values_list("name", "project_id", "label", "pk"):
            ids[SeriesKey(name, project, label)] = pk
    return {key: ids[key] for key in keys if key in ids}
