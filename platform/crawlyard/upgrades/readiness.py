"""Checks of ``manage.py upgrade_check``, run by the new version on the old one's data."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from django.conf import settings
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.models import Count, Min
from django.db.utils import Error as DatabaseError

from apps.runtime.daemon import own_version
from apps.runtime.models import DeadLetter, OutboxMessage
from apps.runtime.queries import database_now, live_daemons
from apps.runtime.services import close_shared_broker, shared_broker
from apps.runtime.services.depths import broker_readings
from apps.runtime.states import DEAD_LETTER_FINAL
from crawlyard.backup.manifest import fingerprint
from crawlyard.rotation import keys_in_use
from crawlyard.settings.names import FOREIGN, KNOWN, OURS
from crawlyard.upgrades.classification import classify
from yardkit import protocol
from yardkit.broker import Broker, BrokerError
from yardkit.errors import first_line

# Relays publish due messages within one or two seconds.
_STUCK: Final = timedelta(seconds=60)
_PEEKED: Final = 100
# Queues without protocol messages: Celery's and those of others. Dead letters are an operator's.
_FOREIGN: Final = re.compile(r"celery\.|requests\.p|records\.p|dead$")


class UpgradeLevel(StrEnum):
    """``note``: information that does not prevent an upgrade."""

    OK = "ok"
    NOTE = "note"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class UpgradeItem:
    """Row of the table. ``how`` says what to do."""

    what: str
    level: UpgradeLevel
    detail: str
    how: str = ""


def check(environ: Mapping[str, str] | None = None) -> list[UpgradeItem]:
    """Return every item; an unreachable store is an item, too."""
    items: list[UpgradeItem] = []
    looks: list[Callable[[], Iterable[UpgradeItem]]] = [
        _migrations,
        _processes,
        _outbox,
        _queues,
        _dead_letters,
        _keys,
        lambda: _settings(os.environ if environ is None else environ),
    ]
    for look in looks:
        try:
            items += look()
        except DatabaseError as error:
            line = first_line(error)
            items.append(UpgradeItem("database", UpgradeLevel.BAD, line, "manage.py doctor"))
        except (BrokerError, TimeoutError) as error:
            items.append(UpgradeItem("broker", UpgradeLevel.BAD, str(error), "manage.py doctor"))
    return items


def _migrations() -> Iterable[UpgradeItem]:
    executor = MigrationExecutor(connection)
    loader = executor.loader
    newer = sorted(set(loader.applied_migrations) - set(loader.disk_migrations))
    if newer:
        name = ".".join(newer[0])
        yield UpgradeItem(
            "migrations",
            UpgradeLevel.BAD,
            f"the database has {len(newer)} that this version does not know, {name} first",
            "this version is older than the one that migrated; install that one or a newer one",
        )
    plan = executor.migration_plan(loader.graph.leaf_nodes())
    if not plan:
        yield UpgradeItem("migrations", UpgradeLevel.OK, "all are applied")
        return
    state = loader.project_state(
        [key for key in loader.applied_migrations if key in loader.graph.nodes]
    )
    others = _other_versions()
    for verdict in classify(plan, state):
        if not verdict.contracts:
            yield UpgradeItem(f"migration {verdict.name}", UpgradeLevel.OK, "not applied, expands")
            continue
        why = verdict.marked or "; ".join(verdict.problems)
        yield UpgradeItem(
            f"migration {verdict.name}",
            UpgradeLevel.BAD if others else UpgradeLevel.NOTE,
            f"not applied, contracts: {why}",
            "apply it when no process of an older version is alive",
        )


def _other_versions() -> dict[str, list[str]]:
    ours = own_version()
    processes: dict[str, list[str]] = {}
    # Columns that this version adds do not exist before the migration.
    for daemon in live_daemons().only("kind", "name", "version"):
        if daemon.version != ours:
            processes.setdefault(daemon.version or "unknown", []).append(str(daemon))
    return processes


def _processes() -> Iterable[UpgradeItem]:
    others = _other_versions()
    if not others:
        yield UpgradeItem(
            "processes", UpgradeLevel.OK, f"none alive of another version than {own_version()}"
        )
    for version, names in sorted(others.items()):
        far = _minor_versions_between(version, own_version()) > 1
        yield UpgradeItem(
            "processes",
            UpgradeLevel.BAD if far else UpgradeLevel.NOTE,
            f"{len(names)} of version {version}: {', '.join(names[:5])}",
            "never skip a minor version: install those between first"
            if far
            else "restart them after migrate: centers first, agents last",
        )


def _minor_versions_between(old: str, new: str) -> int:
    """Return the distance of two versions in minor releases.

    0 if one cannot be parsed; 9 if their major versions differ.
    """
    first, second = (re.match(r"(\d+)\.(\d+)", text) for text in (old, new))
    if first is None or second is None:
        return 0
    if first[1] != second[1]:
        return 9
    return abs(int(first[2]) - int(second[2]))


def _outbox() -> Iterable[UpgradeItem]:
    counted = OutboxMessage.objects.aggregate(count=Count("pk"), oldest=Min("created_at"))
    if not counted["count"]:
        yield UpgradeItem("outbox", UpgradeLevel.OK, "empty")
        return
    age = database_now() - counted["oldest"]
    yield UpgradeItem(
        "outbox",
        UpgradeLevel.BAD if age > _STUCK else UpgradeLevel.NOTE,
        f"{counted['count']} messages wait, the oldest for {age.total_seconds():.0f} s",
        "is the broker up, and does any process run that can send them?",
    )


def _queues() -> Iterable[UpgradeItem]:
    """Read waiting messages and return them unchanged."""
    broker = shared_broker(timeout=5.0, name="crawlyard upgrade_check")
    try:
        waiting = {
            reading.name: reading.waiting
            for reading in broker_readings()
            if reading.waiting and not _FOREIGN.match(reading.name)
        }
        seen: Counter[tuple[str, int]] = Counter()
        for name in waiting:
            seen.update((name, version) for version in _versions(broker, name))
    finally:
        close_shared_broker(1.0)
    unread = {key: count for key, count in seen.items() if key[1] not in protocol.ACCEPTED_VERSIONS}
    older = {key: count for key, count in seen.items() if key[1] == protocol.VERSION - 1}
    for level, found, how in (
        (
            UpgradeLevel.BAD,
            unread,
            "let processes of their version work them off before they are replaced",
        ),
        (UpgradeLevel.NOTE, older, "this version reads them; the next one will not"),
    ):
        for (name, version), count in sorted(found.items()):
            yield UpgradeItem(f"queue {name}", level, f"{count} messages of version {version}", how)
    if not unread and not older:
        total = sum(waiting.values())
        yield UpgradeItem(
            "queues", UpgradeLevel.OK, f"{total} messages wait, none of an older version"
        )


def _versions(broker: Broker, queue: str) -> Iterable[int]:
    subscription = broker.subscribe(queue, prefetch=_PEEKED)
    try:
        deliveries = subscription.take(_PEEKED, timeout=1.0)
        subscription.requeue(deliveries)
    finally:
        subscription.close()
    versions = (protocol.version_of(bytes(delivery.body)) for delivery in deliveries)
    return [version for version in versions if version is not None]


def _dead_letters() -> Iterable[UpgradeItem]:
    count = DeadLetter.objects.exclude(state__in=DEAD_LETTER_FINAL).count()
    yield UpgradeItem(
        "dead letters",
        UpgradeLevel.NOTE if count else UpgradeLevel.OK,
        f"{count} wait for a decision",
        "requeue or drop them now, while the version that wrote them runs" if count else "",
    )


def _keys() -> Iterable[UpgradeItem]:
    keys = settings.SECRETBOX_KEYS
    counted, lost = keys_in_use(keys)
    if lost:
        yield UpgradeItem(
            "SECRETBOX_KEYS",
            UpgradeLevel.BAD,
            f"{lost} stored secrets are opened by none of the keys",
            "put the key that sealed them back, behind the others",
        )
    for number, key in enumerate(keys[1:], 2):
        count = counted.get(key, 0)
        yield UpgradeItem(
            "SECRETBOX_KEYS",
            UpgradeLevel.NOTE,
            f"key {number} ({fingerprint(key)}) is still needed for {count} secrets"
            if count
            else f"key {number} ({fingerprint(key)}) is needed for nothing any more",
            "manage.py rotate_secrets" if count else "it may be taken away",
        )
    if not lost and len(keys) == 1:
        yield UpgradeItem(
            "SECRETBOX_KEYS", UpgradeLevel.OK, f"one key, {sum(counted.values())} secrets"
        )


def _settings(environ: Mapping[str, str]) -> Iterable[UpgradeItem]:
    given = (name for name, value in environ.items() if value and name.startswith(OURS))
    unknown = sorted(
        name for name in given if not (KNOWN | FOREIGN) & {name, name.removesuffix("_FILE")}
    )
    for name in unknown:
        yield UpgradeItem(
            "settings",
            UpgradeLevel.NOTE,
            f"{name} is read by nothing",
            "docs/settings.md lists all names",
        )
    if not unknown:
        yield UpgradeItem("settings", UpgradeLevel.OK, "all names are known")
