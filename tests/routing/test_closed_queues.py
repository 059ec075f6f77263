"""Rules may use the platform's own stores by ``{broker_url}`` and ``{redis_url}``, with its login.

Rules of a project must not read or fill queues of the platform or of another project through them.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import LazySettings

from apps.projects.models import Project
from apps.routing.placeholders import filled_rules
from apps.routing.services.configuration import RoutingKind
from apps.sources.models import RecordQueue
from tests.access.factories import make_project
from yardkit import topology

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def stores(settings: LazySettings) -> None:
    settings.BROKER_URL = "amqp://yard:secret@rabbit/yard"
    settings.REDIS_URL = "redis://:secret@redis:6379/0"
    settings.REDIS_PREFIX = "yard"
    settings.ROUTING_PLACEHOLDERS = {"tasks": "celery.tasks"}


def rules(project: Project, url: str, name: str) -> dict[str, Any]:
    """Return rules with an inbound and an outbound at ``url``."""
    redis = url.startswith(("redis", "{redis"))
    inbound = "redis_queue.RedisListInbound" if redis else "rabbitmq.RabbitInbound"
    outbound = "redis_queue.RedisListOutbound" if redis else "rabbitmq.RabbitQueueOutbound"
    init = {"url": url, "key" if redis else "queue": name}
    selector = ["a == 1"]
    return {
        "version": 1,
        "needs": 1,
        "project": project.slug,
        "inbound": [{"name": "in", "class": inbound, "init": init}],
        "outbound": [{"name": "out", "selector": selector, "class": outbound, "init": init}],
    }


def refused(data: dict[str, Any], project: Project) -> set[tuple[str, str]]:
    """Return the problems that a router reports for the rules."""
    filled, problems = filled_rules(data, project.slug)
    errors = {(each.place, each.code) for each in problems if not each.warning}
    assert (filled is None) == bool(errors), problems
    return errors


def both(field: str) -> set[tuple[str, str]]:
    return {(f"{each}bound[0].init.{field}", "queue_of_others") for each in ("in", "out")}


@pytest.mark.parametrize("name", [each.name for each in topology.SHARED])
@pytest.mark.parametrize("url", ["{broker_url}", "amqp://me:mine@RABBIT:5672/yard"])
def test_a_queue_of_the_platform_is_closed(url: str, name: str) -> None:
    project = make_project()
    data = rules(project, url, name)
    assert refused(data, project) == both("queue")
    # Such rules cannot be saved either.
    assert "queue_of_others" in {each.code for each in RoutingKind().check(data)}


@pytest.mark.parametrize(
    "name",
    ["{tasks}", "celery.builds", "dead", "agent.a1", "run.7.x", "requests.p2.news", "web.events.1"],
)
def test_so_are_those_of_one_agent_run_or_biz(name: str) -> None:
    project = make_project()
    assert refused(rules(project, "{broker_url}", name), project) == both("queue")


def test_records_are_for_their_own_project() -> None:
    mine, other = make_project(), make_project()
    RecordQueue.objects.create(project=other, name="job_data")
    RecordQueue.objects.create(project=mine, name="news")
    for name in (f"records.p{other.pk}.news", "records.p99999999999999999999.x", "job_data"):
        assert refused(rules(mine, "{broker_url}", name), mine) == both("queue")
    for name in (f"records.p{mine.pk}.news", "news", "spiders"):
        assert refused(rules(mine, "{broker_url}", name), mine) == set()
    # The same name on another server is allowed.
    for url in ("amqp://me:mine@elsewhere/yard", "amqp://me:mine@rabbit/mine"):
        assert refused(rules(mine, url, "job_data"), mine) == set()


def test_many_queues_cost_no_query_each(django_assert_max_num_queries: Any) -> None:
    project = make_project()
    data = rules(project, "{broker_url}", "news")
    data["outbound"] = [
        {
            **data["outbound"][0],
            "name": f"out{n}",
            "init": {"url": "{broker_url}", "queue": f"q{n}"},
        }
        for n in range(50)
    ]
    with django_assert_max_num_queries(3):
        assert refused(data, project) == set()


@pytest.mark.parametrize("name", ["yard:requests:p2.news", "{{yard:tokens:x}}:1", "yard:1:a"])
@pytest.mark.parametrize("url", ["{redis_url}", "redis://redis/3"])
def test_keys_of_the_platform_are_closed(url: str, name: str) -> None:
    project = make_project()
    assert refused(rules(project, url, name), project) == both("key")
    assert refused(rules(project, url, "yardstick"), project) == set()
    assert refused(rules(project, "redis://elsewhere", name), project) == set()
