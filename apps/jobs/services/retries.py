"""Retries of runs by the retry rules of their jobs."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from apps.jobs.engine.retry import read_rules, rule_for
from apps.jobs.models import Run
from apps.jobs.services.run_queue import queue_run
from apps.jobs.states import RunAsk, RunState, Trigger

logger = logging.getLogger(__name__)


def retry_if_wanted(run: Run, *, now: datetime) -> Run | None:
    """Queue the retry of an ended run if a rule matches; called in the transaction of its end.

    A retry is a new run with the same arguments and image. A run is not retried if it was stopped
    on purpose, or never started, or if its job is disabled.
    """
    job = run.job
    if run.state not in (RunState.FAILED, RunState.LOST, RunState.CANCELLED):
        return None
    if not job.retry_rules or not job.enabled or job.is_gone or run.host == "":
        return None
    try:
        rules = read_rules(job.retry_rules)
    except ValidationError as error:
        # The rules were validated when saved, but the end of a run must not fail because of them.
        logger.error("job %s: its retry rules cannot be read: %s", job.pk, error)
        return None
    rule = rule_for(rules, end=run.state, exit_code=run.exit_code, attempt=run.attempt)
    if rule is None or _was_stopped(run) or run.retries.exists():
        return None
    delay = rule.delay(run.attempt)
    retry = queue_run(
        job=job,
        now=now,
        trigger=Trigger.RETRY,
        requested_by=run.requested_by,
        reason=_("run %(run)s ended %(state)s") % {"run": run.pk, "state": run.get_state_display()},
        attempt=run.attempt + 1,
        retry_of=run,
        not_before=now + timedelta(seconds=delay) if delay else None,
        same_as=run,
    )
    # Runs that wait for this run now wait for its retry.
    Run.objects.filter(waits_for=run, state=RunState.QUEUED).update(waits_for=retry)
    return retry


def _was_stopped(run: Run) -> bool:
    return run.commands.filter(action=RunAsk.EXIT).exists()
