"""Creation of notifications, which ``services.delivery`` sends.

    notify -> one row per channel in the caller's transaction; a worker starts at the commit
    resend -> the same notification again, at a user's request
    wake_delivery_workers -> periodic sweep over channels with due notifications

An incident that ends within quiet hours sends nothing. After an incident has ended, earlier
notifications are not retried; the recovery goes to every channel that may have been reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.db.models import Q

from apps.access.models import User
from apps.access.services import record
from apps.alerts.errors import NoticePending
from apps.alerts.models import Channel, Incident, Notice
from apps.alerts.querysets import NoticeQuerySet
from apps.alerts.services.recipients import channels_named
from apps.alerts.states import NoticeKind, NoticeProblem, NoticeState
from apps.runtime.deferral import defer
from yardkit import topology

RECOVERED: Final = NoticeKind.RECOVERED
SEND_TASK: Final = "alerts.send_notices"
# Tests and ends of runs belong to no incident, so incident retention does not delete them.
KEEP_OTHERS: Final = timedelta(days=30)


@transaction.atomic
def notify(
    *,
    incident: Incident,
    kind: NoticeKind,
    channels: Sequence[str],
    now: datetime,
    not_before: datetime | None = None,
) -> list[Notice]:
    """Create notifications for these channels, in the transaction that changes the incident.

    ``channels`` are names: the project's channel is preferred to the platform's. A name without a
    channel creates a failed notification. ``not_before`` is the end of quiet hours.
    """
    found_channels = channels_named(incident.project_id, channels)
    if kind == NoticeKind.RECOVERED:
        channels = _reached_channels(incident, channels, now)
    written = [
        write(
            Notice(project_id=incident.project_id, incident=incident, kind=kind, created_at=now),
            channel=found_channels.get(name),
            name=name,
            now=now,
            not_before=not_before,
        )
        for name in dict.fromkeys(channels)
    ]
    _wake(
        notice
        for notice in written
        if notice.state == NoticeState.WAITING and not notice.not_before
    )
    return written


def notified_channels(incident: Incident, kinds: Iterable[str] = ()) -> list[str]:
    """Return the names of channels that were, or may have been, notified of the incident.

    ``kinds`` limits the result to channels of these kinds.
    """
    heard = _tried(Notice.objects.filter(incident=incident))
    if kinds:
        heard = heard.filter(channel__kind__in=kinds)
    return list(heard.order_by("channel_name").values_list("channel_name", flat=True).distinct())


def drop_pending(incident: Incident) -> int:
    """Drop the incident's waiting notifications after an acknowledgement; return their number.

    Notifications that a user resent are kept.
    """
    return _drop(Notice.objects.filter(incident=incident, resent_of=None))


def drop_held_escalations(incident: Incident, *, now: datetime) -> int:
    """Drop escalations deferred by quiet hours after an acknowledgement; return their number.

    The first notification, "opened", is still sent.
    """
    held = Notice.objects.filter(incident=incident, kind=NoticeKind.ESCALATED, not_before__gt=now)
    return _drop(held)


@transaction.atomic
def resend(*, notice: Notice, actor: User | None, now: datetime) -> Notice:
    """Send a finished notification again as a new row. Raises ``NoticePending``."""
    if notice.state == NoticeState.WAITING:
        raise NoticePending
    again = write(
        Notice(
            project_id=notice.project_id,
            incident_id=notice.incident_id,
            kind=notice.kind,
            created_at=now,
            run=notice.run,
            facts=notice.facts,
            resent_of_id=notice.resent_of_id or notice.pk,
        ),
        # Looked up by name, in case the channel was deleted and created again.
        channel=channels_named(notice.project_id, [notice.channel_name]).get(notice.channel_name),
        name=notice.channel_name,
        now=now,
    )
    record(
        actor=actor,
        action="alerts.resend_notice",
        obj=again,
        after={"channel": notice.channel_name, "notice": notice.pk},
    )
    _wake([again])
    return again


@transaction.atomic
def send_test(*, channel: Channel, actor: User | None, now: datetime) -> Notice:
    """Send a test through this channel, even if it is disabled; it is tried once."""
    notice = Notice.objects.create(
        project_id=channel.project_id,
        channel=channel,
        channel_name=channel.name,
        kind=NoticeKind.TEST,
        created_at=now,
        next_try_at=now,
    )
    record(actor=actor, action="alerts.test_channel", obj=channel, after={"notice": notice.pk})
    _wake([notice])
    return notice


def wake_delivery_workers(*, now: datetime) -> int:
    """Start delivery for each channel with due notifications; return the number of channels."""
    due = Notice.objects.due(now).exclude(channel=None).order_by("channel_id")
    channel_ids = list(due.values_list("channel_id", flat=True).distinct())
    for pk in channel_ids:
        defer(SEND_TASK, queue=topology.TASKS, channel=pk)
    return len(channel_ids)


def prune_notices(*, now: datetime) -> int:
    """Delete old notifications without incident; return their number."""
    old = Notice.objects.filter(incident=None, created_at__lt=now - KEEP_OTHERS)
    return old.exclude(state=NoticeState.WAITING).delete()[0]


def _drop(notices: NoticeQuerySet[Notice]) -> int:
    waiting = notices.filter(state=NoticeState.WAITING)
    return waiting.update(state=NoticeState.DROPPED, next_try_at=None)


def _reached_channels(incident: Incident, names: Sequence[str], now: datetime) -> list[str]:
    """Drop deferred notifications; return the channels that may have been notified before."""
    earlier = Notice.objects.filter(incident=incident, channel_name__in=names)
    _drop(earlier.filter(attempts=0, next_try_at__gt=now))
    # After a reopening, the latest kind counts: a channel that already got the recovery is left
    # out.
    newest: dict[str, str] = dict(
        _tried(earlier).filter(resent_of=None).order_by("pk").values_list("channel_name", "kind")
    )
    return [name for name in names if newest.get(name, RECOVERED) != RECOVERED]


def _tried(notices: NoticeQuerySet[Notice]) -> NoticeQuerySet[Notice]:
    """Exclude notifications that certainly reached no recipient."""
    nowhere = Q(problem__in=(NoticeProblem.NO_CHANNEL, NoticeProblem.OFF), attempts=0)
    return notices.exclude(Q(state=NoticeState.DROPPED) | nowhere)


def write(
    notice: Notice,
    *,
    channel: Channel | None,
    name: str,
    now: datetime,
    not_before: datetime | None = None,
) -> Notice:
    """Save a new notification, failed if there is no enabled channel to send it."""
    notice.channel, notice.channel_name = channel, name[:151]
    if channel is None:
        notice.state, notice.problem = NoticeState.FAILED, NoticeProblem.NO_CHANNEL
    elif not channel.enabled:
        notice.state, notice.problem = NoticeState.FAILED, NoticeProblem.OFF
    else:
        notice.not_before = not_before if not_before is not None and not_before > now else None
        notice.next_try_at = notice.not_before or now
    notice.save(force_insert=True)
    return notice


def _wake(notices: Iterable[Notice]) -> None:
    for pk in dict.fromkeys(
        notice.channel_id for notice in notices if notice.channel_id is not None
    ):
        defer(SEND_TASK, queue=topology.TASKS, channel=pk)
