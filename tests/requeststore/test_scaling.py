"""How many fetchers are wanted, on reports and counts as they are stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.access.states import Role
from apps.projects.models import Project
from apps.queuestats.models import Sample
from apps.queuestats.services import sample_gauges
from apps.requeststore import gauges
from apps.requeststore.models import ClosedSlice, NodeReport, ScaleState
from apps.requeststore.queries import outlook as outlook_module
from apps.requeststore.queries.outlook import standings
from apps.requeststore.services.forecast_text import duration, per_second
from apps.requeststore.services.scale_advice import Advice, decide_scale, wanted_fetchers
from tests.access.factories import Api, make_project, make_user
from tests.jobs.factories import NOW
from tests.queuestats.gauge_readings import gauge_means
from tests.requeststore.biz_reports import (
    make_bizzes,
    make_fetchers,
    make_queue,
    make_rates,
    make_report,
)

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def unread() -> Iterator[None]:
    # Tests that roll back give the same number to another version.
    outlook_module._read.clear()
    yield
    outlook_module._read.clear()


@pytest.fixture
def project() -> Project:
    return make_project()


def reason(advice: Advice) -> str:
    (biz,) = advice.bizzes
    return biz.reason


@pytest.mark.covers("S4.28")
def test_a_backlog_that_shrinks_has_an_end(project: Project) -> None:
    make_bizzes(project, news={})
    make_report(project)
    make_rates(project)
    make_fetchers(1)
    advice = wanted_fetchers(NOW)
    assert reason(advice) == "done in 3 h 20 min"
    assert (advice.running, advice.wanted, advice.needed) == (1, 1, 1)
    assert advice.bizzes[0].eta_seconds == pytest.approx(12_000, rel=0.01)
    assert advice.bizzes[0].per_fetcher_per_second == pytest.approx(25, rel=0.01)


@pytest.mark.covers("S4.28")
def test_a_backlog_that_grows_asks_for_more(project: Project) -> None:
    make_bizzes(project, news={})
    make_report(project)
    make_rates(project, created=40)
    make_fetchers(1)
    advice = wanted_fetchers(NOW)
    assert reason(advice) == (
        "never at this rate: 40/s created, 25/s processed; 1 more fetcher needed to finish in time"
    )
    assert advice.wanted == 2


@pytest.mark.covers("S4.28")
def test_a_deadline_that_will_be_missed_is_named(project: Project) -> None:
    make_bizzes(project, news={"finish_by_seconds": 2 * 3600})
    make_report(project, by_flag={"0": 170_000, "-1": 100}, oldest_new_at=NOW - timedelta(hours=1))
    make_rates(project, created=0, processed=12)
    make_fetchers(1)
    advice = wanted_fetchers(NOW)
    # 170 100 in the hour that is left are 47.25 a second; one does 12.
    at = f"{timezone.localtime(NOW + timedelta(hours=1)):%H:%M}"
    assert reason(advice) == (
        f"done in 3 h 56 min; will miss the deadline at {at}; "
        "3 more fetchers needed to finish in time"
    )
    assert advice.wanted == 4


def test_no_fetcher_at_all_is_said(project: Project) -> None:
    make_bizzes(project, news={})
    make_report(project)
    make_rates(project, processed=0)
    advice = wanted_fetchers(NOW)
    assert reason(advice) == "never at this rate: no fetcher is running"
    assert (advice.running, advice.wanted) == (0, 1)


def test_too_little_history_is_said(project: Project) -> None:
    make_bizzes(project, news={})
    make_report(project)
    make_rates(project, seconds=40)
    make_fetchers(1)
    assert reason(wanted_fetchers(NOW)) == "unknown: not enough data yet"


def test_a_biz_that_began_two_minutes_ago_is_measured_by_these(project: Project) -> None:
    make_bizzes(project, news={})
    make_report(project)
    make_rates(project, seconds=123)
    make_fetchers(1)
    assert reason(wanted_fetchers(NOW)) == "done in 3 h 20 min"


def test_many_that_came_at_once_are_no_pace(project: Project) -> None:
    make_bizzes(project, news={})
    make_report(project)
    # 60 000 in ten seconds, three minutes ago; 25/s are processed all the time.
    make_rates(project, created=6000, processed=0, seconds=11, now=NOW - timedelta(minutes=3))
    make_rates(project, created=0, processed=25, sender="f2")
    make_fetchers(1)
    assert reason(wanted_fetchers(NOW)) == "done in 40 min"


def test_a_restart_of_the_statistics_changes_no_pace(project: Project) -> None:
    make_bizzes(project, news={})
    make_report(project)
    # What waited in the broker meanwhile was stored at its own time.
    make_rates(project, listened=20)
    make_fetchers(1)
    assert reason(wanted_fetchers(NOW)) == "done in 3 h 20 min"


def test_without_statistics_nothing_is_known(project: Project) -> None:
    make_bizzes(project, news={})
    make_report(project)
    make_rates(project, listened=0)
    make_fetchers(2)
    advice = wanted_fetchers(NOW)
    assert reason(advice) == "unknown: not enough data yet"
    assert advice.wanted == 2


def test_old_reports_are_no_base(project: Project) -> None:
    make_bizzes(project, news={})
    make_report(project, reported_at=NOW - timedelta(minutes=5))
    make_rates(project)
    make_fetchers(3)
    advice = wanted_fetchers(NOW)
    assert reason(advice) == "unknown: the store has not reported for 5 min"
    assert advice.wanted == 3, "what runs goes on"


def test_bizzes_that_are_switched_off_want_nothing(project: Project) -> None:
    make_bizzes(project, news={"enabled": False})
    make_report(project)
    make_rates(project, created=100)
    make_fetchers(1)
    assert wanted_fetchers(NOW).wanted == 1


@override_settings(FETCHERS_MAX=3)
def test_never_more_than_the_setting_allows(project: Project) -> None:
    make_bizzes(project, news={})
    make_report(project)
    make_rates(project, created=900)
    make_fetchers(1)
    advice = wanted_fetchers(NOW)
    assert (advice.wanted, advice.needed, advice.most) == (3, 36, 3)


@pytest.mark.slow("1 s")
@pytest.mark.covers("S4.28")
def test_up_at_once_down_after_ten_minutes(project: Project) -> None:
    make_bizzes(project, news={})
    shard = make_report(project)
    make_rates(project, created=70)
    make_fetchers(1)
    assert decide_scale(NOW).wanted == 3
    state = ScaleState.objects.get()
    assert state.changed_at == NOW
    assert state.capacities == {f"{project.pk}/news": pytest.approx(25, rel=0.01)}
    last = NOW
    for minutes in range(1, 17):
        now = NOW + timedelta(minutes=minutes)
        shard.by_flag, shard.reported_at = {"0": 0}, now
        shard.save()
        make_rates(project, created=10, processed=10, now=now, sender=f"m{minutes}", seconds=61)
        advice = decide_scale(now)
        last = now if advice.needed == 3 else last
        assert advice.wanted >= advice.needed
        if now - last < timedelta(minutes=10):
            assert advice.wanted == 3, minutes
    assert (advice.needed, advice.wanted) == (1, 1)
    state.refresh_from_db()
    assert state.changed_at is not None
    assert state.changed_at >= last + timedelta(minutes=10)
    assert state.capacities, "it is remembered while nothing waits"


@pytest.mark.covers("S4.26")
def test_what_charts_show_is_recorded(project: Project) -> None:
    make_bizzes(project, news={})
    make_report(project, by_flag={"0": 7, "-1": 2, "-2": 4})
    make_queue(project)
    NodeReport.objects.create(
        name="default", kind="sqlite", storage_bytes=9_000, slow=[{"seconds": 2.0, "text": "find"}]
    )
    NodeReport.objects.create(name="gone", kind="mongodb", storage_bytes=1, problem="away")
    ClosedSlice.objects.create(
        project=project,
        biz="news",
        node="default",
        database="d",
        collection="c",
        start_at=NOW - timedelta(days=1),
        seconds=600,
        expired=30,
    )
    decide_scale(NOW)
    sample_gauges(now=NOW)
    names = ["requests.new", "requests.taken", "requests.expired", "requests.expiring"]
    names += ["queue.waiting", "queue.memory_bytes", "node.storage_bytes", "node.slow_operations"]
    found = gauge_means(names, seconds=60, now=NOW)
    assert {
        (key.name, key.label): mean for key, (mean, _last) in found.items() if key.label != "gone"
    } == {
        ("requests.new", "news"): 7.0,
        ("requests.taken", "news"): 2.0,
        ("requests.expired", "news"): 34.0,
        ("requests.expiring", "news"): 120.0,
        ("queue.waiting", "news"): 60_000.0,
        ("queue.memory_bytes", "news"): 4_000_000.0,
        ("node.storage_bytes", "default"): 9_000.0,
        ("node.slow_operations", "default"): 1.0,
    }
    own = {"requests.new", "node.storage_bytes", "fetchers.wanted"}
    assert set(
        Sample.objects.filter(step=1, series__name__in=own).values_list("count", flat=True)
    ) == {1}, "each number has one writer"
    assert Sample.objects.filter(step=3600).exists()


@pytest.mark.covers("S4.25")
def test_what_comes_to_and_goes_from_the_queue_of_a_biz_is_known(project: Project) -> None:
    flows = gauges._RequestTotals()
    flows.read(NOW - timedelta(seconds=60))
    make_rates(project, created=40, processed=25, seconds=200)
    flows.read(NOW - timedelta(seconds=30))
    flows.read(NOW - timedelta(seconds=10))
    flows.read(NOW - timedelta(seconds=10))
    told = flows.of((project.pk, "news"))
    assert (told["in_total"], told["out_total"]) == (50 * 40, 50 * 25)
    assert flows.of((project.pk, "other"))["in_total"] == 0


def test_the_number_of_queries_does_not_grow_with_the_bizzes(project: Project) -> None:
    def queries() -> int:
        standings(now=NOW)
        with CaptureQueriesContext(connection) as captured:
            assert standings(now=NOW).bizzes
        return len(captured)

    make_bizzes(project, news={})
    make_report(project)
    make_rates(project, seconds=10)
    few = queries()
    for number in range(5):
        other = make_project()
        make_bizzes(other, **{f"b{each}": {} for each in range(number + 1)})
        make_report(other, "b0")
        make_queue(other, "b0")
        make_rates(other, "b0", seconds=10)
    assert queries() == few <= 7


@pytest.mark.covers("S4.28")
def test_the_command_prints_it_and_tells_it_by_its_status(project: Project) -> None:
    now = timezone.now()
    make_bizzes(project, news={})
    make_report(project, now=now)
    make_rates(project, created=40, now=now)
    make_fetchers(1, now=now)
    out = StringIO()
    call_command("scale", stdout=out)
    assert "fetchers: 1 running, 2 wanted (1 to 4; 2 needed now)" in out.getvalue()
    assert f"{project.name}/news: 60,000 waiting, 2 needed: never at this rate" in out.getvalue()
    out = StringIO()
    with pytest.raises(SystemExit) as left:
        call_command("scale", "--json", "--check", stdout=out)
    assert left.value.code == 3
    told = json.loads(out.getvalue())
    assert (told["running"], told["wanted"]) == (1, 2)
    assert told["bizzes"][0]["outlook"] == "never"


def test_the_command_tells_that_fewer_are_wanted_and_that_all_is_well() -> None:
    make_fetchers(1, now=timezone.now())
    call_command("scale", "--check", stdout=StringIO())
    make_fetchers(3, now=timezone.now())
    with pytest.raises(SystemExit) as left:
        call_command("scale", "--check", stdout=StringIO())
    assert left.value.code == 4


@pytest.mark.covers("S4.28")
def test_rest_shows_the_bizzes_of_the_callers_projects(project: Project) -> None:
    other = make_project()
    for each in (project, other):
        make_bizzes(each, news={})
    viewer = Api(make_user(roles={project: Role.VIEWER}))
    answer = viewer.get("requests/scale")
    assert answer.status_code == 200
    told = answer.json()
    assert set(told) == {"running", "wanted", "needed", "most", "at", "bizzes"}
    assert (told["running"], told["wanted"]) == (0, 1)
    assert [each["project"] for each in told["bizzes"]] == [project.pk]
    assert told["bizzes"][0]["reason"] == "no backlog"
    assert Api().get("requests/scale").status_code == 401


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (3599, "1 h"),
        (12_000, "3 h 20 min"),
        (86_400, "1 d"),
        (100_000, "1 d 4 h"),
    ],
)
def test_durations_have_two_units_at_most(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (None, "–"),
        (0, "0/s"),
        (0.0166, "0.017/s"),
        (2.5, "2.5/s"),
        (4, "4/s"),
        (9.96, "10/s"),
        (12345.6, "12,346/s"),
    ],
)
def test_rates_are_as_exact_as_they_are_small(rate: float | None, text: str) -> None:
    assert per_second(rate) == text
