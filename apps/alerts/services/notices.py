"""What is to be told to whom: rows that ``services.delivering`` sends.

    tell -> a row for each channel, in the caller's transaction, and a worker at the commit
    send_again -> the same notice once more, on a person's word
    wake_senders -> the net: channels with notices whose time has come

Held by quiet hours and over before their end: nobody is told at all. What was tried before an
incident was over is not tried again; that it is over is told to everybody who may have heard of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.db.models import Q

from apps.access.models import User
from apps.access.services import record
from apps.alerts.errors import NoticeNotEnded
from apps.alerts.models import Channel, Incident, Notice
from apps.alerts.querysets import NoticeQuerySet
from apps.alerts.states import NoticeKind, NoticeProblem, NoticeState
from apps.runtime.deferral import defer
from yardkit import topology

RECOVERED: Final = NoticeKind.RECOVERED
SEND_TASK: Final = "alerts.send_notices"
# Tests belong to no incident, with which the others are deleted.
KEEP_TESTS: Final = timedelta(days=30)


@transaction.atomic
def tell(
    *,
    incident: Incident,
    kind: NoticeKind,
    channels: Sequence[str],
    now: datetime,
    not_before: datetime | None = None,
) -> list[Notice]:
    """Write down what goes out by these channels; call it with the change of the incident.

    ``channels``: names; the project's channel of that name is taken, else the platform's. A name
    without a channel gives a notice that says so. ``not_before``: the end of quiet hours.
    """
    found = _channels(incident.project_id, channels)
    if kind == NoticeKind.RECOVERED:
        channels = _those_who_heard(incident, channels, now)
    written = [
        _write(
            Notice(project_id=incident.project_id, incident=incident, kind=kind, created_at=now),
            channel=found.get(name),
            name=name,
            now=now,
            not_before=not_before,
        )
        for name in dict.fromkeys(channels)
    ]
    _wake(each for each in written if each.state == NoticeState.WAITING and not each.not_before)
    return written


def channels_told(incident: Incident) -> list[str]:
    """Names of the channels that have heard of it, or may have; for its recovery."""
    heard = _tried(Notice.objects.filter(incident=incident))
    return list(heard.order_by("channel_name").values_list("channel_name", flat=True).distinct())


def drop_waiting(incident: Incident) -> int:
    """Do not send what waits of it: a person has it in hand; how many.

    What a person has sent again stays.
    """
    return _drop(Notice.objects.filter(incident=incident, resent_of=None))


def drop_held_escalations(incident: Incident, *, now: datetime) -> int:
    """Of what quiet hours hold of it only that it began goes out: somebody has it; how many."""
    held = Notice.objects.filter(incident=incident, kind=NoticeKind.ESCALATED, not_before__gt=now)
    return _drop(held)


@transaction.atomic
def send_again(*, notice: Notice, actor: User | None, now: datetime) -> Notice:
    """Send a notice that has ended once more, as a new one. Raises ``NoticeNotEnded``."""
    if notice.state == NoticeState.WAITING:
        raise NoticeNotEnded
    again = _write(
        Notice(
            project_id=notice.project_id,
            incident_id=notice.incident_id,
            kind=notice.kind,
            created_at=now,
            resent_of_id=notice.resent_of_id or notice.pk,
        ),
        # As names go now: whoever made a channel anew means that one.
        channel=_channels(notice.project_id, [notice.channel_name]).get(notice.channel_name),
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
    """Send a test by this channel, also by one that is switched off; it is tried once."""
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


def wake_senders(*, now: datetime) -> int:
    """Wake a worker for each channel with notices that are due; how many channels."""
    due = Notice.objects.due(now).exclude(channel=None).order_by("channel_id")
    found = list(due.values_list("channel_id", flat=True).distinct())
    for pk in found:
        defer(SEND_TASK, queue=topology.TASKS, channel=pk)
    return len(found)


def forget_notices(*, now: datetime) -> int:
    """Delete tests of long ago; how many."""
    old = Notice.objects.filter(incident=None, created_at__lt=now - KEEP_TESTS)
    return old.exclude(state=NoticeState.WAITING).delete()[0]


def _drop(notices: NoticeQuerySet[Notice]) -> int:
    waiting = notices.filter(state=NoticeState.WAITING)
    return waiting.update(state=NoticeState.DROPPED, next_try_at=None)


def _channels(project_id: int | None, names: Iterable[str]) -> dict[str, Channel]:
    """By name; what the project has goes before what the platform has."""
    own = Q(project=None) if project_id is None else Q(project=None) | Q(project=project_id)
    rows = Channel.objects.filter(own, name__in=set(names))
    return {each.name: each for each in sorted(rows, key=lambda row: row.project_id or 0)}


def _those_who_heard(incident: Incident, names: Sequence[str], now: datetime) -> list[str]:
    """Drop what quiet hours hold of it; the channels by which somebody may have heard."""
    told = Notice.objects.filter(incident=incident, channel_name__in=names)
    _drop(told.filter(attempts=0, next_try_at__gt=now))
    # One that came back may have been told of in its first days only, and of that its end, too.
    newest: dict[str, str] = dict(
        _tried(told).filter(resent_of=None).order_by("pk").values_list("channel_name", "kind")
    )
    return [name for name in names if newest.get(name, RECOVERED) != RECOVERED]


def _tried(notices: NoticeQuerySet[Notice]) -> NoticeQuerySet[Notice]:
    """Those that somebody may have got, or still may."""
    nowhere = Q(problem__in=(NoticeProblem.NO_CHANNEL, NoticeProblem.OFF), attempts=0)
    return notices.exclude(Q(state=NoticeState.DROPPED) | nowhere)


def _write(
    notice: Notice,
    *,
    channel: Channel | None,
    name: str,
    now: datetime,
    not_before: datetime | None = None,
) -> Notice:
    notice.channel, notice.channel_name = channel, name[:64]
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
    for pk in dict.fromkeys(each.channel_id for each in notices if each.channel_id is not None):
        defer(SEND_TASK, queue=topology.TASKS, channel=pk)
