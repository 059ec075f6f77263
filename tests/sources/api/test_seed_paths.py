"""Seed-compatible paths (S0.30 to S0.35)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.projects.models import Project
from apps.runtime.services import shared_broker
from apps.sources.models import SourceState
from apps.sources.states import SourceActivity
from crawlyard.settings.routing import anonymous_networks
from tests.access.factories import bearer, make_project, make_token, make_user
from tests.plugins.measurements import Measured
from tests.sources.records import broker_at, publish, sourced
from yardkit.env import Env

pytestmark = pytest.mark.django_db


@pytest.fixture
def project(sqlite_broker_url: str) -> Iterator[Project]:
    with broker_at(sqlite_broker_url):
        yield sourced(make_project(slug="press"))


def headers(project: Project, role: Role = Role.OPERATOR) -> dict[str, str]:
    return bearer(make_token(make_user(roles={project: role})))


def get(path: str, headers: dict[str, str]) -> Any:
    return Client().get(path, headers=headers)


def post(path: str, headers: dict[str, str]) -> Any:
    return Client().post(path, headers=headers)


@pytest.mark.covers("S0.30", "S0.27")
def test_status_tells_how_far_every_source_is(project: Project) -> None:
    SourceState.objects.create(project=project, name="news", marker=269_900, activity="running")
    answer = get("/status", headers(project, Role.VIEWER)).json()
    assert (answer["project"], answer["running"]) == ("press", True)
    assert answer["running_sources"] == ["news"]
    by_name = {each["name"]: each for each in answer["sources"]}
    assert by_name["news"]["last_start_offset"] == 269_900
    assert by_name["news"]["activity"] == "running"
    assert (by_name["prices"]["enabled"], by_name["prices"]["activity"]) == (False, "idle")


@pytest.mark.covers("S0.31")
def test_tasks_are_the_configured_sources(project: Project) -> None:
    answer = get("/tasks/", headers(project, Role.VIEWER)).json()
    assert [each["name"] for each in answer["tasks"]] == ["news", "prices"]
    assert answer["tasks"][0] == {
        "name": "news",
        "kind": "json",
        "task_id": "t-1",
        "enabled": True,
        "auto_start": True,
        "cron": "",
        "queue": "job_data",
        "filter_days": 7,
        "last_start_offset": None,
    }
    assert (answer["tasks"][1]["enabled"], answer["tasks"][1]["filter_days"]) == (False, 7)
    sourced(project, news={"filter_days": 3, "auto_start": False, "cron": "5 * * * *"})
    SourceState.objects.create(project=project, name="news", marker=269_900)
    (news,) = get("/tasks", headers(project, Role.VIEWER)).json()["tasks"]
    assert (news["filter_days"], news["auto_start"], news["cron"]) == (3, False, "5 * * * *")
    assert news["last_start_offset"] == 269_900


@pytest.mark.covers("S0.32", "S0.33", "S0.20")
def test_start_and_stop_one_source_or_all(project: Project) -> None:
    mine = headers(project)
    started = post("/crawl/start", mine)
    assert started.json()["sources"] == [{"name": "news", "became": "queued"}]
    assert SourceState.objects.get().activity == SourceActivity.QUEUED
    again = post("/crawl/start/?source=news", mine)
    assert again.json()["sources"] == [{"name": "news", "became": "already"}]
    off = post("/crawl/start?source=prices", mine)
    assert (off.status_code, off.json()["code"]) == (409, "source_disabled")
    missing = post("/crawl/start?source=nothing", mine)
    assert (missing.status_code, missing.json()["code"]) == (404, "unknown_source")
    assert missing.json()["fields"] == {"source": ["nothing: This project has no such source."]}
    one = post("/crawl/stop?source=news", mine)
    assert one.json()["sources"] == [{"name": "news", "became": "stopped"}]
    # Only this source was started.
    assert SourceState.objects.get().stopped_at is not None
    unknown = post("/crawl/stop?source=nothing", mine)
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_source")
    stopped = post("/crawl/stop", mine).json()["sources"]
    assert {each["name"]: each["became"] for each in stopped} == {
        "news": "stopped",
        "prices": "stopped",
    }
    assert SourceState.objects.get(name="news").stopped_at is not None
    actions = AuditRecord.objects.filter(action__startswith="sources.")
    assert set(actions.values_list("action", flat=True)) == {"sources.start", "sources.stop"}


@pytest.mark.covers("S0.32", "S0.33")
@pytest.mark.parametrize("verb", ["start", "stop"])
def test_what_start_and_stop_do_not_know_does_nothing(project: Project, verb: str) -> None:
    mine = headers(project)
    for path, body, field in (
        (f"/crawl/{verb}?task_id=news", None, "task_id"),
        (f"/crawl/{verb}", {"source": "news"}, "source"),
        (f"/crawl/{verb}", ["news"], "body"),
    ):
        refused = Client().post(path, body, content_type="application/json", headers=mine)
        assert (refused.status_code, list(refused.json()["fields"])) == (400, [field])
    deep = Client().post(
        f"/crawl/{verb}", b"[" * 100_000, content_type="application/json", headers=mine
    )
    assert deep.status_code == 400
    assert not SourceState.objects.exclude(activity=SourceActivity.IDLE).exists()
    several = post(f"/crawl/{verb}?source=news&source=nothing", mine)
    assert (several.status_code, several.json()["code"]) == (404, "unknown_source")
    assert post(f"/crawl/{verb}?source=news&source=news", mine).status_code == 200


@pytest.mark.covers("S0.34")
def test_consume_takes_as_many_as_are_asked_for(project: Project) -> None:
    publish(project, 1, 15)
    mine = headers(project)
    answer = get("/consume", mine)
    assert answer.json()["data"] == [{"n": number} for number in range(1, 11)]
    assert (answer.json()["queue"], answer.json()["count"]) == ("job_data", 10)
    assert "no-store" in answer["Cache-Control"]
    assert get("/consume?count=2&queue=job_data", mine).json()["count"] == 2
    for query in ("count=0", "count=1001", "count=many"):
        assert get(f"/consume?{query}", mine).status_code == 400
    assert get("/consume?queue=statistics", mine).status_code == 404
    assert get("/consume?count=1000", mine).json()["count"] == 3
    assert get("/consume", mine).json() == {"queue": "job_data", "count": 0, "data": []}


@pytest.mark.covers("S0.35")
def test_the_size_of_the_queue(project: Project) -> None:
    publish(project, 1, 15)
    told = get("/queue/size", headers(project, Role.VIEWER)).json()
    assert told == {
        "queue": "job_data",
        "size": 15,
        "waiting": 15,
        "expired": 0,
        "leased": 0,
        "returned": 0,
    }


@pytest.mark.fault
def test_a_broker_that_is_away_is_503(project: Project, measured: Measured) -> None:
    began = time.monotonic()
    with broker_at("amqp://nobody:nothing@127.0.0.1:1/"):
        answers = [get(path, headers(project)) for path in ("/consume", "/queue/size")]
    seconds = time.monotonic() - began
    refused = sum(answer.status_code == 503 for answer in answers)
    measured(note=f"{refused} of {len(answers)} calls 503, in {seconds:.1f} s")
    for answer in answers:
        assert (answer.status_code, answer.json()["code"]) == (503, "broker_unavailable")
        assert int(answer["Retry-After"]) > 0


def test_who_may_what(project: Project) -> None:
    stranger, viewer = headers(make_project()), headers(project, Role.VIEWER)
    for path in ("/status", "/tasks", "/queue/size", "/consume"):
        assert Client().get(path).status_code == 401
        assert get(f"/projects/press{path}", stranger).status_code == 404
    assert get("/status", stranger).json()["code"] == "no_sources"
    assert get("/consume", viewer).status_code == 403
    for path in ("/crawl/start", "/crawl/stop"):
        assert post(path, viewer).status_code == 403
        assert Client().post(path).status_code == 401
        assert Client().get(path, headers=viewer).status_code == 405
    assert not SourceState.objects.exists()


def test_which_project_a_call_means(project: Project) -> None:
    other = sourced(make_project(slug="other"), more={"task_id": "9", "queue": "more"})
    both = bearer(make_token(make_user(roles={project: Role.VIEWER, other: Role.VIEWER})))
    refused = get("/status", both)
    assert (refused.status_code, refused.json()["code"]) == (400, "project_needed")
    assert get("/projects/other/status", both).json()["sources"][0]["name"] == "more"
    assert get("/projects/nowhere/status", both).status_code == 404


def test_networks_without_tokens_use_these_paths_and_no_others(
    project: Project, settings: Any
) -> None:
    networks = Env({"COMPAT_ANONYMOUS_FROM": "10.8.0.0/16"})
    settings.COMPAT_ANONYMOUS_FROM = anonymous_networks(networks)
    publish(project, 1, 1)
    inside = Client(REMOTE_ADDR="10.8.1.1")
    for path in ("/status", "/tasks", "/queue/size", "/consume"):
        assert inside.get(path).status_code == 200
        assert Client(REMOTE_ADDR="10.9.1.1").get(path).status_code == 401
    assert inside.post("/crawl/start").json()["sources"][0]["became"] == "queued"
    assert SourceState.objects.get().asked_by == "seed API"
    assert inside.post("/crawl/stop").status_code == 200
    assert inside.get("/api/v1/sources/projects").status_code == 401
    shared_broker().purge("job_data")


@pytest.mark.slow("1 s")
@pytest.mark.parametrize(
    "told",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Referer": "http://evil.example/page"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://testserver"},
        {"Origin": "http://[evil"},
    ],
)
def test_pages_of_others_change_nothing_in_an_open_network(
    project: Project, settings: Any, told: dict[str, str]
) -> None:
    settings.COMPAT_ANONYMOUS_FROM = anonymous_networks(
        Env({"COMPAT_ANONYMOUS_FROM": "10.8.0.0/16"})
    )
    publish(project, 1, 1)
    inside = Client(REMOTE_ADDR="10.8.1.1")
    for answer in (
        inside.get("/consume", headers=told),
        inside.post("/crawl/start", headers=told),
        inside.post("/crawl/stop", headers=told),
    ):
        assert answer.status_code == 403
    assert not SourceState.objects.exists()
    assert inside.get("/status", headers=told).status_code == 200
    own = {"Origin": "http://testserver", "Sec-Fetch-Site": "same-origin"}
    assert inside.post("/crawl/stop", headers=own).status_code == 200
    settings.CSRF_TRUSTED_ORIGINS = ["https://tools.example"]
    trusted = {"Origin": "https://tools.example"}
    assert inside.get("/consume", headers=trusted).json()["count"] == 1


def test_a_link_does_not_take_records_away(project: Project) -> None:
    """A session must not consume: browsers send its cookie with links of any page."""
    publish(project, 1, 1)
    browser = Client()
    browser.force_login(make_user(roles={project: Role.OPERATOR}))
    assert browser.get("/queue/size").json()["size"] == 1
    assert browser.get("/consume").status_code == 401
    assert browser.get("/queue/size").json()["size"] == 1
    shared_broker().purge("job_data")
