"""How queues stand: which needs a person, and what REST and the page say."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.access.states import Role
from apps.queuestats.models import QueueState
from apps.queuestats.queries import SeriesKey
from apps.queuestats.queries.queues import QueueStatus, queues_of
from apps.queuestats.services import record_gauges, record_observed_seconds
from apps.queuestats.services.series_readings import add_readings
from tests.access.factories import Api, make_project, make_superuser, make_user
from yardkit.protocol import SampleKind

pytestmark = pytest.mark.django_db


def make_queue(name: str, *, project: Any = None, at: datetime, **facts: Any) -> QueueState:
    values: dict[str, Any] = {"way": "inside", "engine": "rabbitmq", "at": at}
    key = f"{0 if project is None else project.pk} {name}"
    return QueueState.objects.create(key=key, name=name, project=project, **(values | facts))


def flow(name: str, label: str, a_second: float, now: datetime) -> None:
    second = int(now.timestamp())
    key = SeriesKey(name, None, label)
    add_readings([(key, SampleKind.SUM, second - ago, 1, a_second, 1, 0.0) for ago in range(60)])


@pytest.fixture
def now() -> datetime:
    now = timezone.now()
    second = int(now.timestamp())
    record_observed_seconds(since=second - 60, until=second)
    make_queue("empty", at=now, waiting=0, readers=1)
    make_queue("busy", at=now, waiting=100, readers=1, out_total=1)
    make_queue("grows", at=now, waiting=300, readers=1, out_total=1)
    # As much comes as goes: a few of them wait at any moment.
    make_queue("steady", at=now, waiting=3, readers=1, out_total=1)
    make_queue("abandoned", at=now, waiting=1, readers=0)
    make_queue("dead", at=now, waiting=1, readers=1)
    make_queue("broken", at=now, problem="no connection")
    make_queue("gone", at=now - timedelta(minutes=2), waiting=9)
    flow("queue.out", "busy", 10, now)
    flow("queue.in", "busy", 5, now)
    flow("queue.out", "grows", 5, now)
    flow("queue.in", "grows", 10, now)
    flow("queue.out", "steady", 5, now)
    flow("queue.in", "steady", 5, now)
    return now


def test_the_troubled_come_first(now: datetime) -> None:
    found = queues_of(make_superuser(), now=now)
    assert [(each.row.name, each.standing) for each in found.lines] == [
        ("broken", QueueStatus.PROBLEM),
        ("abandoned", QueueStatus.ABANDONED),
        ("dead", QueueStatus.HELD),
        ("grows", QueueStatus.BEHIND),
        ("busy", QueueStatus.BUSY),
        ("steady", QueueStatus.BUSY),
        ("empty", QueueStatus.EMPTY),
        ("gone", QueueStatus.UNKNOWN),
    ]
    busy = found.lines[4]
    assert busy.in_per_second == pytest.approx(5.0, abs=0.3)
    assert busy.lag_seconds == pytest.approx(10.0, rel=0.1)
    assert busy.drained_seconds == pytest.approx(20.0, rel=0.1)
    assert found.lines[3].drained_seconds is None
    assert [each.row.name for each in found.troubled] == ["broken", "abandoned", "dead"]
    assert not found.stale
    assert queues_of(make_superuser(), now=now + timedelta(minutes=1)).stale


def test_curves_of_the_last_hour(now: datetime) -> None:
    for ago in (0, 60, 120):
        record_gauges({("queue.ready", None, "busy"): 7.0}, now=now - timedelta(seconds=ago))
    busy = next(each for each in queues_of(make_superuser(), now=now).lines if each.spark)
    assert (busy.row.name, len(busy.spark)) == ("busy", 60)
    assert [each for each in busy.spark if each is not None] == [7.0] * 3


def test_everybody_sees_the_queues_of_their_projects(now: datetime) -> None:
    project, other = make_project(), make_project()
    make_queue("in:orders", project=project, at=now, waiting=3, way="in")
    make_queue("out:theirs", project=other, at=now, waiting=3, way="out")
    viewer = make_user(roles={project: Role.VIEWER})
    answer = Api(viewer).get("queues").json()
    assert [each["name"] for each in answer["results"]] == ["in:orders"]
    assert answer["results"][0]["standing"] == "busy"
    assert len(Api(make_superuser()).get("queues").json()["results"]) == 10


def test_series_of_the_platform_are_for_who_sees_everything(now: datetime) -> None:
    record_gauges({("queue.ready", None, "busy"): 7.0}, now=now - timedelta(seconds=9))
    boss, viewer = Api(make_superuser()), Api(make_user(roles={make_project(): Role.VIEWER}))
    listed = boss.get("series").json()["results"]
    assert ("queue.ready", "busy") in {(each["name"], each["label"]) for each in listed}
    found = boss.get("series/points?name=queue.ready&label=busy&seconds=60").json()
    assert [point["value"] for point in found["points"] if point["value"]] == [7.0]
    for path in ("series", "series/points?name=queue.ready"):
        assert viewer.get(path).status_code == 403


def test_the_number_of_questions_does_not_grow(
    now: datetime, django_assert_num_queries: Any
) -> None:
    boss = make_superuser()
    for number in range(50):
        make_queue(f"q{number}", at=now, waiting=number)
    with django_assert_num_queries(4):
        assert len(queues_of(boss, now=now).lines) == 58
