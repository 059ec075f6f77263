"""Share tables of hosts in the database, for installations without Redis."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from django.db import connection, transaction

from apps.agents.center.politeness.shares import (
    ShareGrant,
    ShareRequest,
    SharesUnavailable,
    ShareTable,
    settle_all,
)
from apps.agents.hosts.models import HostLedger
from apps.runtime.errors import DATABASE_ERRORS

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ShareTable).decode
# A table is obsolete after the longest pause that a host can have requested.
KEEP = timedelta(hours=2)


class DatabaseShares:
    """``HostShares`` in a table, by the database's clock."""

    def exchange(self, center: str, asks: Sequence[ShareRequest]) -> dict[str, ShareGrant]:
        if not asks:
            return {}
        try:
            with transaction.atomic():
                return _settle(center, asks)
        except DATABASE_ERRORS as error:
            # After a restart of the server, the open connection only fails.
            connection.close()
            raise SharesUnavailable(f"database: {error}") from error

    def leave(self, center: str, hosts: Sequence[str]) -> None:
        self.exchange(center, [ShareRequest(host=host) for host in hosts])


def forget_ledgers(now: datetime) -> int:
    """Delete obsolete share tables; return their number."""
    return HostLedger.objects.filter(updated_at__lt=now - KEEP).delete()[0]


def _settle(center: str, asks: Sequence[ShareRequest]) -> dict[str, ShareGrant]:
    hosts = sorted(ask.host for ask in asks)
    now = _now()
    moment = datetime.fromtimestamp(now, UTC)
    missing = set(hosts) - set(
        HostLedger.objects.filter(host__in=hosts).values_list("host", flat=True)
    )
    HostLedger.objects.bulk_create(
        [HostLedger(host=host, updated_at=moment) for host in sorted(missing)],
        ignore_conflicts=True,
    )
    # In one order for every center, so that none deadlock.
    rows = list(HostLedger.objects.select_for_update().filter(host__in=hosts).order_by("host"))
    # Read after the lock was acquired: the time before belongs to its previous holder.
    now = _now()
    ledgers = {row.host: _read(bytes(row.body)) for row in rows}
    answers = settle_all(ledgers, asks, center, now)
    # Not bulk_update, which costs many times that; in the order of the locks.
    HostLedger.objects.bulk_create(
        [
            HostLedger(host=host, body=_encode(ledger), updated_at=moment)
            for host, ledger in ledgers.items()
        ],
        update_conflicts=True,
        unique_fields=["host"],
        update_fields=["body", "updated_at"],
        batch_size=500,
    )
    return answers


def _read(body: bytes) -> ShareTable:
    try:
        return _decode(body)
    except msgspec.DecodeError:
        # Written by hand or by another version: start over instead of failing each time.
        return ShareTable()


def _now() -> float:
    if connection.vendor != "postgresql":
        # An embedded database: all of its processes share this machine's clock.
        return time.time()
    with connection.cursor() as cursor:
        cursor.execute("SELECT extract(epoch FROM clock_timestamp())::float8")
        return float(cursor.fetchone()[0])
