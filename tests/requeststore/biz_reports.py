"""Bizzes that stand in some way, as their reports and counts say."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

from apps.configcenter.models import Configuration, ConfigVersion
from apps.projects.models import Project
from apps.queuestats.services import record_gauges, record_observed_seconds, store_samples
from apps.requeststore.models import QueueReport, ShardReport
from apps.runtime.services import register_daemon
from tests.jobs.factories import NOW
from yardkit.protocol import SampleNote, Samples


def make_bizzes(project: Project, **bizzes: dict[str, Any]) -> None:
    """The active settings of a project."""
    configuration = Configuration.objects.create(kind="biz", project=project, newest=1)
    version = ConfigVersion.objects.create(
        configuration=configuration,
        number=1,
        content=json.dumps({"bizzes": bizzes}),
        digest="0" * 64,
    )
    Configuration.objects.filter(pk=configuration.pk).update(active=version)


def make_report(
    project: Project, biz: str = "news", *, split: int = 0, now: datetime = NOW, **fields: Any
) -> ShardReport:
    """What a shard said 5 s ago: 60 000 are new, the oldest of half an hour."""
    usual = {
        "by_flag": {"0": 60_000},
        "expiring": {"3600": 120},
        "oldest_new_at": now - timedelta(minutes=30),
        "reported_at": now - timedelta(seconds=5),
        "size_bytes": 5_000_000,
    }
    return ShardReport.objects.create(
        project=project,
        biz=biz,
        node="default",
        database=f"crawlyard_p{project.pk}_{biz}",
        collection=f"requests_{split:03}",
        **(usual | fields),
    )


def make_queue(project: Project, biz: str = "news", **fields: Any) -> QueueReport:
    """What its queue said."""
    usual = {"name": f"p{project.pk}.{biz}", "waiting": 60_000, "memory_bytes": 4_000_000}
    return QueueReport.objects.create(project=project, biz=biz, reported_at=NOW, **(usual | fields))


def make_rates(
    project: Project,
    biz: str = "news",
    *,
    created: float = 20,
    processed: float = 25,
    failed: float = 0,
    seconds: int = 310,
    now: datetime = NOW,
    sender: str = "f1",
    listened: int = 400,
) -> None:
    """So many a second, for so long, and somebody listened."""
    at = int(now.timestamp())
    pace = {"created": created, "processed": processed, "failed": failed}
    notes = [
        SampleNote(at - ago, 1, f"requests.{name}", project.pk, biz, amount)
        for name, amount in pace.items()
        if amount
        for ago in range(1, seconds)
    ]
    boot = f"{sender}-{project.pk}-{biz}-{at}"[-32:]
    report = Samples(sender=sender, boot=boot, seq=1, sent_at=now.timestamp(), samples=notes)
    assert store_samples(messages=[report], now=now) == []
    record_observed_seconds(since=at - listened, until=at)


def make_fetchers(number: int, *, seconds: int = 310, now: datetime = NOW) -> None:
    """So many live, and have for so long."""
    for each in range(number):
        register_daemon(kind="fetcher", name=f"f{each}", boot=f"b{each}", host="h", pid=1, now=now)
    for ago in range(0, seconds, 10):
        record_gauges(
            {("fetchers.running", None, ""): float(number)}, now=now - timedelta(seconds=ago)
        )
