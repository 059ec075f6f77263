"""The failure page: what each part holds now, and that it answers while servers hang."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from apps.access.states import Role
from apps.dashboard import pages, probes
from apps.dashboard.backlog import Backlog, QueueBacklog
from apps.dashboard.failures import runbook_section
from apps.dashboard.failures.impact import ImpactCounts
from apps.dashboard.failures.parts import process_parts
from apps.dashboard.probes import Prober, ProbeResult, redis_server
from apps.jobs.states import RunState
from apps.runtime.models import OutboxMessage
from apps.runtime.services import register_daemon
from tests.access.factories import enter, make_superuser, make_user
from tests.agents.factories import make_agent
from tests.jobs.factories import make_job, make_project, make_run
from tests.plugins.measurements import Measured
from tests.queuestats.factories import report
from yardkit import topology

ADDRESS = "/admin/health"


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, ProbeResult]:
    """What the servers would say; real ones are asked further below."""
    said = {
        "database": ProbeResult(True, "sqlite"),
        "broker": ProbeResult(True, "sqlite"),
        "requests:default": ProbeResult(True, "sqlite 3"),
        "logs": ProbeResult(True, "sqlite 3"),
    }
    monkeypatch.setattr(pages, "probe", lambda: said)
    monkeypatch.setattr(pages, "backlog", lambda: Backlog())
    return said


def state_of(html: str, part: str) -> str:
    found = re.search(rf'data-part="{part}" data-part-state="(\w+)"', html)
    assert found is not None, part
    return found[1]


def facts_of(html: str, part: str) -> list[str]:
    section = html.partition(f'data-part="{part}"')[2].partition("</section>")[0]
    return re.findall(r'data-fact="\w+">([^<]+)<', section)


# --- the page -----------------------------------------------------------------------------------


@pytest.mark.django_db
def test_it_counts_what_hangs_on_the_broker(answers: dict[str, ProbeResult]) -> None:
    for number in (1, 2):
        run = make_run(state=RunState.RUNNING)
        report(run, total=700 * number, success=90, failed=8, queued=0, in_flight=0, out=5)
    make_run(state=RunState.EXITED)
    answers["broker"] = ProbeResult(False, "refused <here>")
    html = enter(make_superuser()).get(ADDRESS).content.decode()
    assert state_of(html, "broker") == "away"
    assert facts_of(html, "broker")[:3] == ["2", "1,904", "10"]
    assert 'data-bad="broker"' in html
    assert "refused &lt;here&gt;" in html
    assert state_of(html, "database") == "well"


@pytest.mark.django_db
def test_silent_processes_are_told_with_what_waits(
    answers: dict[str, ProbeResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    past = timezone.now() - timedelta(minutes=5)
    for kind, when in (("center", timezone.now()), ("log_ingester", past)):
        register_daemon(
            kind=kind, name=f"{kind}-1", boot="1", host="box", pid=1, state="running", now=when
        )
    lines = [QueueBacklog(topology.LOGS.name, "log lines", 1234, None, 0)]
    monkeypatch.setattr(pages, "backlog", lambda: Backlog(lines=lines))
    make_agent(silent_seconds=600)
    html = enter(make_superuser()).get(ADDRESS).content.decode()
    assert state_of(html, "center") == "well"
    assert state_of(html, "logs") == "away"
    assert facts_of(html, "logs")[0] == "1,234"
    assert state_of(html, "agents") == "away"
    assert state_of(html, "collector") == "unused"


@pytest.mark.django_db
def test_messages_that_are_not_sent_are_told(answers: dict[str, ProbeResult]) -> None:
    client = enter(make_superuser())
    message = {"message_id": "m", "key": "q", "body": b""}
    OutboxMessage.objects.create(**message)
    assert 'data-bad="outbox"' not in client.get(ADDRESS).content.decode()
    old = timezone.now() - timedelta(minutes=2)
    OutboxMessage.objects.create(**message | {"message_id": "n"}, created_at=old)
    html = client.get(reverse("dashboard:health-live")).content.decode()
    assert "2 unsent messages" in html


@pytest.mark.django_db
def test_people_of_a_project_see_their_own_counts_and_no_addresses(
    answers: dict[str, ProbeResult],
) -> None:
    project = make_project()
    make_run(job=make_job(project=project), state=RunState.RUNNING)
    make_run(state=RunState.RUNNING)
    answers["database"] = ProbeResult(False, "db.example.org refused")
    html = enter(make_user(roles={project: Role.VIEWER})).get(ADDRESS).content.decode()
    assert facts_of(html, "database")[0] == "1"
    assert "db.example.org" not in html


@pytest.mark.django_db
def test_it_costs_the_same_however_much_there_is(
    answers: dict[str, ProbeResult], django_assert_max_num_queries: Any
) -> None:
    for _number in range(8):
        report(make_run(state=RunState.RUNNING), total=5, success=1, queued=4)
        make_agent()
    client = enter(make_superuser())
    with django_assert_max_num_queries(24):
        assert client.get(reverse("dashboard:health-live")).status_code == 200


@pytest.mark.slow("2 s")
@pytest.mark.django_db
def test_each_part_has_its_section_of_the_runbook(answers: dict[str, ProbeResult]) -> None:
    client = enter(make_superuser())
    html = client.get(ADDRESS).content.decode()
    links = set(re.findall(r'href="(/admin/health/runbook\?section=[^"]+)"', html))
    assert len(links) > 8
    missing = [link for link in links if client.get(link).status_code != 200]
    assert missing == []
    assert client.get("/admin/health/runbook?section=x").status_code == 404
    assert "SIGTERM" in runbook_section("run_center")


def test_whoever_needs_a_process_is_told_that_it_is_away() -> None:
    idle = {part.key: part.state for part in process_parts(ImpactCounts(), {})}
    busy = ImpactCounts(
        runs=1, routed=1, seeds_pending=1, stored_new=1, sources=1, builds=1, schedules=1
    )
    needed = {part.key: part.state for part in process_parts(busy, {})}
    assert set(needed.values()) == {"away"}
    assert {key for key, state in idle.items() if state == "away"} == {"center", "monitor"}


# --- the questions ------------------------------------------------------------------------------


def test_answers_and_refusals_come_side_by_side() -> None:
    def broken() -> str:
        raise OSError("no route\nsecond line")

    said = Prober().ask({"well": lambda: "v1", "broken": broken})
    assert (said["well"].ok, said["well"].detail) == (True, "v1")
    assert (said["broken"].ok, said["broken"].detail) == (False, "no route")


def test_who_hangs_holds_up_nobody_and_is_asked_once() -> None:
    release, asked = threading.Event(), []

    def hangs() -> str:
        asked.append(1)
        release.wait(30)
        return "at last"

    prober = Prober()
    for _time in range(3):
        said = prober.ask({"hangs": hangs, "well": lambda: "v1"}, seconds=0.1)
        assert said["hangs"].ok is None
        assert said["well"].ok is True
    assert len(asked) == 1
    release.set()
    assert prober.ask({"hangs": hangs}, seconds=10)["hangs"].detail == "at last"


@pytest.fixture
def silent_server() -> Iterator[int]:
    """A port that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.fault
def test_a_redis_and_a_broker_that_hang_are_told_in_time(
    silent_server: int, settings: Any, measured: Measured
) -> None:
    settings.REDIS_URL = f"redis://127.0.0.1:{silent_server}/0"
    settings.BROKER_URL = f"amqp://guest:guest@127.0.0.1:{silent_server}/%2F"
    asked = {"redis": redis_server, "broker": probes.broker}
    prober = Prober()
    began = time.monotonic()
    said = prober.ask(asked, seconds=0.2)
    assert [said[name].ok for name in asked] == [None, None]
    # Generous: only that it does not wait for the servers' own time-outs.
    seconds = time.monotonic() - began
    measured(note=f"the page has its answer after {seconds:.1f} s")
    assert seconds < 5
    said = prober.ask(asked, seconds=30)
    assert [said[name].ok for name in asked] == [False, False]


@pytest.mark.slow("5 s")
def test_a_server_that_is_not_there_is_told(settings: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    settings.REDIS_URL = f"redis://:secret@127.0.0.1:{port}/0"
    settings.BROKER_URL = f"amqp://guest:secret@127.0.0.1:{port}/%2F"
    said = Prober().ask({"redis": redis_server, "broker": probes.broker}, seconds=30)
    assert [each.ok for each in said.values()] == [False, False]
    assert "secret" not in str(said)
