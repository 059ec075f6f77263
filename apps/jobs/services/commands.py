"""What a run is asked: the row of the command, and the message that carries it to the run."""

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

# A run that has not heard of a command by then is told again by its host's watch.
MESSAGE_TTL_SECONDS: Final = 60.0

# What the run itself is told; freezing is between the platform and the host.
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
    """Write down what is asked of a run and tell it at the commit.

    What only the host can do (freeze, thaw) is told nobody: the host reads the run's row.
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
    """Publish a command, once more if need be: a run that has done it only answers again.

    Not mandatory: what does not listen, or not yet, shows as unanswered.
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
    """Write an answer down. False when there is one already."""
    answered = RunCommand.objects.filter(pk=command.pk, answered_at=None).update(
        answered_at=max(now, command.asked_at), accepted=accepted, answer=text
    )
    return bool(answered)
