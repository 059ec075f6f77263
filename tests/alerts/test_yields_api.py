"""REST endpoints of job yields."""

from __future__ import annotations

import pytest

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.alerts.models import YieldPolicy
from apps.alerts.services.yields import record_yields
from apps.jobs.models import Job
from tests.access.factories import Api, make_user
from tests.alerts.yields import daily_runs, ended_run
from tests.jobs.factories import NOW, make_job

pytestmark = pytest.mark.django_db


@pytest.fixture
def job() -> Job:
    """Create a job whose newest run has few items and hardly any prices."""
    job = make_job(cron="0 12 * * *")
    daily_runs(job, until=NOW, days=10, fields={"url": 1000, "price": 990})
    ended_run(job, at=NOW, items=100, fields={"url": 100, "price": 5})
    record_yields(now=NOW)
    return job


def member(job: Job, role: Role) -> Api:
    return Api(make_user(roles={job.project: role}))


def test_runs_are_listed_with_what_was_usual(job: Job) -> None:
    found = member(job, Role.VIEWER).get(f"jobs/{job.pk}/yields").json()["results"]
    assert len(found) == 11
    assert (found[0]["items"], found[0]["fields"]["price"]) == (100, 5)
    assert [one["kind"] for one in found[0]["findings"]] == ["drop", "coverage"]
    assert found[0]["usual"]["middle"] == 1000
    assert found[-1]["usual"] == {}


def test_the_standing_says_what_is_unusual_and_since_when(job: Job) -> None:
    told = member(job, Role.VIEWER).get(f"jobs/{job.pk}/yields/standing").json()
    assert [one["kind"] for one in told["findings"]] == ["drop", "coverage"]
    assert told["findings"][0]["since"] == NOW.isoformat()
    assert told["coverage"] == [
        {"name": "price", "share": 0.05, "usual": 0.99, "fallen": True},
        {"name": "url", "share": 1.0, "usual": 1.0, "fallen": False},
    ]
    assert told["usual_seconds"] == 86_400
    # NOW is in the past, so the job is stale.
    assert told["stale"]
    assert told["policy"]["drop_below"] == 0.5


def test_a_job_that_never_ran_has_a_standing_too() -> None:
    job = make_job()
    told = member(job, Role.VIEWER).get(f"jobs/{job.pk}/yields/standing").json()
    assert (told["run"], told["findings"], told["stale"]) == (None, [], False)


def test_editors_change_what_is_watched(job: Job) -> None:
    address = f"jobs/{job.pk}/yields/standing"
    assert member(job, Role.OPERATOR).patch(address, {"enabled": False}).status_code == 403
    editor = member(job, Role.EDITOR)
    changed = editor.patch(address, {"drop_below": 0.2, "stale_times": None})
    assert changed.status_code == 200, changed.content
    assert changed.json()["policy"]["drop_below"] == 0.2
    assert (changed.json()["stale"], changed.json()["stale_at"]) == (False, None)
    entry = AuditRecord.objects.get(action="alerts.change_yield_policy")
    assert entry.after == {"drop_below": 0.2, "stale_times": None}


@pytest.mark.slow("3 s")
@pytest.mark.parametrize(
    "bad", [{"drop_below": 2}, {"rise_above": 0}, {"stale_times": "NaN"}, {"enabled": "perhaps"}]
)
def test_bad_limits_are_refused_by_name(job: Job, bad: dict[str, object]) -> None:
    answer = member(job, Role.EDITOR).patch(f"jobs/{job.pk}/yields/standing", bad)
    assert answer.status_code == 400
    assert list(answer.json()["fields"]) == list(bad)
    assert not YieldPolicy.objects.exists()


@pytest.mark.slow("1 s")
def test_learning_anew_ends_what_was_found(job: Job) -> None:
    address = f"jobs/{job.pk}/yields/learn"
    assert member(job, Role.OPERATOR).post(address).status_code == 403
    told = member(job, Role.EDITOR).post(address).json()
    assert told["findings"] == []
    assert told["policy"]["learn_from"] is not None


@pytest.mark.slow("1 s")
def test_jobs_of_other_projects_do_not_exist(job: Job) -> None:
    stranger = member(make_job(), Role.ADMIN)
    for address in ("yields", "yields/standing"):
        assert stranger.get(f"jobs/{job.pk}/{address}").status_code == 404
    assert stranger.post(f"jobs/{job.pk}/yields/learn").status_code == 404
