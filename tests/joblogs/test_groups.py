"""Kinds of errors: since when there is each, in which runs, and who has put it aside."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.joblogs.models import ErrorGroup
from apps.joblogs.services import groups, ignore_group, store_lines, watch_group
from apps.joblogs.services.groups import FORGET_AFTER, forget_groups
from apps.joblogs.states import GroupState
from apps.jobs.models import Run
from tests.access.factories import Api, make_superuser, make_user
from tests.joblogs.factories import NOW, make_build, record, store_texts
from tests.jobs.factories import make_job, make_run
from tests.projects.build_factories import make_image
from yardkit.protocol import LogBatch

pytestmark = pytest.mark.django_db


def write(run: Run, *texts: str, minutes: float = 0, boot: str = "b1") -> None:
    """Lines of that many minutes after ``NOW``."""
    at = NOW + timedelta(minutes=minutes)
    lines = [record(seq, text, at=at.timestamp()) for seq, text in enumerate(texts, 1)]
    message = LogBatch(stream=run.stream, boot=boot, lines=lines)
    assert store_lines(batches=[message], now=NOW + timedelta(minutes=30)) == []


def test_errors_that_are_alike_are_one_kind() -> None:
    run = make_run()
    write(run, "ERROR page 7 took 3 s", "INFO page 7", "ERROR page 12 took 9 s", "KeyError: 'x'")
    rows = ErrorGroup.objects.order_by("id")
    assert {row.sample for row in rows} == {"ERROR page 7 took 3 s", "KeyError: 'x'"}
    first = rows.get(sample__startswith="ERROR")
    assert (first.project_id, first.job_id) == (run.job.project_id, run.job_id)
    assert (first.first_run_id, first.last_run_id, first.level) == (run.pk, run.pk, "ERROR")
    assert (first.first_at, first.last_at) == (NOW, NOW)


def test_first_and_last_do_not_depend_on_the_order_in_which_lines_come() -> None:
    job = make_job()
    runs = [make_run(job=job) for _ in range(3)]
    expected = (runs[0].pk, runs[2].pk, NOW + timedelta(minutes=1), NOW + timedelta(minutes=3))
    for order in ([0, 1, 2], [2, 0, 1, 1, 0], [1, 2, 0]):
        ErrorGroup.objects.all().delete()
        for number in order:
            write(runs[number], "ERROR no", minutes=number + 1)
        row = ErrorGroup.objects.get()
        assert (row.first_run_id, row.last_run_id, row.first_at, row.last_at) == expected


def test_a_kind_is_new_since_an_image() -> None:
    job = make_job()
    old = make_image(project=job.project)
    new = make_image(project=job.project, tag="prod-1.1")
    write(make_run(job=job, image=old), "ERROR old")
    write(make_run(job=job, image=new), "ERROR old", "ERROR fresh", minutes=1)
    assert ErrorGroup.objects.get(sample="ERROR old").first_image == old
    assert ErrorGroup.objects.get(sample="ERROR fresh").first_image == new


def test_jobs_and_builds_are_kept_apart() -> None:
    job = make_job()
    write(make_run(job=job), "ERROR no")
    write(make_run(job=make_job(project=job.project)), "ERROR no")
    build = make_build(project=job.project)
    for _ in range(2):
        store_texts(build.stream, "ERROR no")
    assert ErrorGroup.objects.count() == 3
    assert ErrorGroup.objects.filter(job=None).count() == 1


def test_no_job_fills_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "MOST_GROUPS", 5)
    run = make_run()
    write(run, *(f"ERROR {'x' * count}" for count in range(1, 9)))
    assert ErrorGroup.objects.count() == 5
    write(run, "ERROR another", boot="b2")
    write(make_run(), "ERROR another")
    assert ErrorGroup.objects.count() == 6


def test_a_storm_of_one_error_costs_few_queries() -> None:
    run = make_run()
    write(run, "ERROR 0")
    with CaptureQueriesContext(connection) as queries:
        write(run, *(f"ERROR {number}" for number in range(500)), minutes=1, boot="b2")
    assert len(queries) <= 6


def test_kinds_are_moved_in_one_order_so_that_two_ingesters_do_not_wait_for_each_other() -> None:
    run = make_run()
    write(run, "ERROR one", "ERROR two", minutes=5)
    lower, upper = ErrorGroup.objects.order_by("fingerprint")
    at = {lower.sample: 6, upper.sample: 4}
    lines = [
        record(number, text, at=(NOW + timedelta(minutes=minutes)).timestamp())
        for number, (text, minutes) in enumerate(at.items(), 1)
    ]
    message = LogBatch(stream=run.stream, boot="b2", lines=lines)
    with CaptureQueriesContext(connection) as queries:
        assert store_lines(batches=[message], now=NOW + timedelta(minutes=30)) == []
    found = [each["sql"] for each in queries if "joblogs_errorgroup" in each["sql"]]
    moved = ["last" if "SET last_at" in sql else "first" for sql in found if "UPDATE" in sql]
    assert moved == ["last", "first"]


def test_what_is_put_aside_stays_there_and_is_recorded() -> None:
    run = make_run()
    write(run, "ERROR no")
    group = ErrorGroup.objects.get()
    person = make_user(roles={run.job.project: Role.OPERATOR})
    assert ignore_group(group=group, actor=person, now=NOW)
    assert not ignore_group(group=group, actor=None, now=NOW)
    write(run, "ERROR no", minutes=2, boot="b2")
    group.refresh_from_db()
    assert (group.state, group.ignored_by, group.last_run_id) == ("ignored", person, run.pk)
    assert watch_group(group=group, actor=person)
    assert not watch_group(group=group, actor=person)
    group.refresh_from_db()
    assert (group.state, group.ignored_by, group.ignored_at) == (GroupState.OPEN, None, None)
    actions = AuditRecord.objects.order_by("id").values_list("action", "project_id")
    assert list(actions) == [
        ("joblogs.ignore_error", run.job.project_id),
        ("joblogs.watch_error", run.job.project_id),
    ]


def test_kinds_not_seen_for_long_are_forgotten() -> None:
    write(make_run(), "ERROR no")
    assert forget_groups(now=NOW + FORGET_AFTER - timedelta(hours=1)) == 0
    assert forget_groups(now=NOW + FORGET_AFTER + timedelta(hours=1)) == 1


# --- over REST ------------------------------------------------------------------------------------


def rows_of(api: Api, query: str = "") -> list[dict[str, Any]]:
    answer = api.call("get", f"/api/v1/log-errors{query}")
    assert answer.status_code == 200, answer.content
    rows: list[dict[str, Any]] = answer.json()["results"]
    return rows


def test_kinds_are_listed_and_counted() -> None:
    job = make_job()
    image = make_image(project=job.project)
    run, other = make_run(job=job, image=image), make_run(job=job)
    write(run, "ERROR page 1", "ERROR page 2", "ERROR only here")
    write(other, "ERROR page 3", minutes=5)
    write(make_run(), "ERROR of another project")
    api = Api(make_user(roles={job.project: Role.VIEWER}))
    rows = rows_of(api)
    assert [(row["sample"], row["count"], row["image"]) for row in rows] == [
        ("ERROR page 1", None, image.pk),
        ("ERROR only here", None, image.pk),
    ]
    rows = rows_of(api, "?counted_since=2026-03-01T12:00:00Z")
    assert [(row["count"], row["logs"]) for row in rows] == [(3, 2), (1, 1)]
    rows = rows_of(api, "?counted_since=2026-03-01T12:04:00Z")
    assert [(row["count"], row["logs"]) for row in rows] == [(1, 1), (0, 0)]
    assert len(rows_of(api, f"?image={image.pk}")) == 2
    assert len(rows_of(api, "?seen_from=2026-03-01T12:04:00Z")) == 1
    assert rows_of(api, f"?job={job.pk + 1000}") == []


def test_a_kind_beyond_those_that_are_counted_has_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is not the same as not counted."""
    monkeypatch.setattr("apps.joblogs.api.groups.MOST_COUNTED", 1)
    run = make_run()
    write(run, "ERROR one")
    write(run, "ERROR two", minutes=1, boot="b2")
    rows = rows_of(Api(make_superuser()), "?counted_since=2026-03-01T12:00:00Z")
    assert [(row["sample"], row["count"], row["logs"]) for row in rows] == [
        ("ERROR two", 1, 1),
        ("ERROR one", None, None),
    ]


def test_operators_put_kinds_aside() -> None:
    run = make_run()
    write(run, "ERROR no")
    pk = ErrorGroup.objects.get().pk
    viewer = Api(make_user(roles={run.job.project: Role.VIEWER}))
    assert viewer.call("post", f"/api/v1/log-errors/{pk}/ignore", {}).status_code == 403
    person = make_user(roles={run.job.project: Role.OPERATOR})
    operator = Api(person)
    for _ in "ab":
        answer = operator.call("post", f"/api/v1/log-errors/{pk}/ignore", {})
        assert answer.json()["ignored_by"] == person.username
    assert rows_of(operator, "?state=open") == []
    assert operator.call("post", f"/api/v1/log-errors/{pk}/watch", {}).json()["state"] == "open"
    stranger = Api(make_user(roles={make_job().project: Role.ADMIN}))
    assert stranger.call("get", f"/api/v1/log-errors/{pk}").status_code == 404
    assert Api(make_superuser()).call("get", f"/api/v1/log-errors/{pk}").status_code == 200
