"""Another window and another speed for a run that is under way."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.jobs.errors import BadPace, MoveRefused, RunNotActive
from apps.jobs.services import (
    acknowledge,
    freeze_run,
    mark_frozen,
    pause_run,
    remind_runs,
    tune_run,
)
from apps.jobs.states import FINAL, RunState
from apps.runtime.models import OutboxMessage
from tests.access.factories import make_user
from tests.jobs.factories import NOW, make_job, make_project, make_run
from tests.jobs.test_api import member
from tests.jobs.test_lifecycle import LATER, say, sent
from yardkit.protocol import LifecycleAnswer, RunAction

pytestmark = pytest.mark.django_db

S = RunState


@pytest.mark.covers("S3.20")
@pytest.mark.parametrize("state", list(RunState))
def test_only_a_run_that_listens_is_tuned(state: RunState) -> None:
    run = make_run(state=state)
    if state in (S.RUNNING, S.PAUSING, S.PAUSED, S.RESUMING):
        tune_run(run=run, concurrency=7, speed=0.5, now=NOW, actor=make_user(username="ann"))
        (message,) = sent()
        assert (message.action, message.settings) == (
            RunAction.TUNE,
            {"concurrency": 7, "speed": 0.5},
        )
        assert AuditRecord.objects.get().after == {"state": state, "concurrency": 7, "speed": 0.5}
    else:
        with pytest.raises(RunNotActive if state in FINAL else MoveRefused):
            tune_run(run=run, speed=1.0, now=NOW, actor=None)
        assert not OutboxMessage.objects.exists()
    run.refresh_from_db()
    assert run.state == state


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"concurrency": 0},
        {"concurrency": 10_001},
        {"speed": -0.1},
        {"speed": float("inf")},
        {"speed": float("nan")},
    ],
    ids=str,
)
def test_what_no_run_can_go_by_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(BadPace):
        tune_run(run=make_run(state=S.RUNNING), **settings, now=NOW, actor=None)


def test_a_frozen_run_hears_nothing() -> None:
    run = make_run(state=S.RUNNING)
    freeze_run(run=run, now=NOW, actor=None)
    mark_frozen(run=run, frozen=True, now=NOW)
    with pytest.raises(MoveRefused, match="cannot be tuned"):
        tune_run(run=run, speed=1.0, now=NOW, actor=None)


def test_the_answer_is_kept_and_a_pause_before_it_still_counts() -> None:
    run = make_run(state=S.RUNNING)
    pause = pause_run(run=run, now=NOW, actor=None)
    tune = tune_run(run=run, concurrency=3, now=NOW, actor=None)
    say(run, tune, reason="concurrency 3, speed 1")
    assert run.state == S.PAUSING
    say(run, pause)
    assert run.state == S.PAUSED
    tune.refresh_from_db()
    assert (tune.accepted, tune.answer) == (True, "concurrency 3, speed 1")


def test_a_run_that_does_not_answer_is_told_again() -> None:
    run = make_run(state=S.RUNNING)
    older = tune_run(run=run, concurrency=3, now=NOW, actor=None)
    newer = tune_run(run=run, concurrency=4, now=NOW, actor=None)
    assert remind_runs(host="host-1", now=LATER) == 1
    assert [message.command for message in sent()] == [older.pk, newer.pk, newer.pk]
    answer = LifecycleAnswer(run=run.pk, boot="b1", action=RunAction.TUNE, command=newer.pk)
    acknowledge(message=answer, now=LATER)
    assert remind_runs(host="host-1", now=LATER + timedelta(seconds=5)) == 0


def test_over_rest() -> None:
    run = make_run(job=make_job(project=make_project()), state=S.RUNNING)
    project = run.job.project
    address = f"runs/{run.pk}/tune"
    assert member(project, Role.VIEWER).post(address, {"speed": 1}).status_code == 403
    assert member(make_project(), Role.ADMIN).post(address, {"speed": 1}).status_code == 404
    operator = member(project, Role.OPERATOR)
    assert operator.post(address, {"concurrency": 5}).status_code == 200
    rows = operator.get(f"runs/{run.pk}/commands").json()["results"]
    assert [(row["action"], row["settings"]) for row in rows] == [("tune", {"concurrency": 5})]
    assert operator.post(address, {"concurrency": 0}).status_code == 400
    refused = operator.post(address, {})
    assert (refused.status_code, refused.json()["code"]) == (422, "bad_pace")
    ended = make_run(job=run.job, state=S.EXITED)
    refused = operator.post(f"runs/{ended.pk}/tune", {"speed": 2})
    assert (refused.status_code, refused.json()["code"]) == (409, "run_not_active")
