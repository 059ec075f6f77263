"""Everything that can be measured becomes series; queues become rows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.jobs.models import Run
from apps.jobs.states import RunState
from apps.queuestats.models import QueueState, Sample, Series
from apps.queuestats.queries import SeriesKey, points, rates
from apps.queuestats.queries.measurements import label_of, measure
from apps.queuestats.services import record_observed_seconds, sample_gauges
from apps.runtime.models import DeadLetter
from apps.runtime.services import register_daemon
from tests.jobs.factories import make_job, make_run
from tests.queuestats.gauge_readings import gauge_means
from yardkit import failpoints, metrics, queues
from yardkit.queues import QueueReading

pytestmark = pytest.mark.django_db


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> list[QueueReading]:
    """The only queues there are."""
    readings: list[QueueReading] = []
    monkeypatch.setattr(queues._registry, "_reads", {"test": lambda: readings})
    monkeypatch.setattr("apps.queuestats.queries.measurements.FRESH_SECONDS", -1.0)
    return readings


def latest(name: str, label: str = "", project: int | None = None) -> float | None:
    found = gauge_means([name], seconds=30, now=timezone.now())
    mean = found.get(SeriesKey(name, project, label))
    return None if mean is None else mean[1]


@pytest.mark.covers("S4.24")
def test_gauges_of_every_app_become_series(queue: list[QueueReading]) -> None:
    run = make_run(job=make_job(), state=RunState.RUNNING)
    register_daemon(kind="center", name="one", boot="b", host="h", pid=1, state="running")
    now = timezone.now()
    sampled = sample_gauges(now=now)
    assert sampled.queues == 0
    assert sampled.series > 10
    assert latest("daemons.alive", "center") == 1.0
    assert latest("runs.active", "running", run.job.project_id) == 1.0
    assert latest("outbox.waiting") == 0.0


def test_what_is_not_there_any_more_is_none_where_that_means_none(
    queue: list[QueueReading],
) -> None:
    run = make_run(job=make_job(), state=RunState.RUNNING)
    project = run.job.project_id
    now = timezone.now()
    sample_gauges(now=now - timedelta(seconds=10))
    Run.objects.filter(pk=run.pk).update(state=RunState.EXITED, ended_at=now)
    sample_gauges(now=now)
    assert latest("runs.active", "running", project) == 0.0


def test_what_cannot_be_read_leaves_a_gap(
    queue: list[QueueReading], monkeypatch: pytest.MonkeyPatch
) -> None:
    DeadLetter.objects.create(
        message_id="m", queue="logs", body=b"", body_size=0, died_at=timezone.now()
    )
    now = timezone.now()
    sample_gauges(now=now - timedelta(seconds=10))
    metric = metrics._registry._metrics["dead_letters.held"]

    def broken() -> Any:
        raise RuntimeError("away")

    monkeypatch.setattr(metric, "read", broken)
    sample_gauges(now=now)
    series = Series.objects.get(name="dead_letters.held")
    found = points(
        series.name,
        project=None,
        label="logs",
        since=now - timedelta(seconds=20),
        until=now + timedelta(seconds=5),
        now=now + timedelta(seconds=5),
    )
    assert found is not None
    assert [each.value for each in found.points if each.value is not None] == [1.0]


def test_counters_become_rates_and_never_fall(
    queue: list[QueueReading], monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = metrics.Registry()
    value = {"now": 1000.0}
    registry.counter("things.made", "x", ("kind",), read=lambda: {("a",): value["now"]})
    monkeypatch.setattr(metrics, "snapshot", registry.snapshot)
    now = timezone.now()
    second = int(now.timestamp())
    record_observed_seconds(since=second - 60, until=second)
    for ago, count in ((30, 1000.0), (20, 1100.0), (10, 100.0), (0, 150.0)):
        value["now"] = count
        sample_gauges(now=now - timedelta(seconds=ago))
    later = now + timedelta(seconds=2)
    minute = rates(["things.made"], projects=None, now=later).of("things.made", None, "a")[60]
    # 100 more, then it began anew, then 50 more.
    assert minute == pytest.approx(150 / 60)


def test_of_two_that_sample_the_one_that_was_frozen_counts_nothing_twice(
    queue: list[QueueReading], monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = metrics.Registry()
    value = {"now": 0.0}
    registry.counter("things.made", "x", ("kind",), read=lambda: {("a",): value["now"]})
    monkeypatch.setattr(metrics, "snapshot", registry.snapshot)
    now = timezone.now()
    # The third was read before the second, and is written after it.
    for ago, count, done in ((30, 1000.0, 10), (10, 1100.0, 50), (20, 1050.0, 30), (5, 1100.0, 50)):
        value["now"] = count
        queue[:] = [QueueReading(name="logs", engine="x", waiting=0, out_total=done, epoch="a")]
        sample_gauges(now=now - timedelta(seconds=ago))
    hours = Sample.objects.filter(step=3600)
    assert sum(hours.filter(series__name="things.made").values_list("value", flat=True)) == (
        pytest.approx(100)
    )
    assert sum(hours.filter(series__name="queue.out").values_list("value", flat=True)) == (
        pytest.approx(40)
    )
    assert QueueState.objects.get().at == now - timedelta(seconds=5)


@pytest.mark.fault
def test_a_sampling_that_dies_before_its_commit_leaves_nothing_and_loses_nothing(
    queue: list[QueueReading], monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = metrics.Registry()
    value = {"now": 1000.0}
    registry.counter("things.made", "x", ("kind",), read=lambda: {("a",): value["now"]})
    monkeypatch.setattr(metrics, "snapshot", registry.snapshot)
    now = timezone.now()
    sample_gauges(now=now - timedelta(seconds=20))
    value["now"] = 1100.0
    before = Sample.objects.count()
    failpoints.configure({"FAILPOINTS": "queuestats.sampled=raise@1"})
    try:
        with pytest.raises(failpoints.FailpointError):
            sample_gauges(now=now - timedelta(seconds=10))
    finally:
        failpoints.configure({})
    assert Sample.objects.count() == before
    sample_gauges(now=now)
    hours = Sample.objects.filter(step=3600, series__name="things.made")
    assert sum(hours.values_list("value", flat=True)) == pytest.approx(100)


@pytest.mark.covers("S4.25")
def test_queues_are_rows_and_what_flows_through_them_is_known(queue: list[QueueReading]) -> None:
    now = timezone.now()
    second = int(now.timestamp())
    record_observed_seconds(since=second - 60, until=second)
    for ago, waiting, done in ((20, 100, 1000), (10, 300, 1100), (0, 200, 1500)):
        queue[:] = [
            QueueReading(
                name="logs",
                engine="rabbitmq",
                waiting=waiting,
                taken=0,
                readers=1,
                out_total=done,
                epoch="a",
            ),
            QueueReading(name="out:x", engine="redis", project=12345, waiting=3),
        ]
        sample_gauges(now=now - timedelta(seconds=ago))
    row = QueueState.objects.get()
    assert (row.name, row.waiting, row.readers, row.problem) == ("logs", 200, 1, "")
    assert latest("queue.ready", "logs") == 200.0
    found = rates(["queue.in", "queue.out"], projects=None, now=now + timedelta(seconds=2))
    assert found.of("queue.out", None, "logs")[60] == pytest.approx(500 / 60)
    # 100 out and 200 more waiting; 400 out and 100 fewer.
    assert found.of("queue.in", None, "logs")[60] == pytest.approx(600 / 60)


def test_other_processes_count_anew(queue: list[QueueReading]) -> None:
    now = timezone.now()
    second = int(now.timestamp())
    record_observed_seconds(since=second - 60, until=second)
    for ago, done, epoch in ((20, 1000, "a"), (10, 5000, "b"), (0, 5010, "b")):
        queue[:] = [QueueReading(name="logs", engine="x", out_total=done, epoch=epoch)]
        sample_gauges(now=now - timedelta(seconds=ago))
    found = rates(["queue.out"], projects=None, now=now + timedelta(seconds=2))
    assert found.of("queue.out", None, "logs")[60] == pytest.approx(10 / 60)


def test_a_long_label_ends_in_a_digest() -> None:
    assert label_of(["logs"]) == "logs"
    one, other = label_of(["x" * 300]), label_of(["x" * 301])
    assert len(one) == len(other) == 200
    assert one != other


def test_every_metric_fits_a_series() -> None:
    for each in metrics.described():
        assert len(set(each.labels) - {"project"}) <= 1, each.name


def test_all_metrics_of_an_empty_installation_can_be_read(queue: list[QueueReading]) -> None:
    measure()
    assert [each.name for each in metrics.described() if each.failed] == []
