"""Samples: each report once, at three lengths, whatever its age or its sender's clock."""

from __future__ import annotations

import math
import random
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.projects.models import Project
from apps.queuestats.engine.senders import MAX_MISSING, ClockSkew, ReceivedNumbers
from apps.queuestats.models import Sample, SampleSender, Series
from apps.queuestats.queries import SeriesKey, points, rate, rates
from apps.queuestats.queries.series import MOST_POINTS, step_for
from apps.queuestats.services import (
    prune_series,
    record_gauges,
    record_observed_seconds,
    store_samples,
)
from tests.access.factories import make_project
from tests.jobs.factories import NOW
from yardkit.protocol import SampleKind, SampleNote, Samples

pytestmark = pytest.mark.django_db

AT = int(NOW.timestamp())
CREATED = "requests.created"


@pytest.fixture
def project() -> Project:
    return make_project()


def note(project: Project | int, value: float, *, ago: int = 10, label: str = "news") -> SampleNote:
    number = project if isinstance(project, int) else project.pk
    return SampleNote(AT - ago, 1, CREATED, number, label, value)


def report(
    seq: int, *notes: SampleNote, boot: str = "b1", sender: str = "web 1", late: float = 0
) -> Samples:
    return Samples(sender=sender, boot=boot, seq=seq, sent_at=AT - late, samples=list(notes))


def sums() -> dict[int, float]:
    found: dict[int, float] = {}
    for step, value in Sample.objects.values_list("step", "value"):
        found[step] = found.get(step, 0) + value
    return found


@pytest.mark.covers("S4.24", "S4.25")
def test_repeats_and_disorder_add_nothing(project: Project) -> None:
    chance = random.Random(11)
    reports = [
        report(seq, note(project, seq, ago=100 - seq), boot=boot)
        for boot in ("b1", "b2")
        for seq in range(1, 41)
    ]
    sent = reports * 3
    chance.shuffle(sent)
    for start in range(0, len(sent), 13):
        assert store_samples(messages=sent[start : start + 13], now=NOW) == []
    expected = float(2 * sum(range(1, 41)))
    assert sums() == {1: expected, 60: expected, 3600: expected}
    assert Series.objects.count() == 1


@pytest.mark.covers("S4.24", "S4.25")
def test_rates_at_every_precision(project: Project) -> None:
    # Of the last 300 seconds, the second n seconds ago had n.
    store_samples(
        messages=[report(1, *(note(project, ago, ago=ago) for ago in range(1, 310)))], now=NOW
    )
    record_observed_seconds(since=AT - 400, until=AT)
    found = rates([CREATED], projects=[project.pk], now=NOW).of(CREATED, project.pk, "news")
    # Two seconds have to settle: the last complete one is that of 3 s ago.
    assert found == {
        1: 3.0,
        5: sum(range(3, 8)) / 5,
        60: sum(range(3, 63)) / 60,
        300: sum(range(3, 303)) / 300,
    }
    assert rate(CREATED, project=project.pk, label="news", seconds=5, now=NOW) == found[5]
    assert rate(CREATED, project=project.pk, label="quiet", seconds=5, now=NOW) == 0.0


def test_without_any_listener_a_rate_is_unknown(project: Project) -> None:
    store_samples(messages=[report(1, note(project, 5, ago=200))], now=NOW)
    found = rates([CREATED], projects=[project.pk], now=NOW)
    assert found.of(CREATED, project.pk, "news") == {1: None, 5: None, 60: None, 300: 5 / 300}
    assert found.of(CREATED, project.pk, "quiet")[1] is None
    assert found.heard_seconds == 0


def test_rates_of_many_cost_two_queries(project: Project) -> None:
    notes = [note(project, 1, label=f"b{number}") for number in range(100)]
    store_samples(messages=[report(1, *notes)], now=NOW)
    with CaptureQueriesContext(connection) as queries:
        found = rates([CREATED], projects=None, now=NOW)
    assert len(queries) == 2
    assert len(found.by_key) == 100


def test_gaps_are_told_apart_from_zeros(project: Project) -> None:
    store_samples(
        messages=[report(1, note(project, 6, ago=100), note(project, 2, ago=50))], now=NOW
    )
    record_observed_seconds(since=AT - 60, until=AT)
    found = points(
        CREATED,
        project=project.pk,
        label="news",
        since=NOW - timedelta(seconds=110),
        until=NOW,
        now=NOW,
    )
    assert found is not None
    assert (found.kind, found.step) == ("sum", 1)
    by_age = {AT - int(point.at.timestamp()): point.value for point in found.points}
    assert by_age[100] == 6.0
    assert by_age[101] is None, "nobody listened"
    assert by_age[99] is None
    assert by_age[50] == 2.0
    assert by_age[49] == 0.0, "somebody listened, nothing came"
    assert min(by_age) == 3, "what has not settled is not shown"


def test_gauges_have_mean_and_peak(project: Project) -> None:
    key = ("queue.waiting", project.pk, "news")
    for ago, value in ((70, 4.0), (65, 8.0), (5, 1.0)):
        record_gauges({key: value}, now=NOW - timedelta(seconds=ago))
    record_gauges({key: math.inf}, now=NOW)
    found = points(
        "queue.waiting",
        project=project.pk,
        label="news",
        since=NOW - timedelta(seconds=120),
        until=NOW,
        step=60,
        now=NOW,
    )
    assert found is not None
    assert found.step == 60
    measured = [(point.value, point.highest) for point in found.points if point.value is not None]
    assert measured == [(6.0, 8.0), (1.0, 1.0)]


def test_no_chart_has_more_than_300_points(project: Project) -> None:
    store_samples(messages=[report(1, note(project, 1))], now=NOW)
    for days in (0.01, 0.2, 1, 6, 8, 31, 200, 365, 1000):
        found = points(
            CREATED,
            project=project.pk,
            label="news",
            since=NOW - timedelta(days=days),
            until=NOW,
            step=1,
            now=NOW,
        )
        assert found is not None
        assert 100 <= len(found.points) <= MOST_POINTS, days


def test_steps_are_no_finer_than_what_is_kept() -> None:
    assert step_for(since=AT - 300, until=AT, now=AT) == 1
    assert step_for(since=AT - 7200, until=AT - 7000, now=AT) == 60
    assert step_for(since=AT - 8 * 86400, until=AT - 8 * 86400 + 60, now=AT) == 3600
    assert step_for(since=AT - 600, until=AT, now=AT, wanted=45) == 60


@pytest.mark.covers("S4.24")
def test_late_reports_find_their_place(project: Project) -> None:
    old = AT - 3 * 86400
    waited = SampleNote(old - old % 60, 60, CREATED, project.pk, "news", 120.0)
    store_samples(messages=[report(1, waited, late=3 * 86400)], now=NOW)
    assert not Sample.objects.filter(step=1).exists(), "its second is not known"
    assert sums() == {60: 120.0, 3600: 120.0}


def test_a_clock_that_is_ahead_is_corrected_at_once(project: Project) -> None:
    ahead = SampleNote(AT + 600, 1, CREATED, project.pk, "news", 1.0)
    store_samples(messages=[report(1, ahead, late=-600)], now=NOW)
    assert Sample.objects.get(step=1).second == AT


def test_a_clock_that_is_behind_is_corrected_once_it_is_sure(project: Project) -> None:
    for seq in range(1, 10):
        now = NOW + timedelta(seconds=seq)
        second = AT + seq - 900
        message = Samples(
            sender="web 1",
            boot="b1",
            seq=seq,
            sent_at=second + 0.1,
            samples=[SampleNote(second, 1, CREATED, project.pk, "news", 1.0)],
        )
        store_samples(messages=[message], now=now)
    seconds = sorted(Sample.objects.filter(step=1).values_list("second", flat=True))
    assert seconds == [AT - 899 + n for n in range(4)] + [AT + 5 + n for n in range(5)]
    assert SampleSender.objects.get().behind_seconds == pytest.approx(899.9)


def test_reports_that_waited_are_not_taken_for_a_wrong_clock() -> None:
    skew = ClockSkew()
    assert [skew.correction(60.0 - seq) for seq in range(60)] == [0] * 60
    assert skew.behind_seconds == 0


def test_one_bad_report_does_not_take_the_others_with_it(project: Project) -> None:
    bad = [
        SampleNote(-1, 1, CREATED, project.pk, "news", 1.0),
        SampleNote(AT, 7, CREATED, project.pk, "news", 1.0),
        SampleNote(AT + 1, 60, CREATED, project.pk, "news", 1.0),
        SampleNote(AT, 1, "No Name", project.pk, "news", 1.0),
        SampleNote(AT, 1, CREATED, project.pk, "x" * 65, 1.0),
        SampleNote(AT, 1, CREATED, project.pk, "a\0b", 1.0),
        SampleNote(AT, 1, CREATED, 2**63, "news", 1.0),
        SampleNote(AT, 1, CREATED, project.pk, "news", math.nan),
        SampleNote(AT, 1, CREATED, project.pk, "news", -1.0),
        SampleNote(2**60, 1, CREATED, project.pk, "news", 1.0),
        SampleNote(AT, 1, CREATED, project.pk, "news", 1.0, SampleKind.GAUGE, 0),
    ]
    messages = [report(seq, each) for seq, each in enumerate(bad, 1)]
    messages += [report(2**60, note(project, 1)), report(0, note(project, 1))]
    messages += [report(3, note(project, 1), boot="x" * 33)]
    good = report(50, note(project, 9))
    refused = store_samples(messages=[*messages, good], now=NOW)
    assert [one.message for one in refused] == messages
    assert all(one.reason for one in refused)
    assert sums() == {1: 9.0, 60: 9.0, 3600: 9.0}


def test_numbers_of_a_project_that_is_gone_are_left_out(project: Project) -> None:
    assert store_samples(messages=[report(1, note(999_999, 5), note(project, 3))], now=NOW) == []
    assert sums() == {1: 3.0, 60: 3.0, 3600: 3.0}


def test_old_samples_go_by_their_length(project: Project) -> None:
    ages = (60, 2 * 3600, 8 * 86400, 400 * 86400)
    notes = [SampleNote(AT - age, 1, CREATED, project.pk, "news", 1.0) for age in ages]
    gone = SampleNote(AT - 400 * 86400, 1, CREATED, project.pk, "gone", 1.0)
    store_samples(messages=[report(1, *notes, gone)], now=NOW)
    prune_series(now=NOW)
    assert sums() == {1: 1.0, 60: 2.0, 3600: 3.0}
    assert [each.label for each in Series.objects.all()] == ["news"]
    assert SampleSender.objects.exists()
    prune_series(now=NOW + timedelta(days=8))
    assert not SampleSender.objects.exists()


def test_numbers_of_reports_are_remembered_within_bounds() -> None:
    heard = ReceivedNumbers()
    assert [heard.is_new(seq) for seq in (1, 3, 3, 2, 2, 1)] == [
        True,
        True,
        False,
        True,
        False,
        False,
    ]
    assert heard.is_new(10_000)
    assert len(heard.missing) <= MAX_MISSING
    assert heard.is_new(9_500)
    assert not heard.is_new(9_500)
    assert not heard.is_new(20), "too old to be known: taken for a repeat"


def test_a_series_key_is_found_for_the_platform_too() -> None:
    record_gauges({("broker.depth", None, "dead"): 3.0}, now=NOW)
    assert Series.objects.get().project is None
    record_gauges({("broker.depth", None, "dead"): 5.0}, now=NOW)
    assert Sample.objects.get(step=1).value == 8.0
    assert SeriesKey("broker.depth", None, "dead") == ("broker.depth", None, "dead")
