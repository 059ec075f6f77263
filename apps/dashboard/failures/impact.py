"""Counts of the work that depends on each part, in a fixed number of queries."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from django.db.models import Count, Min, Q, Sum

from apps.access.models import User
from apps.agents.models import Agent
from apps.agents.states import AgentMode, is_alive
from apps.alerts.models import Incident, Notice
from apps.alerts.states import NoticeState
from apps.jobs.models import Host, Run, Schedule
from apps.jobs.states import RunState
from apps.projects.models import Build, Project
from apps.projects.states import BUILD_ACTIVE
from apps.queuestats.models import RunCounter
from apps.requeststore.engine.flags import NEW, TAKEN
from apps.requeststore.models import QueueReport, ShardReport
from apps.routing.models import CounterChange
from apps.routing.states import ItemState
from apps.runtime.models import Daemon, DeadLetter, OutboxMessage
from apps.runtime.queries import is_live
from apps.runtime.states import DAEMON_ACTIVE, DeadLetterState
from apps.seeds.models import SegmentReport
from apps.sources.models import SourceState
from apps.sources.states import BUSY

# Processes silent for longer than this were removed on purpose and are ignored.
FORGOTTEN_AFTER: Final = timedelta(days=7)


@dataclass(slots=True)
class ProcessGroup:
    """Processes of one kind."""

    alive: int = 0
    silent: int = 0
    # Error of the last failed step of one of them.
    error: str = ""
    # Start of the oldest process alive; last heartbeats of the silent ones.
    began_at: datetime | None = None
    heard_at: list[datetime] = field(default_factory=list)

    @property
    def since(self) -> datetime | None:
        """Time of the last change: the first process went silent, or the last one did."""
        if self.heard_at:
            return min(self.heard_at) if self.alive else max(self.heard_at)
        return None if self.error else self.began_at


@dataclass(slots=True)
class ImpactCounts:
    """Figures of the health page; project data only of projects visible to the user."""

    runs: int = 0
    runs_on_hosts: int = 0
    queued_runs: int = 0
    left: int = 0
    out: int = 0
    agents_alive: int = 0
    agents_silent: int = 0
    agents_heard_at: list[datetime] = field(default_factory=list)
    hosts_alive: int = 0
    hosts_silent: int = 0
    runs_on_silent: int = 0
    outbox: int = 0
    outbox_since: datetime | None = None
    dead_letters: int = 0
    routed: int = 0
    parked: int = 0
    seeds_pending: int = 0
    seeds_leased: int = 0
    stored_new: int = 0
    stored_taken: int = 0
    request_entries: int = 0
    sources: int = 0
    harvesting: int = 0
    builds: int = 0
    schedules: int = 0
    next_at: datetime | None = None
    incidents: int = 0
    notices: int = 0
    daemons: dict[str, ProcessGroup] = field(default_factory=dict)

    def processes(self, kind: str) -> ProcessGroup:
        """Return the processes of a kind; an empty group if there are none."""
        return self.daemons.get(kind, ProcessGroup())


def count(user: User, now: datetime, database_now: datetime) -> ImpactCounts:
    """Count everything. Heartbeats of daemons carry the database's time, hence ``database_now``."""
    counts = ImpactCounts()
    _runs(counts, user, now)
    _machinery(counts, user, database_now)
    _agents(counts, now)
    _work(counts, user)
    return counts


def _runs(counts: ImpactCounts, user: User, now: datetime) -> None:
    active = list(Run.objects.visible_to(user).active().values_list("pk", "state", "host"))
    counts.runs = len(active)
    counts.queued_runs = sum(state == RunState.QUEUED for _pk, state, _host in active)
    counts.runs_on_hosts = counts.runs - counts.queued_runs
    owners = [f"run:{pk}" for pk, _state, _host in active]
    sums = RunCounter.objects.filter(owner__in=owners).aggregate(
        total=Sum("total"), done=Sum("success") + Sum("failed"), out=Sum("out")
    )
    counts.left = max(0, (sums["total"] or 0) - (sums["done"] or 0))
    counts.out = sums["out"] or 0
    hosts = {host.name: host.is_online(now) for host in Host.objects.all()}
    counts.hosts_alive = sum(hosts.values())
    counts.hosts_silent = len(hosts) - counts.hosts_alive
    counts.runs_on_silent = sum(
        host != "" and not hosts.get(host, True) for *_other, host in active
    )
    schedules = Schedule.objects.filter(
        next_at__isnull=False, job__project__in=Project.objects.visible_to(user)
    ).aggregate(count=Count("pk"), first=Min("next_at"))
    counts.schedules, counts.next_at = schedules["count"], schedules["first"]


def _machinery(counts: ImpactCounts, user: User, database_now: datetime) -> None:
    recent = database_now - FORGOTTEN_AFTER
    for daemon in Daemon.objects.filter(state__in=DAEMON_ACTIVE, beat_at__gt=recent):
        group = counts.daemons.setdefault(daemon.kind, ProcessGroup())
        if is_live(daemon, now=database_now):
            group.alive += 1
            group.began_at = min(group.began_at or daemon.started_at, daemon.started_at)
            group.error = group.error or str(daemon.detail.get("error", ""))[:300]
        else:
            group.silent += 1
            group.heard_at.append(daemon.beat_at)
    outbox = OutboxMessage.objects.aggregate(count=Count("pk"), first=Min("created_at"))
    counts.outbox, counts.outbox_since = outbox["count"], outbox["first"]
    if user.sees_everything:
        held = DeadLetter.objects.filter(state=DeadLetterState.HELD)
        counts.dead_letters = held.count()


def _agents(counts: ImpactCounts, now: datetime) -> None:
    for mode, beat in Agent.objects.values_list("mode", "heartbeat_at"):
        if is_alive(beat, now):
            counts.agents_alive += 1
        elif mode != AgentMode.DISABLED:
            counts.agents_silent += 1
            if beat is not None:
                counts.agents_heard_at.append(beat)


def _work(counts: ImpactCounts, user: User) -> None:
    mine = Project.objects.visible_to(user)
    flying = [ItemState.RECEIVED, ItemState.DISPATCHED, ItemState.RETRYING]
    tally = CounterChange.objects.filter(project__in=mine).aggregate(
        routed=Sum("amount", filter=Q(what__in=flying)),
        parked=Sum("amount", filter=Q(what=ItemState.PARKED)),
    )
    counts.routed, counts.parked = tally["routed"] or 0, tally["parked"] or 0
    seeds = SegmentReport.objects.visible_to(user).aggregate(p=Sum("pending"), n=Sum("leased"))
    counts.seeds_pending, counts.seeds_leased = seeds["p"] or 0, seeds["n"] or 0
    for flags in ShardReport.objects.filter(project__in=mine).values_list("by_flag", flat=True):
        counts.stored_new += int(flags.get(str(NEW), 0))
        counts.stored_taken += int(flags.get(str(TAKEN), 0))
    queues = QueueReport.objects.filter(project__in=mine).aggregate(all=Sum("waiting"))
    counts.request_entries = queues["all"] or 0
    sources = SourceState.objects.filter(project__in=mine, stopped_at=None)
    activities = list(sources.values_list("activity", flat=True))
    counts.sources = len(activities)
    counts.harvesting = sum(activity in BUSY for activity in activities)
    counts.builds = Build.objects.filter(project__in=mine, state__in=BUILD_ACTIVE).count()
    counts.incidents = Incident.objects.visible_to(user).open().count()
    notices = Notice.objects.visible_to(user).filter(state=NoticeState.WAITING)
    counts.notices = notices.count()
