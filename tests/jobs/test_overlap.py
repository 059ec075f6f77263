"""Starting a job while an earlier run of it is active."""

from __future__ import annotations

import pytest

from apps.access.models import AuditRecord
from apps.jobs.errors import JobRunning, TooManyWaiting
from apps.jobs.models import Job, Run
from apps.jobs.services import add_link, finish_run, overlap, start_run
from apps.jobs.states import LinkCondition, OverlapPolicy, RunState
from tests.jobs.factories import NOW, make_job, make_run

S = RunState


@pytest.mark.slow("2 s")
@pytest.mark.django_db
@pytest.mark.covers("S1.13")
@pytest.mark.parametrize("own", list(OverlapPolicy))
@pytest.mark.parametrize("asked", [None, *OverlapPolicy])
def test_every_policy_with_an_active_run(own: OverlapPolicy, asked: OverlapPolicy | None) -> None:
    job = make_job(overlap=own)
    earlier = make_run(job=job, state=S.RUNNING)
    policy = asked or own
    if policy == OverlapPolicy.SKIP:
        with pytest.raises(JobRunning, match=str(earlier.pk)):
            start_run(job=job, now=NOW, actor=None, overlap=asked)
        assert Run.objects.count() == 1
        return
    run = start_run(job=job, now=NOW, actor=None, overlap=asked)
    earlier.refresh_from_db()
    assert run.waits_for == (None if policy == OverlapPolicy.ALLOW else earlier)
    assert earlier.state == (S.STOPPING if policy == OverlapPolicy.REPLACE else S.RUNNING)


@pytest.mark.django_db
@pytest.mark.parametrize("policy", list(OverlapPolicy))
def test_an_idle_job_starts_whatever_its_policy(policy: OverlapPolicy) -> None:
    job = make_job(overlap=policy)
    make_run(job=job, state=S.FAILED)
    assert start_run(job=job, now=NOW, actor=None).waits_for is None


@pytest.mark.django_db
def test_a_run_is_queued_behind_the_newest_one() -> None:
    job = make_job()
    make_run(job=job, state=S.RUNNING)
    newest = make_run(job=job)
    assert start_run(job=job, now=NOW, actor=None, overlap="queue").waits_for == newest


@pytest.mark.django_db
def test_replacing_stops_all_and_waits_for_what_is_still_there() -> None:
    job = make_job()
    running = make_run(job=job, state=S.RUNNING)
    stopping = make_run(job=job, state=S.STOPPING)
    waiting = make_run(job=job)
    run = start_run(job=job, now=NOW, actor=None, overlap="replace")
    states = [Run.objects.get(pk=one.pk).state for one in (running, stopping, waiting)]
    assert states == [S.STOPPING, S.STOPPING, S.CANCELLED]
    assert run.waits_for == stopping


@pytest.mark.django_db
@pytest.mark.covers("S1.13")
def test_no_person_queues_more_than_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "WAITING_LIMIT", 2)
    job = make_job(overlap="queue")
    make_run(job=job, state=S.RUNNING)
    for _ in range(2):
        start_run(job=job, now=NOW, actor=None)
    with pytest.raises(TooManyWaiting, match="2 runs are waiting, no more are allowed") as refused:
        start_run(job=job, now=NOW, actor=None)
    assert (refused.value.code, refused.value.status) == ("too_many_waiting", 409)
    assert job.runs.count() == 3


def followed(overlap: str) -> tuple[Job, Run]:
    """A job with this policy, and the running run of another whose end it follows."""
    before = make_job()
    follower = make_job(overlap=overlap)
    add_link(job=follower, after=before, condition=LinkCondition.SUCCEEDED, actor=None)
    return follower, make_run(job=before, state=S.RUNNING)


@pytest.mark.django_db
@pytest.mark.covers("S1.13")
@pytest.mark.parametrize("policy", list(OverlapPolicy))
def test_a_follower_does_as_the_policy_of_its_job_says(policy: OverlapPolicy) -> None:
    follower, cause = followed(policy)
    earlier = make_run(job=follower, state=S.RUNNING)
    assert finish_run(run=cause, state=S.EXITED, reason="", now=NOW)
    earlier.refresh_from_db()
    assert earlier.state == (S.STOPPING if policy == OverlapPolicy.REPLACE else S.RUNNING)
    noted = AuditRecord.objects.filter(action="jobs.skip_follower")
    if policy == OverlapPolicy.SKIP:
        assert not cause.caused.exists()
        assert noted.get().object_id == str(follower.pk)
        assert f"run {earlier.pk} was active" in noted.get().note
        return
    assert not noted.exists()
    allowed = policy == OverlapPolicy.ALLOW
    assert cause.caused.get().waits_for == (None if allowed else earlier)


@pytest.mark.django_db
def test_no_follower_queues_more_than_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "WAITING_LIMIT", 1)
    follower, cause = followed("queue")
    make_run(job=follower, state=S.RUNNING)
    make_run(job=follower)
    assert finish_run(run=cause, state=S.EXITED, reason="", now=NOW)
    assert follower.runs.count() == 2
    assert (
        "1 runs are waiting, no more are allowed"
        in AuditRecord.objects.get(action="jobs.skip_follower").note
    )


@pytest.mark.django_db
def test_a_follower_that_replaces_brings_its_own_followers() -> None:
    follower, cause = followed("replace")
    last = make_job(overlap="replace")
    add_link(job=last, after=follower, condition=LinkCondition.ALWAYS, actor=None)
    add_link(job=last, after=cause.job, condition=LinkCondition.ALWAYS, actor=None)
    waiting = make_run(job=follower)
    assert finish_run(run=cause, state=S.EXITED, reason="", now=NOW)
    waiting.refresh_from_db()
    assert (waiting.state, waiting.reason) == (S.CANCELLED, "replaced by a later run")
    # Of the two that follow, the later one has taken the place of the other.
    assert last.runs.active().get().caused_by == cause
    assert waiting.caused.get().state == S.CANCELLED
