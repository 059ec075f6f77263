"""Lines go by age, importance and size, as the job, its project and the settings say."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.joblogs.daemon import PRUNE_SECONDS, LogDaemon
from apps.joblogs.models import LogPolicy
from apps.joblogs.services import (
    add_policy,
    change_policy,
    log_store,
    prune_lines,
    remove_policy,
    retention,
    store_lines,
)
from apps.joblogs.stores.base import LogStore
from apps.jobs.models import Job
from tests.access.factories import Api, enter, make_user, page
from tests.joblogs.factories import NOW, make_build, record, store_texts, stored
from tests.jobs.factories import make_job, make_run
from yardkit.broker import connect
from yardkit.clock import ManualClock
from yardkit.protocol import LogBatch

pytestmark = pytest.mark.django_db


@pytest.fixture
def days(settings: Any) -> None:
    settings.LOG_DAYS, settings.LOG_QUIET_DAYS, settings.LOG_MAX_BYTES = 30, 0, 0


def write(stream: str, *texts: str, days: float) -> None:
    """Lines that were written and stored so long ago."""
    store_texts(stream, *texts, now=NOW - timedelta(days=days), boot=f"b{days}".replace(".", "_"))


@pytest.mark.usefixtures("days")
def test_old_lines_go_and_young_ones_stay() -> None:
    old, young = make_run().stream, make_run().stream
    write(old, *["old"] * 20, days=30.5)
    write(young, *["young"] * 20, days=29)
    assert prune_lines(now=NOW) == 20
    assert prune_lines(now=NOW) == 0
    assert (len(stored(old)), len(stored(young))) == (0, 20)


@pytest.mark.usefixtures("days")
def test_one_call_deletes_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "CHUNK", 5)
    monkeypatch.setattr(retention, "MOST", 10)
    job = make_job()
    add_policy(actor=None, project=job.project, job=job, quiet_days=2)
    stream = make_run(job=job).stream
    # Some of a day only, so that no day goes at once.
    write(stream, *["INFO quiet", "ERROR loud"] * 12, days=5)
    assert [prune_lines(now=NOW) for _ in range(3)] == [10, 2, 0]


@pytest.mark.usefixtures("days")
def test_a_job_at_its_limit_keeps_nobody_from_being_tidied(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """Something of it is deleted in each call, for as long as it writes."""
    settings.LOG_MAX_BYTES = 100
    tidied: list[datetime] = []
    monkeypatch.setattr(log_store(), "prune", lambda *, now: tidied.append(now))
    write(make_run().stream, *["ten bytes."] * 20, days=0)
    assert prune_lines(now=NOW) == 10
    assert tidied == [NOW]


@pytest.mark.slow("1 s")
@pytest.mark.usefixtures("days")
def test_who_has_deleted_all_that_is_to_go_waits_a_while(
    monkeypatch: pytest.MonkeyPatch, sqlite_broker_url: str
) -> None:
    monkeypatch.setattr(retention, "MOST", 10)
    monkeypatch.setattr(retention, "CHUNK", 5)
    job = make_job()
    add_policy(actor=None, project=job.project, job=job, quiet_days=2)
    stream = make_run(job=job).stream
    write(stream, *["INFO quiet", "ERROR loud"] * 12, days=5)
    clock = ManualClock(NOW)
    with closing(connect(sqlite_broker_url, name="test")) as broker:
        daemon = LogDaemon(broker=broker, clock=clock)
        daemon.setup()
        # As many as one call may delete, and then the rest; now there is time until the next.
        assert [daemon.step() for _ in range(2)] == [True, True]
        write(stream, "INFO quiet", days=6)
        assert not daemon.step()
        clock.advance(PRUNE_SECONDS)
        assert daemon.step()
        daemon.teardown()


@pytest.mark.usefixtures("days")
def test_what_was_deleted_does_not_come_back(settings: Any) -> None:
    """For as long as an execution without lines is remembered."""
    settings.LOG_DAYS = 20
    stream = make_run().stream
    at = NOW - timedelta(days=21)
    message = LogBatch(
        stream=stream, boot="b1", lines=[record(seq, at=at.timestamp()) for seq in (1, 2)]
    )
    assert store_lines(batches=[message], now=at) == []
    assert prune_lines(now=NOW) == 2
    assert store_lines(batches=[message], now=NOW) == []
    assert stored(stream) == []


@pytest.mark.usefixtures("days")
def test_quiet_lines_go_first() -> None:
    job = make_job()
    add_policy(actor=None, project=job.project, quiet_days=3)
    stream = make_run(job=job).stream
    texts = ["DEBUG d", "INFO i", "plain", "WARNING w", "ERROR e"]
    write(stream, *texts, days=4)
    write(stream, "INFO young", days=1)
    assert prune_lines(now=NOW) == 3
    assert stored(stream) == ["WARNING w", "ERROR e", "INFO young"]


@pytest.mark.usefixtures("days")
def test_a_job_has_room_for_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    job = make_job()
    add_policy(actor=None, project=job.project, job=job, max_bytes=2 * 1024**2)
    stream = make_run(job=job).stream
    big = "x" * 10_000
    for number in range(3):
        write(stream, *[f"{number}{big}"] * 100, days=3 - number)
    assert prune_lines(now=NOW) > 0
    kept = stored(stream)
    assert sum(map(len, kept)) <= 2 * 1024**2
    assert len(kept) >= 190
    assert kept[-1].startswith("2")


@pytest.mark.usefixtures("days")
@pytest.mark.parametrize(
    ("of_job", "of_project", "kept"),
    [
        (None, None, 30),
        (None, {"days": 10}, 10),
        ({"days": 5}, {"days": 10}, 5),
        ({"max_bytes": 1024**2}, {"days": 10}, 10),
        ({"days": 60}, {"days": 10}, 60),
    ],
)
def test_the_nearest_policy_counts(
    of_job: dict[str, int] | None, of_project: dict[str, int] | None, kept: int
) -> None:
    job = make_job()
    if of_job:
        add_policy(actor=None, project=job.project, job=job, **of_job)
    if of_project:
        add_policy(actor=None, project=job.project, **of_project)
    stream = make_run(job=job).stream
    write(stream, "old", days=kept + 1)
    write(stream, "young", days=kept - 1)
    prune_lines(now=NOW)
    assert stored(stream) == ["young"]


@pytest.mark.usefixtures("days")
def test_builds_follow_their_project_and_jobs_that_are_gone_the_settings(
    log_store: LogStore,
) -> None:
    build = make_build()
    add_policy(actor=None, project=build.project, days=3)
    write(build.stream, "old", days=4)
    run = make_run()
    write(run.stream, "old", days=31)
    run.delete()
    Job.objects.filter(pk=run.job_id).delete()
    assert prune_lines(now=NOW) == 2
    assert log_store.usages() == []


# --- said by people -------------------------------------------------------------------------------


def test_a_policy_that_contradicts_itself_is_refused() -> None:
    job = make_job()
    for values in (
        {},
        {"days": 5, "quiet_days": 6},
        {"days": 1},
        {"days": 4000},
        {"max_bytes": 5},
        {"job": make_job(), "days": 5},
    ):
        with pytest.raises(ValidationError):
            add_policy(actor=None, project=job.project, **values)
    add_policy(actor=None, project=job.project, days=5)
    with pytest.raises(ValidationError):
        add_policy(actor=None, project=job.project, days=6)


def test_changes_are_recorded() -> None:
    job = make_job()
    policy = add_policy(actor=None, project=job.project, job=job, days=5)
    change_policy(policy=policy, actor=None, days=7)
    with pytest.raises(ValidationError):
        change_policy(policy=policy, actor=None, quiet_days=8)
    remove_policy(policy=policy, actor=None)
    rows = AuditRecord.objects.order_by("id").values_list("action", "before", "after")
    assert [row[0] for row in rows] == [
        "joblogs.add_logpolicy",
        "joblogs.change_logpolicy",
        "joblogs.delete_logpolicy",
    ]
    assert rows[1][1:] == ({"days": 5}, {"days": 7})


def test_policies_over_rest() -> None:
    job = make_job()
    editor = Api(make_user(roles={job.project: Role.EDITOR}))
    body = {"project": job.project_id, "job": job.pk, "days": 9}
    made = editor.call("post", "/api/v1/log-policies", body)
    assert made.status_code == 201, made.content
    again = editor.call("post", "/api/v1/log-policies", body)
    assert again.status_code == 400
    path = f"/api/v1/log-policies/{made.json()['id']}"
    changed = editor.call("patch", path, {"max_bytes": 5 * 1024**2})
    assert (changed.json()["days"], changed.json()["max_bytes"]) == (9, 5 * 1024**2)
    assert editor.call("patch", path, {"quiet_days": 10}).status_code == 400
    viewer = Api(make_user(roles={job.project: Role.VIEWER}))
    assert viewer.call("patch", path, {"days": 4}).status_code == 403
    stranger = Api(make_user(roles={make_job().project: Role.ADMIN}))
    assert stranger.call("get", path).status_code == 404
    foreign = {"project": make_job().project_id, "days": 4}
    assert editor.call("post", "/api/v1/log-policies", foreign).status_code == 400
    assert editor.call("delete", path).status_code == 204
    assert LogPolicy.objects.count() == 0


def test_policies_in_the_admin() -> None:
    job = make_job()
    editor = enter(make_user(roles={job.project: Role.EDITOR}))
    add = page(LogPolicy, "add")
    values = {"project": job.project_id, "job": job.pk, "days": "9", "quiet_days": "12"}
    assert "longer than other lines" in editor.post(add, values).content.decode()
    assert editor.post(add, values | {"quiet_days": "3"}).status_code == 302
    policy = LogPolicy.objects.get()
    shown = editor.get(page(LogPolicy, "changelist")).content.decode()
    assert job.name in shown
    change = page(LogPolicy, "change", policy.pk)
    assert editor.post(change, {"days": "20", "max_bytes": str(1024**3)}).status_code == 302
    policy.refresh_from_db()
    assert (policy.job, policy.days, policy.quiet_days) == (job, 20, None)
    assert AuditRecord.objects.filter(action="joblogs.change_logpolicy").count() == 1
    viewer = enter(make_user(roles={job.project: Role.VIEWER}))
    assert viewer.get(add).status_code == 403


def test_the_clock_may_be_anything(days: None) -> None:
    assert prune_lines(now=datetime.max.replace(tzinfo=NOW.tzinfo) - timedelta(days=1)) == 0
