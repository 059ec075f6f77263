"""Stop of runs on request."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.utils.translation import gettext as _

from apps.access.models import User
from apps.access.services import record
from apps.jobs.errors import MoveRefused, RunNotActive
from apps.jobs.models import Run
from apps.jobs.services.commands import ask
from apps.jobs.services.moves import move
from apps.jobs.states import FINAL, RunAsk, RunState


@transaction.atomic
def stop_run(*, run: Run, now: datetime, actor: User | None, reason: str = "") -> None:
    """Ask a run to exit; a queued run is cancelled at once.

    If the run is stopping for a restart, the restart is cancelled.

    Raises:
        RunNotActive: the run has ended.
        MoveRefused: the run is already stopping.
    """
    name = actor.get_username() if actor else ""
    run.refresh_from_db(from_queryset=Run.objects.select_for_update())
    before = run.state
    if run.state in FINAL:
        raise RunNotActive(_("Run %(id)s has already ended.") % {"id": run.pk})
    if run.state == RunState.QUEUED:
        why = reason or _("stopped by a user")
        # Clear the assigned host, which has never had the run.
        stopped = move(run, RunState.CANCELLED, now=now, actor=name, reason=why, host="")
    elif run.state == RunState.STOPPING:
        stopped = bool(
            Run.objects.filter(pk=run.pk, restart_wanted=True).update(
                restart_wanted=False, reason=reason
            )
        )
        run.restart_wanted = False
    else:
        stopped = move(
            run, RunState.STOPPING, now=now, actor=name, reason=reason, freeze_wanted=False
        )
    if not stopped:
        raise MoveRefused(_("Run %(id)s is already stopping.") % {"id": run.pk})
    if run.state == RunState.STOPPING:
        if not reason and run.reason:
            # Clear the reason of the previous state, which is not the reason of the stop.
            Run.objects.filter(pk=run.pk).update(reason="")
            run.reason = ""
        ask(run, RunAsk.EXIT, now=now, asked_by=name)
    record(
        actor=actor,
        action="jobs.stop_run",
        obj=run,
        project=run.job.project,
        before={"state": before},
        after={"state": run.state},
    )
