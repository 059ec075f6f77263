"""Health of processes, agents, hosts, queues, the outbox and dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from django.db.models import Count, Max, Min
from django.utils.translation import gettext_lazy as _

from apps.agents.models import Agent
from apps.agents.states import ALIVE_FOR, AgentMode
from apps.alerts.engine.events import ConditionSource, Occurrence, StateUnknown
from apps.alerts.queries.samples import WatchedSeries, read_samples
from apps.alerts.sources.pages import change_page, list_page
from apps.jobs.engine.placement import ONLINE_SECONDS
from apps.jobs.models import Host
from apps.jobs.states import HostMode
from apps.runtime.models import DeadLetter, OutboxMessage
from apps.runtime.queries import (
    LIVE_SECONDS,
    database_now,
    live_daemons,
    queue_problems,
    stale_daemons,
)
from apps.runtime.services import steady_for
from apps.runtime.states import DeadLetterState

REASON: Final = 200
PURPOSE: Final = "alerts.watching"
# Required observation time before a process counts as silent: during a database outage no heartbeat
# is written, and afterwards all would seem dead.
STEADY: Final = timedelta(seconds=30)
STEADY_GAP: Final = timedelta(seconds=20)
# A message stays in the outbox this long only if publishing fails.
STUCK: Final = timedelta(seconds=60)
# How far back the start of an unread queue is searched.
UNREAD_SECONDS: Final = 300
# Gauges of apps.queuestats.
READY: Final = "queue.ready"
CONSUMERS: Final = "queue.consumers"


class DaemonSilent:
    """Processes that stopped sending heartbeats without a clean shutdown."""

    name = "daemon.silent"
    title: object = _("a process does not respond")
    sentence: object = _("%(kind)s %(name)s on %(host)s does not respond; %(living)s others do")
    advice: object = _(
        "Restart it on its host. If it was removed for good, forget it on the Processes page."
    )
    facts: tuple[str, ...] = ("kind", "name", "host", "living")

    def now(self, at: datetime) -> Iterator[Occurrence]:
        """Yield one occurrence per silent process."""
        now = _steady()
        rows = list(stale_daemons(now=now))
        living = dict(live_daemons(now=now).order_by().values_list("kind").annotate(Count("pk")))
        for row in rows:
            yield Occurrence(
                id=f"daemon:{row.kind}:{row.name}",
                project=None,
                key=f"daemon:{row.kind}:{row.name}",
                at=row.beat_at + timedelta(seconds=LIVE_SECONDS),
                facts={
                    "kind": row.kind,
                    "name": row.name,
                    "host": row.host,
                    "living": living.get(row.kind, 0),
                },
                address="/admin/",
            )


class AgentSilent:
    """Agents without heartbeats while a center is running."""

    name = "agent.silent"
    title: object = _("an agent does not respond")
    sentence: object = _("agent %(agent)s sends no heartbeats")
    advice: object = _("Check its host and network. Disable the agent if it has been removed.")
    facts: tuple[str, ...] = ("agent", "id")

    def now(self, at: datetime) -> Iterator[Occurrence]:
        """Yield one occurrence per silent agent that is not disabled."""
        now = _steady()
        centers = live_daemons(kind="center", now=now).filter(started_at__lt=now - STEADY)
        if not centers.exists():
            raise StateUnknown
        rows = Agent.objects.exclude(mode=AgentMode.DISABLED).filter(
            heartbeat_at__lte=now - ALIVE_FOR
        )
        for row in rows.order_by("pk").only("pk", "name", "agent_id", "heartbeat_at"):
            yield Occurrence(
                id=f"agent:{row.agent_id}",
                project=None,
                key=f"agent:{row.agent_id}",
                at=(row.heartbeat_at or now) + ALIVE_FOR,
                facts={"agent": str(row), "id": row.agent_id},
                address=change_page("agents/agent", row.pk),
            )


class HostSilent:
    """Hosts whose runner does not report."""

    name = "host.silent"
    title: object = _("a host for runs does not report")
    sentence: object = _("host %(host)s does not report; it had %(running)s active runs")
    advice: object = _("Restart the runner on it. Disable the host if it has been removed.")
    facts: tuple[str, ...] = ("host", "running")

    def now(self, at: datetime) -> Iterator[Occurrence]:
        """Yield one occurrence per silent host that is not disabled."""
        now = _steady()
        silent = timedelta(seconds=ONLINE_SECONDS)
        rows = Host.objects.exclude(mode=HostMode.DISABLED).filter(beat_at__lte=now - silent)
        for row in rows.order_by("pk"):
            yield Occurrence(
                id=f"host:{row.name}",
                project=None,
                key=f"host:{row.name}",
                at=row.beat_at + silent,
                facts={"host": row.name, "running": row.running},
                address=change_page("jobs/host", row.pk),
            )


class QueueWithoutConsumer:
    """Queues with waiting messages and no consumer, by their stored samples."""

    name = "queue.unread"
    title: object = _("a queue has no consumer")
    sentence: object = _("%(ready)s messages wait in %(queue)s, which has no consumer")
    advice: object = _("Start the process that reads this queue; the runbook names it.")
    facts: tuple[str, ...] = ("queue", "ready")

    def now(self, at: datetime) -> Iterator[Occurrence]:
        """Yield one occurrence per queue for which both gauges are known."""
        samples = read_samples({READY, CONSUMERS}, window=UNREAD_SECONDS, now=at)
        readers = {
            (series.project, series.label): dict(
                zip(series.line.times, series.line.values, strict=True)
            )
            for series in samples.by_name[CONSUMERS]
        }
        for queue in samples.by_name[READY]:
            known = readers.get((queue.project, queue.label))
            since = _unread_since(queue, known, at.timestamp()) if known else None
            if since is None:
                continue
            yield Occurrence(
                id=f"queue:{queue.project or ''}:{queue.label}",
                project=queue.project,
                key=queue.label,
                at=datetime.fromtimestamp(since, UTC),
                facts={"queue": queue.label, "ready": int(queue.line.values[-1])},
            )


class QueueBroken:
    """Shared queues through which the monitor's messages do not come back."""

    name = "queue.broken"
    title: object = _("no message goes through a queue")
    sentence: object = _("no message goes through the queue %(queue)s: %(problem)s")
    advice: object = _(
        "Restart the process that reads this queue. A queue that is down needs its RabbitMQ node; "
        "the runbook says how."
    )
    facts: tuple[str, ...] = ("queue", "problem")

    def now(self, at: datetime) -> Iterator[Occurrence]:
        """Yield one occurrence per queue."""
        for queue, problem in sorted(queue_problems().items()):
            yield Occurrence(
                id=f"queue:{queue}",
                project=None,
                key=queue,
                at=at,
                facts={"queue": queue, "problem": problem[:REASON]},
            )


class DeadLettersHeld:
    """Messages in the dead-letter queue that wait for an operator."""

    name = "dead_letters.held"
    title: object = _("there are dead letters")
    sentence: object = _("%(count)s dead letters from %(queue)s; latest reason: %(reason)s")
    advice: object = _("Fix the cause, then return the messages to their queue or drop them.")
    facts: tuple[str, ...] = ("queue", "count", "reason")

    def now(self, at: datetime) -> Iterator[Occurrence]:
        """Yield one occurrence per queue with dead letters."""
        rows = (
            DeadLetter.objects.filter(state=DeadLetterState.HELD)
            .order_by()
            .values("queue")
            .annotate(count=Count("pk"), oldest=Min("died_at"), newest=Max("pk"))
        )
        groups = list(rows)
        newest = DeadLetter.objects.defer("body").in_bulk([group["newest"] for group in groups])
        for group in groups:
            letter = newest.get(group["newest"])
            yield Occurrence(
                id=f"queue:{group['queue']}",
                project=None,
                key=group["queue"] or "?",
                at=group["oldest"],
                facts={
                    "queue": group["queue"] or "?",
                    "count": group["count"],
                    "reason": letter.reason[:REASON] if letter is not None else "",
                },
                address=list_page("runtime/deadletter"),
            )


class OutboxStuck:
    """Committed messages that cannot be published."""

    name = "outbox.stuck"
    title: object = _("outbox messages are stuck")
    sentence: object = _("%(count)s messages wait to be published (%(reason)s)")
    advice: object = _("Check that the broker is up and that the outbox relay is running.")
    facts: tuple[str, ...] = ("count", "reason")

    def now(self, at: datetime) -> Iterator[Occurrence]:
        """Yield one occurrence, starting when the oldest message was a minute old."""
        now = database_now()
        # Ordered by ID, which is indexed; the time is not.
        oldest = OutboxMessage.objects.order_by("pk").first()
        if oldest is None or oldest.created_at > now - STUCK:
            return
        yield Occurrence(
            id="outbox",
            project=None,
            key="outbox",
            at=oldest.created_at + STUCK,
            facts={"count": OutboxMessage.objects.count(), "reason": oldest.error[:REASON]},
        )


def _steady() -> datetime:
    """Return the database time. Raises ``StateUnknown`` until observation was continuous for a
    while."""
    now = database_now()
    if steady_for(purpose=PURPOSE, gap=STEADY_GAP, now=now) < STEADY:
        raise StateUnknown
    return now


def _unread_since(queue: WatchedSeries, readers: dict[int, float], now: float) -> float | None:
    """Return since when messages wait without a consumer; None if not so or unknown."""
    times, values = queue.line.times, queue.line.values
    since: float | None = None
    last = now
    for place in range(len(times) - 1, -1, -1):
        second = times[place]
        if values[place] <= 0 or readers.get(second, 1) > 0 or last - second > 30:
            break
        since, last = second, second
    return since


SOURCES: Final[tuple[ConditionSource, ...]] = (
    DaemonSilent(),
    AgentSilent(),
    HostSilent(),
    QueueWithoutConsumer(),
    QueueBroken(),
    DeadLettersHeld(),
    OutboxStuck(),
)
