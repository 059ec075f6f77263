"""Subscribe channels and people to the ends of runs; notify of each end."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.utils.translation import gettext_lazy as _

from apps.access.models import User
from apps.access.services import record
from apps.alerts.errors import BadChannel, NoAddress, NoSuchChannel
from apps.alerts.models import Channel, Notice, RunSubscription
from apps.alerts.services.notices import write
from apps.alerts.services.recipients import personal_channel, recipient_name, subscribed_channels
from apps.alerts.states import NoticeKind
from apps.jobs.models import Job, Run

# The last counters of a run arrive within seconds of its end.
SETTLED_AFTER: Final = timedelta(seconds=10)


@transaction.atomic
def subscribe(
    *,
    channel: Channel,
    project_id: int | None = None,
    job: Job | None = None,
    every_end: bool,
    actor: User | None,
) -> RunSubscription:
    """Subscribe a channel to runs of a job, a project or (both None) all projects.

    Changes an existing subscription of the same scope. Raises ``NoSuchChannel``.
    """
    project_id = project_id if job is None else job.project_id
    if channel.project_id is not None and channel.project_id != project_id:
        raise NoSuchChannel(fields={"channel": [NoSuchChannel.detail]})
    row = RunSubscription.objects.filter(channel=channel, project=project_id, job=job).first()
    if row is not None and row.every_end == every_end:
        return row
    if row is None:
        row = RunSubscription(channel=channel, project_id=project_id, job=job, created_by=actor)
    row.every_end = every_end
    row.save()
    record(actor=actor, action="alerts.subscribe", obj=row, after=_shown(row))
    return row


@transaction.atomic
def unsubscribe(*, subscription: RunSubscription, actor: User | None) -> None:
    """End a subscription."""
    record(actor=actor, action="alerts.unsubscribe", obj=subscription, before=_shown(subscription))
    subscription.delete()


@transaction.atomic
def notify_me(*, user: User, job: Job, every_end: bool | None, address: str = "") -> None:
    """Subscribe a user to a job by mail, or (None) end that.

    ``address`` is stored for a user without an e-mail address. Raises ``NoAddress`` and
    ``BadChannel``.
    """
    if every_end is None:
        for row in RunSubscription.objects.filter(channel__person=user, job=job):
            unsubscribe(subscription=row, actor=user)
        return
    if not user.email and address:
        try:
            validate_email(address)
        except ValidationError:
            raise BadChannel(fields={"address": [_("Invalid e-mail address.")]}) from None
        user.email = address
        user.save(update_fields=["email"])
        record(actor=user, action="access.set_email", obj=user, after={"email": address})
    if not user.email:
        raise NoAddress
    subscribe(channel=personal_channel(user), job=job, every_end=every_end, actor=user)


def notify_run_end(*, run: Run, now: datetime) -> list[Notice]:
    """Create the notifications of the end of a run, in the transaction that ends it."""
    written = []
    for channel in subscribed_channels(run):
        notice = Notice(
            project_id=run.job.project_id,
            kind=NoticeKind.RUN_ENDED,
            created_at=now,
            run=run.pk,
            facts=_facts(run),
        )
        name = recipient_name(channel)
        not_before = now + SETTLED_AFTER
        written.append(write(notice, channel=channel, name=name, now=now, not_before=not_before))
    return written


def _facts(run: Run) -> dict[str, Any]:
    return {
        "job": run.job.name,
        "job_id": run.job_id,
        "state": run.state,
        "reason": run.reason[:500],
        "attempt": run.attempt,
        "started_at": run.started_at.isoformat() if run.started_at else None,
        "ended_at": run.ended_at.isoformat() if run.ended_at else None,
        "replay_of": run.replay_of_id,
    }


def _shown(row: RunSubscription) -> dict[str, Any]:
    return {
        "channel": recipient_name(row.channel),
        "job": row.job_id,
        "when": "end" if row.every_end else "failure",
    }
