"""/metrics: who may ask, and what is answered."""

from __future__ import annotations

import ipaddress
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test import Client
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from apps.access.states import Role
from apps.agents import gauges as agent_gauges
from apps.jobs.states import RunState
from apps.queuestats import gauges
from apps.queuestats.api import prometheus
from apps.runtime.models import DeadLetter
from apps.runtime.services import register_daemon
from tests.access.factories import bearer, make_project, make_token, make_user
from tests.agents.factories import make_agent
from tests.jobs.factories import make_job, make_run
from tests.queuestats.factories import report
from yardkit import metrics

pytestmark = pytest.mark.django_db
TOKEN = "a-token-of-24-characters"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "FRESH_SECONDS", -1.0)


def numbers(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """As a scraper reads them."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.covers("S4.24")
def test_every_part_is_told_in_the_format_of_prometheus(settings: Any) -> None:
    settings.METRICS_TOKEN = TOKEN
    run = make_run(job=make_job(), state=RunState.RUNNING)
    register_daemon(kind="center", name="one", boot="b", host="h", pid=1, state="running")
    DeadLetter.objects.create(
        message_id="m", queue='odd "\\ \n queue', body=b"", body_size=0, died_at=run.created_at
    )
    answer = Client().get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("text/plain; version=0.0.4")
    found = numbers(answer.content.decode())
    assert found["crawlyard_daemons_alive", (("kind", "center"),)] == 1.0
    key = (("project", str(run.job.project_id)), ("state", "running"))
    assert found["crawlyard_runs_active", key] == 1.0
    assert found["crawlyard_dead_letters_held", (("queue", 'odd "\\ \n queue'),)] == 1.0
    assert found["crawlyard_outbox_waiting", ()] == 0.0


def test_scrapers_of_every_format_are_answered(settings: Any) -> None:
    settings.METRICS_TOKEN = TOKEN
    for accept in ("application/openmetrics-text; version=1.0.0", "application/json", "*/*"):
        headers = {"Authorization": f"Bearer {TOKEN}", "Accept": accept}
        assert Client().get("/metrics", headers=headers).status_code == 200


def test_strangers_are_refused(settings: Any) -> None:
    assert Client().get("/metrics").status_code == 401
    settings.METRICS_TOKEN = TOKEN
    wrong = {"Authorization": "Bearer another-token-of-24-char"}
    assert Client().get("/metrics", headers=wrong).status_code == 401
    assert Client().get("/metrics").status_code == 401


def test_networks_that_need_no_token(settings: Any) -> None:
    settings.METRICS_FROM = (ipaddress.ip_network("10.8.0.0/16"),)
    assert Client(REMOTE_ADDR="10.8.1.2").get("/metrics").status_code == 200
    assert Client(REMOTE_ADDR="::ffff:10.8.1.2").get("/metrics").status_code == 200
    assert Client(REMOTE_ADDR="10.9.1.2").get("/metrics").status_code == 401


def test_people_who_see_everything_may_look_too() -> None:
    viewer = make_user(roles={make_project(): Role.VIEWER})
    boss = make_user(is_superuser=True)
    for user, scopes, status in (
        (boss, ("queuestats:read",), 200),
        (boss, ("jobs:read",), 403),
        (viewer, ("queuestats:read",), 403),
    ):
        answer = Client().get("/metrics", headers=bearer(make_token(user, scopes=scopes)))
        assert answer.status_code == status


def test_a_reading_serves_many(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.METRICS_TOKEN = TOKEN
    monkeypatch.setattr(prometheus, "FRESH_SECONDS", 60.0)
    monkeypatch.setattr(prometheus._cached, "at", float("-inf"))
    reads: list[int] = []
    snapshot = metrics.snapshot

    def counted() -> list[metrics.MetricSample]:
        reads.append(1)
        return snapshot()

    monkeypatch.setattr(metrics, "snapshot", counted)
    for _ in range(3):
        assert Client().get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).content
    assert reads == [1]
    monkeypatch.setattr(prometheus._cached, "at", float("-inf"))


def test_without_the_database_it_says_so(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.METRICS_TOKEN = TOKEN

    def away() -> None:
        raise OperationalError("gone")

    monkeypatch.setattr(connection, "ensure_connection", away)
    answer = Client().get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 503
    assert answer["Retry-After"] == "5"


def test_nobody_waits_for_a_reading_that_hangs(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.METRICS_TOKEN = TOKEN
    monkeypatch.setattr(prometheus, "WAIT_SECONDS", 0.05)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with prometheus._lock:
        assert Client().get("/metrics", headers=headers).status_code == 503
    assert Client().get("/metrics", headers=headers).status_code == 200


def test_a_token_of_one_project_reads_no_numbers_of_others() -> None:
    boss = make_user(is_superuser=True)
    token = make_token(boss, scopes=("queuestats:read",), project=make_project())
    assert Client().get("/metrics", headers=bearer(token)).status_code == 403


def test_names_are_those_of_prometheus() -> None:
    names = [prometheus.exposed_name(each.name) for each in metrics.described()]
    assert len(names) == len(set(names))
    assert all(name.replace("_", "").isalnum() and name.islower() for name in names)


def test_whatever_names_hold_it_stays_readable(settings: Any) -> None:
    settings.METRICS_TOKEN = TOKEN
    names = ['"', "\\", "\n", "\\n", "a\\\nb", "价格 é", "}", 'x"} 1\ncrawlyard_up 1', "\x85 "]
    now = timezone.now()
    for number, name in enumerate(names):
        DeadLetter.objects.create(
            message_id=str(number), queue=name, body=b"", body_size=0, died_at=now
        )
    answer = Client().get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    found = numbers(answer.content.decode())
    held = {dict(labels)["queue"] for name, labels in found if "dead_letters_held" in name}
    assert held == set(names)
    assert "crawlyard_up" not in {name for name, _labels in found}


def test_of_many_runs_some_are_told_one_by_one_and_all_are_counted(
    settings: Any, monkeypatch: pytest.MonkeyPatch, django_assert_max_num_queries: Any
) -> None:
    settings.METRICS_TOKEN = TOKEN
    monkeypatch.setattr(gauges, "MAX_RUNS", 3)
    job = make_job()
    for _ in range(3):
        # Before all others, and none of them has anything to tell.
        make_run(job=job)
    for _ in range(5):
        report(make_run(job=job, state=RunState.RUNNING), total=1, success=1)
    with django_assert_max_num_queries(60):
        answer = Client().get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    found = numbers(answer.content.decode())
    each = [labels for name, labels in found if name == "crawlyard_run_total"]
    assert len(each) == 3
    key = (("project", str(job.project_id)), ("state", "running"))
    assert found["crawlyard_runs_active", key] == 5.0


def test_agents_that_are_gone_take_no_place_of_living_ones(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.METRICS_TOKEN = TOKEN
    monkeypatch.setattr(agent_gauges, "MOST_AGENTS", 2)
    for _ in range(2):
        make_agent(heartbeat_at=timezone.now() - timedelta(days=1))
    living = make_agent(qps=7.0)
    answer = Client().get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    found = numbers(answer.content.decode())
    told = {key: value for key, value in found.items() if key[0] == "crawlyard_agent_qps"}
    assert told == {("crawlyard_agent_qps", (("agent", living.agent_id),)): 7.0}
