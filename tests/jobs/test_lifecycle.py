"""Pausing, resuming, restarting, freezing: what the services allow and write down."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from apps.access.models import AuditRecord
from apps.jobs.errors import JobsError, MoveRefused, RunNotActive
from apps.jobs.models import Run, RunCommand
from apps.jobs.services import (
    acknowledge,
    finish_run,
    freeze_run,
    mark_frozen,
    pause_run,
    remind_runs,
    restart_here,
    restart_run,
    resume_run,
    stop_run,
    thaw_run,
)
from apps.jobs.states import FINAL, RunAsk, RunState
from apps.runtime.models import OutboxMessage
from tests.access.factories import make_user
from tests.jobs.factories import NOW, make_run
from yardkit import topology
from yardkit.protocol import Lifecycle, LifecycleAnswer, RunAction, decode

pytestmark = pytest.mark.django_db

S = RunState
ACTIONS: dict[str, Callable[..., Any]] = {
    "pause": pause_run,
    "resume": resume_run,
    "restart": restart_run,
    "stop": stop_run,
    "freeze": freeze_run,
    "thaw": thaw_run,
}
# What each action leads to, from every state in which it is allowed.
ALLOWED: dict[tuple[str, RunState], RunState] = {
    ("pause", S.RUNNING): S.PAUSING,
    ("pause", S.RESUMING): S.PAUSING,
    ("resume", S.PAUSED): S.RESUMING,
    ("resume", S.PAUSING): S.RESUMING,
    ("stop", S.QUEUED): S.CANCELLED,
    **{
        (action, state): S.STOPPING
        for action in ("stop", "restart")
        for state in (S.STARTING, S.RUNNING, S.PAUSING, S.PAUSED, S.RESUMING)
    },
    **{("freeze", state): state for state in (S.RUNNING, S.PAUSING, S.RESUMING)},
}
LATER = NOW + timedelta(seconds=5)


def sent() -> list[Lifecycle]:
    """The lifecycle messages in the outbox, oldest first."""
    rows = OutboxMessage.objects.filter(exchange=topology.LIFECYCLE).order_by("id")
    assert not any(row.mandatory for row in rows)
    messages = [decode(bytes(row.body)) for row in rows]
    assert all(isinstance(message, Lifecycle) for message in messages)
    return messages  # type: ignore[return-value]


def say(run: Run, command: RunCommand, /, *, accepted: bool = True, **fields: Any) -> None:
    """The run answers a command."""
    action = RunAction.RESUME if command.action == RunAsk.THAW else RunAction(command.action)
    values = {"run": run.pk, "boot": run.boot, "action": action, "command": command.pk} | fields
    acknowledge(message=LifecycleAnswer(accepted=accepted, **values), now=LATER)
    run.refresh_from_db()


@pytest.mark.slow("2 s")
@pytest.mark.covers("S1.8", "S1.9", "S1.10", "S1.11")
@pytest.mark.parametrize("state", list(RunState))
@pytest.mark.parametrize("action", list(ACTIONS))
def test_every_action_in_every_state(action: str, state: RunState) -> None:
    run = make_run(state=state)
    expected = ALLOWED.get((action, state))
    if expected is not None:
        ACTIONS[action](run=run, now=NOW, actor=None)
    else:
        with pytest.raises(RunNotActive if state in FINAL else MoveRefused) as refusal:
            ACTIONS[action](run=run, now=NOW, actor=None)
        assert str(run.pk) in str(refusal.value)
        assert not OutboxMessage.objects.exists()
        assert not AuditRecord.objects.exists()
    run.refresh_from_db()
    assert run.state == (expected or state)


def test_a_refusal_names_the_present_state() -> None:
    with pytest.raises(MoveRefused, match="queued: it cannot be paused"):
        pause_run(run=make_run(), now=NOW, actor=None)


def test_a_pause_is_told_to_this_execution_by_the_topic_of_its_job() -> None:
    run = make_run(state=S.RUNNING, topic="job.news.daily")
    command = pause_run(run=run, now=NOW, actor=make_user(username="ann"))
    row = OutboxMessage.objects.get(exchange=topology.LIFECYCLE)
    assert (row.key, row.ttl_seconds) == ("job.news.daily", 60)
    assert sent() == [
        Lifecycle(
            action=RunAction.PAUSE, run=run.pk, boot="b1", command=command.pk, reason="asked by ann"
        )
    ]
    assert (command.asked_by, command.answered_at, command.accepted) == ("ann", None, None)
    record = AuditRecord.objects.get(action="jobs.pause_run")
    assert (record.before, record.after) == ({"state": "running"}, {"state": "pausing"})


def test_pause_and_resume_are_complete_once_the_run_says_so() -> None:
    run = make_run(state=S.RUNNING)
    say(run, pause_run(run=run, now=NOW, actor=None), reason="3 requests are still on their way")
    assert run.state == S.PAUSED
    command = RunCommand.objects.get()
    assert (command.answered_at, command.accepted) == (LATER, True)
    assert command.answer == "3 requests are still on their way"
    assert run.reason == ""
    say(run, resume_run(run=run, now=NOW, actor=None))
    assert run.state == S.RUNNING
    assert [str(move.to_state) for move in run.moves.all()] == [
        "pausing",
        "paused",
        "resuming",
        "running",
    ]


def test_a_run_may_refuse() -> None:
    run = make_run(state=S.RUNNING)
    say(run, pause_run(run=run, now=NOW, actor=None), accepted=False, reason="no pausing here")
    assert (run.state, run.reason) == (S.RUNNING, "no pausing here")
    run = make_run(state=S.PAUSED)
    say(run, resume_run(run=run, now=NOW, actor=None), accepted=False, reason="not now")
    assert (run.state, run.reason) == (S.PAUSED, "not now")


def test_a_repeated_answer_changes_nothing() -> None:
    run = make_run(state=S.RUNNING)
    pause = pause_run(run=run, now=NOW, actor=None)
    say(run, pause)
    resume_run(run=run, now=NOW, actor=None)
    say(run, pause)
    say(run, pause, accepted=False, reason="what?")
    pause.refresh_from_db()
    assert (run.state, pause.accepted, pause.answer) == (S.RESUMING, True, "")


def test_a_late_answer_to_an_earlier_command_is_written_down_and_moves_nothing() -> None:
    run = make_run(state=S.RUNNING)
    first = pause_run(run=run, now=NOW, actor=None)
    resume_run(run=run, now=NOW, actor=None)
    second = pause_run(run=run, now=NOW, actor=None)
    say(run, first)
    first.refresh_from_db()
    assert (run.state, first.accepted) == (S.PAUSING, True)
    say(run, second)
    assert run.state == S.PAUSED


def test_the_answer_of_an_earlier_execution_moves_nothing() -> None:
    run = make_run(state=S.RUNNING)
    pause = pause_run(run=run, now=NOW, actor=None)
    say(run, pause, boot="b0")
    pause.refresh_from_db()
    assert (run.state, pause.accepted) == (S.PAUSING, True)


@pytest.mark.parametrize("wrong", [{"run": 999_999}, {"command": 999_999}, {"command": 0}])
def test_an_answer_to_what_nobody_asked_is_let_go(wrong: dict[str, int]) -> None:
    run = make_run(state=S.RUNNING)
    pause = pause_run(run=run, now=NOW, actor=None)
    say(run, pause, **wrong)
    say(run, pause, action=RunAction.EXIT)
    pause.refresh_from_db()
    assert (run.state, pause.answered_at) == (S.PAUSING, None)


def test_the_answer_of_another_run_does_not_count() -> None:
    run, other = make_run(state=S.RUNNING), make_run(state=S.RUNNING)
    pause = pause_run(run=run, now=NOW, actor=None)
    say(other, pause)
    run.refresh_from_db()
    pause.refresh_from_db()
    assert (run.state, pause.answered_at) == (S.PAUSING, None)


def test_an_answer_after_the_end_is_written_down() -> None:
    run = make_run(state=S.RUNNING)
    pause = pause_run(run=run, now=NOW, actor=None)
    finish_run(run=run, state=S.EXITED, reason="", now=NOW)
    say(run, pause)
    pause.refresh_from_db()
    assert (run.state, pause.accepted) == (S.EXITED, True)


# --- restart --------------------------------------------------------------------------------


def test_a_restart_is_an_exit_and_then_another_execution_in_the_same_place() -> None:
    run = make_run(state=S.PAUSED, pid=7, process_started=1.0, container="c1")
    command = restart_run(run=run, now=NOW, actor=make_user(username="ann"))
    assert (run.state, run.restart_wanted) == (S.STOPPING, True)
    assert [(message.action, message.boot) for message in sent()] == [(RunAction.EXIT, "b1")]
    assert restart_here(run=run, now=LATER)
    run.refresh_from_db()
    assert (run.state, run.host, run.container, run.restarts) == (S.STARTING, "host-1", "c1", 1)
    assert run.boot != "b1"
    assert (run.pid, run.restart_wanted, run.frozen, run.reason) == (None, False, False, "")
    command.refresh_from_db()
    assert command.accepted
    assert not restart_here(run=run, now=LATER)


def test_a_stop_during_a_restart_takes_it_back() -> None:
    run = make_run(state=S.RUNNING)
    restart_run(run=run, now=NOW, actor=None)
    stop_run(run=run, now=NOW, actor=None)
    assert not restart_here(run=run, now=LATER)
    run.refresh_from_db()
    assert (run.restart_wanted, run.reason) == (False, "")
    with pytest.raises(MoveRefused):
        stop_run(run=run, now=NOW, actor=None)
    with pytest.raises(MoveRefused):
        restart_run(run=run, now=NOW, actor=None)
    assert [message.action for message in sent()] == [RunAction.EXIT, RunAction.EXIT]


def test_a_command_to_the_earlier_execution_does_not_pause_the_new_one() -> None:
    run = make_run(state=S.RUNNING)
    pause = pause_run(run=run, now=NOW, actor=None)
    restart_run(run=run, now=NOW, actor=None)
    assert restart_here(run=run, now=LATER)
    say(run, pause, boot="b1")
    assert run.state == S.STARTING


# --- freezing -------------------------------------------------------------------------------


def test_a_run_that_does_not_listen_is_frozen_and_thawed_by_its_host() -> None:
    run = make_run(state=S.RUNNING)
    pause_run(run=run, now=NOW, actor=None)
    freeze = freeze_run(run=run, now=NOW, actor=None)
    assert (run.state, run.freeze_wanted) == (S.PAUSING, True)
    with pytest.raises(MoveRefused):
        freeze_run(run=run, now=NOW, actor=None)
    assert mark_frozen(run=run, frozen=True, now=LATER)
    assert not mark_frozen(run=run, frozen=True, now=LATER)
    freeze.refresh_from_db()
    assert (run.state, run.frozen, freeze.accepted) == (S.PAUSED, True, True)

    thaw = resume_run(run=run, now=NOW, actor=None)
    assert (thaw.action, run.state, run.freeze_wanted) == (RunAsk.THAW, S.RESUMING, False)
    assert mark_frozen(run=run, frozen=False, now=LATER)
    run.refresh_from_db()
    assert (run.state, run.frozen, run.reason) == (S.RUNNING, False, "")
    # It may have slept through the word to pause, which it then finds first.
    assert [message.action for message in sent()] == [RunAction.PAUSE, RunAction.RESUME]
    assert sent()[-1].command == thaw.pk


def test_a_freeze_that_no_host_has_come_to_is_taken_back() -> None:
    run = make_run(state=S.RUNNING)
    freeze = freeze_run(run=run, now=NOW, actor=None)
    thaw = thaw_run(run=run, now=NOW, actor=None)
    freeze.refresh_from_db()
    thaw.refresh_from_db()
    assert (run.state, run.freeze_wanted) == (S.RUNNING, False)
    assert (freeze.accepted, thaw.accepted) == (False, True)


def test_a_frozen_run_that_is_stopped_is_let_go() -> None:
    run = make_run(state=S.PAUSED, frozen=True, freeze_wanted=True, reason="frozen by its host")
    stop_run(run=run, now=NOW, actor=None)
    assert (run.state, run.freeze_wanted, run.reason) == (S.STOPPING, False, "")
    with pytest.raises(MoveRefused):
        thaw_run(run=run, now=NOW, actor=None)
    assert mark_frozen(run=run, frozen=False, now=LATER)
    assert run.state == S.STOPPING


# --- reminders ------------------------------------------------------------------------------


def test_what_is_not_answered_is_told_again_under_the_same_number() -> None:
    run = make_run(state=S.RUNNING)
    other = make_run(state=S.RUNNING, host="host-2")
    pause_run(run=run, now=NOW, actor=None)
    resume_run(run=run, now=NOW, actor=None)
    pause = pause_run(run=run, now=NOW, actor=None)
    pause_run(run=other, now=NOW, actor=None)
    OutboxMessage.objects.all().delete()
    assert remind_runs(host="host-1", now=NOW + timedelta(seconds=1)) == 0
    assert remind_runs(host="host-1", now=LATER) == 1
    assert [(one.action, one.run, one.command) for one in sent()] == [
        (RunAction.PAUSE, run.pk, pause.pk)
    ]
    say(run, pause)
    assert remind_runs(host="host-1", now=LATER) == 0


def test_every_refusal_has_a_code() -> None:
    run = make_run(state=S.EXITED)
    codes = set()
    for action in ACTIONS.values():
        with pytest.raises(JobsError) as refusal:
            action(run=run, now=NOW, actor=None)
        codes.add(refusal.value.code)
    assert codes == {"run_not_active"}
