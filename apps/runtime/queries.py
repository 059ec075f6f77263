from __future__ import annotations

import importlib.util
import pkgutil
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final

from django.apps import apps
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from apps.runtime.models import Daemon
from apps.runtime.states import DAEMON_ACTIVE

BEAT_SECONDS: Final = 5.0
# Three heartbeats minus the jitter of a busy host, so that one lost write is tolerated.
LIVE_SECONDS: Final = 15.0


def database_now() -> datetime:
    """Return the time of the database server, or of this host with SQLite: the common clock."""
    if connection.vendor != "postgresql":
        return timezone.now()
    with connection.cursor() as cursor:
        # clock_timestamp() advances inside a transaction, now() would not.
        cursor.execute("SELECT clock_timestamp()")
        row = cursor.fetchone()
    if row is None:
        raise AssertionError("SELECT clock_timestamp() gave no row")
    moment: datetime = row[0]
    return moment.astimezone(UTC)


def database_moment() -> datetime | Now:
    """``database_now()`` as an expression inside another query."""
    return Now() if connection.vendor == "postgresql" else timezone.now()


def threads_share_database() -> bool:
    """Return False for an in-memory database (tests only), whose tables do not wait for locks.

    Callers then do the work of their background threads themselves.
    """
    name = str(connection.settings_dict["NAME"])
    return connection.vendor != "sqlite" or not ("mode=memory" in name or name == ":memory:")


def unapplied_migrations() -> list[str]:
    """Return ``app.name`` of each migration of this code that the database lacks.

    Compares names only: Django's check imports every migration, which is too slow for a readiness
    probe.
    """
    applied = set(MigrationRecorder(connection).applied_migrations())
    return sorted(
        f"{label}.{name}" for label, name in _known_migrations() if (label, name) not in applied
    )


@cache
def _known_migrations() -> frozenset[tuple[str, str]]:
    known: set[tuple[str, str]] = set()
    for config in apps.get_app_configs():
        module, _explicit = MigrationLoader.migrations_module(config.label)
        spec = importlib.util.find_spec(module) if module else None
        for info in pkgutil.iter_modules(spec.submodule_search_locations if spec else None):
            if spec and not info.ispkg and info.name[0] not in "_~":
                known.add((config.label, info.name))
    return frozenset(known)


def live_daemons(*, kind: str = "", now: datetime | Now | None = None) -> QuerySet[Daemon]:
    """Processes with a recent heartbeat, of one ``kind`` or of all."""
    moment = now or database_now()
    return _active(kind).filter(beat_at__gt=moment - timedelta(seconds=LIVE_SECONDS))


def stale_daemons(*, kind: str = "", now: datetime | None = None) -> QuerySet[Daemon]:
    """Processes that never reported a stop and are silent: killed, frozen, or disconnected."""
    return _active(kind).filter(beat_at__lte=_last_chance(now))


def is_live(daemon: Daemon, *, now: datetime | None = None) -> bool:
    """Return whether the heartbeat of this process is recent."""
    return daemon.state in DAEMON_ACTIVE and daemon.beat_at > _last_chance(now)


def _active(kind: str) -> QuerySet[Daemon]:
    daemons = Daemon.objects.filter(state__in=DAEMON_ACTIVE).order_by("kind", "name")
    return daemons.filter(kind=kind) if kind else daemons


def _last_chance(now: datetime | None) -> datetime:
    return (now or database_now()) - timedelta(seconds=LIVE_SECONDS)


def queue_problems() -> dict[str, str]:
    """Return what the leading monitor found wrong with shared queues, by queue.

    Empty without a living monitor: then nothing is known. See ``services.round_trips``.
    """
    found = {}
    for detail in live_daemons(kind="monitor").values_list("detail", flat=True):
        for queue, result in detail.get("queues", {}).items():
            if result["problem"]:
                found[queue] = ": ".join(filter(None, (result["problem"], result["detail"])))
    return found
