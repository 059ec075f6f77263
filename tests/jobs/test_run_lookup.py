"""How the database finds a person's runs among those of everybody."""

from __future__ import annotations

import pytest
from django.db import connection

from apps.access.states import Role
from apps.jobs.models import Run
from apps.jobs.states import RunState
from tests.access.factories import make_superuser, make_user
from tests.jobs.factories import make_job, make_project, make_run

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(connection.vendor != "sqlite", reason="the plans are those of SQLite"),
]


@pytest.mark.parametrize(
    ("narrowed", "order", "index"),
    [
        ({}, ["-id"], "jobs_run_of_job"),
        ({"ended_at__isnull": False}, ["-ended_at"], "jobs_run_end_of_job"),
    ],
)
def test_a_member_reads_only_runs_of_their_jobs(
    narrowed: dict[str, object], order: list[str], index: str
) -> None:
    member = make_user(roles={make_project(): Role.VIEWER})
    rows = Run.objects.visible_to(member).filter(**narrowed).order_by(*order)
    assert f"jobs_run USING INDEX {index} (" in rows[:50].explain()


def test_who_sees_all_counts_runs_of_a_state_without_looking_at_jobs() -> None:
    rows = Run.objects.visible_to(make_superuser()).filter(state=RunState.FAILED).order_by()
    plan = rows.values("pk")[:50].explain()
    assert "SEARCH jobs_run USING" in plan
    assert "jobs_job USING INTEGER PRIMARY KEY" not in plan


def test_runs_of_others_and_of_what_is_deleted_are_not_seen() -> None:
    mine, others = make_project(), make_project()
    run = make_run(job=make_job(project=mine))
    make_run(job=make_job(project=others))
    gone = make_run(job=make_job(project=mine))
    type(gone.job)._base_manager.filter(pk=gone.job_id).update(deleted_at=gone.created_at)
    member = make_user(roles={mine: Role.VIEWER})
    assert list(Run.objects.visible_to(member)) == [run]
    assert not Run.objects.visible_to(member, Role.EDITOR).exists()
    assert Run.objects.visible_to(make_superuser()).count() == 2
