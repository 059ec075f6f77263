"""Writes reports of shards, queues and nodes, which pages show."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from apps.requeststore.engine.errors import RequestStoreError
from apps.requeststore.engine.flags import NEW, TAKEN
from apps.requeststore.models import NodeReport, QueueReport, ShardReport
from apps.requeststore.queues.base import QueueStats, RequestQueue
from apps.requeststore.services.bindings import BoundBiz
from apps.requeststore.services.closed_slices import at_ms, by_flag_of, ms, shard_of
from apps.requeststore.services.store import RequestStore
from apps.requeststore.stores.base import StorageNode
from yardkit.broker import BrokerError

# Seconds by the keys of ``ShardReport.expiring``.
HORIZONS: Final = {"300": 300, "3600": 3600, "21600": 21600, "86400": 86400}
_MOST: Final = 500
# How long the warning about uncounted requests is shown.
_SHOWN: Final = timedelta(days=7)
_GAP: Final = "shown until "
_AWAY: Final = (RequestStoreError, BrokerError)


class ShardCensus(msgspec.Struct, frozen=True):
    """Counts of a shard."""

    by_flag: dict[str, int]
    oldest_new: int | None
    expiring: dict[str, int]
    size_bytes: int


def count_shard(bound: BoundBiz, row: ShardReport, node: StorageNode, now: int) -> ShardCensus:
    """Count the requests of a shard that belong to no closed slice. Raises
    ``RequestStoreUnavailable``.
    """
    shard = shard_of(row)
    since = 0 if row.closed_until is None else ms(row.closed_until)
    counts = node.count(shard, since=since)
    waiting = counts.of(NEW) + counts.of(TAKEN)
    cutoff = bound.settings.cutoff(now)
    expiring = dict[str, int]()
    for name, seconds in HORIZONS.items():
        if waiting:
            soon = node.count(shard, since=cutoff + 1, until=cutoff + seconds * 1000 + 1)
            expiring[name] = soon.of(NEW) + soon.of(TAKEN)
        else:
            expiring[name] = 0
    return ShardCensus(
        by_flag=by_flag_of(counts),
        oldest_new=node.oldest(shard, flag=NEW) if counts.of(NEW) else None,
        expiring=expiring,
        size_bytes=node.size(shard).bytes,
    )


def gap_of(bound: BoundBiz, row: ShardReport, kind: str, now: int) -> str:
    """Return the warning that MongoDB may have deleted uncounted requests; "" normally.

    That happens when upkeep was not running for longer than the retention.
    """
    settings = bound.settings
    if kind != "mongodb" or row.closed_until is None or not sum(row.by_flag.values()):
        return ""
    if ms(row.closed_until) >= now - settings.delete_after_seconds * 1000:
        return ""
    # Otherwise the TTL was shortened, and the TTL index has not been changed yet.
    if ms(row.reported_at) >= now - settings.keep_seconds * 500:
        return ""
    until = (at_ms(now) + _SHOWN).date().isoformat()
    return (
        f"{_GAP}{until}: nobody ran upkeep from {row.reported_at:%Y-%m-%d %H:%M} on, and MongoDB "
        f"may have deleted requests stored after {row.closed_until:%Y-%m-%d %H:%M} uncounted"
    )


def _is_gap(problem: str, at: datetime) -> bool:
    """Return whether the warning is still to be shown."""
    if not problem.startswith(_GAP):
        return False
    return problem[len(_GAP) :][:10] >= at.date().isoformat()


def save_shard(row: ShardReport, counted: ShardCensus | None, at: datetime) -> None:
    """Write the report, unless another worker has closed spans since the row was read."""
    fields: dict[str, Any] = {
        "orphans": row.orphans,
        "overdue": row.overdue,
        "problem": row.problem if _is_gap(row.problem, at) else "",
    }
    if counted is not None:
        row.by_flag, row.expiring = counted.by_flag, counted.expiring
        row.size_bytes = counted.size_bytes
        oldest = counted.oldest_new
        fields |= {
            "by_flag": row.by_flag,
            "expiring": row.expiring,
            "size_bytes": row.size_bytes,
            "oldest_new_at": None if oldest is None else at_ms(oldest),
            "reported_at": at,
        }
    ShardReport.objects.filter(pk=row.pk, closed_until=row.closed_until).update(**fields)


def save_problem(row: ShardReport, problem: str) -> None:
    """Write the problem and keep the last counts."""
    ShardReport.objects.filter(pk=row.pk).update(problem=problem[:_MOST])


def report_queue(
    bound: BoundBiz, queue: RequestQueue | None, at: datetime, problem: str = ""
) -> QueueStats | None:
    """Write and return the lengths of a queue; None when it does not answer."""
    fields: dict[str, Any] = {"name": bound.queue_name, "problem": problem[:_MOST]}
    stats: QueueStats | None = None
    if queue is not None:
        try:
            stats = queue.stats()
        except _AWAY as error:
            fields["problem"] = str(error)[:_MOST]
        else:
            fields |= {
                "waiting": stats.waiting,
                "taken": stats.taken,
                "memory_bytes": stats.memory_bytes,
                "reported_at": at,
            }
    QueueReport.objects.update_or_create(
        project_id=bound.project_id, biz=bound.name, defaults=fields
    )
    return stats


def report_node(request_store: RequestStore, name: str, at: datetime) -> None:
    """Write the health of a storage node, and since when it has a problem."""
    fields: dict[str, Any] = {"problem": "", "reported_at": at}
    try:
        health = request_store.node(name).health()
    except _AWAY as error:
        fields = {"problem": str(error)[:_MOST] or "it does not answer"}
    else:
        fields |= {
            "kind": health.kind,
            "version": health.version[:100],
            "storage_bytes": health.storage_bytes,
            "memory_bytes": health.memory_bytes,
            "connections": health.connections,
            "members": list(health.members),
            "slow": [
                {"seconds": operation.seconds, "text": operation.text} for operation in health.slow
            ],
        }
    before = NodeReport.objects.filter(name=name).values_list("problem", flat=True).first()
    if before is None or bool(before) != bool(fields["problem"]):
        fields["since_at"] = at
    NodeReport.objects.update_or_create(name=name, defaults=fields)
