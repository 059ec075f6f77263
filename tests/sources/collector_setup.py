"""Test setup: a project with a source, a collector that runs in the caller's thread, a queue."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from apps.configcenter.services import activate, save_version
from apps.projects.models import Project
from apps.runtime.daemon import Identity
from apps.sources.daemon import CollectorContext, CollectorDaemon
from apps.sources.engine.clients.api_caller import RetryBackoff
from apps.sources.models import Harvest, SourceState
from apps.sources.services import save_credential, start
from apps.sources.states import SourceActivity
from tests.access.factories import make_project
from tests.sources.octoparse_double import PASSWORD, TASK, USER, OctoparseDouble
from yardkit.broker import Broker, Delivery, connect
from yardkit.broker.base import QueueSpec

NOW = datetime(2026, 1, 16, 12, tzinfo=UTC)
QUEUE = "job_data"
# Generous: it limits failing tests only.
PATIENCE_SECONDS = 60.0


class Calendar:
    """Running clock that starts on 16 January 2026."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.shift = timedelta()

    def now(self) -> datetime:
        return NOW + timedelta(seconds=time.monotonic() - self._began) + self.shift

    def time(self) -> float:
        return self.now().timestamp()

    def monotonic(self) -> float:
        return time.monotonic() + self.shift.total_seconds()


class CollectorHarness:
    """Setup with one source ``news``, of one task of ``double``, and its queue."""

    def __init__(
        self, folder: Path, double: OctoparseDouble, broker_url: str = "", **fields: Any
    ) -> None:
        self.double = double
        self.broker_url = broker_url or f"sqlite:///{folder / 'broker.sqlite3'}"
        self.project: Project = make_project(allowed_networks=["127.0.0.0/8"])
        self.clock = Calendar()
        self.brokers: list[Broker] = []
        self.collectors: list[CollectorDaemon] = []
        self.fields: dict[str, Any] = {}
        self.paced = False
        save_credential(
            project_id=self.project.pk,
            name="vendor",
            values={"username": USER, "password": PASSWORD},
            actor=None,
        )
        self.configure(**fields)

    def configure(self, **fields: Any) -> None:
        """Change the settings of the source."""
        self.fields = {
            "base_url": self.double.url,
            "task_id": TASK,
            "credentials": "vendor",
            "rate_limit": 20,
            "auto_start": False,
            "date_field": "date",
            **self.fields,
            **fields,
        }
        self.apply({"sources": {"news": self.fields}})

    def apply(self, data: dict[str, Any]) -> None:
        """Activate this configuration."""
        version = save_version(
            kind="sources", project_id=self.project.pk, data=data, actor=None, now=NOW
        ).version
        activate(version=version, actor=None, now=NOW)

    def open_broker(self) -> Broker:
        broker = connect(self.broker_url, name="test", timeout=10.0)
        self.brokers.append(broker)
        return broker

    def collector(self, name: str = "box", broker: Broker | None = None) -> CollectorDaemon:
        """Return a collector after ``setup``; ``step`` runs its imports."""
        made = CollectorDaemon(
            environment=CollectorContext(
                broker=broker or self.open_broker(),
                patience=RetryBackoff(first=0.01, longest=0.02),
                paced=self.paced,
            ),
            clock=self.clock,
            identity=Identity(kind="collector", name=name),
            threads=False,
        )
        made.setup()
        self.collectors.append(made)
        return made

    def start(self) -> None:
        start(project_id=self.project.pk, names=["news"], actor=None, now=self.clock.now())

    def harvest(self, collector: CollectorDaemon | None = None) -> Harvest:
        """Start the source and collect until it is idle; return its newest import."""
        self.start()
        return self.collect(collector)

    def collect(self, collector: CollectorDaemon | None = None) -> Harvest:
        """Collect until the source is idle; return its newest import."""
        collector = collector or (self.collectors[-1] if self.collectors else self.collector())
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            collector.step()
            if self.state.activity == SourceActivity.IDLE:
                return self.newest
            assert time.monotonic() < deadline, self.state.activity
            time.sleep(0.02)

    @property
    def state(self) -> SourceState:
        return SourceState.objects.get(project=self.project, name="news")

    @property
    def newest(self) -> Harvest:
        return Harvest.objects.filter(project=self.project, source="news").latest("pk")

    def deliveries(self) -> list[Delivery]:
        """Consume and return all waiting deliveries."""
        return take_all(self.open_broker())

    def numbers(self) -> list[int]:
        """Consume the queue; return the record numbers in order."""
        return [json.loads(each.body)["编号"] for each in self.deliveries()]

    def close(self) -> None:
        for collector in self.collectors:
            collector.teardown()
        for broker in self.brokers:
            broker.close()


def take_all(broker: Broker) -> list[Delivery]:
    """Consume and return all messages; waits long enough for a busy machine."""
    broker.declare(QueueSpec(QUEUE))
    subscription = broker.subscribe(QUEUE, prefetch=1000)
    found: list[Delivery] = []
    empty = 0
    # A single empty result may precede messages already assigned to this consumer.
    while empty < 2:
        taken = subscription.take(1000, timeout=0.2)
        found += taken
        subscription.ack(taken)
        depth = broker.depth(QUEUE)
        empty = 0 if taken or depth.ready + max(depth.unacked, 0) else empty + 1
    subscription.close()
    return found
