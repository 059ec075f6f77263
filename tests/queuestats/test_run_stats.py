"""Statistics of Scrapy: stored with the run, shown on its page, searched over runs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from apps.access.states import Role
from apps.queuestats.models import RunStats
from apps.queuestats.querysets import StatCondition
from apps.queuestats.services import store_counters
from tests.access.factories import Api, make_superuser, make_user
from tests.jobs.factories import make_job, make_project, make_run
from tests.jobs.test_admin import logged_in
from tests.queuestats.factories import NOW, report
from yardkit.protocol import RunCounters

pytestmark = [pytest.mark.django_db, pytest.mark.covers("SC.6")]

STATS = {
    "finish_reason": "finished",
    "retry/count": 12,
    "elapsed_time_seconds": 1.5,
    "responses_per_minute": None,
}


def stats_of(run: Any) -> Any:
    return RunStats.objects.get(run=run).stats


def test_the_newest_report_of_a_run_is_kept() -> None:
    run = make_run()
    report(run, seq=2, stats=STATS)
    report(run, seq=1, stats={"finish_reason": "late"})
    assert stats_of(run) == STATS
    report(run, seq=3)  # counters without statistics leave them
    assert stats_of(run) == STATS
    report(run, seq=4, stats={**STATS, "retry/count": 13})
    assert stats_of(run)["retry/count"] == 13


def test_a_late_report_of_an_older_execution_replaces_nothing() -> None:
    run = make_run(boot="b2")
    older = RunCounters(run=run.pk, boot="b1", seq=9, stats={"finish_reason": "shutdown"})
    newer = RunCounters(run=run.pk, boot="b2", seq=1, stats=STATS)
    store_counters(messages=[older], now=NOW)
    assert stats_of(run) == {"finish_reason": "shutdown"}
    # Also in one batch, in any order.
    store_counters(messages=[newer, older], now=NOW)
    assert stats_of(run) == STATS
    store_counters(messages=[msgspec.structs.replace(older, seq=10)], now=NOW)
    assert (stats_of(run), RunStats.objects.get().boot) == (STATS, "b2")


def test_a_run_without_statistics_has_no_row() -> None:
    report(make_run(), total=1)
    assert not RunStats.objects.exists()


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("retry/count > 10", ["one"]),
        ("retry/count>=12", ["one"]),
        ("retry/count<10", ["two"]),
        ("retry/count", ["one", "two"]),
        ("finish_reason=finished", ["one"]),
        ("finish_reason != finished", ["two"]),
        ("elapsed_time_seconds=1.5", ["one"]),
        ("no/such > 0", []),
        ("finish_reason=memusage_exceeded", ["two"]),
    ],
)
def test_runs_are_found_by_a_statistic(condition: str, expected: list[str]) -> None:
    runs = {"one": make_run(), "two": make_run()}
    report(runs["one"], stats=STATS)
    report(runs["two"], stats={"finish_reason": "memusage_exceeded", "retry/count": 3})
    rows = RunStats.objects.where(StatCondition.parse(condition))
    found = set(rows.values_list("run", flat=True))
    assert found == {runs[name].pk for name in expected}


@pytest.mark.parametrize("text", ["", "  ", "= 5", "a\0b"])
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="name"):
        StatCondition.parse(text)


def test_over_rest_and_only_for_those_who_may_see_the_run() -> None:
    project = make_project()
    run, other = make_run(job=make_job(project=project)), make_run()
    report(run, stats=STATS)
    report(other, stats=STATS)
    api = Api(make_user(roles={project: Role.VIEWER}))
    assert api.get(f"runs/{run.pk}/stats").json()["stats"] == STATS
    assert api.get(f"runs/{other.pk}/stats").status_code == 404
    found = api.get("run-stats?stat=retry/count>10").json()["results"]
    assert [(row["run"], row["job"]) for row in found] == [(run.pk, run.job_id)]
    assert api.get("run-stats?stat=retry/count>12").json()["results"] == []
    refused = api.get("run-stats?stat==5")
    assert refused.status_code == 400


def test_a_run_without_statistics_is_not_found() -> None:
    run = make_run()
    assert Api(make_superuser()).get(f"runs/{run.pk}/stats").status_code == 404


def test_on_the_page_of_the_run_and_in_the_list() -> None:
    run, other = make_run(), make_run()
    report(run, stats=STATS | {"<b>": "<i>"})
    report(other, stats={"finish_reason": "shutdown"})
    client = logged_in(make_superuser())
    page = client.get(f"/runs/{run.pk}").content.decode()
    assert "retry/count" in page
    assert "&lt;b&gt;" in page
    assert "<i>" not in page
    admin = "/admin/queuestats/runstats/"
    listed = client.get(admin, {"q": "finish_reason=shutdown"}).content.decode()
    assert f"/runs/{other.pk}" in listed
    assert f'href="/runs/{run.pk}"' not in listed
    assert f"/runs/{other.pk}" not in client.get(admin, {"q": "= 1"}).content.decode()


def test_statistics_go_with_their_run() -> None:
    run = make_run()
    report(run, stats=STATS)
    run.delete()
    assert not RunStats.objects.exists()
