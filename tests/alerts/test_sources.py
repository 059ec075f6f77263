"""Event and condition sources on real rows."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.urls import reverse
from django.utils import timezone

from apps.agents.states import AgentMode
from apps.alerts.engine.events import Occurrence, StateUnknown, all_sources, find_source
from apps.alerts.engine.rules import builtin_rules
from apps.alerts.models import Incident
from apps.alerts.services.delivery import send_notices
from apps.alerts.sources import infrastructure, pages, runs
from apps.alerts.sources.accounting import AccountingMismatch
from apps.configcenter.services.reports import VersionReport, report_running
from apps.jobs.models import PlannedRun, Run, RunMove, Schedule
from apps.jobs.states import PlanOutcome, RunState
from apps.projects.models import Build
from apps.projects.states import BuildState
from apps.queuestats.models import RunCounter
from apps.queuestats.services import record_gauges
from apps.requeststore.models import NodeReport, QueueReport, ShardReport
from apps.requeststore.queries import outlook
from apps.routing.engine.reports import OutboundReport, Reports
from apps.routing.models import RoutedItem, RouterReport
from apps.routing.states import ItemState
from apps.runtime.models import Daemon, DeadLetter, OutboxMessage, WorkerLease
from apps.runtime.services import register_daemon
from apps.seeds.models import Resource, ResourcePool
from apps.seeds.states import ResourceState
from apps.sources.engine.progress import EndReason
from apps.sources.models import Harvest
from apps.sources.states import HarvestState
from tests.agents.factories import make_agent
from tests.alerts.factories import make_channel
from tests.alerts.monitor_harness import Rig, told, use_rules
from tests.configcenter.factories import KIND, SampleKind, make_process, save
from tests.jobs.factories import make_host, make_job, make_project, make_run
from tests.requeststore import biz_reports
from tests.routing.factories import arrive, moved
from yardkit.clock import ManualClock

pytestmark = pytest.mark.django_db


def since(name: str, seconds: float = 600) -> list[Occurrence]:
    source: Any = find_source(name)
    return list(source.since(timezone.now() - timedelta(seconds=seconds)))


def now(name: str) -> list[Occurrence]:
    source: Any = find_source(name)
    return list(source.now(timezone.now()))


def over(name: str, *keys: str) -> set[str]:
    source: Any = find_source(name)
    found: set[str] = source.over(dict.fromkeys(keys, timezone.now()), timezone.now())
    return found


def watched_for_long() -> None:
    """Record a monitoring period long enough to judge silence."""
    with pytest.raises(StateUnknown):
        now("host.silent")
    row = WorkerLease.objects.filter(purpose=infrastructure.PURPOSE)
    long_ago = int((timezone.now() - timedelta(hours=1)).timestamp() * 1000)
    row.update(high_water_ms=long_ago, expires_at=timezone.now() + timedelta(minutes=5))


def end(run: Run, state: RunState) -> None:
    at = timezone.now()
    Run.objects.filter(pk=run.pk).update(state=state, ended_at=at, reason="exit status 1")
    RunMove.objects.create(run=run, from_state=RunState.RUNNING, to_state=state, at=at)


@pytest.mark.parametrize(
    ("name", "state"), [("run.failed", RunState.FAILED), ("run.lost", RunState.LOST)]
)
def test_runs_that_end_badly(name: str, state: RunState) -> None:
    job = make_job()
    run = make_run(job=job, state=RunState.RUNNING)
    end(run, state)
    (found,) = since(name)
    assert (found.project, found.key) == (job.project_id, f"job:{job.pk}")
    assert found.facts == {"job": job.name, "run": run.pk, "reason": "exit status 1"}
    assert over(name, found.key) == set()
    end(make_run(job=job, state=RunState.RUNNING), RunState.EXITED)
    assert over(name, found.key) == {found.key}
    assert since(name, seconds=-60) == []


def test_all_runs_that_failed_are_told_however_many(
    monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    monkeypatch.setattr(runs, "NEWEST", 3)
    job = make_job()
    for _number in range(11):
        end(make_run(job=job, state=RunState.RUNNING), RunState.FAILED)
    assert len(since("run.failed")) == 11
    before = timezone.now() - timedelta(hours=1)
    RunMove.objects.update(at=before)
    end(make_run(job=job, state=RunState.RUNNING), RunState.FAILED)
    # Old rows are not read.
    with django_assert_num_queries(3):
        assert len(since("run.failed")) == 1


def test_whether_jobs_are_well_again_is_asked_at_once(django_assert_num_queries: Any) -> None:
    keys = []
    for _number in range(5):
        run = make_run(state=RunState.RUNNING)
        end(run, RunState.EXITED)
        keys.append(f"job:{run.job_id}")
    with django_assert_num_queries(1):
        assert over("run.failed", *keys) == set(keys)


def test_dead_letters_of_the_router() -> None:
    project, other = make_project(), make_project()
    arrive(other)
    for entry in arrive(project, 2):
        moved(entry, ItemState.DEAD, outbound="b", reason="poison", detail="no number")
    (found,) = now("routing.dead_letters")
    assert (found.project, found.key) == (project.pk, "router")
    assert found.facts == {"count": 2, "inbound": "logs", "outbound": "b", "reason": "no number"}
    assert found.address == reverse("admin:routing_dead_letters") + f"?project={project.pk}"
    RoutedItem.objects.update(replaced_by=uuid.uuid4())
    assert now("routing.dead_letters") == []


def test_planned_runs_that_are_missed_or_late() -> None:
    job = make_job(cron="0 * * * *")
    at = timezone.now()
    schedule = Schedule.objects.create(
        job=job, cron="0 * * * *", time_zone="UTC", planned_through=at
    )
    for hours, outcome in ((3, PlanOutcome.MISSED), (2, PlanOutcome.LATE)):
        PlannedRun.objects.create(
            schedule=schedule,
            planned_at=at - timedelta(hours=hours),
            outcome=outcome,
            reason="no worker",
            decided_at=at,
        )
    assert [each.facts["reason"] for each in since("run.missed")] == ["no worker"]
    (late,) = since("run.late")
    assert over("run.late", late.key) == set()
    PlannedRun.objects.create(
        schedule=schedule, planned_at=at, outcome=PlanOutcome.STARTED, decided_at=at
    )
    assert over("run.late", late.key) == {late.key}


def test_a_run_that_nobody_starts() -> None:
    before = timezone.now() - timedelta(minutes=20)
    run = make_run(created_at=before, waiting_reason="host-1: full")
    make_run(created_at=before, not_before=timezone.now() + timedelta(hours=1))
    make_run(created_at=timezone.now())
    (found,) = now("run.waiting")
    assert found.facts == {"job": run.job.name, "run": run.pk, "reason": "host-1: full"}
    assert found.at == before


def test_builds_and_harvests() -> None:
    project = make_project()
    at = timezone.now()
    Build.objects.create(
        project=project,
        tag="prod/a/1",
        state=BuildState.FAILED,
        step="build",
        reason="pip",
        created_at=at,
        ended_at=at,
    )
    (found,) = since("build.failed")
    assert found.facts == {"tag": "prod/a/1", "step": "build", "reason": "pip"}
    assert over("build.failed", found.key) == set()
    Build.objects.create(
        project=project, tag="prod/a/2", state=BuildState.SUCCEEDED, created_at=at, ended_at=at
    )
    assert over("build.failed", found.key) == {found.key}
    values: dict[str, Any] = {"project": project, "source": "a:b", "ended_at": at}
    Harvest.objects.create(**values, state=HarvestState.FAILED, error="429")
    Harvest.objects.create(
        **values,
        state=HarvestState.COMPLETED,
        gaps=[
            {"from": 1, "to": 9, "why": "shrunk"},
            {"from": 10, "to": 99, "why": EndReason.EXPIRED},
        ],
    )
    (failed,), (gap,) = since("harvest.failed"), since("harvest.gap")
    assert failed.facts == {"source": "a:b", "reason": "429"}
    assert gap.facts == {"source": "a:b", "gaps": 1}
    assert over("harvest.failed", failed.key) == {failed.key}


def test_a_version_that_cannot_be_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    from apps.configcenter.engine import kinds

    monkeypatch.setitem(kinds._kinds, KIND, SampleKind())
    version = save(make_project(), 1)
    identity, _daemon = make_process("one")
    report = VersionReport(version.configuration_id, 0, timezone.now(), "v1: no such queue")
    report_running(
        identity=identity, kind=KIND, project_id=None, reports=[report], now=timezone.now()
    )
    (found,) = now("config.not_applied")
    assert found.facts["reason"] == "v1: no such queue"
    assert found.project == version.configuration.project_id


def test_targets_of_the_router() -> None:
    project = make_project()
    at = timezone.now()
    line = OutboundReport(problem="refused", problem_at_ms=int(at.timestamp() * 1000) - 60_000)
    import msgspec

    RouterReport.objects.create(
        router="r",
        project=project,
        at=at,
        reports=msgspec.to_builtins(Reports(outbounds={"news": line})),
    )
    (found,) = now("routing.target_away")
    assert found.facts == {"name": "news", "problem": "refused", "routers": 1}
    assert (at - found.at).total_seconds() > 59
    assert now("routing.inbound_away") == []


def test_an_empty_pool() -> None:
    pool = ResourcePool.objects.create(project=make_project(), name="proxies")
    assert now("pool.empty") == []
    at = timezone.now()
    mine = Resource.objects.create(
        pool=pool, name="a", state=ResourceState.BANNED, banned_at=at, available_at=at
    )
    (found,) = now("pool.empty")
    assert found.facts == {"pool": "proxies", "leased": 0, "banned": 1}
    Resource.objects.filter(pk=mine.pk).update(state=ResourceState.FREE, banned_at=None)
    assert now("pool.empty") == []


def test_silence_is_judged_only_by_who_has_watched() -> None:
    watched_for_long()
    before = timezone.now() - timedelta(minutes=2)
    for name in ("dead", "alive"):
        register_daemon(kind="center", name=name, boot=name, host="h", pid=1, version="")
    Daemon.objects.filter(name="dead").update(beat_at=before)
    (found,) = now("daemon.silent")
    assert (found.facts["name"], found.facts["living"]) == ("dead", 1)
    agent = make_agent(silent_seconds=120)
    make_agent(silent_seconds=120, mode=AgentMode.DISABLED)
    with pytest.raises(StateUnknown):
        # No center has run long enough to have received a heartbeat.
        now("agent.silent")
    Daemon.objects.filter(name="alive").update(started_at=before)
    assert [each.facts["id"] for each in now("agent.silent")] == [agent.agent_id]
    make_host("away", beat_at=before)
    make_host("here", beat_at=timezone.now())
    assert [each.facts["host"] for each in now("host.silent")] == ["away"]


def test_dead_letters_and_the_outbox() -> None:
    at = timezone.now() - timedelta(minutes=5)
    for number in range(3):
        DeadLetter.objects.create(
            message_id=str(number),
            queue="q",
            reason=f"bad {number}",
            body=b"x",
            body_size=1,
            died_at=at,
        )
    (letters,) = now("dead_letters.held")
    assert letters.facts == {"queue": "q", "count": 3, "reason": "bad 2"}
    assert now("outbox.stuck") == []
    OutboxMessage.objects.create(message_id="1", key="k", body=b"x", created_at=at, error="gone")
    (stuck,) = now("outbox.stuck")
    assert stuck.facts == {"count": 1, "reason": "gone"}


def test_a_queue_that_nobody_reads() -> None:
    at = timezone.now()
    for ago in range(120, -1, -5):
        record_gauges(
            {
                ("queue.ready", None, "a"): 5 if ago < 90 else 0,
                ("queue.consumers", None, "a"): 0,
                ("queue.ready", None, "b"): 5,
                ("queue.consumers", None, "b"): 1,
                ("queue.ready", None, "unknown"): 5,
            },
            now=at - timedelta(seconds=ago),
        )
    (found,) = now("queue.unread")
    assert found.facts == {"queue": "a", "ready": 5}
    assert 84 <= (at - found.at).total_seconds() <= 86


@pytest.mark.covers("S4.26", "S4.27")
def test_nodes_shards_and_queues_of_the_request_store() -> None:
    project = make_project()
    at = timezone.now()
    NodeReport.objects.create(name="n1", kind="sql", problem="refused")
    NodeReport.objects.create(name="n2", kind="sql", slow=[{"seconds": 3.5, "text": "UPDATE"}])
    NodeReport.objects.create(name="n3", kind="sql", reported_at=at - timedelta(hours=1))
    NodeReport.objects.create(name="n4", kind="sql")
    assert [each.facts["node"] for each in now("store.node_away")] == ["n1", "n3"]
    assert [each.facts["reason"] for each in now("store.node_slow")] == ["3.5 s: UPDATE"]
    ShardReport.objects.create(
        project=project, biz="news", node="n1", database="d", collection="c", problem="full"
    )
    QueueReport.objects.create(project=project, biz="news", name="q", problem="refused")
    assert [each.facts["reason"] for each in now("store.shard")] == ["full"]
    assert [each.key for each in now("store.queue")] == ["biz:news"]


@pytest.mark.covers("S4.27", "S4.28")
def test_stored_requests_that_will_be_late_are_told_of() -> None:
    outlook._read.clear()
    channel = make_channel(name="ops", language="zh-hans")
    use_rules({"name": "requests late", "tell": ["ops"]})
    rig, project = Rig(), make_project()
    at = rig.now() + timedelta(seconds=5)
    # 60,000 pending at 25 a second take 40 min.
    biz_reports.make_bizzes(project, news={"finish_by_seconds": 86_400})
    report = biz_reports.make_report(project, now=at, by_flag={"0": 60_000, "-1": 3})
    biz_reports.make_rates(project, created=0, now=at)
    biz_reports.make_fetchers(1, now=at)
    source: Any = find_source("requests.late")
    assert list(source.now(at)) == []
    # 30 min are left.
    report.oldest_new_at = at - timedelta(hours=23.5)
    report.save()
    rig.run(5)
    opened = Incident.objects.get()
    assert (opened.project, opened.key) == (project, "biz:news")
    assert opened.facts["biz"] == "news"
    assert (opened.facts["backlog"], opened.facts["lateness"]) == (60_003, "backlog")
    assert told() == [("opened", "ops")]
    send_notices(channel=channel.pk, now=rig.now())
    (sent,) = mail.outbox
    assert "news" in sent.subject
    assert "60003" in sent.body


def test_books_that_do_not_balance() -> None:
    run = make_run()
    RunCounter.objects.create(
        project=run.job.project,
        owner=run.owner,
        boot="b",
        total=5,
        success=1,
        updated_at=timezone.now(),
    )
    source = AccountingMismatch()
    (found,) = source.now(timezone.now())
    assert found.facts == {"of": run.owner, "kind": "run", "left": 5, "right": 1}
    RunCounter.objects.update(success=5, sent=5, returned=5)
    # These sums are cached between passes.
    assert list(source.now(timezone.now())) == [found]
    source._read_at = 0
    assert list(source.now(timezone.now())) == []


def test_every_source_has_what_its_sentence_names() -> None:
    for source in all_sources():
        sentence = str(getattr(source, "sentence", ""))
        assert sentence % dict.fromkeys(source.facts, "x") is not None
        assert source.title


def test_every_built_in_rule_watches_something() -> None:
    rules = builtin_rules()
    assert len({each.name for each in rules}) == len(rules)
    for rule in rules:
        assert rule.series or find_source(rule.event) is not None
        assert str(rule.title)


@pytest.mark.slow("1 s")
def test_built_in_rules_open_incidents_without_any_configuration() -> None:
    at = timezone.now()
    DeadLetter.objects.create(message_id="1", queue="q", body=b"", body_size=0, died_at=at)
    rig = Rig(clock=ManualClock(at))
    rig.run(5)
    found = Incident.objects.get(rule="dead letters held")
    assert (found.version, found.by_platform, found.key) == (0, True, "q")
    use_rules({"name": "dead letters held", "enabled": False}, builtin=True)
    rig.run(5)
    found.refresh_from_db()
    assert not found.is_open


def test_paths_are_those_of_the_pages() -> None:
    for model in (
        "jobs/run",
        "jobs/host",
        "agents/agent",
        "projects/build",
        "projects/delivery",
        "configcenter/configuration",
        "seeds/resourcepool",
        "seeds/frontier",
        "sources/harvest",
    ):
        name = model.replace("/", "_")
        assert pages.change_page(model, 7) == reverse(f"admin:{name}_change", args=[7])
    for model in (
        "jobs/plannedrun",
        "requeststore/queuereport",
        "requeststore/shardreport",
        "routing/routerreport",
    ):
        name = model.replace("/", "_")
        assert pages.list_page(model) == reverse(f"admin:{name}_changelist")
