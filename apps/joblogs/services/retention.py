"""Deletes lines by age, level and size. All ingesters run it concurrently."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings

from apps.joblogs.engine.lines import QUIET
from apps.joblogs.models import LogPolicy
from apps.joblogs.services.groups import forget_groups
from apps.joblogs.services.store import log_store
from apps.joblogs.stores.base import LogStore, Usage

# Limits of lines deleted by one statement, and by one call of ``prune_lines``.
CHUNK: Final = 5000
MOST: Final = 100_000


@dataclass(frozen=True, slots=True)
class Retention:
    """Effective retention of one job; ``max_bytes`` 0 is unlimited."""

    days: int
    quiet_days: int
    max_bytes: int


def prune_lines(*, now: datetime) -> int:
    """Delete expired lines and lines beyond the size limit, about ``MOST`` lines per call.

    Return the number of deleted lines; less than ``MOST`` means that nothing is left to delete.

    Raises:
        LogStoreUnavailable: the log store is unavailable.
    """
    store, policies, left = log_store(), _policies(), MOST
    for usage in store.usages():
        left -= _prune(store, usage, kept_of(usage, policies), now, left)
        if left <= 0:
            break
    if left > 0:
        store.prune(now=now)
        forget_groups(now=now)
    return MOST - left


def kept_of(usage: Usage, policies: Mapping[tuple[int, int], LogPolicy]) -> Retention:
    """Return the retention by the job's policy, else the project's, else the settings."""
    rows = [policies.get((usage.project, usage.job)), policies.get((usage.project, 0))]
    days = _first([row.days for row in rows if row], settings.LOG_DAYS)
    quiet = _first([row.quiet_days for row in rows if row], settings.LOG_QUIET_DAYS)
    return Retention(
        days=days,
        quiet_days=min(quiet or days, days),
        max_bytes=_first([row.max_bytes for row in rows if row], settings.LOG_MAX_BYTES),
    )


def _first(values: list[int | None], otherwise: int) -> int:
    return next((value for value in values if value is not None), otherwise)


def _policies() -> dict[tuple[int, int], LogPolicy]:
    return {(policy.project_id, policy.job_id or 0): policy for policy in LogPolicy.objects.all()}


def _prune(store: LogStore, usage: Usage, kept: Retention, now: datetime, left: int) -> int:
    total = 0
    job = {"project": usage.project, "job": usage.job}

    def chunk() -> int:
        return min(CHUNK, left - total)

    for days, levels in ((kept.days, None), (kept.quiet_days, QUIET)):
        before = now - timedelta(days=days)
        if usage.oldest_at >= before or (levels is not None and days >= kept.days):
            continue
        while chunk() > 0:
            deleted = store.delete(**job, before=before, levels=levels, limit=chunk())
            total += deleted
            if not deleted:
                break
    if kept.max_bytes and usage.bytes > kept.max_bytes:
        while chunk() > 0:
            deleted = store.delete_oldest(**job, keep_bytes=kept.max_bytes, limit=chunk())
            total += deleted
            if not deleted:
                break
    return total
