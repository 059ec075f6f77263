"""Series over REST: to those who see the project."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.access.states import Role
from apps.queuestats.api.series import per_second
from apps.queuestats.services import record_gauges, record_observed_seconds, store_samples
from tests.access.factories import Api, make_project, make_user
from yardkit.protocol import SampleNote, Samples

pytestmark = pytest.mark.django_db


@pytest.mark.covers("S4.24", "S4.25")
def test_rates_and_points_of_a_project() -> None:
    project, other = make_project(), make_project()
    now = timezone.now()
    at = int(now.timestamp())
    notes = [
        SampleNote(at - ago, 1, name, each.pk, "news", 10.0)
        for ago in range(1, 200)
        for name in ("requests.created", "requests.processed")
        for each in (project, other)
    ]
    report = Samples(sender="w", boot="b", seq=1, sent_at=now.timestamp(), samples=notes)
    assert store_samples(messages=[report], now=now) == []
    record_observed_seconds(since=at - 300, until=at)
    record_gauges({("queue.waiting", project.pk, "news"): 7.0}, now=now - timedelta(seconds=5))
    viewer = Api(make_user(roles={project: Role.VIEWER}))

    listed = viewer.get(f"projects/{project.pk}/series").json()["results"]
    assert [(each["name"], each["label"], each["kind"]) for each in listed] == [
        ("queue.waiting", "news", "gauge"),
        ("requests.created", "news", "sum"),
        ("requests.processed", "news", "sum"),
    ]
    assert listed[0]["per_second_1m"] is None
    # A minute is still all of tens, whatever second it is by now.
    assert listed[1]["per_second_1m"] == pytest.approx(10.0, rel=0.15)

    until = (now - timedelta(seconds=10)).isoformat().replace("+00:00", "Z")
    since = (now - timedelta(seconds=290)).isoformat().replace("+00:00", "Z")
    query = f"name=requests.processed&label=news&since={since}&until={until}&step=10"
    answer = viewer.get(f"projects/{project.pk}/series/points?{query}").json()
    assert (answer["kind"], answer["step"]) == ("sum", 10)
    values = [point["value"] for point in answer["points"]]
    assert values[0] == 0.0
    assert values[-1] == 10.0
    assert 20 <= len(values) <= 29

    nothing = viewer.get(f"projects/{project.pk}/series/points?name=no.such").json()
    assert nothing["points"] == []
    assert viewer.get(f"projects/{other.pk}/series").status_code == 404
    assert viewer.get(f"projects/{other.pk}/series/points").status_code == 404
    wrong = viewer.get(f"projects/{project.pk}/series/points?since={until}&until={since}")
    assert wrong.status_code == 400


@pytest.mark.slow("4 s")
@pytest.mark.parametrize("step", [0, 1, 7, 3600])
@pytest.mark.parametrize(
    "seconds", [10, 299, 300, 301, 3600, 3601, 7 * 86_400, 8 * 86_400, 366 * 86_400]
)
def test_no_span_has_more_than_300_points(seconds: int, step: int) -> None:
    project, now = make_project(), timezone.now()
    note = SampleNote(int(now.timestamp()) - 5, 1, "requests.created", project.pk, "news", 10.0)
    report = Samples(sender="w", boot="b", seq=1, sent_at=now.timestamp(), samples=[note])
    store_samples(messages=[report], now=now)
    record_gauges({("queue.waiting", project.pk, "news"): 7.0}, now=now)
    viewer = Api(make_user(roles={project: Role.VIEWER}))
    for name in ("requests.created", "queue.waiting"):
        query = f"name={name}&label=news&seconds={seconds}&step={step}"
        answer = viewer.get(f"projects/{project.pk}/series/points?{query}").json()
        assert 0 <= len(answer["points"]) <= 300
        assert answer["step"] >= max(step, 1)
        assert answer["step"] * (len(answer["points"]) + 2) >= min(seconds, 290) - 5


@pytest.mark.covers("S4.24", "S4.25")
def test_each_precision_has_its_name() -> None:
    assert per_second({1: 7.0, 5: 3.0, 60: None, 300: 2.0}) == {
        "per_second_1s": 7.0,
        "per_second_5s": 3.0,
        "per_second_1m": None,
    }
