"""A real ingester, killed where it hurts: nothing is lost, nothing is there twice."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.daemon_processes import Daemons
from tests.joblogs.factories import batch
from yardkit import topology
from yardkit.broker import Broker, Outgoing, connect
from yardkit.protocol import encode

pytestmark = [pytest.mark.fault, pytest.mark.timeout(240)]

MESSAGES, LINES = 30, 200
MAKE_RUN = """
from apps.projects.models import Project
from apps.jobs.models import Job
from apps.jobs.services import start_run
from django.utils import timezone
project = Project.objects.create(name="logs", slug="logs")
job = Job.objects.create(project=project, name="logs", spider="a:B")
print(start_run(job=job, now=timezone.now(), actor=None).pk)
"""
READ = """
import json
from apps.joblogs.models import LogLine
print(json.dumps(sorted(LogLine.objects.of("run:%d").values_list("seq", flat=True))))
"""


@pytest.fixture(params=["embedded", pytest.param("services", marks=pytest.mark.services)])
def daemons(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Daemons]:
    environment = {"BROKER_URL": f"sqlite:///{tmp_path / 'broker.sqlite3'}"}
    if request.param == "services":
        environment = {
            "DATABASE_URL": request.getfixturevalue("postgres_database"),
            "BROKER_URL": request.getfixturevalue("new_rabbit_vhost"),
        }
    daemons = Daemons(tmp_path, **environment)
    daemons.migrate()
    yield daemons
    daemons.end()


@pytest.fixture
def broker(daemons: Daemons) -> Iterator[Broker]:
    broker = connect(daemons.environment["BROKER_URL"], name="test")
    broker.declare(topology.LOGS)
    yield broker
    broker.purge(topology.LOGS.name)
    broker.close()


def settled(broker: Broker) -> bool:
    depth = broker.depth(topology.LOGS.name)
    return depth.ready == 0 and depth.unacked <= 0


def test_killed_between_commit_and_ack_and_before_the_commit(
    daemons: Daemons, broker: Broker
) -> None:
    run = int(daemons.manage("shell", "-v0", "-c", MAKE_RUN).stdout.split()[-1])
    for number in range(MESSAGES):
        first = 1 + number * LINES
        message = batch(f"run:{run}", range(first, first + LINES))
        broker.publish([Outgoing(body=encode(message), key=topology.LOGS.name)]).result(30)
    for point in ("joblogs.before_ack", "joblogs.before_commit"):
        killed = daemons.start("ingester", "run_log_ingester", FAILPOINTS=f"{point}=kill@1")
        assert killed.wait(60) == -9, daemons.log("ingester")
    deadline = time.monotonic() + 120
    while not settled(broker):
        assert time.monotonic() < deadline
        # It ends when nothing comes any more, and everything is acknowledged then.
        daemons.manage("run_log_ingester", "--once")
    seqs = json.loads(daemons.manage("shell", "-v0", "-c", READ % run).stdout.splitlines()[-1])
    assert seqs == list(range(1, MESSAGES * LINES + 1))
