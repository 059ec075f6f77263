"""Runner, worker, beat and monitor behind links to RabbitMQ and PostgreSQL that break.

While they are broken a run is asked for, a job is due and something is wrong. Afterwards the run
is started once, each time of the job is planned once, and the incident is told once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.alerts.servers import Server, json_reply, serving
from tests.crawlyard.test_celery import account
from tests.jobs.runner_processes import WAITS, RunnerHarness
from tests.plugins.long_tests import FULL_FAULTS
from tests.plugins.measurements import Measured
from tests.plugins.stores import lend_postgres_database, lend_rabbit_vhost
from tests.yardkit.broker_proxy import Proxy

pytestmark = [pytest.mark.services, pytest.mark.fault, pytest.mark.timeout(300)]

RUNNER = "one"
DAEMONS = {
    RUNNER: ("run_runner", "--name", RUNNER, "--capacity", "8"),
    "worker": ("run_worker", "--concurrency", "1"),
    "beat": ("run_beat",),
    "monitor": ("run_monitor",),
}
# In full longer than a lease of beat or of the monitor.
BROKEN_SECONDS = 12.0 if FULL_FAULTS else 3.0
CUT_EVERY_SECONDS = 0.2
alone = pytest.mark.long("both links at once")
LINKS = [
    ("broker", "database"),
    pytest.param(("broker",), marks=alone),
    pytest.param(("database",), marks=alone),
]
RULES = """
from django.utils import timezone
from apps.alerts.models import Channel
from apps.configcenter.services import activate, save_version
Channel.objects.create(
    name="hook", kind="webhook", settings={{}},
    secrets='{{"url": "{url}", "key": "0123456789abcdef"}}')
data = {{"defaults": {{"tell": ["hook"]}}, "rules": [
    {{"name": "dead letters held", "event": "dead_letters.held", "repeat_seconds": 3600}}]}}
now = timezone.now()
saved = save_version(kind="alerts", project_id=None, data=data, actor=None, now=now)
activate(version=saved.version, actor=None, now=now)
"""
# A job that was due a minute ago, the wake-up that says so, and a message that nobody can read.
TROUBLE = """
from datetime import datetime, timedelta
from apps.jobs.models import Job, Schedule
from apps.jobs.services import sync_schedule
from apps.projects.models import Project
from apps.runtime.deferral import defer, stop_deferring
from apps.runtime.models import DeadLetter
now = datetime.fromisoformat({now!r})
project = Project.objects.get_or_create(slug="links", defaults={{"name": "Links"}})[0]
job = Job.objects.create(
    project=project, name={name!r}, command=["true"], overlap="allow", cron="* * * * *")
sync_schedule(job=job, now=now - timedelta(minutes=2))
Schedule.objects.filter(job=job).update(next_at=now - timedelta(minutes=1))
defer("jobs.plan", queue="celery.tasks", job=job.pk)
DeadLetter.objects.create(
    message_id={name!r}, queue={name!r}, body=b"", body_size=0, died_at=now)
stop_deferring(30)
"""


@dataclass
class Place:
    """The daemons behind their proxies; the test's own queries bypass them."""

    harness: RunnerHarness
    proxies: dict[str, Proxy]
    database: psycopg.Connection[Any]
    hook: Server

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return self.database.execute(query, values).fetchall()  # type: ignore[call-overload,no-any-return]

    def make_trouble(self, links: tuple[str, ...], how: str, name: str, now: datetime) -> int:
        """Break the links, and let them be again when all has happened; the id of the run."""
        proxies = [self.proxies[each] for each in links]
        script = TROUBLE.format(now=now.isoformat(), name=name)
        process = self.harness.daemons.start("trouble", "shell", "-v0", "-c", script)
        began = time.monotonic()
        for proxy in proxies:
            proxy.freeze(frozen=how == "blackhole")
        run = self.harness.start(WAITS)
        while process.poll() is None or time.monotonic() < began + BROKEN_SECONDS:
            assert time.monotonic() < began + 60
            for proxy in proxies if how == "reset" else ():
                proxy.cut()
            time.sleep(CUT_EVERY_SECONDS)
        for proxy in proxies:
            proxy.freeze(frozen=False)
        assert process.returncode == 0, self.harness.daemons.log("trouble")
        return run

    def is_planned(self, name: str) -> bool:
        """Whether nothing of the job waits to be planned."""
        return bool(
            self.rows(
                "SELECT 1 FROM jobs_schedule s JOIN jobs_job j ON j.id = s.job_id"
                " WHERE j.name = %s AND s.next_at > now()",
                name,
            )
        )

    def notices(self, name: str) -> list[tuple[int, str, str]]:
        """Incident, kind and state of each."""
        return self.rows(
            "SELECT i.id, n.kind, n.state FROM alerts_incident i"
            " LEFT JOIN alerts_notice n ON n.incident_id = i.id WHERE i.key = %s",
            name,
        )  # type: ignore[return-value]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with ExitStack() as stack:
        urls = {
            "database": stack.enter_context(lend_postgres_database()),
            "broker": stack.enter_context(lend_rabbit_vhost()),
        }
        ports = {"database": 5432, "broker": 5672}
        proxies = {}
        for name, url in urls.items():
            parts = urlsplit(url)
            behind = (parts.hostname or "127.0.0.1", parts.port or ports[name])
            proxies[name] = stack.enter_context(Proxy(*behind))
        hook = stack.enter_context(serving(lambda _asked: json_reply()))
        database = stack.enter_context(psycopg.connect(urls["database"], autocommit=True))
        harness = RunnerHarness(
            tmp_path_factory.mktemp("links"),
            DATABASE_URL=urls["database"],
            BROKER_URL=urls["broker"],
            ALERTS_ALLOWED_NETWORKS="127.0.0.0/8",
        )
        stack.callback(harness.end)
        harness.daemons.manage("shell", "-v0", "-c", RULES.format(url=f"{hook.url}/hook"))
        for name, arguments in DAEMONS.items():
            harness.daemons.own[name] = {
                "DATABASE_URL": proxies["database"].address(urls["database"]),
                "BROKER_URL": proxies["broker"].address(urls["broker"]),
            }
            harness.daemons.start(name, *arguments)
        found = Place(harness, proxies, database, hook)
        kinds = ("runner", "worker", "beat", "monitor")
        running = "SELECT 1 FROM runtime_daemon WHERE kind = %s AND state = 'running'"
        for kind in kinds:
            harness.until(lambda kind=kind: found.rows(running, kind), f"a {kind}")
        yield found


@pytest.mark.covers("S1.13", "S1.47")
@pytest.mark.parametrize(
    "how", [pytest.param("reset", marks=pytest.mark.long("nothing comes through")), "blackhole"]
)
@pytest.mark.parametrize("links", LINKS, ids="-".join)
def test_broken_links_cost_no_run_no_planned_time_and_no_incident(
    place: Place, links: tuple[str, ...], how: str, measured: Measured
) -> None:
    harness, name = place.harness, f"{how}.{'-'.join(links)}"
    now = datetime.now(UTC)
    run = place.make_trouble(links, how, name, now)
    back_at = time.monotonic()
    harness.until_state(run, "running")
    back_s = time.monotonic() - back_at
    harness.until(lambda: harness.starts(run), "its first words", run)
    harness.let_go(run)
    look = harness.until_state(run, "exited", "failed", "lost", "cancelled")
    measured(**harness.counted(run), back_s=back_s)
    assert (look["state"], harness.starts(run)) == ("exited", 1), look
    harness.until(lambda: place.is_planned(name), "the job is planned")
    check_planned(place, name, now, measured)
    told = [("opened", "sent")]
    harness.until(lambda: [row[1:] for row in place.notices(name)] == told, "somebody is told")
    heard = [
        each.headers["webhook-id"]
        for each in place.hook.heard
        if each.json["data"].get("key") == name
    ]
    measured(of=1, lost=max(1 - len(heard), 0), twice=len(heard) - len({*heard}))
    assert len({*heard}) == 1, "a receiver can tell a repetition"
    assert len(place.notices(name)) == 1
    for each in DAEMONS:
        assert harness.daemons.processes[each].poll() is None, harness.daemons.log(each)


def check_planned(place: Place, name: str, now: datetime, measured: Measured) -> None:
    """Each minute once, and each of those that were started by a run of its own."""
    place.rows("UPDATE jobs_job SET enabled = false WHERE name = %s RETURNING id", name)
    found = place.rows(
        "SELECT s.planned_through, p.planned_at, p.run_id FROM jobs_plannedrun p"
        " JOIN jobs_schedule s ON s.id = p.schedule_id JOIN jobs_job j ON j.id = s.job_id"
        " WHERE j.name = %s",
        name,
    )
    times = account(now, found[0][0], [planned_at for _through, planned_at, _run in found])
    measured(**times)
    assert times["of"] >= 2
    assert (times["lost"], times["twice"]) == (0, 0), found
    runs = place.rows(
        "SELECT r.id FROM jobs_run r JOIN jobs_job j ON j.id = r.job_id WHERE j.name = %s", name
    )
    assert sorted(row[2] for row in found if row[2]) == sorted(row[0] for row in runs)
