"""Commands to runs: rows, and the messages that deliver them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from apps.jobs.models import Run, RunCommand
from apps.jobs.services.notification import notify
from apps.jobs.states import RunAsk
from apps.runtime.services import enqueue
from yardkit import topology
from yardkit.protocol import Lifecycle, RunAction

# After this time the runner of the run's host repeats the command (``remind_runs``).
MESSAGE_TTL_SECONDS: Final = 60.0

# Action in the message to the run; there is none for a freeze, which the host performs.
TOLD: Final = {
    RunAsk.PAUSE: RunAction.PAUSE,
    RunAsk.RESUME: RunAction.RESUME,
    RunAsk.THAW: RunAction.RESUME,
    RunAsk.EXIT: RunAction.EXIT,
    RunAsk.RESTART: RunAction.EXIT,
    RunAsk.TUNE: RunAction.TUNE,
}


def ask(
    run: Run,
    action: RunAsk,
    *,
    now: datetime,
    asked_by: str,
    settings: Mapping[str, Any] | None = None,
) -> RunCommand:
    """Store a command, and publish it on commit.

    Freeze and thaw are not published: the host reads them from the row of the run.
    """
    command = RunCommand.objects.create(
        run=run,
        action=action,
        settings=dict(settings or {}),
        boot=run.boot,
        asked_by=asked_by,
        asked_at=now,
    )
    if action not in (RunAsk.FREEZE, RunAsk.THAW):
        send(command, run)
    notify(run)
    return command


def send(command: RunCommand, run: Run) -> None:
    """Publish a command. Idempotent: a run answers a repeated command without acting again.

    Not published as mandatory: a command to a run that does not listen stays unanswered.
    """
    message = Lifecycle(
        action=TOLD[RunAsk(command.action)],
        run=run.pk,
        boot=command.boot,
        command=command.pk,
        reason=f"asked by {command.asked_by}" if command.asked_by else "",
        settings=command.settings,
    )
    enqueue(
        exchange=topology.LIFECYCLE,
        key=run.topic or topology.job_topic(run.job.project.slug, run.job.name),
        body=message,
        ttl_seconds=MESSAGE_TTL_SECONDS,
        mandatory=False,
    )


def answer(command: RunCommand, *, now: datetime, accepted: bool, text: str = "") -> bool:
    """Record the answer to a command; return False if it was answered before."""
    answered = RunCommand.objects.filter(pk=command.pk, answered_at=None).update(
        answered_at=max(now, command.asked_at), accepted=accepted, answer=text
    )
    return bool(answered)
