"""Lifecycle of runs: pause, resume, restart, freeze, tune, and answers."""

from __future__ import annotations

import logging
import secrets
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction
from django.db.models import Q
from django.utils.translation import gettext as _

from apps.access.models import User
from apps.access.services import record
from apps.jobs.errors import BadPace, MoveRefused, RunNotActive
from apps.jobs.models import MAX_CONCURRENCY, MAX_SPEED, Run, RunCommand
from apps.jobs.services.commands import TOLD, answer, ask, send
from apps.jobs.services.moves import move
from apps.jobs.services.notification import notify
from apps.jobs.states import (
    FINAL,
    FREEZABLE,
    ON_A_HOST,
    PAUSABLE,
    RESTARTABLE,
    RESUMABLE,
    TUNABLE,
    RunAsk,
    RunState,
)
from yardkit.protocol import LifecycleAnswer

logger = logging.getLogger(__name__)

# An unanswered command is repeated between these two ages.
REMIND_AFTER: Final = timedelta(seconds=3)
REMIND_FOR: Final = timedelta(hours=1)

# State while a command is unanswered, state after acceptance, state after refusal.
_AFTER: Final[dict[RunAsk, tuple[RunState, RunState, RunState]]] = {
    RunAsk.PAUSE: (RunState.PAUSING, RunState.PAUSED, RunState.RUNNING),
    RunAsk.RESUME: (RunState.RESUMING, RunState.RUNNING, RunState.PAUSED),
}


# --- requests of users ----------------------------------------------------------------------------


@transaction.atomic
def pause_run(*, run: Run, now: datetime, actor: User | None) -> RunCommand:
    """Ask a run to send no new requests; pending answers are processed.

    Raises:
        RunNotActive: the run has ended.
        MoveRefused: the run is not in the state running.
    """
    before = _locked(run)
    if run.state not in PAUSABLE or not move(run, RunState.PAUSING, now=now, actor=_name(actor)):
        raise _refused(run, _("cannot be paused"))
    return _asked(run, RunAsk.PAUSE, before, now=now, actor=actor)


@transaction.atomic
def resume_run(*, run: Run, now: datetime, actor: User | None) -> RunCommand:
    """Ask a paused run to continue; a frozen run is thawed.

    Raises:
        RunNotActive: the run has ended.
        MoveRefused: the run is neither paused nor pausing.
    """
    before = _locked(run)
    if run.frozen or run.freeze_wanted:
        return thaw_run(run=run, now=now, actor=actor)
    if run.state not in RESUMABLE or not move(run, RunState.RESUMING, now=now, actor=_name(actor)):
        raise _refused(run, _("cannot be resumed"))
    return _asked(run, RunAsk.RESUME, before, now=now, actor=actor)


@transaction.atomic
def restart_run(*, run: Run, now: datetime, actor: User | None) -> RunCommand:
    """Ask a run to exit; its host then starts it again.

    Raises:
        RunNotActive: the run has ended.
        MoveRefused: the run has not started, or is already stopping.
    """
    before = _locked(run)
    if run.state not in RESTARTABLE or not move(
        run,
        RunState.STOPPING,
        now=now,
        actor=_name(actor),
        reason=_("restart requested"),
        restart_wanted=True,
        freeze_wanted=False,
    ):
        raise _refused(run, _("cannot be restarted"))
    return _asked(run, RunAsk.RESTART, before, now=now, actor=actor)


@transaction.atomic
def freeze_run(*, run: Run, now: datetime, actor: User | None) -> RunCommand:
    """Request that the host suspends the container or process of a run that does not answer.

    Raises:
        RunNotActive: the run has ended.
        MoveRefused: the run is not running, or is already frozen.
    """
    before = _locked(run)
    if run.state not in FREEZABLE or run.freeze_wanted or run.frozen:
        raise _refused(run, _("cannot be frozen"))
    _set(run, freeze_wanted=True)
    return _asked(run, RunAsk.FREEZE, before, now=now, actor=actor)


@transaction.atomic
def thaw_run(*, run: Run, now: datetime, actor: User | None) -> RunCommand:
    """Request that the host resumes the container or process of a frozen run.

    Raises:
        RunNotActive: the run has ended.
        MoveRefused: the run is not frozen, or is stopping.
    """
    before = _locked(run)
    thawable = run.state in ON_A_HOST and run.state != RunState.STOPPING
    if not (thawable and (run.freeze_wanted or (run.frozen and run.state == RunState.PAUSED))):
        raise _refused(run, _("cannot be thawed"))
    if run.frozen and run.state == RunState.PAUSED:
        move(run, RunState.RESUMING, now=now, actor=_name(actor))
    _set(run, freeze_wanted=False)
    command = _asked(run, RunAsk.THAW, before, now=now, actor=actor)
    if not run.frozen:
        # The host has not frozen the run yet: freeze and thaw cancel each other out.
        _answer_open(
            run, RunAsk.FREEZE, now=now, accepted=False, text=_("withdrawn before it took effect")
        )
        answer(command, now=now, accepted=True)
    return command


@transaction.atomic
def tune_run(
    *,
    run: Run,
    concurrency: int | None = None,
    speed: float | None = None,
    now: datetime,
    actor: User | None,
) -> RunCommand:
    """Ask a run to continue with another window or speed.

    The settings of the job are unchanged, and apply again after a restart of the run.

    Raises:
        RunNotActive: the run has ended.
        MoveRefused: the run has not started, is frozen, or is stopping.
        BadPace: neither value is given, or one is out of range.
    """
    given: dict[str, Any] = {"concurrency": concurrency, "speed": speed}
    settings = {name: value for name, value in given.items() if value is not None}
    _check_pace(settings)
    before = _locked(run)
    if RunAsk.TUNE not in run.allowed:
        raise _refused(run, _("cannot be tuned"))
    return _asked(run, RunAsk.TUNE, before, now=now, actor=actor, settings=settings)


def _check_pace(settings: dict[str, Any]) -> None:
    if not settings:
        raise BadPace(_("Give a window, a speed, or both."))
    if not 1 <= settings.get("concurrency", 1) <= MAX_CONCURRENCY:
        raise BadPace(_("The window is a number from 1 to %(most)d.") % {"most": MAX_CONCURRENCY})
    # The comparison is also false for NaN.
    if not 0 <= settings.get("speed", 0) <= MAX_SPEED:
        raise BadPace(_("The speed is a number from 0 to %(most)d.") % {"most": MAX_SPEED})


def _locked(run: Run) -> dict[str, Any]:
    """Lock the row and refresh ``run``; return the state for the audit record."""
    run.refresh_from_db(from_queryset=Run.objects.select_for_update())
    if run.state in FINAL:
        raise RunNotActive(_("Run %(id)s has already ended.") % {"id": run.pk})
    return {"state": run.state}


def _refused(run: Run, what: str) -> MoveRefused:
    words = {"id": run.pk, "state": run.get_state_display(), "what": what}
    return MoveRefused(_("Run %(id)s is %(state)s: it %(what)s.") % words)


def _name(actor: User | None) -> str:
    return actor.get_username() if actor else ""


def _asked(
    run: Run,
    action: RunAsk,
    before: dict[str, Any],
    *,
    now: datetime,
    actor: User | None,
    settings: dict[str, Any] | None = None,
) -> RunCommand:
    record(
        actor=actor,
        action=f"jobs.{action.value}_run",
        obj=run,
        project=run.job.project,
        before=before,
        after={"state": run.state, **(settings or {})},
    )
    return ask(run, action, now=now, asked_by=_name(actor), settings=settings)


def _set(run: Run, **fields: Any) -> None:
    Run.objects.filter(pk=run.pk).update(**fields)
    for name, value in fields.items():
        setattr(run, name, value)


# --- reports of runs and hosts --------------------------------------------------------------------


@transaction.atomic
def acknowledge(*, message: LifecycleAnswer, now: datetime) -> None:
    """Process an answer of a run. Idempotent; an answer without a command is ignored.

    An answer of an earlier execution, or to a command that was followed by a newer one, is recorded
    but does not change the state.
    """
    run = (
        Run.objects.select_for_update(of=("self",))
        .select_related("job__project")
        .filter(pk=message.run)
        .first()
    )
    command = RunCommand.objects.filter(pk=message.command, run_id=message.run).first()
    if run is None or command is None or TOLD.get(RunAsk(command.action)) is not message.action:
        logger.warning("run %s answers what it was not asked: %s", message.run, message.command)
        return
    text = message.reason[:1000].replace("\x00", "")
    if not answer(command, now=now, accepted=message.accepted, text=text):
        return
    newer = run.commands.filter(pk__gt=command.pk, boot=command.boot)
    newer = newer.exclude(action__in=[RunAsk.FREEZE, RunAsk.TUNE])
    after = _AFTER.get(RunAsk(command.action))
    if after is not None and run.boot == message.boot == command.boot and not newer.exists():
        wanted_state, accepted, refused = after
        if run.state == wanted_state:
            to = accepted if message.accepted else refused
            reason = "" if message.accepted else text
            _arrive(run, to, now=now, actor=f"run:{run.pk}", reason=reason)
    notify(run)


@transaction.atomic
def mark_frozen(*, run: Run, frozen: bool, now: datetime) -> bool:
    """Record that the host has frozen or thawed the run; return False if already recorded."""
    run.refresh_from_db(from_queryset=Run.objects.select_for_update())
    if run.state in FINAL or run.frozen == frozen:
        return False
    _set(run, frozen=frozen)
    _answer_open(run, RunAsk.FREEZE if frozen else RunAsk.THAW, now=now, accepted=True)
    if frozen and run.state in FREEZABLE:
        move(run, RunState.PAUSED, now=now, actor=run.host, reason=_("frozen by its host"))
    elif not frozen and run.state in (RunState.PAUSED, RunState.RESUMING):
        _arrive(run, RunState.RUNNING, now=now, actor=run.host)
        thaw = run.commands.filter(action=RunAsk.THAW, boot=run.boot).last()
        if thaw is not None:
            # After the thaw the run may find an old pause message in its queue.
            send(thaw, run)
    notify(run)
    return True


@transaction.atomic
def restart_here(*, run: Run, now: datetime) -> bool:
    """Continue a restart with a new execution on the same host.

    Returns False if no restart is requested, or not any more.
    """
    run.refresh_from_db(from_queryset=Run.objects.select_for_update())
    if run.state != RunState.STOPPING or not run.restart_wanted:
        return False
    moved = _arrive(
        run,
        RunState.STARTING,
        now=now,
        actor=run.host,
        boot=secrets.token_hex(4),
        restarts=run.restarts + 1,
        restart_wanted=False,
        freeze_wanted=False,
        frozen=False,
        pid=None,
        process_started=None,
        exit_code=None,
        watched_at=now,
    )
    if moved:
        _answer_open(run, RunAsk.RESTART, now=now, accepted=True)
    return moved


def remind_runs(*, host: str, now: datetime) -> int:
    """Publish unanswered commands to the runs of ``host`` again; return their number.

    The first message may have been sent before the run listened, or while the broker was
    unreachable.
    """
    moving = Q(
        run__state__in=[RunState.PAUSING, RunState.RESUMING],
        action__in=[RunAsk.PAUSE, RunAsk.RESUME],
    )
    waiting = RunCommand.objects.filter(
        moving | Q(run__state__in=TUNABLE, action=RunAsk.TUNE),
        run__host=host,
        asked_at__gt=now - REMIND_FOR,
        asked_at__lte=now - REMIND_AFTER,
    )
    newest = {
        (row.run_id, row.action == RunAsk.TUNE): row
        for row in waiting.select_related("run__job__project")
    }
    reminded = 0
    for command in newest.values():
        if command.answered_at is None and command.boot == command.run.boot:
            send(command, command.run)
            reminded += 1
    return reminded


def _arrive(
    run: Run, to: RunState, *, now: datetime, actor: str, reason: str = "", **fields: Any
) -> bool:
    """Move a run to another state, and clear the reason of the previous state."""
    moved = move(run, to, now=now, actor=actor, reason=reason, **fields)
    if moved and not reason and run.reason:
        _set(run, reason="")
    return moved


def _answer_open(
    run: Run, action: RunAsk, *, now: datetime, accepted: bool, text: str = ""
) -> None:
    for command in run.commands.filter(action=action, answered_at=None):
        answer(command, now=now, accepted=accepted, text=text)
