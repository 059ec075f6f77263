"""Resolution of recipients to channels: names in rules, and subscriptions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from django.db.models import Q, QuerySet
from django.utils import translation

from apps.access.models import User
from apps.alerts.models import Channel, Incident, RunSubscription
from apps.alerts.queries.recipients import PERSON, channels_of, people_of
from apps.alerts.states import ChannelKind
from apps.jobs.models import Job, Run

# Sources whose incidents are notified to subscribers of failures.
FAILURES: Final = frozenset({"run.failed", "run.lost", "run.missed", "items.check_failed"})
_JOB: Final = "job:"


def personal_channel(user: User) -> Channel:
    """Return the channel that mails to a user; created on first use."""
    defaults = {
        "name": f"{PERSON}{user.pk}",
        "kind": ChannelKind.MAIL,
        "language": translation.get_language() or "en",
    }
    return Channel.objects.get_or_create(person=user, defaults=defaults)[0]


def channels_named(project_id: int | None, names: Iterable[str]) -> dict[str, Channel]:
    """Return channels by name, the project's before the platform's; people only with a role."""
    names = set(names)
    rows = channels_of(project_id).filter(name__in=names)
    named = {channel.name: channel for channel in sorted(rows, key=lambda row: row.project_id or 0)}
    people = [name[1:] for name in names if name.startswith(PERSON)]
    if people:
        for person in people_of(project_id).filter(username__in=people):
            named[PERSON + person.username] = personal_channel(person)
    return named


def recipient_name(channel: Channel) -> str:
    """Return the name of a channel as rules know it."""
    return channel.name if channel.person is None else PERSON + channel.person.username


def settings_of(channel: Channel) -> dict[str, Any]:
    """Return the channel's settings; those of a person's channel are the current address."""
    if channel.person is None:
        return dict(channel.settings)
    return {"to": [channel.person.email] if channel.person.email else []}


def subscribed_names(incident: Incident) -> list[str]:
    """Return the recipients that subscribed to failures of the job of an incident.

    Empty if an older open incident has notified them of the same: two rules may watch one event.
    """
    if incident.source not in FAILURES or not incident.key.startswith(_JOB):
        return []
    same = Incident.objects.open().filter(
        project=incident.project_id, source=incident.source, key=incident.key
    )
    if same.filter(pk__lt=incident.pk).exclude(told_at=None).exists():
        return []
    job = int(incident.key.removeprefix(_JOB))
    rows = _subscribed(RunSubscription.objects.of_job(job).filter(every_end=False), job)
    return list(dict.fromkeys(recipient_name(row.channel) for row in rows))


def subscribed_channels(run: Run) -> list[Channel]:
    """Return the channels that get each end of a run. One query."""
    rows = _subscribed(
        RunSubscription.objects.of_job(run.job_id).filter(every_end=True), run.job_id
    )
    return list({row.channel_id: row.channel for row in rows}.values())


def _subscribed(
    rows: QuerySet[RunSubscription, RunSubscription], job_id: int
) -> QuerySet[RunSubscription, RunSubscription]:
    """Limit subscriptions to enabled channels, and to people who see the job's project."""
    sees_all = Q(channel__person__is_superuser=True) | Q(channel__person__is_auditor=True)
    project = Job.objects.filter(pk=job_id).values("project")
    member = Q(channel__person__memberships__project__in=project)
    of_person = Q(channel__person__is_active=True) & (sees_all | member)
    rows = rows.filter(Q(channel__person=None) | of_person, channel__enabled=True)
    return rows.select_related("channel__person").distinct()
